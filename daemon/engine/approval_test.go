package engine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
)

func TestANewRunIsAskedAboutAndASessionLetsItsOtherCallsThrough(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	one := r.begin(background, a, "pay", `{"order":"1"}`)
	c := r.card()
	if c.Card.Question != approval.AskSession || c.Effect == nil || c.Effect.HTTP.URL != inBinding || c.Execution.State != execution.Accepted {
		t.Errorf("the card is %+v", c)
	}
	two := r.begin(background, a, "pay", `{"order":"2"}`)
	r.waitCards(2)
	r.answer(c, approval.ForRun)
	for _, done := range []<-chan call.Answer{one, two} {
		if got := <-done; got.Code != "" {
			t.Errorf("refused: %s", got.Result)
		}
	}
	if n := r.target.effects(); n != 2 {
		t.Errorf("%d effects", n)
	}
	if n := len(r.Cards()); n != 0 {
		t.Errorf("%d cards are left", n)
	}
}

func TestOnceIsForOneExecutionOnly(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	r.answer(r.card(), approval.Once)
	r.want(<-done, "", 1)
	ctx, cancel := context.WithCancel(background)
	next := r.begin(ctx, a, "pay", `{"order":"2"}`)
	if c := r.card(); c.Card.Question != approval.AskSession {
		t.Errorf("the second call asks for %s", c.Card.Question)
	}
	cancel()
	<-next
}

func TestPerUseAsksEachTimeAndOneCardSettlesBoth(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "charge", `{"order":"1"}`)
	c := r.card()
	if c.Card.Question != approval.AskSessionAndUse {
		t.Errorf("the card asks for %s", c.Card.Question)
	}
	r.answer(c, approval.ForRun)
	r.want(<-done, "", 1)
	done = r.begin(background, a, "charge", `{"order":"2"}`)
	c = r.card()
	if c.Card.Question != approval.AskUse {
		t.Errorf("the second card asks for %s", c.Card.Question)
	}
	if err := r.Answer(background, c.Card.ID, approval.Decision{Answer: approval.ForRun, By: "operator"}); err == nil {
		t.Error("a session was given where each use is asked about")
	}
	r.answer(c, approval.Once)
	r.want(<-done, "", 2)
}

func TestADenialReachesTheAgentWithItsReasonAndARetryBringsNoNewCard(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	r.answer(r.card(), approval.Deny, "not on a Friday")
	got := <-done
	r.want(got, api.CodeDenied, 0)
	if !bytes.Contains(got.Result, []byte("not on a Friday")) || !bytes.Contains(got.Result, []byte(`"isError":true`)) {
		t.Errorf("the agent reads %s", got.Result)
	}
	again := r.call(background, a, "pay", `{"order":"1"}`)
	r.want(again, api.CodeDenied, 0)
	if again.ExecutionID != got.ExecutionID || len(r.Cards()) != 0 {
		t.Errorf("the retry made %s and %d cards", again.ExecutionID, len(r.Cards()))
	}
}

func TestADeliveredResultIsAskedAboutBeforeItRunsAgain(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	first := r.call(background, a, "pay", `{"order":"1"}`)
	first.Delivered("pipe drained")
	r.until(first.ExecutionID, execution.Delivered)

	done := r.begin(background, a, "pay", `{"order":"1"}`)
	c := r.card()
	if c.Card.Question != approval.AskAgain || c.Earlier == nil || c.Earlier.ID != first.ExecutionID {
		t.Fatalf("the card is %+v", c)
	}
	r.answer(c, approval.Recorded)
	got := <-done
	r.want(got, "", 1)
	if !got.Recorded || got.ExecutionID != first.ExecutionID || !bytes.Equal(got.Result, first.Result) {
		t.Errorf("got %s %s", got.ExecutionID, got.Result)
	}
	// The person chose; the same repeat is not asked about again.
	got = r.call(background, a, "pay", `{"order":"1"}`)
	r.want(got, "", 1)
	if !got.Recorded {
		t.Error("the second repeat is not recorded")
	}
}

func TestRunAgainIsASecondEffectOnPurpose(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	first := r.call(background, a, "pay", `{"order":"1"}`)
	first.Delivered("pipe drained")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	r.answer(r.card(), approval.Once)
	got := <-done
	r.want(got, "", 2)
	x, _, _ := r.Execution(got.ExecutionID)
	if x.Again != first.ExecutionID {
		t.Errorf("it does not say what it repeats: %q", x.Again)
	}
}

func TestADisputedDeliveryIsHandedOutAgain(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	first := r.call(background, a, "pay", `{"order":"1"}`)
	first.Delivered("pipe drained")
	first.Disputed()
	r.until(first.ExecutionID, execution.NotDelivered)
	got := r.call(background, a, "pay", `{"order":"1"}`)
	r.want(got, "", 1)
	if !got.Recorded {
		t.Error("the retry is not recorded")
	}
}

func TestAKeySurvivesTheAgentAndIsAlwaysReturned(t *testing.T) {
	r := newRig(t)
	one := newAgent("1")
	r.trust(one)
	first := r.call(background, one, "pay", `{"order":"1"}`, "key-1")
	first.Delivered("pipe drained")
	close(one.ended)

	two := newAgent("2")
	// The result of another run's execution goes only to a run that has a session.
	done := r.begin(background, two, "pay", `{"order":"1","intent_key":"key-1"}`)
	c := r.card()
	if c.Card.Question != approval.AskSession || c.Execution != nil || c.Earlier.ID != first.ExecutionID {
		t.Errorf("the card is %+v", c)
	}
	r.answer(c, approval.ForRun)
	got := <-done
	r.want(got, "", 1)
	if !got.Recorded || !bytes.Equal(got.Result, first.Result) {
		t.Errorf("got %s", got.Result)
	}
	r.clock.add(100 * time.Hour)
	r.want(r.call(background, two, "pay", `{"order":"1"}`, "key-1"), "", 1)
	r.want(r.call(background, two, "pay", `{"order":"2"}`, "key-1"), api.CodeKeyReused, 1)
	r.want(r.call(background, two, "pay", `{"order":"1","intent_key":"key-2"}`, "key-1"), api.CodeArguments, 1)
}

func TestADurableScopeMatchesAcrossRuns(t *testing.T) {
	r := newRig(t)
	one, two := newAgent("1"), newAgent("2")
	r.trust(one)
	r.trust(two)
	r.target.answer = lost
	first := r.call(background, one, "rotate", `{"order":"1"}`)
	got := r.call(background, two, "rotate", `{"order":"1"}`)
	r.want(got, "", 1)
	if got.ExecutionID != first.ExecutionID || got.State != execution.Unknown {
		t.Errorf("got %s %s", got.ExecutionID, got.State)
	}
}

func TestEachRefusalHasItsCodeIsRecordedAndSendsNothing(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	for _, c := range []struct {
		tool, arguments string
		code            api.Code
	}{
		{"no_such_tool", `{}`, api.CodeActionUnknown},
		{"pay", `{"amount":5}`, api.CodeArguments},
		{"pay", `{"order":"1","amount":"5"}`, api.CodeArguments},
		{"pay", `{"order":"1","order":"2"}`, api.CodeArguments},
		{"pay", `{"order":"1","amount":9007199254740993}`, api.CodeArguments},
		{"pay", `{"order":"\ud800"}`, api.CodeArguments},
		{"pay", `[1]`, api.CodeArguments},
		{"elsewhere", `{"order":"1"}`, api.CodeTargetNotBound},
		{"keyless", `{"order":"1"}`, api.CodeCredentialMissing},
		{"execution_status", `{"execution_id":"act_nothing"}`, api.CodeNotFound},
		{"execution_status", `{}`, api.CodeArguments},
	} {
		r.want(r.call(background, a, c.tool, c.arguments), c.code, 0)
	}
	r.lock()
	r.want(r.call(background, a, "pay", `{"order":"1"}`), api.CodeVaultLocked, 0)
	refused := 0
	for _, k := range r.kinds() {
		if k == "call_refused" {
			refused++
		}
	}
	if refused != 10 { // the two of execution_status ask for nothing that could be sent
		t.Errorf("%d refusals are recorded", refused)
	}
}

func TestALockedDenialNamesWhatTheRunHasOpen(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	id := r.call(background, a, "pay", `{"order":"1"}`).ExecutionID
	r.lock()
	got := r.call(background, a, "pay", `{"order":"1"}`)
	r.want(got, api.CodeVaultLocked, 1)
	if !bytes.Contains(got.Result, []byte(id)) || !bytes.Contains(got.Result, []byte(`"state":"unknown"`)) {
		t.Errorf("the denial says %s", got.Result)
	}
}

func TestALockVoidsWhatWaitsAndTheNextCardSaysSo(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	c := r.card()
	r.lock()
	r.want(<-done, api.CodeVaultLocked, 0)
	if err := r.Answer(background, c.Card.ID, approval.Decision{Answer: approval.Once, By: "operator"}); err == nil {
		t.Error("a void card was answered")
	}
	r.unlock()
	done = r.begin(background, a, "pay", `{"order":"1"}`)
	c = r.card()
	r.saysThatOneWaited(c)
	r.answer(c, approval.ForRun)
	r.want(<-done, "", 1)
}

// saysThatOneWaited checks the card of a call that waited before and was void before anybody answered.
func (r *rig) saysThatOneWaited(c engine.CardView) {
	r.t.Helper()
	if !slices.ContainsFunc(c.Card.Why, func(s string) bool { return strings.Contains(s, "waited before") }) {
		r.t.Errorf("the card says %q", c.Card.Why)
	}
	if len(c.WhySaid) != len(c.Card.Why) || !slices.ContainsFunc(c.WhySaid, func(s api.Said) bool { return s.Code == api.WhyWaitedBefore && s.Values["execution"] != "" }) {
		r.t.Errorf("for other languages the card says %v beside %q", c.WhySaid, c.Card.Why)
	}
}

func TestARestartVoidsWhatWaitsAndTheNextCardSaysSo(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	r.card()
	r.restart()
	r.want(<-done, api.CodeShuttingDown, 0)
	done = r.begin(background, a, "pay", `{"order":"1"}`)
	c := r.card()
	r.saysThatOneWaited(c)
	r.answer(c, approval.ForRun)
	r.want(<-done, "", 1)
}

func TestTheEndOfARunVoidsWhatWaitsAndTheNextCardOfTheSameKeySaysSo(t *testing.T) {
	r := newRig(t)
	one, two := newAgent("1"), newAgent("2")
	done := r.begin(background, one, "pay", `{"order":"1"}`, "key-1")
	r.card()
	close(one.ended)
	r.want(<-done, api.CodeRunEnded, 0)
	done = r.begin(background, two, "pay", `{"order":"1"}`, "key-1")
	c := r.card()
	r.saysThatOneWaited(c)
	r.answer(c, approval.ForRun)
	r.want(<-done, "", 1)
}

func TestALockSuspendsASessionAndWhatIsDispatchedFinishes(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	asked, release := make(chan struct{}), make(chan struct{})
	r.target.answer = func(n int, _ channel.Request) channel.Outcome {
		close(asked)
		<-release
		return success(n)
	}
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	<-asked
	r.lock()
	close(release)
	got := <-done
	r.want(got, "", 1)
	r.target.answer = nil
	r.want(r.call(background, a, "pay", `{"order":"2"}`), api.CodeVaultLocked, 1)
	r.unlock()
	r.want(r.call(background, a, "pay", `{"order":"2"}`), "", 2)
}

func TestTheEndOfARunExpiresWhatWaits(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	c := r.card()
	close(a.ended)
	r.want(<-done, api.CodeRunEnded, 0)
	if x, _, _ := r.Execution(c.Execution.ID); x.State != execution.Expired {
		t.Errorf("it is %s", x.State)
	}
}

func TestAProcessThatBecameAnotherProgramIsRefusedAtDispatch(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	c := r.card()
	a.mu.Lock()
	a.gone = errors.New("it is another program now")
	a.mu.Unlock()
	if err := r.Answer(background, c.Card.ID, approval.Decision{Answer: approval.ForRun, By: "operator"}); err == nil {
		t.Error("a process that is gone was approved")
	}
	r.want(r.call(background, a, "pay", `{"order":"2"}`), api.CodeRunEnded, 0)
	close(a.ended)
	r.want(<-done, api.CodeRunEnded, 0)
}

func TestEveryCallThatWaitsForItsRunsSessionIsToldOfItsOwnExecution(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.AnswerWithin = 500 * time.Millisecond })
	first := newAgent("1")
	r.trust(first)
	second := newAgent("2")
	for _, key := range []string{"one", "two"} { // both wait on one card, which is about the first
		made := r.call(background, first, "pay", `{"order":"`+key+`"}`, key)
		told := r.call(background, second, "pay", `{"order":"`+key+`"}`, key)
		if told.ExecutionID != made.ExecutionID || !strings.Contains(string(told.Result), made.ExecutionID) {
			t.Errorf("a call that belongs to %s was told of %s", made.ExecutionID, told.Result)
		}
	}
	r.waitCards(1)
}

func TestRevokingASessionWithdrawsWhatWaits(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	done := r.begin(background, a, "charge", `{"order":"1"}`)
	r.card()
	if err := r.RevokeSession(a.Run, "operator"); err != nil {
		t.Fatal(err)
	}
	r.want(<-done, api.CodeWithdrawn, 0)
	if err := r.RevokeSession(a.Run, "operator"); err == nil {
		t.Error("a session was revoked twice")
	}
}

func TestAChangedContractWithdrawsWhatWaitsAndStillMatchesWhatWasSent(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	sent := r.call(background, a, "pay", `{"order":"1"}`)
	waiting := r.begin(background, a, "charge", `{"order":"1"}`)
	r.card()

	// The person withdraws both; only "pay" has something open.
	kept, rest := r.actions[:1], r.actions[2:]
	r.SetActions(rest, kept)
	r.want(<-waiting, api.CodeWithdrawn, 1)
	got := r.call(background, a, "pay", `{"order":"1"}`)
	r.want(got, "", 1)
	if got.ExecutionID != sent.ExecutionID || got.State != execution.Unknown {
		t.Errorf("got %s %s %s", got.ExecutionID, got.State, got.Result)
	}
	r.want(r.call(background, a, "pay", `{"order":"2"}`), api.CodeNotAccepted, 1)
}

func TestACardExpiresAndSaysSo(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.CardTTL = time.Millisecond })
	a := newAgent("1")
	got := r.call(background, a, "pay", `{"order":"1"}`)
	r.want(got, api.CodeExpired, 0)
	if got.State != execution.Expired {
		t.Errorf("it is %s", got.State)
	}
}

func TestACallThatIsNotFinishedInTimeIsAnsweredPendingAndKeepsItsPlace(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.AnswerWithin = time.Millisecond })
	a := newAgent("1")
	got := r.call(background, a, "pay", `{"order":"1"}`)
	r.want(got, "", 0)
	if got.State != execution.Accepted || !bytes.Contains(got.Result, []byte(`"waiting_for":"approval"`)) || got.ExecutionID == "" {
		t.Fatalf("got %s %s", got.State, got.Result)
	}
	// It counts as attached, so an approval sends it although nobody waits on the line.
	r.answer(r.card(), approval.Once)
	r.until(got.ExecutionID, execution.NotDelivered)
	result := r.call(background, a, "execution_wait", `{"execution_id":"`+got.ExecutionID+`","timeout_seconds":60}`)
	r.want(result, "", 1)
	if !result.Recorded || !bytes.Contains(result.Result, []byte("receipt")) {
		t.Errorf("the wait brought %s", result.Result)
	}
}

func TestAnotherRunCannotSeeAnExecution(t *testing.T) {
	r := newRig(t)
	one, two := newAgent("1"), newAgent("2")
	r.trust(one)
	r.trust(two)
	id := r.call(background, one, "pay", `{"order":"1"}`).ExecutionID
	for _, tool := range []string{"execution_status", "execution_wait"} {
		r.want(r.call(background, two, tool, `{"execution_id":"`+id+`"}`), api.CodeNotFound, 1)
	}
	if got := r.call(background, two, "executions_recent", `{}`); bytes.Contains(got.Result, []byte(id)) {
		t.Error("it is in another run's list")
	}
	if got := r.call(background, one, "executions_recent", `{}`); !bytes.Contains(got.Result, []byte(id)) {
		t.Error("it is not in its own run's list")
	}
}

func TestARunCannotHaveMoreThanItsPlacesWaiting(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.MaxOpenPerRun = 2 })
	a, b := newAgent("1"), newAgent("2")
	ctx, cancel := context.WithCancel(background)
	one := r.begin(ctx, a, "pay", `{"order":"1"}`)
	first := r.card()
	two := r.begin(ctx, a, "pay", `{"order":"2"}`)
	r.waitCards(2)
	r.want(r.call(background, a, "pay", `{"order":"3"}`), api.CodeTooManyCalls, 0)
	other := r.begin(ctx, b, "pay", `{"order":"1"}`)
	r.waitCards(3)
	r.answer(first, approval.Deny)
	<-one
	cancel()
	<-two
	<-other
}

func TestPruningLeavesATombstoneThatKnowsItsKeyAndNeverTouchesTheUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	done := r.call(background, a, "pay", `{"order":"1"}`, "key-1")
	done.Delivered("pipe drained")
	r.target.answer = lost
	open := r.call(background, a, "pay", `{"order":"2"}`)
	r.target.answer = nil
	r.until(done.ExecutionID, execution.Delivered)
	r.kinds() // everything is durable
	r.records.Settle()
	r.clock.add(31 * 24 * time.Hour)
	if n, err := r.Prune(background); err != nil || n != 2 { // the read of trust, and the payment
		t.Fatalf("%d pruned, %v", n, err)
	}
	got := r.call(background, a, "pay", `{"order":"1"}`, "key-1")
	r.want(got, api.CodeResultPruned, 2)
	r.want(r.call(background, a, "pay", `{"order":"3"}`, "key-1"), api.CodeKeyReused, 2)
	if x, _, _ := r.Execution(open.ExecutionID); x.State != execution.Unknown || x.Pruned {
		t.Errorf("the unknown one is %s, pruned %v", x.State, x.Pruned)
	}
	if _, err := r.records.Payload(done.ExecutionID, execution.KindObserved); err == nil {
		t.Error("the result can still be read")
	}
	r.restart()
	r.trust(a)
	r.want(r.call(background, a, "pay", `{"order":"1"}`, "key-1"), api.CodeResultPruned, 0)
}
