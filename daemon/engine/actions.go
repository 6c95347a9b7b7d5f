package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

var errTwoKeys = errors.New("the call carries two different idempotency keys, in _meta and as intent_key; send one")

// boundAction is an accepted contract, compiled, with what the engine takes from it.
type boundAction struct {
	*policy.Action
	name         string
	digest       string
	retired      bool // withdrawn or replaced; kept for what it has open
	durable      bool
	attempts     int
	limits       channel.Limits
	statusLimits channel.Limits // of the request that asks what became of an execution
	private      bool           // the target's name may lead into a private network
	tool         call.Tool
}

func bind(a *policy.Action, retired bool) *boundAction {
	c := a.Contract()
	t := a.Tool()
	b := &boundAction{
		Action: a, name: c.Action, digest: c.Digest, retired: retired, durable: c.Replay.IntentScope == policy.ScopeDurable, attempts: max(1, c.Replay.Attempts),
		tool: call.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema, Annotations: t.Annotations},
	}
	if c.HTTP != nil {
		b.limits = channel.Limits{Connect: c.HTTP.Connect, Total: c.HTTP.Total, Answer: c.HTTP.MaxAnswer}
		b.private = c.HTTP.Private
	}
	if c.SSH != nil {
		b.limits = channel.Limits{Connect: c.SSH.Connect, Total: c.SSH.Total, Answer: c.SSH.MaxOutput}
	}
	if c.MCP != nil {
		b.limits = channel.Limits{Total: c.MCP.Total, Answer: c.MCP.MaxAnswer}
	}
	if s := c.Replay.Status; s != nil {
		b.statusLimits = channel.Limits{Connect: s.Connect, Total: s.Total, Answer: s.MaxAnswer}
	}
	return b
}

// actionSet is what is accepted now. It is never changed: a new one replaces it.
type actionSet struct {
	version  uint64
	current  map[string]*boundAction
	retired  map[string][]*boundAction
	proposed map[string]bool
	changed  chan struct{} // closed when the set is replaced
	tools    []call.Tool

	credentials []vault.Credential // by name
	shared      sharedSet
}

func newActionSet(version uint64) *actionSet {
	return &actionSet{version: version, current: map[string]*boundAction{}, retired: map[string][]*boundAction{}, proposed: map[string]bool{}, changed: make(chan struct{})}
}

// listTools makes the list that agents see.
func (s *actionSet) listTools() {
	s.tools = nil
	for _, name := range slices.Sorted(maps.Keys(ownTools)) {
		s.tools = append(s.tools, ownTools[name].Tool)
	}
	s.tools = append(s.tools, askAction().tool)
	for _, name := range s.offered() {
		if a, err := genericTools[name].action("", execution.Irreversible, false); err == nil {
			s.tools = append(s.tools, a.tool)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.current)) {
		s.tools = append(s.tools, s.current[name].tool)
	}
}

// forTool returns the contract in force and then the withdrawn ones.
func (s *actionSet) forTool(name string) []*boundAction {
	a, old := s.current[name], s.retired[name]
	if name == policy.AskTool {
		a = askAction()
	}
	switch {
	case a == nil:
		return old
	case len(old) == 0:
		return []*boundAction{a}
	}
	return append([]*boundAction{a}, old...)
}

// SetActions replaces the accepted contracts. What waits under a contract that is no longer in force is withdrawn; what was sent is matched under the contract that it was
// accepted with, which is why withdrawn ones are kept while they have something open.
//
// The names of proposed ones are known without being tools: a call of one is told that the person has not accepted it.
func (e *Engine) SetActions(current, retired []*policy.Action, proposed ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.actions.Load()
	set := newActionSet(old.version + 1)
	for _, name := range proposed {
		set.proposed[name] = true
	}
	for _, a := range current {
		b := bind(a, false)
		set.current[b.name] = b
	}
	for _, a := range retired {
		b := bind(a, true)
		set.retired[b.name] = append(set.retired[b.name], b)
	}
	set.credentials, set.shared = old.credentials, old.shared
	set.listTools()
	e.actions.Store(set)
	close(old.changed)
	for _, l := range e.liveOf(func(l *live) bool {
		b := set.inForce(l.x.Tool)
		if genericTools[l.x.Tool] != nil || l.x.Tool == policy.AskTool { // made of its credential, whose change withdraws it; the same for everybody
			return false
		}
		return b == nil || b.digest != l.x.ContractDigest
	}) {
		e.endLocked(l, execution.KindWithdrawn, api.CodeWithdrawn, "the action's contract was changed before it was sent")
	}
	e.endGrantsLocked(contractChanged, func(g approval.Standing) bool {
		b := set.current[g.Subject.Tool] // one that is withheld for now says nothing
		return b != nil && b.digest != g.Subject.ContractDigest
	})
}

// CredentialChanged withdraws what waits with a credential that was changed or removed.
func (e *Engine) CredentialChanged(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secrets.Add(1)
	for _, l := range e.liveOf(func(l *live) bool { return l.x.Credential == name }) {
		e.endLocked(l, execution.KindWithdrawn, api.CodeWithdrawn, "the credential was changed before it was sent")
	}
}

// OpenContracts returns the digests of the contracts that have something dispatched or unknown, so that they are kept.
func (e *Engine) OpenContracts() (map[string]bool, error) {
	out := map[string]bool{}
	// The live ones first: what is let go of meanwhile is in the records by then.
	e.mu.Lock()
	for _, l := range e.live {
		if l.x.State.Open() {
			out[l.x.ContractDigest] = true
		}
	}
	e.mu.Unlock()
	open, err := e.cfg.Records.Unfinished()
	if err != nil {
		return nil, err
	}
	for _, x := range open {
		out[x.ContractDigest] = true
	}
	return out, nil
}

// Tools lists what a peer may call.
func (e *Engine) Tools(*peer.Identity) (tools []call.Tool, version uint64) {
	s := e.actions.Load()
	return s.tools, s.version
}

// ToolsChanged is closed at the next change of the list.
func (e *Engine) ToolsChanged() <-chan struct{} { return e.actions.Load().changed }

// accept makes what the journal records when the call is accepted.
func (b *boundAction) accept(q *request, rd reading) (execution.Acceptance, []byte, error) {
	c, eff := b.Contract(), rd.effect
	encoded, err := eff.Encode()
	if err != nil {
		return execution.Acceptance{}, nil, err
	}
	digest := digestText(sha256.Sum256(encoded))
	raw := q.Arguments
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	p := make([]byte, 0, len(raw)+len(rd.prepared.Arguments)+len(encoded)+40)
	p = append(append(p, `{"raw":`...), raw...)
	p = append(append(p, `,"arguments":`...), rd.prepared.Arguments...)
	p = append(append(append(p, `,"effect":`...), encoded...), '}')
	return execution.Acceptance{
		Tool: c.Action, Action: c.Action, ContractDigest: c.Digest, Channel: string(c.Channel), Target: eff.Target(), Credential: c.Credential,
		Class: c.Replay.Class, Actor: q.Peer.Actor, ActorDigest: q.Peer.Agent.Digest, Run: q.run.id, Scope: rd.scope, Fingerprint: rd.fingerprint, EffectDigest: digest,
		AttachWindow: c.Replay.AttachWindow, AfterDelivery: c.Replay.AfterDelivery, KeyLifetime: c.Replay.KeyLifetime, Retention: c.Retention.Result,
	}, p, nil
}

// render makes the exact effect, with the place of the credential.
func (b *boundAction) render(p policy.Prepared, id string, cred, statusCred *vault.Credential, hosts pins) (effect.Effect, error) {
	eff, err := b.Render(p, id)
	if err != nil {
		return eff, err
	}
	hosts.into(eff.SSH)
	if cred != nil {
		eff.Auth = authOf(*cred)
	}
	if statusCred != nil {
		eff.Status.Auth = authOf(*statusCred)
	}
	return eff, nil
}

// authOf says where a credential of a kind goes.
func authOf(c vault.Credential) *effect.Auth {
	a := &effect.Auth{Credential: c.Name, Kind: string(c.Kind), Authorities: c.Params.Authorities}
	switch c.Kind {
	case vault.Bearer, vault.OAuth2:
		a.Place = "Authorization"
	case vault.AWS:
		a.Place, a.Region, a.Service = "Authorization", c.Params.Region, c.Params.Service
	case vault.Basic:
		a.Place, a.Username = "Authorization", c.Params.Username
	case vault.Header:
		a.Place = c.Params.Header
	case vault.Query:
		a.Place = c.Params.Query
	case vault.SSHKey:
		a.Certificate = c.Params.Certificate
	}
	return a
}

// addressesOf are the URLs that an effect goes to, which the credential's targets have to cover.
func addressesOf(e effect.Effect) []string {
	switch {
	case e.MCP != nil:
		return []string{e.MCP.URL}
	case e.SSH != nil && e.SSH.Jump != nil:
		return []string{e.SSH.Host.Address(), e.SSH.Jump.Address()}
	case e.SSH != nil:
		return []string{e.SSH.Host.Address()}
	}
	return []string{e.HTTP.URL}
}

// bindingAllows checks final URLs against the credential's targets.
func bindingAllows(c vault.Credential, rawURLs ...string) error {
	for _, rawURL := range rawURLs {
		u, err := url.Parse(rawURL)
		if err != nil {
			return fmt.Errorf("reading the target's URL: %w", err)
		}
		if c.Allows(u) {
			continue
		}
		host := u.Host
		if u.Scheme == "ssh" {
			host = u.User.String() + "@" + host
		}
		return fmt.Errorf("the credential %q may not be used for %s://%s%s", c.Name, u.Scheme, host, strings.TrimSuffix(u.EscapedPath(), "?"))
	}
	return nil
}

// argumentMessage is what an agent reads when its arguments are not valid.
func argumentMessage(err error) string {
	var in *policy.ArgumentError
	if errors.As(err, &in) {
		return in.Error()
	}
	return err.Error()
}
