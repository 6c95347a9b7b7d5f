package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/policy"
)

// Reader asks an upstream what it has to read. It is safe for concurrent use, and returns when ctx ends.
type Reader interface {
	Readable(ctx context.Context, name string) (upstream.Readable, error)
}

// sharedSet is what upstreams have for agents to read, beside tools. It is never changed.
type sharedSet struct {
	actions   map[string]*boundAction // by policy.SharedName
	resources []string                // upstreams whose resources are open, sorted
	prompts   []call.Prompt
}

// listTime is how long an agent's list waits for an upstream; others are not held up by it for longer.
const listTime = 10 * time.Second

// SetShared replaces what upstreams have for agents to read. What waits under something that is no longer so is withdrawn.
func (e *Engine) SetShared(actions []*policy.Action, prompts []call.Prompt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.actions.Load()
	set := *old
	set.shared = sharedSet{actions: map[string]*boundAction{}, prompts: slices.SortedFunc(slices.Values(prompts), func(a, b call.Prompt) int { return cmp.Compare(a.Name, b.Name) })}
	for _, a := range actions {
		b := bind(a, false)
		set.shared.actions[b.name] = b
		if m := a.Contract().MCP; m.Method == upstream.ReadResource {
			set.shared.resources = append(set.shared.resources, m.Upstream)
		}
	}
	slices.Sort(set.shared.resources)
	e.actions.Store(&set) // the list of tools is what it was, and so is who waits for its change
	for _, l := range e.liveOf(func(l *live) bool {
		was := old.shared.actions[l.x.Tool]
		now := set.shared.actions[l.x.Tool]
		return was != nil && (now == nil || now.digest != l.x.ContractDigest)
	}) {
		e.endLocked(l, execution.KindWithdrawn, api.CodeWithdrawn, "the person changed what is read of the upstream before it was sent")
	}
	if len(old.shared.actions)+len(set.shared.actions) > 0 {
		e.sharedChangedLocked()
	}
}

// ResourcesMayDiffer says that an upstream may have other resources now.
func (e *Engine) ResourcesMayDiffer() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.actions.Load().shared.resources) > 0 {
		e.sharedChangedLocked()
	}
}

func (e *Engine) sharedChangedLocked() {
	close(e.shared)
	e.shared = make(chan struct{})
}

// SharedChanged is closed when resources or prompts may be others, or another process may see them.
func (e *Engine) SharedChanged() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shared
}

// Shared says which kinds there are.
func (e *Engine) Shared() (resources, prompts bool) {
	s := &e.actions.Load().shared
	return len(s.resources) > 0, len(s.prompts) > 0
}

// Prompts lists what the operator accepted, in the words that were accepted: as with tools, everybody may read those.
func (e *Engine) Prompts(*peer.Identity) []call.Prompt { return e.actions.Load().shared.prompts }

// Resources asks the upstreams whose resources are open, for a process that has a session. What somebody has, and what it is called, is as good as a part of it; so nothing is asked for whoever may not read it, and
// nothing where each reading asks the person. No card is put up: clients list by themselves when they connect.
func (e *Engine) Resources(ctx context.Context, p *peer.Identity) (call.Resources, *call.Answer) {
	q := &request{Call: call.Call{Peer: p, Tool: "resources/list"}}
	if refused := e.enter(q); refused != nil {
		return call.Resources{}, refused
	}
	set := e.actions.Load()
	var out call.Resources
	leave := func(name, why string) {
		if out.LeftOut == nil {
			out.LeftOut = map[string]string{}
		}
		out.LeftOut[name] = why
	}
	var ask []string
	each := map[string]bool{}
	for _, name := range set.shared.resources {
		each[name] = e.asksEachTime(set.shared.actions[policy.SharedName(name, upstream.ReadResource)])
	}
	e.mu.Lock()
	locked, covered := e.locked, false
	for _, name := range set.shared.resources {
		a := set.shared.actions[policy.SharedName(name, upstream.ReadResource)]
		switch {
		case !e.coveredLocked(q.run, a.name, a.digest, nil):
			leave(name, "the person has not allowed this process to read it")
			continue
		case each[name]:
			leave(name, "the person is asked for each reading, so it is not listed; it can be read by its URI")
		case e.cfg.Reader == nil:
			leave(name, "it cannot be asked in this version")
		default:
			ask = append(ask, name)
		}
		covered = true
	}
	e.mu.Unlock()
	switch {
	case locked:
		a := refusal(api.CodeVaultLocked, "the vault is locked, so no resources are listed", "ask the person to unlock Singlepass, then list again", nil)
		return call.Resources{}, &a
	case !covered:
		a := refusal(api.CodeSessionNeeded, "the person has not allowed this process to act yet, so no resources are listed",
			"make a call or read a resource, about which the person is asked; then list again", nil)
		return call.Resources{}, &a
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	got, errs := make([]upstream.Readable, len(ask)), make([]error, len(ask))
	var asking sync.WaitGroup
	for i, name := range ask {
		asking.Go(func() { got[i], errs[i] = e.cfg.Reader.Readable(ctx, name) })
	}
	asking.Wait()
	for i, name := range ask {
		if errs[i] != nil {
			leave(name, errs[i].Error())
			continue
		}
		if got[i].Cut != "" {
			leave(name, got[i].Cut)
		}
		out.Resources = append(out.Resources, addressed(name, got[i].Resources)...)
		out.Templates = append(out.Templates, addressed(name, got[i].Templates)...)
	}
	return out, nil
}

// asksEachTime says whether the person is asked at each reading.
func (e *Engine) asksEachTime(a *boundAction) bool {
	c := a.Contract()
	if c.Approval.PerUse {
		return true
	}
	if c.Credential == "" {
		return false
	}
	cred, err := e.cfg.Vault.Credential(c.Credential)
	return err != nil || cred.PerUse
}

// addressed gives what an upstream has the URIs by which agents read it, and names that say whose it is.
func addressed(name string, all []upstream.Resource) []upstream.Resource {
	out := make([]upstream.Resource, 0, len(all))
	for _, r := range all {
		r.URI, r.Name = upstream.Address(name, r.URI), name+": "+r.Name
		if r.Title != "" {
			r.Title = name + ": " + r.Title
		}
		out = append(out, r)
	}
	return out
}

// address turns a call that reads something into one of the action that stands for it. One that names nothing of an upstream's is of no action.
func (q *request) address() {
	if q.Method == "" {
		return
	}
	name, what, ok := upstream.SplitAddress(q.Tool)
	member := "uri"
	if q.Method == upstream.GetPrompt {
		name, what, ok = upstream.SplitPromptName(q.Tool)
		member = "name"
	}
	q.Tool = q.Method
	if !ok {
		return
	}
	q.Tool = policy.SharedName(name, q.Method)
	quoted, err := json.Marshal(what)
	if err != nil {
		panic(err) // a string
	}
	b := append([]byte(`{"`+member+`":`), quoted...)
	if len(q.Arguments) > 0 {
		b = append(append(b, `,"arguments":`...), q.Arguments...)
	}
	q.Arguments = append(b, '}')
}

// forCall returns the contracts that a call can be of: for a reading what stands for it, and for everything else the tools'. No tool is called by the name of a reading.
func (s *actionSet) forCall(q *request) []*boundAction {
	if q.Method == "" {
		return s.forTool(q.Tool)
	}
	if a := s.shared.actions[q.Tool]; a != nil {
		return []*boundAction{a}
	}
	return nil
}

// inForce returns the action of an execution's tool, or nil.
func (s *actionSet) inForce(tool string) *boundAction {
	return cmp.Or(s.current[tool], s.shared.actions[tool])
}

// sharedCredentials says which credential each reading uses.
func (s *actionSet) sharedCredentials(into map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(s.shared.actions)) {
		if c := s.shared.actions[name].Contract().Credential; c != "" {
			into[name] = c
		}
	}
}

func noSuch(method string) (message, next string) {
	if method == upstream.GetPrompt {
		return "there is no prompt with this name", "list the prompts again"
	}
	return fmt.Sprintf("there is no resource with this URI; those of MCP servers begin with %s", upstream.Address("NAME", "")), "list the resources again"
}
