package engine

import (
	"cmp"
	"errors"
	"slices"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// Generic requests have no contract that the operator accepted: what stands for one is made of the credential, whose owner allowed them, and of the class. It is made anew where it is needed,
// with the same digest each time, so that what was sent is matched under it for as long as it is open, also after the owner withdrew the leave.

// SetCredentials says which credentials there are, so that the engine knows which of them allow requests that no contract describes. The list of tools changes with it.
func (e *Engine) SetCredentials(all []vault.Credential) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.actions.Load()
	set := *old
	set.credentials = slices.SortedFunc(slices.Values(all), func(a, b vault.Credential) int { return cmp.Compare(a.Name, b.Name) })
	if set.offersGeneric() == old.offersGeneric() { // agents are told of a list that changed, and of nothing else about credentials
		e.actions.Store(&set)
		return
	}
	set.version++
	set.changed = make(chan struct{})
	set.listTools()
	e.actions.Store(&set)
	close(old.changed)
}

// offersGeneric says whether an agent can make generic requests at all.
func (s *actionSet) offersGeneric() bool {
	return slices.ContainsFunc(s.credentials, func(c vault.Credential) bool { return c.Generic })
}

// genericAction makes the action for one credential and class.
func genericAction(credential string, class execution.Class, retired bool) (*boundAction, error) {
	a, err := policy.GenericHTTP(credential, class)
	if err != nil {
		return nil, err
	}
	return bind(a, retired), nil
}

// genericReadings understands a generic call: first under what its credential allows now, or as what is wrong with it; then under what could be open from before.
func (e *Engine) genericReadings(q *request) []reading {
	method, target, named := policy.GenericTarget(q.Arguments)
	var covering []vault.Credential
	for _, c := range q.set.credentials {
		if target != nil && c.Allows(target) && (named == "" || c.Name == named) {
			covering = append(covering, c)
		}
	}
	var readings []reading
	add := func(credential string, class execution.Class, retired bool, wrong error) {
		a, err := genericAction(credential, class, retired)
		if err != nil {
			return // cannot happen: both classes are possible
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
		add("", execution.Irreversible, false, &policy.ArgumentError{Pointer: "/credential", Problem: "several credentials cover this URL", Remedy: e.nameThem(q, allowed)})
	case !q.set.offersGeneric():
		readings = append(readings, reading{err: errors.New("there is no such tool")})
	default:
		// What is wrong with the arguments themselves comes first.
		wrong := error(&policy.ArgumentError{Pointer: "/url", Problem: "no credential that allows requests of your own covers this URL", Remedy: "ask for another URL, or ask the person to allow it (`spctl credential change NAME --generic`)"})
		if a, err := genericAction("", execution.Irreversible, false); err == nil {
			if _, err := a.Prepare(q.Arguments); err != nil {
				wrong = err
			}
		}
		add("", execution.Irreversible, false, wrong)
	}
	for _, c := range covering {
		for _, class := range []execution.Class{execution.ReadOnly, execution.Irreversible} {
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
