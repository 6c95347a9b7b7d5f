package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
)

var background = context.Background()

func lost(int, channel.Request) channel.Outcome {
	return channel.Outcome{Verdict: channel.Unknown, Reason: "the connection broke after the request was sent"}
}

func TestALostAnswerIsHandedOutAgainByteForByteAndNothingIsSentTwice(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	first := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(first, "", 1)
	if first.Recorded {
		t.Error("the first answer says that it is recorded")
	}
	// Nobody said that it was delivered: the connection is gone, and the agent calls again, with its arguments spelt differently.
	again := r.call(background, a, "pay", ` {"amount":5.0, "order":"\u0037"} `)
	r.want(again, "", 1)
	if !again.Recorded || again.ExecutionID != first.ExecutionID || !bytes.Equal(again.Result, first.Result) {
		t.Errorf("the retry got\n%s (%s, recorded %v)\nand the first\n%s (%s)", again.Result, again.ExecutionID, again.Recorded, first.Result, first.ExecutionID)
	}
}

func TestARecordedResultSurvivesTheDaemonByteForByte(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	first := r.call(background, a, "pay", `{"order":"7"}`)
	r.restart()
	r.trust(a)
	again := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(again, "", 0)
	if !again.Recorded || !bytes.Equal(again.Result, first.Result) {
		t.Errorf("after a restart the retry got %s, and the first %s", again.Result, first.Result)
	}
}

func TestDispatchedIsDurableBeforeTheFirstByte(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.before = func(q channel.Request) {
		r.records.Settle()
		x, ok, err := r.records.Find(q.ExecutionID)
		if err != nil || !ok || x.State != execution.Dispatched || x.LastAttempt().Number != q.Attempt {
			t.Errorf("the target is asked while the records say %q (%v, %v)", x.State, ok, err)
		}
	}
	for i := range 20 {
		r.want(r.call(background, a, "pay", fmt.Sprintf(`{"order":"%d"}`, i)), "", i+1)
	}
}

func TestOfRacingIdenticalCallsExactlyOneDispatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	rounds := 60
	if testing.Short() {
		rounds = 5
	}
	const callers = 64
	for round := range rounds {
		start := make(chan struct{})
		answers := make([]call.Answer, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				<-start
				answers[i] = r.call(background, a, "pay", fmt.Sprintf(`{"order":"race %d"}`, round))
			})
		}
		close(start)
		wg.Wait()
		fresh := 0
		for _, got := range answers {
			if got.Code != "" || got.ExecutionID != answers[0].ExecutionID || !bytes.Equal(got.Result, answers[0].Result) {
				t.Fatalf("round %d: an answer differs: %s %s", round, got.Code, got.Result)
			}
			if !got.Recorded {
				fresh++
			}
		}
		if fresh != 1 || r.target.effects() != round+1 {
			t.Fatalf("round %d: %d dispatchers and %d effects", round, fresh, r.target.effects())
		}
	}
}

func TestTwoIntentsAreTwoEffects(t *testing.T) {
	r := newRig(t)
	one, two := newAgent("1"), newAgent("2")
	r.trust(one)
	r.trust(two)
	r.want(r.call(background, one, "pay", `{"order":"7"}`), "", 1)
	r.want(r.call(background, two, "pay", `{"order":"7"}`), "", 2) // another process
	r.want(r.call(background, one, "pay", `{"order":"8"}`), "", 3) // the same request id, other arguments
	r.want(r.call(background, one, "pay", `{"order":"7"}`, "again-on-purpose-1"), "", 4)
	r.want(r.call(background, one, "pay", `{"order":"7"}`, "again-on-purpose-2"), "", 5)
}

func TestACallerThatLeavesNeverTouchesTheEffect(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	asked, release := make(chan struct{}), make(chan struct{})
	r.target.answer = func(n int, _ channel.Request) channel.Outcome {
		close(asked)
		<-release
		return success(n)
	}
	ctx, cancel := context.WithCancel(background)
	done := r.begin(ctx, a, "pay", `{"order":"7"}`)
	<-asked
	cancel()
	if got := <-done; got.Result != nil {
		t.Errorf("a caller that left got %s", got.Result)
	}
	again := r.begin(background, a, "pay", `{"order":"7"}`)
	close(release)
	got := <-again
	r.want(got, "", 1)
	if !got.Recorded {
		t.Error("the retry was not told that the result is recorded")
	}
}

func TestACallerThatLeavesBeforeTheApprovalMeansThatNothingIsSent(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	ctx, cancel := context.WithCancel(background)
	done := r.begin(ctx, a, "pay", `{"order":"7"}`)
	c := r.card()
	cancel()
	<-done
	r.answer(c, approval.ForRun)
	x := r.until(c.Execution.ID, execution.Authorized)
	if r.target.effects() != 0 {
		t.Fatal("it was sent although nobody waits for it")
	}
	// The retry attaches to what was approved, and is not asked about again.
	got := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.ExecutionID != x.ID {
		t.Errorf("the retry made %s of %s", got.ExecutionID, x.ID)
	}
}

func TestAnUnknownOutcomeIsNeitherSentAgainNorInvented(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	for range 3 {
		got := r.call(background, a, "pay", `{"order":"7"}`)
		r.want(got, "", 1)
		if got.State != execution.Unknown || !bytes.Contains(got.Result, []byte(`"waiting_for":"verification"`)) || bytes.Contains(got.Result, []byte(`"isError":true`)) {
			t.Fatalf("got %s: %s", got.State, got.Result)
		}
	}
	// It does not expire, and a restart does not change it.
	r.clock.add(1000 * time.Hour)
	r.restart()
	r.trust(a)
	got := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(got, "", 0)
	if got.State != execution.Unknown {
		t.Errorf("after a restart it is %s", got.State)
	}
}

func TestTheOperatorsVerdictDoneIsTheResult(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	id := r.call(background, a, "pay", `{"order":"7"}`).ExecutionID
	if _, err := r.Settle(background, id, engine.Verdict{Done: true, Note: "seen in the bank's list"}, "operator"); err != nil {
		t.Fatal(err)
	}
	got := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(got, "", 1)
	if !got.Recorded || got.State != execution.NotDelivered || !bytes.Contains(got.Result, []byte("operator established")) {
		t.Errorf("got %s: %s", got.State, got.Result)
	}
	if _, err := r.Settle(background, id, engine.Verdict{Done: false}, "operator"); err == nil {
		t.Error("a verdict was taken twice")
	}
}

func TestTheOperatorsVerdictNotDoneAllowsANewExecutionAndSendsNothingByItself(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	id := r.call(background, a, "pay", `{"order":"7"}`).ExecutionID
	if x, err := r.Settle(background, id, engine.Verdict{Done: false}, "operator"); err != nil || x.State != execution.NotDone {
		t.Fatalf("%s, %v", x.State, err)
	}
	if r.target.effects() != 1 {
		t.Fatal("the verdict sent something")
	}
	r.target.answer = nil
	got := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(got, "", 2)
	if got.ExecutionID == id {
		t.Error("the old execution was used again")
	}
}

func TestAnIdempotentTargetIsAskedAgainUnderTheSameKey(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		if n == 1 {
			return lost(n, q)
		}
		return success(n)
	}
	got := r.call(background, a, "release", `{"order":"7"}`)
	r.want(got, "", 2) // two requests, one key, so one effect
	keys := map[string]bool{}
	for _, q := range r.target.ledger {
		for _, f := range q.Effect.HTTP.Header {
			if f.Name == "Idempotency-Key" {
				keys[f.Value] = true
			}
		}
	}
	if len(keys) != 1 || !keys[got.ExecutionID] {
		t.Errorf("the keys are %v, and the execution is %s", keys, got.ExecutionID)
	}
	x, _, _ := r.Execution(got.ExecutionID)
	if len(x.Attempts) != 2 || x.InDoubt {
		t.Errorf("%d attempts, in doubt %v", len(x.Attempts), x.InDoubt)
	}
}

func TestARetryAfterARestartRecoversAnIdempotentExecutionFromWhatWasSealed(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	first := r.call(background, a, "release", `{"order":"7"}`)
	if first.State != execution.Unknown {
		t.Fatalf("got %s", first.State)
	}
	r.restart()
	r.trust(a)
	r.target.answer = nil
	got := r.call(background, a, "release", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.ExecutionID != first.ExecutionID || string(r.target.ledger[0].Effect.HTTP.Body) == "" {
		t.Errorf("the retry became %s of %s", got.ExecutionID, first.ExecutionID)
	}
	// The key's life is over: from now on a lost answer is like that of an irreversible action.
	r.target.answer = lost
	second := r.call(background, a, "release", `{"order":"8"}`)
	sent := r.target.effects()
	r.clock.add(25 * time.Hour)
	late := r.call(background, a, "release", `{"order":"8"}`)
	r.want(late, "", sent)
	if late.ExecutionID != second.ExecutionID || late.State != execution.Unknown {
		t.Errorf("after the key's life: %s %s", late.ExecutionID, late.State)
	}
}

func TestAnAttemptThatCameToNothingIsNotMadeAgainForASessionThatWasRevokedMeanwhile(t *testing.T) {
	for tool, c := range map[string]struct {
		verdict channel.Verdict
		code    api.Code
		state   execution.State
	}{
		"pay":     {channel.NotSent, api.CodeNotSent, execution.NotSent},
		"release": {channel.Unknown, "", execution.Unknown},
	} {
		t.Run(tool, func(t *testing.T) {
			r := newRig(t)
			a := newAgent("1")
			r.trust(a)
			r.target.answer = func(int, channel.Request) channel.Outcome {
				if err := r.RevokeSession(a.Run, "operator"); err != nil {
					t.Error(err)
				}
				return channel.Outcome{Verdict: c.verdict, Reason: "the connection broke"}
			}
			got := r.call(background, a, tool, `{"order":"1"}`)
			r.want(got, c.code, 1)
			if got.State != c.state {
				t.Errorf("it is %s", got.State)
			}
			if c.state != execution.Unknown {
				return
			}
			// Nor for a repeat of the call, until the person has let the run act again.
			r.target.answer = nil
			again := r.call(background, a, tool, `{"order":"1"}`)
			r.want(again, "", 1)
			if again.ExecutionID != got.ExecutionID || again.State != execution.Unknown {
				t.Errorf("its repeat is %s of %s", again.State, again.ExecutionID)
			}
			r.trust(a)
			if again = r.call(background, a, tool, `{"order":"1"}`); again.ExecutionID != got.ExecutionID || again.State != execution.NotDelivered {
				t.Errorf("after a new session its repeat is %s of %s", again.State, again.ExecutionID)
			}
		})
	}
}

func TestWhatProvablyWasNotSentIsTriedAgainAndThenGivenUp(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = func(n int, _ channel.Request) channel.Outcome {
		return channel.Outcome{Verdict: channel.NotSent, Reason: "connection refused"}
	}
	got := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(got, api.CodeNotSent, 3)
	x, _, _ := r.Execution(got.ExecutionID)
	if x.State != execution.NotSent || x.InDoubt {
		t.Errorf("it is %s", x.State)
	}
	r.target.answer = nil
	r.want(r.call(background, a, "pay", `{"order":"7"}`), "", 4)
}

func TestAReadIsSentAgainAndNeverAnsweredFromTheRecord(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	for i := range 3 {
		got := r.call(background, a, "look", `{"order":"7"}`)
		r.want(got, "", i+1)
		if got.Recorded {
			t.Error("a read was answered from the record")
		}
	}
}
