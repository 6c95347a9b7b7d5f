package execution

import "strings"

// Outline is what decides which events may still come to an execution that is not open: a small part of an Execution, for whoever follows a million of them and asks of
// each only whether its story is possible.
type Outline struct {
	state State
	calls []outlined
}

// outlined is what a dispute looks at of a caller.
type outlined struct {
	call                string
	delivered, disputed bool
}

// Outline returns the outline of an execution that is not open, and false for one that is: what may come to that depends on all of it.
func (x *Execution) Outline() (Outline, bool) {
	if x.State == "" || x.State.Open() {
		return Outline{}, false
	}
	o := Outline{state: x.State}
	if !x.State.Completed() || len(x.Callers) == 0 {
		return o, true
	}
	o.calls = make([]outlined, len(x.Callers))
	for i, c := range x.Callers {
		// Cloned, or it would keep the whole event that it is a part of.
		o.calls[i] = outlined{call: strings.Clone(c.Call), delivered: c.Delivered != "", disputed: c.Disputed}
	}
	return o, true
}

// Execution returns an execution with that id to which Apply lets come exactly what it lets come to the one that was outlined. It is good for nothing else.
func (o Outline) Execution(id string) Execution {
	x := Execution{ID: id, State: o.state}
	if len(o.calls) > 0 {
		x.Callers = make([]Caller, len(o.calls))
	}
	for i, c := range o.calls {
		x.Callers[i] = Caller{Call: c.call, Disputed: c.disputed}
		if c.delivered {
			x.Callers[i].Delivered = "outlined"
		}
	}
	return x
}
