package engine_test

import (
	"context"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
)

// within answers the next card with a session of that scope and time.
func (r *rig) within(scope approval.Scope, lasts time.Duration) engineCard {
	r.t.Helper()
	c := r.card()
	d := approval.Decision{Answer: approval.ForRun, By: "operator", Scope: scope, For: lasts}
	if err := r.Answer(context.Background(), c.Card.ID, d); err != nil {
		r.t.Fatal(err)
	}
	return engineCard{c.Card.ID, c.Execution.Tool}
}

type engineCard struct{ id, tool string }

// asked reports whether the call waits for the person, whom it has say no.
func (r *rig) asked(a *agent, tool, arguments, key string) bool {
	r.t.Helper()
	done := r.begin(context.Background(), a, tool, arguments, key)
	select {
	case got := <-done:
		if got.State != execution.NotDelivered && got.State != execution.Delivered {
			r.t.Errorf("%s %s came to %+v", tool, arguments, got)
		}
		return false
	case c := <-r.anyCard():
		r.answer(c, approval.Deny)
		<-done
		return true
	}
}

func TestANarrowSessionCoversWhatTheCardShowedAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		scope             approval.Scope
		same, other, tool bool // is it asked about again: the same arguments, others, another action?
	}{
		{approval.ScopeRun, false, false, false},
		{approval.ScopeAction, false, false, true},
		{approval.ScopeArguments, false, true, true},
	} {
		t.Run(string(c.scope), func(t *testing.T) {
			r := newRig(t)
			a := newAgent("1")
			done := r.begin(context.Background(), a, "pay", `{"order":"1"}`, "first")
			r.within(c.scope, 0)
			<-done
			// A fresh key says "again, on purpose": the same effect as an intent of its own.
			if got := r.asked(a, "pay", `{"order":"1"}`, "second"); got != c.same {
				t.Errorf("the same arguments: asked %v", got)
			}
			if got := r.asked(a, "pay", `{"order":"2"}`, "third"); got != c.other {
				t.Errorf("other arguments: asked %v", got)
			}
			if got := r.asked(a, "look", `{"order":"1"}`, "fourth"); got != c.tool {
				t.Errorf("another action: asked %v", got)
			}
			if got := r.asked(newAgent("2"), "pay", `{"order":"1"}`, "fifth"); !got {
				t.Error("another process was not asked about")
			}
		})
	}
}

func TestANarrowSessionEndsWithTheContractThatTheCardShowed(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(context.Background(), a, "pay", `{"order":"1"}`)
	r.within(approval.ScopeAction, 0)
	<-done
	r.SetActions(append(r.actions[1:], contract(t, "pay", "irreversible", irreversible+"\n  after_delivery: new", "api", "session", inBinding)), nil)
	if !r.asked(a, "pay", `{"order":"2"}`, "k") {
		t.Error("the changed contract was not asked about")
	}
}

func TestASessionEndsWhenItsTimeIsUp(t *testing.T) {
	r := newRig(t, func(r *rig) { r.hold = make(chan struct{}) })
	a := newAgent("1")
	done := r.begin(context.Background(), a, "pay", `{"order":"1"}`)
	r.within(approval.ScopeRun, 15*time.Minute)
	<-done
	if r.asked(a, "pay", `{"order":"2"}`, "2") {
		t.Error("within its time it was asked about")
	}
	// What holds is the clock, whether or not the timer has said so.
	r.clock.add(15 * time.Minute)
	if !r.asked(a, "pay", `{"order":"3"}`, "3") {
		t.Error("past its time it was not asked about")
	}
	close(r.hold)
}

func TestOneOfSeveralSessionsIsRevokedByItsCard(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(context.Background(), a, "pay", `{"order":"1"}`)
	pay := r.within(approval.ScopeAction, 0)
	<-done
	done = r.begin(context.Background(), a, "look", `{"order":"1"}`)
	r.within(approval.ScopeAction, 0)
	<-done
	if n := len(r.Runs()[0].Sessions); n != 2 {
		t.Fatalf("the run has %d sessions", n)
	}
	if err := r.RevokeSession(pay.id, "operator"); err != nil {
		t.Fatal(err)
	}
	if !r.asked(a, "pay", `{"order":"2"}`, "k") || r.asked(a, "look", `{"order":"2"}`, "l") {
		t.Error("it was not the session of pay that ended")
	}
	if err := r.RevokeSession(pay.id, "operator"); err == nil {
		t.Error("it was revoked twice")
	}
}

func TestANarrowSessionReadsNothingOfOtherProcesses(t *testing.T) {
	r := newRig(t)
	first := newAgent("1")
	r.trust(first)
	r.call(context.Background(), first, "pay", `{"order":"1"}`, "shared")
	second := newAgent("2")
	done := r.begin(context.Background(), second, "look", `{"order":"9"}`)
	r.within(approval.ScopeAction, 0)
	<-done
	answer := r.Call(context.Background(), call.Call{Peer: second.Identity, Tool: "execution_status", Arguments: []byte(`{"intent_key":"shared"}`)})
	if answer.Code != api.CodeNotFound {
		t.Errorf("a process with a session for look only read %s", answer.Result)
	}
}
