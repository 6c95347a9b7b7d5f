package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// answered judges an answer of the target as the contract does.
func answered(q channel.Query, status int, body string) channel.Finding {
	word, why := q.Judge(channel.Reading{Status: status, Body: []byte(body), Whole: true})
	f := channel.Finding{Word: word, Status: status, Reason: why, Evidence: fmt.Sprintf("%s answered %d", cmp.Or(q.Shown, "GET "+q.Effect.Status.HTTP.URL), status), Answer: json.RawMessage(`{"status":200}`)}
	if word == channel.Done || word == channel.Failed {
		f.Result = json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, body))
	}
	return f
}

func always(status int, body string) func(int, channel.Query) channel.Finding {
	return func(_ int, q channel.Query) channel.Finding { return answered(q, status, body) }
}

const doneBody = `{"state":"done","receipt":7}`

func TestACallerWhoseAnswerWasLostGetsTheTrueResultFromTheStatusRequest(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(200, doneBody)
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 1)
	x, _, _ := r.Execution(got.ExecutionID)
	if got.State != execution.NotDelivered || !bytes.Contains(got.Result, []byte(`receipt`)) || x.Source != execution.FromQuery || x.Outcome != execution.Success {
		t.Fatalf("%s %s, %s by %s", got.State, got.Result, x.Outcome, x.Source)
	}
	q := r.target.asked[0]
	if q.ExecutionID != x.ID || q.Attempt != 1 || q.Effect.Status.HTTP.URL != "https://api.example.com/v1/orders/7" || q.Secret == nil || q.Effect.Status.Auth.Place != "Authorization" ||
		q.Permitted("https://other.example.com/") == nil || q.Permitted("https://api.example.com/v1/orders/7") != nil {
		t.Errorf("asked %+v", q)
	}
	if c := x.LastCheck(); c.Finding != execution.FoundDone || c.By != "daemon" || !strings.Contains(c.Evidence, "answered 200") {
		t.Errorf("the record says %+v", c)
	}
	for range 2 {
		again := r.call(background, a, "order", `{"order":"7"}`)
		r.want(again, "", 1)
		if !again.Recorded || !bytes.Equal(again.Result, got.Result) || r.target.questions() != 1 {
			t.Errorf("the retry got %s", again.Result)
		}
		r.restart()
		r.trust(a)
		r.target.ledger = make([]channel.Request, 1)
	}
}

func TestWhatTheTargetDidNotDoIsSentOnceMoreOnceThatCanBeBelieved(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	var first time.Time
	var effects int
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		if n == 1 {
			first = r.clock.now()
			return lost(n, q) // it never arrived
		}
		if passed := r.clock.now().Sub(first); passed < 30*time.Second {
			t.Errorf("sent again after %v", passed)
		}
		effects++
		return success(n)
	}
	r.target.status = always(404, "")
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 2)
	x, _, _ := r.Execution(got.ExecutionID)
	if effects != 1 || got.State != execution.NotDelivered || len(x.Attempts) != 2 || x.InDoubt || r.target.ledger[1].ExecutionID != x.ID || r.target.ledger[1].Attempt != 2 {
		t.Errorf("%d effects, %s: %+v", effects, got.State, x.Attempts)
	}
	if n := len(x.Checks); n < 2 || x.Checks[0].Finding != execution.FoundNotDone || !strings.Contains(x.Checks[0].Reason, "not believed before") || x.LastCheck().Times == 0 && n > 3 {
		t.Errorf("the checks are %+v", x.Checks)
	}
}

func TestWhatDoesNotShowYetIsNotDoneTwice(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	var began time.Time
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		began = r.clock.now()
		return lost(n, q)
	}
	r.target.status = func(_ int, q channel.Query) channel.Finding {
		if r.clock.now().Sub(began) < 25*time.Second {
			return answered(q, 404, "")
		}
		return answered(q, 200, doneBody)
	}
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.State != execution.NotDelivered || r.target.questions() < 3 {
		t.Errorf("%s after %d questions", got.State, r.target.questions())
	}
}

func TestWhatFailedAtTheTargetIsAKnownOutcome(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(200, `{"state":"failed"}`)
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 1)
	if x, _, _ := r.Execution(got.ExecutionID); x.Outcome != execution.TargetError || x.State != execution.NotDelivered {
		t.Errorf("%s %s", x.State, x.Outcome)
	}
}

func TestWhatCannotBeToldStaysUnknownUntilSomebodyAsksAgain(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(503, "")
	began := r.clock.now()
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 1)
	if passed := r.clock.now().Sub(began); got.State != execution.Unknown || passed < 10*time.Minute || passed > 15*time.Minute || !bytes.Contains(got.Result, []byte("could not be told")) {
		t.Errorf("%s after %v: %s", got.State, passed, got.Result)
	}
	asked := r.target.questions()
	x, _, _ := r.Execution(got.ExecutionID)
	// The same answer again is counted, so that a record stays short.
	if last := x.LastCheck(); len(x.Checks) != 2 || last.Times != asked-1 || last.Finding != execution.FoundCannotTell || asked < 10 || asked > 60 {
		t.Errorf("%d questions, recorded as %+v", asked, x.Checks)
	}
	// A retry has it asked, and once only: the time is over.
	again := r.call(background, a, "order", `{"order":"7"}`)
	r.want(again, "", 1)
	if again.State != execution.Unknown || again.ExecutionID != got.ExecutionID || r.target.questions() != asked+1 {
		t.Errorf("%s after %d more questions", again.State, r.target.questions()-asked)
	}
	status := r.call(background, a, "execution_status", `{"execution_id":"`+got.ExecutionID+`"}`)
	if !bytes.Contains(status.Result, []byte(`"last_check":{`)) || !bytes.Contains(status.Result, []byte("503")) {
		t.Errorf("execution_status says %s", status.Result)
	}
	// The operator asks, and the target is back.
	found, x, err := r.Check(background, got.ExecutionID, "operator")
	if err != nil || found.Finding != execution.FoundCannotTell || found.Believed || x.State != execution.Unknown || x.LastCheck().By != "operator" {
		t.Errorf("%+v, %s, %v", found, x.State, err)
	}
	r.target.status = always(200, doneBody)
	found, x, err = r.Check(background, got.ExecutionID, "operator")
	if err != nil || found.Finding != execution.FoundDone || !found.Believed || x.State != execution.NotDelivered || found.Evidence == "" {
		t.Errorf("%+v, %s, %v", found, x.State, err)
	}
	r.want(r.call(background, a, "order", `{"order":"7"}`), "", 1)
	if _, _, err := r.Check(background, got.ExecutionID, "operator"); !errors.Is(err, engine.ErrSettled) {
		t.Errorf("what is settled was asked about: %v", err)
	}
}

func TestTheOperatorsCheckSendsNothing(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(500, "")
	id := r.call(background, a, "order", `{"order":"7"}`).ExecutionID
	r.target.status = always(404, "")
	found, x, err := r.Check(background, id, "operator")
	if err != nil || !found.Believed || x.State != execution.NotDone || r.target.effects() != 1 {
		t.Fatalf("%+v, %s, %v, %d effects", found, x.State, err, r.target.effects())
	}
	// The next call is a new execution: it was established that the first did nothing.
	r.target.answer = nil
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 2)
	if got.ExecutionID == id {
		t.Error("the old execution was used again")
	}
	if _, _, err := r.Check(background, "act_nothing", "operator"); !errors.Is(err, engine.ErrUnknown) {
		t.Error(err)
	}
	r.target.answer = lost
	id = r.call(background, a, "pay", `{"order":"7"}`).ExecutionID
	if _, _, err := r.Check(background, id, "operator"); err == nil || !strings.Contains(err.Error(), "no way to ask") {
		t.Error(err)
	}
}

func TestAfterARestartTheTargetIsAskedAndNothingIsSent(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(503, "")
	id := r.call(background, a, "order", `{"order":"7"}`).ExecutionID
	r.halt()
	r.target.status = always(200, doneBody)
	r.start()
	r.until(id, execution.NotDelivered) // at unlock, before anybody calls
	r.trust(a)
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 0)
	if got.ExecutionID != id || !got.Recorded {
		t.Errorf("the retry got %s %s", got.ExecutionID, got.Result)
	}
}

func TestAfterARestartARetryIsSentOnceMoreAsTheSameExecution(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(503, "")
	id := r.call(background, a, "order", `{"order":"7"}`).ExecutionID
	r.halt()
	called := make(chan struct{})
	r.target.answer = nil
	r.target.status = func(_ int, q channel.Query) channel.Finding {
		<-called // or what is found at unlock settles it before anybody waits
		return answered(q, 404, "")
	}
	r.start()
	r.trust(a)
	call := r.begin(background, a, "order", `{"order":"7"}`)
	r.untilTrue(func() bool { x, _, _ := r.Execution(id); return len(x.Callers) == 2 })
	close(called)
	got := <-call
	r.want(got, "", 1)
	if got.ExecutionID != id || r.target.ledger[0].ExecutionID != id || r.target.ledger[0].Attempt != 2 {
		t.Errorf("the retry of %s became %s", id, got.ExecutionID)
	}
}

func TestAQuestionNeedsTheContractThatWasAccepted(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(503, "")
	id := r.call(background, a, "order", `{"order":"7"}`).ExecutionID
	asked := r.target.questions()
	changed := contract(t, "order", "status_query", strings.Replace(status, "v1/orders", "v1/other", 1), "api", "session", inBinding)
	r.SetActions([]*policy.Action{changed}, nil)
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.ExecutionID != id || got.State != execution.Unknown || r.target.questions() != asked {
		t.Errorf("%s %s, %d questions", got.ExecutionID, got.State, r.target.questions()-asked)
	}
	if _, _, err := r.Check(background, id, "operator"); err == nil || !strings.Contains(err.Error(), "not in the vault any more") {
		t.Error(err)
	}
	// As a withdrawn one it still speaks for what it has open.
	order := r.actions[3]
	r.SetActions([]*policy.Action{changed}, []*policy.Action{order})
	r.target.status = always(200, doneBody)
	got = r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.State != execution.NotDelivered {
		t.Errorf("got %s", got.State)
	}
}

func TestSendingOnceMoreIsBounded(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(404, "")
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, api.CodeNotSent, 2)
	if got.State != execution.NotDone || !bytes.Contains(got.Result, []byte("verified that the target did nothing")) {
		t.Errorf("%s: %s", got.State, got.Result)
	}
	told := r.call(background, a, "execution_status", `{"execution_id":"`+got.ExecutionID+`"}`)
	if bytes.Contains(told.Result, []byte("nothing was sent")) || !bytes.Contains(told.Result, []byte("verified that the target did nothing")) {
		t.Errorf("it was sent twice, and the agent is told %s", told.Result)
	}
}

func TestNothingIsSentAgainForASessionThatWasRevoked(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	r.target.status = func(n int, q channel.Query) channel.Finding {
		if n == 1 {
			if err := r.RevokeSession(a.Run, "operator"); err != nil {
				t.Error(err)
			}
		}
		return answered(q, 404, "")
	}
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, api.CodeNotSent, 1)
	if got.State != execution.NotDone {
		t.Error(got.State)
	}
}

func TestAVerdictThatComesWhileTheTargetIsAskedStands(t *testing.T) {
	for _, done := range []bool{true, false} {
		r := newRig(t)
		a := newAgent("1")
		r.trust(a)
		asked, release := make(chan struct{}), make(chan struct{})
		r.target.answer = lost
		r.target.status = func(n int, q channel.Query) channel.Finding {
			close(asked)
			<-release
			if done {
				return answered(q, 200, `{"state":"failed"}`)
			}
			return answered(q, 200, doneBody)
		}
		call := r.begin(background, a, "order", `{"order":"7"}`)
		<-asked
		id := r.target.asked[0].ExecutionID
		x, err := r.Settle(background, id, engine.Verdict{Done: done}, "operator")
		if err != nil {
			t.Fatal(err)
		}
		close(release)
		got := <-call
		after, _, _ := r.Execution(id)
		if got.State != x.State || after.Source != execution.FromOperator || after.State != x.State || r.target.effects() != 1 {
			t.Errorf("verdict %v: %s, the caller got %s, and it ended as %s by %s", done, x.State, got.State, after.State, after.Source)
		}
	}
}

func TestAtMostOneQuestionIsUnderWayAndEveryCallerGetsWhatItFinds(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	var under, most atomic.Int32
	r.target.answer = lost
	r.target.status = func(n int, q channel.Query) channel.Finding {
		most.Store(max(most.Load(), under.Add(1)))
		defer under.Add(-1)
		if n < 9 {
			return answered(q, 202, "")
		}
		return answered(q, 200, doneBody)
	}
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			got := r.call(background, a, "order", `{"order":"7"}`)
			if got.State != execution.NotDelivered || !bytes.Contains(got.Result, []byte("receipt")) {
				t.Errorf("a caller got %s %s", got.State, got.Result)
			}
			_, _, _ = r.Check(background, got.ExecutionID, "operator")
		})
	}
	callers.Wait()
	if r.target.effects() != 1 || most.Load() != 1 {
		t.Errorf("%d effects, %d questions at once", r.target.effects(), most.Load())
	}
}

func TestALockedVaultAsksNobodyUntilItIsOpen(t *testing.T) {
	hold := make(chan struct{})
	r := newRig(t, func(r *rig) { r.hold = hold })
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(202, "")
	call := r.begin(background, a, "order", `{"order":"7"}`)
	r.untilTrue(func() bool { return r.target.questions() == 1 })
	r.target.mu.Lock()
	id := r.target.asked[0].ExecutionID
	r.target.mu.Unlock()
	r.untilTrue(func() bool { x, _, _ := r.Execution(id); return len(x.Checks) == 1 })
	r.lock()
	if got := <-call; got.State != execution.Unknown || !bytes.Contains(got.Result, []byte("once the person has unlocked Singlepass")) {
		t.Errorf("the caller got %s %s", got.State, got.Result)
	}
	if got := r.call(background, a, "execution_status", `{"execution_id":"`+id+`"}`); !bytes.Contains(got.Result, []byte("once the person has unlocked Singlepass")) {
		t.Errorf("execution_status says %s", got.Result)
	}
	close(hold)
	r.kinds()
	if _, _, err := r.Check(background, id, "operator"); err == nil || !strings.Contains(err.Error(), "locked") || r.target.questions() != 1 {
		t.Errorf("%v, %d questions", err, r.target.questions())
	}
	r.target.mu.Lock()
	r.target.status = always(200, doneBody)
	r.target.mu.Unlock()
	r.unlock()
	r.until(id, execution.NotDelivered)
}

func TestWhatCannotEvenBeAskedIsSaid(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.actions = append(r.actions, contract(t, "apart", "status_query", strings.Replace(status, "method: GET", "credential: gone, method: GET", 1), "api", "session", inBinding),
			contract(t, "beyond", "status_query", strings.Replace(status, "api.example.com", "other.example.com", 1), "api", "session", inBinding))
	})
	a := newAgent("1")
	r.trust(a)
	got := r.call(background, a, "apart", `{"order":"7"}`)
	r.want(got, api.CodeCredentialMissing, 0)
	if !bytes.Contains(got.Result, []byte(`gone`)) {
		t.Errorf("got %s", got.Result)
	}
	got = r.call(background, a, "beyond", `{"order":"7"}`)
	r.want(got, api.CodeTargetNotBound, 0)
	if !bytes.Contains(got.Result, []byte("other.example.com")) {
		t.Errorf("got %s", got.Result)
	}
}

func TestAPanicWhileAskingTellsNothing(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	r.target.status = func(n int, q channel.Query) channel.Finding {
		if n == 1 {
			panic("a fault of ours")
		}
		return answered(q, 200, doneBody)
	}
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.State != execution.NotDelivered {
		t.Error(got.State)
	}
}

func TestAFoundOutcomeThatCannotBeWrittenIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"write", "sync"} {
		d := &disk{}
		r := newRig(t, func(r *rig) { r.fs = d })
		a := newAgent("1")
		r.trust(a)
		r.target.answer = lost
		r.target.status = func(n int, q channel.Query) channel.Finding {
			if n == 1 {
				d.set(on(op, syscall.EIO))
			}
			return answered(q, 200, doneBody)
		}
		done := r.begin(background, a, "order", `{"order":"7"}`)
		r.untilTrue(func() bool { return r.Counts().Down })
		d.set(nil)
		got := <-done
		if got.State == execution.Unknown { // told so while the journal was down
			r.untilTrue(func() bool { return !r.Counts().Down })
			got = r.call(background, a, "order", `{"order":"7"}`)
		}
		r.want(got, "", 1)
		if got.State != execution.NotDelivered {
			t.Errorf("%s: got %s %s", op, got.State, got.Result)
		}
		r.restart()
		r.trust(a)
		again := r.call(background, a, "order", `{"order":"7"}`)
		if !bytes.Equal(again.Result, got.Result) {
			t.Errorf("%s: the recorded result is %s", op, again.Result)
		}
	}
}

func TestWhatMayStillComeIsNotDoneForEverOnlyByTheContract(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		if n == 1 {
			return lost(n, q)
		}
		return success(n)
	}
	// A host on which the start was made impossible is believed at once, whatever the contract waits for.
	r.target.status = func(_ int, q channel.Query) channel.Finding {
		return channel.Finding{Word: channel.NotDone, Certain: true, Reason: "it can no longer begin"}
	}
	began := r.clock.now()
	got := r.call(background, a, "order", `{"order":"7"}`)
	r.want(got, "", 2)
	if passed := r.clock.now().Sub(began); passed > 2*time.Second || r.target.questions() != 1 {
		t.Errorf("sent once more after %v and %d questions", passed, r.target.questions())
	}
}

func TestTheEngineStopsWhileTheTargetIsAsked(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	asked := make(chan struct{})
	release := make(chan struct{})
	r.target.answer = lost
	r.target.status = func(n int, q channel.Query) channel.Finding {
		close(asked)
		<-release
		return answered(q, 202, "")
	}
	call := r.begin(background, a, "order", `{"order":"7"}`)
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- r.Close(context.Background()) }()
	got := <-call
	close(release)
	if err := <-closed; err != nil || got.State != execution.Unknown {
		t.Errorf("%v, %s", err, got.State)
	}
	if x, _, _ := r.Execution(got.ExecutionID); x.State != execution.Unknown {
		t.Error(x.State)
	}
}
