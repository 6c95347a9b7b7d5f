package execution

import (
	"errors"
	"fmt"
	"slices"
)

// ErrIllegal is wrapped by every error of Apply: the event is not possible in that state. A journal that holds such an event does not tell a true story.
var ErrIllegal = errors.New("illegal transition")

// Apply returns the execution after the event. It never changes its argument. The zero Execution takes only KindAccepted.
func Apply(x Execution, ev Event) (Execution, error) {
	if ev.Kind == KindAccepted {
		return accept(x, ev)
	}
	if x.State == "" {
		return x, fmt.Errorf("applying %s to execution %s: %w: it was never accepted", ev.Kind, ev.ID, ErrIllegal)
	}
	if ev.ID != x.ID {
		return x, fmt.Errorf("applying %s to execution %s: %w: the event belongs to %s", ev.Kind, x.ID, ErrIllegal, ev.ID)
	}
	next := x // what step changes in place it copies first
	if err := step(&next, ev); err != nil {
		return x, fmt.Errorf("applying %s to execution %s in state %s: %w", ev.Kind, x.ID, x.State, err)
	}
	if next.State != x.State {
		next.ChangedAt = ev.At
	}
	if ev.Finding != "" {
		next.check(ev)
	}
	return next, nil
}

// check keeps what somebody was asked and answered. A finding decides nothing by itself: the event that carries it does.
func (x *Execution) check(ev Event) {
	kept := x.Checks
	if len(kept) == MaxChecks {
		kept = kept[1:]
	}
	x.Checks = append(slices.Clip(kept), Check{At: ev.At, Finding: ev.Finding, Source: ev.Source, By: ev.By, Evidence: ev.Evidence, Reason: ev.Reason, Times: ev.Times})
}

func accept(x Execution, ev Event) (Execution, error) {
	if x.State != "" {
		return x, fmt.Errorf("accepting execution %s: %w: it exists already", ev.ID, ErrIllegal)
	}
	if ev.ID == "" || ev.Acceptance == nil {
		return x, fmt.Errorf("accepting execution %q: %w: id or acceptance is missing", ev.ID, ErrIllegal)
	}
	next := Execution{ID: ev.ID, Acceptance: *ev.Acceptance, State: Accepted, AcceptedAt: ev.At, ChangedAt: ev.At}
	if ev.Caller != nil {
		next.attach(*ev.Caller, ev)
	}
	return next, nil
}

// step changes x in place, but not what its slices hold, which it shares; on an error x is thrown away.
func step(x *Execution, ev Event) error {
	switch ev.Kind {
	case KindAttached:
		if ev.Caller == nil {
			return fmt.Errorf("%w: no caller", ErrIllegal)
		}
		x.attach(*ev.Caller, ev)
		return nil

	case KindAuthorized:
		if x.State != Accepted {
			return illegal("only an accepted execution can be authorized")
		}
		x.State, x.AuthorizedAt, x.AuthorizedBy = Authorized, ev.At, ev.By
		return nil

	case KindDispatched:
		return x.dispatch(ev)

	case KindSendFailed:
		if x.State == Dispatched && x.LastAttempt().Awaited() {
			return illegal("the target said that it took it")
		}
		if err := x.endAttempt(ev, NothingSent); err != nil {
			return err
		}
		// The proof covers this attempt only. What an earlier one did is as open as before.
		x.State = Authorized
		if x.InDoubt {
			x.State = Unknown
		}
		x.Reason = ev.Reason
		return nil

	case KindGaveUp:
		if x.State != Authorized || x.InDoubt {
			return illegal("only an authorized execution of which nothing was sent can be given up")
		}
		x.State, x.Outcome, x.Reason, x.Code = NotSent, NothingSent, ev.Reason, ev.Code
		return nil

	case KindObserved:
		return x.observe(ev)

	case KindAwaited:
		return x.await(ev)

	case KindUnknown:
		if err := x.endAttempt(ev, ""); err != nil {
			return err
		}
		x.State, x.Reason, x.InDoubt = Unknown, ev.Reason, true
		return nil

	case KindInconclusive:
		if x.State != Unknown && !x.Awaits() {
			return illegal("only an outcome that is unknown or awaited can be verified")
		}
		x.Reason = ev.Reason
		return nil

	case KindNotDone:
		if x.State != Unknown {
			return illegal("only an unknown outcome can be settled")
		}
		if x.LastAttempt().Awaited() && ev.Source != FromOperator {
			// It may have forgotten it since: that is no proof that it did nothing.
			return illegal("the target itself said that it took it, so that only the operator can say that it did nothing")
		}
		x.InDoubt, x.Source, x.Reason = false, ev.Source, ev.Reason
		x.State = NotDone
		if ev.Waiting {
			x.State = Authorized
		}
		return nil

	case KindDelivered:
		return x.deliver(ev)

	case KindDisputed:
		return x.dispute(ev)

	case KindRejected:
		if x.State != Accepted {
			return illegal("only an accepted execution can be rejected")
		}
		x.State, x.Code, x.Reason = Rejected, ev.Code, ev.Reason
		return nil

	case KindExpired, KindWithdrawn:
		// An execution whose earlier attempt is in doubt is unknown and not authorized, so nothing that was sent can expire.
		if x.State != Accepted && x.State != Authorized {
			return illegal("only what was not sent can expire or be withdrawn")
		}
		x.State = Expired
		if ev.Kind == KindWithdrawn {
			x.State = Withdrawn
		}
		x.Code, x.Reason = ev.Code, ev.Reason
		return nil

	case KindPruned:
		if x.State.Open() {
			return illegal("what is open is never pruned")
		}
		x.Pruned, x.Result, x.Callers, x.Attempts, x.Checks = true, "", nil, nil, nil
		return nil
	}
	return fmt.Errorf("%w: unknown kind of event", ErrIllegal)
}

func illegal(why string) error { return fmt.Errorf("%w: %s", ErrIllegal, why) }

func (x *Execution) attach(c Caller, ev Event) {
	if len(x.Callers) >= MaxCallers {
		x.Dropped++
		return
	}
	c.At = ev.At
	x.Callers = append(slices.Clip(x.Callers), c)
}

func (x *Execution) dispatch(ev Event) error {
	switch {
	case x.State == Authorized:
	case x.State == Unknown && (x.Class == Idempotent || x.Class == ReadOnly):
		// A recovery attempt: the target recognizes the key, or there is no effect to double.
	case x.State == Unknown:
		return illegal("an unknown outcome of class " + string(x.Class) + " is never sent again without proof that the first attempt did nothing")
	default:
		return illegal("only an authorized execution can be dispatched")
	}
	if ev.Attempt != len(x.Attempts)+1 {
		return fmt.Errorf("%w: attempt %d after %d attempts", ErrIllegal, ev.Attempt, len(x.Attempts))
	}
	x.State, x.Reason = Dispatched, ""
	x.Attempts = append(slices.Clip(x.Attempts), Attempt{Number: ev.Attempt, DispatchedAt: ev.At})
	if x.DispatchedAt.IsZero() {
		x.DispatchedAt = ev.At
	}
	return nil
}

// endAttempt closes the attempt in flight.
func (x *Execution) endAttempt(ev Event, o Outcome) error {
	if x.State != Dispatched {
		return illegal("no attempt is in flight")
	}
	if last := x.LastAttempt(); ev.Attempt != last.Number {
		return fmt.Errorf("%w: attempt %d ends while attempt %d is in flight", ErrIllegal, ev.Attempt, last.Number)
	}
	x.Attempts = slices.Clone(x.Attempts)
	last := &x.Attempts[len(x.Attempts)-1]
	last.EndedAt, last.Outcome, last.Reason = ev.At, o, ev.Reason
	return nil
}

// await notes that the target took the attempt in flight, which stays in flight.
func (x *Execution) await(ev Event) error {
	switch last := x.LastAttempt(); {
	case x.State != Dispatched: // first, since of what is over an outline has no class any more
		return illegal("no answer is awaited")
	case x.Class != StatusQuery:
		return illegal("only an action of class status_query has a way to ask for an outcome that is awaited")
	case last.Awaited():
		return illegal("no answer is awaited")
	case ev.Attempt != last.Number:
		return fmt.Errorf("%w: attempt %d was taken while attempt %d is in flight", ErrIllegal, ev.Attempt, last.Number)
	}
	x.Attempts = slices.Clone(x.Attempts)
	last := &x.Attempts[len(x.Attempts)-1]
	last.AwaitedSince, last.AskAfter = ev.At, ev.AskAfter
	x.TargetStatus, x.Reason = ev.Status, ev.Reason
	return nil
}

func (x *Execution) observe(ev Event) error {
	if ev.Outcome != Success && ev.Outcome != TargetError {
		return fmt.Errorf("%w: an observed outcome is success or target_error, not %q", ErrIllegal, ev.Outcome)
	}
	switch x.State {
	case Dispatched:
		if x.LastAttempt().Awaited() && (ev.Source == "" || ev.Source == FromTarget) {
			return illegal("the target's own answer was that it is not done")
		}
		if err := x.endAttempt(ev, ev.Outcome); err != nil {
			return err
		}
	case Unknown:
		if ev.Source == "" || ev.Source == FromTarget {
			return illegal("an unknown outcome needs a source that settles it: a late answer, a status query, a marker or the operator")
		}
	default:
		return illegal("no outcome is awaited")
	}
	x.State, x.Outcome, x.TargetStatus, x.CompletedAt = NotDelivered, ev.Outcome, ev.Status, ev.At
	x.Result, x.Reason, x.InDoubt, x.Source = ev.Result, ev.Reason, false, ev.Source
	return nil
}

func (x *Execution) deliver(ev Event) error {
	if !x.State.Completed() {
		return illegal("there is no result to deliver")
	}
	// A caller beyond MaxCallers is only counted, but its delivery counts like any other.
	x.Callers = slices.Clone(x.Callers)
	for i := range x.Callers {
		if x.Callers[i].Call == ev.Call {
			x.Callers[i].Delivered, x.Callers[i].Disputed = ev.Evidence, false
		}
	}
	if x.State == NotDelivered {
		x.State, x.DeliveredAt = Delivered, ev.At
	}
	return nil
}

func (x *Execution) dispute(ev Event) error {
	if x.State != Delivered {
		return illegal("nothing was delivered")
	}
	others := false
	x.Callers = slices.Clone(x.Callers)
	for i := range x.Callers {
		c := &x.Callers[i]
		switch {
		case c.Call == ev.Call:
			c.Disputed = true
		case c.Delivered != "" && !c.Disputed:
			others = true
		}
	}
	if !others {
		x.State = NotDelivered
	}
	return nil
}
