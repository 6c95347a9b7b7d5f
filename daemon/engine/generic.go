package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// Generic requests and commands have no contract that the operator accepted: what stands for one is made of the credential, whose owner allowed them, and of the class. It is made anew where it is needed,
// with the same digest each time, so that what was sent is matched under it for as long as it is open, also after the owner withdrew the leave.

// SetCredentials says which credentials there are, so that the engine knows which of them allow what no contract describes. The list of tools changes with it.
func (e *Engine) SetCredentials(all []vault.Credential) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.actions.Load()
	set := *old
	set.credentials = slices.SortedFunc(slices.Values(all), func(a, b vault.Credential) int { return cmp.Compare(a.Name, b.Name) })
	if slices.Equal(set.offered(), old.offered()) { // agents are told of a list that changed, and of nothing else about credentials
		e.actions.Store(&set)
		return
	}
	set.version++
	set.changed = make(chan struct{})
	set.listTools()
	e.actions.Store(&set)
	close(old.changed)
}

// genericTool is what differs between the tools for what no contract describes.
type genericTool struct {
	scheme   func(string) bool // of the targets that it can go to
	classes  []execution.Class
	make     func(credential string, class execution.Class) (*policy.Action, error)
	argument string // that says where it goes
	what     string // it goes to
	own      string // what the agent makes of its own
}

var genericTools = map[string]*genericTool{
	policy.GenericHTTPTool: {
		scheme: func(s string) bool { return s == "https" || s == "http" }, classes: []execution.Class{execution.ReadOnly, execution.Irreversible}, make: policy.GenericHTTP,
		argument: "/url", what: "URL", own: "requests",
	},
	policy.GenericSSHTool: {
		scheme: func(s string) bool { return s == "ssh" }, classes: []execution.Class{execution.Irreversible},
		make: func(credential string, _ execution.Class) (*policy.Action, error) {
			return policy.GenericSSH(credential)
		},
		argument: "/host", what: "account", own: "commands",
	},
}

// offered names the generic tools that an agent has, sorted.
func (s *actionSet) offered() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(genericTools)) {
		if slices.ContainsFunc(s.credentials, func(c vault.Credential) bool {
			return c.Generic && slices.ContainsFunc(c.Targets, func(t vault.Target) bool { return genericTools[name].scheme(t.Scheme) })
		}) {
			names = append(names, name)
		}
	}
	return names
}

// action makes the action for one credential and class.
func (g *genericTool) action(credential string, class execution.Class, retired bool) (*boundAction, error) {
	a, err := g.make(credential, class)
	if err != nil {
		return nil, err
	}
	return bind(a, retired), nil
}

// genericReadings understands a generic call: first under what its credential allows now, or as what is wrong with it; then under what could be open from before.
func (e *Engine) genericReadings(q *request, g *genericTool) []reading {
	method, target, named := policy.GenericTarget(q.Tool, q.Arguments)
	var covering []vault.Credential
	for _, c := range q.set.credentials {
		if target != nil && c.Allows(target) && (named == "" || c.Name == named) {
			covering = append(covering, c)
		}
	}
	var readings []reading
	add := func(credential string, class execution.Class, retired bool, wrong error) {
		a, err := g.action(credential, class, retired)
		if err != nil {
			return // cannot happen: only classes that are possible are asked for
		}
		rd := reading{action: a}
		if rd.err = wrong; wrong == nil {
			if rd.err = e.understand(q, &rd); rd.err == nil && !retired && rd.cred != nil && (!rd.cred.Generic || class == execution.ReadOnly && !rd.cred.GenericReads) {
				rd.err = &policy.ArgumentError{Pointer: "/credential", Problem: "the person has changed meanwhile what the credential allows", Remedy: "call again"}
			}
		}
		readings = append(readings, rd)
	}
	allowed := slices.DeleteFunc(slices.Clone(covering), func(c vault.Credential) bool { return !c.Generic })
	current := execution.Class("")
	switch {
	case len(allowed) == 1:
		current = execution.Irreversible
		if allowed[0].GenericReads && (method == "GET" || method == "HEAD") {
			current = execution.ReadOnly
		}
		add(allowed[0].Name, current, false, nil)
	case len(allowed) > 1:
		add("", execution.Irreversible, false, &policy.ArgumentError{Pointer: "/credential", Problem: "several credentials cover this " + g.what, Remedy: e.nameThem(q, allowed)})
	case !slices.Contains(q.set.offered(), q.Tool):
		readings = append(readings, reading{err: errors.New("there is no such tool")})
	default:
		// What is wrong with the arguments themselves comes first.
		wrong := error(&policy.ArgumentError{
			Pointer: g.argument, Problem: "no credential that allows " + g.own + " of your own covers this " + g.what,
			Remedy: "ask for another " + g.what + ", or ask the person to allow it (`spctl credential change NAME --generic`)",
		})
		if a, err := g.action("", execution.Irreversible, false); err == nil {
			if _, err := a.Prepare(q.Arguments); err != nil {
				wrong = err
			}
		}
		add("", execution.Irreversible, false, wrong)
	}
	for _, c := range covering {
		for _, class := range g.classes {
			if len(allowed) != 1 || c.Name != allowed[0].Name || class != current {
				add(c.Name, class, true, nil)
			}
		}
	}
	return readings
}

// nameThem tells which credentials there are to choose from. Their names say what a person has accounts for, so only a run with a session reads them.
func (e *Engine) nameThem(q *request, allowed []vault.Credential) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if q.run == nil || !e.wholeLocked(q.run) {
		return "name one of them as credential; a process that the person has allowed to act is told their names"
	}
	text := "send credential as one of"
	for i, c := range allowed {
		if i > 0 {
			text += ","
		}
		text += " " + c.Name
	}
	return text
}
