package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

const awaiting = `  attach_window: 1h
  fingerprint: [order, amount]
  accepted: [202]
  status: {method: GET, url: "{answer:Location}", within: "https://api.example.com/v1/jobs", done: 'status == 200 && body.state == "done"', failed: 'status == 200 && body.state == "failed"', running: status == 202}
  wait: {poll: 5s, give_up_after: 2h}`

const job = "https://api.example.com/v1/jobs/77?sig=canary-not-a-secret-in-a-location"

// takes answers 202 and says where the job is; later is what Retry-After said.
func takes(location string, later time.Duration) func(int, channel.Request) channel.Outcome {
	return func(n int, r channel.Request) channel.Outcome {
		if r.JudgeAnswer == nil {
			return success(n)
		}
		header := map[string][]string{}
		if location != "" {
			header["Location"] = []string{location}
		}
		word, kept, why := r.JudgeAnswer(channel.Reading{Status: 202, Header: header, Whole: true})
		if word != channel.Running {
			return channel.Outcome{Verdict: channel.Unknown, Reason: why}
		}
		return channel.Outcome{Verdict: channel.Taken, Status: 202, Kept: kept, Reason: why, After: later, Answer: json.RawMessage(`{"status":202}`)}
	}
}

func withAwaiting(change ...func(*rig)) func(*rig) {
	return func(r *rig) {
		r.actions = append(r.actions, contract(r.t, "deploy", "status_query", awaiting, "api", "session", inBinding))
		for _, f := range change {
			f(r)
		}
	}
}

func TestWhatATargetTookIsAskedForUntilItIsDone(t *testing.T) {
	r := newRig(t, withAwaiting())
	a := newAgent("1")
	r.trust(a)
	var taken time.Time
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		taken = r.clock.now()
		return takes(job, 90*time.Second)(n, q)
	}
	var first time.Duration
	r.target.status = func(n int, q channel.Query) channel.Finding {
		if n == 1 {
			first = r.clock.now().Sub(taken)
		}
		if r.clock.now().Sub(taken) < time.Hour {
			return answered(q, 202, "")
		}
		return answered(q, 200, doneBody)
	}
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	r.want(got, "", 1)
	x, _, _ := r.Execution(got.ExecutionID)
	if got.State != execution.NotDelivered || !bytes.Contains(got.Result, []byte("receipt")) || x.Outcome != execution.Success || x.Source != execution.FromQuery || len(x.Attempts) != 1 || x.InDoubt {
		t.Fatalf("%s %s: %+v", got.State, got.Result, x)
	}
	if first < 90*time.Second || first > 2*time.Minute {
		t.Errorf("asked first after %v, and the target wanted 90 s", first)
	}
	if n := r.target.questions(); n < 50 || n > 80 { // an hour, by a minute at most
		t.Errorf("%d questions", n)
	}
	q := r.target.asked[0]
	if q.Effect.Status.HTTP.URL != job || len(q.Effect.Status.Fields) != 0 || !q.Awaited || q.Secret == nil || q.Shown != "GET {answer:Location} within https://api.example.com/v1/jobs" || q.Permitted(job) != nil {
		t.Errorf("asked %+v", q)
	}
	again := r.call(background, a, "deploy", `{"order":"7"}`)
	if r.want(again, "", 1); !again.Recorded || !bytes.Equal(again.Result, got.Result) {
		t.Errorf("a retry got %s", again.Result)
	}
	// The address is the target's own word, and can be a secret of its own: it stands nowhere in clear.
	b := r.written()
	if !bytes.Contains(b, []byte("outcome_awaited")) {
		t.Error("the journal was not found")
	}
	if bytes.Contains(b, []byte("canary-not-a-secret-in-a-location")) || bytes.Contains(b, []byte("jobs/77")) {
		t.Error("the address stands in the journal in clear")
	}
}

func TestACallerIsToldThatTheTargetIsAtWorkAndARetryAttaches(t *testing.T) {
	hold := make(chan struct{})
	r := newRig(t, withAwaiting(func(r *rig) { r.cfg.AnswerWithin, r.hold = 50*time.Millisecond, hold }))
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = takes(job, 0), always(202, "")
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	if got.State != execution.Dispatched || !bytes.Contains(got.Result, []byte(`"waiting_for":"target"`)) || !bytes.Contains(got.Result, []byte("the target took it and is not done")) || !bytes.Contains(got.Result, []byte("answered 202")) {
		t.Fatalf("told %s", got.Result)
	}
	for _, tool := range []string{"execution_status", "execution_wait"} {
		args := `{"execution_id":"` + got.ExecutionID + `"`
		if tool == "execution_wait" {
			args += `,"timeout_seconds":0.05`
		}
		if told := r.call(background, a, tool, args+`}`); told.State != execution.Dispatched {
			t.Errorf("%s says %s", tool, told.Result)
		}
	}
	again := r.begin(background, a, "deploy", `{"order":"7"}`)
	r.untilTrue(func() bool { x, _, _ := r.Execution(got.ExecutionID); return len(x.Callers) == 2 })
	<-again
	// Waiting gets the result, whoever waits.
	r.target.mu.Lock()
	r.target.status = always(200, doneBody)
	r.target.mu.Unlock()
	close(hold)
	told := r.call(background, a, "execution_wait", `{"execution_id":"`+got.ExecutionID+`","timeout_seconds":60}`)
	if told.State != execution.NotDelivered || !bytes.Contains(told.Result, []byte("receipt")) || r.target.effects() != 1 {
		t.Errorf("execution_wait got %s, %d effects", told.Result, r.target.effects())
	}
}

func TestARestartGoesOnAskingWhereTheTargetSaid(t *testing.T) {
	r := newRig(t, withAwaiting(func(r *rig) { r.cfg.AnswerWithin = 50 * time.Millisecond }))
	a := newAgent("1")
	r.trust(a)
	hold := make(chan struct{})
	r.hold = hold
	r.target.answer, r.target.status = takes(job, 10*time.Minute), always(202, "")
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	r.halt()
	defer close(hold) // not before: the clock would go on by it
	asked := r.target.questions()
	r.hold = make(chan struct{})
	r.start()
	if x, _, _ := r.Execution(got.ExecutionID); x.State != execution.Dispatched || !x.Awaits() {
		t.Fatalf("after the restart it is %s: %s", x.State, x.Reason)
	}
	// What the target asked for when it took it holds across the restart.
	if n := r.target.questions(); n != asked {
		t.Errorf("asked %d times before the time that the target named", n-asked)
	}
	r.trust(a)
	before := r.target.effects() // trusting makes a call of its own
	told := r.call(background, a, "deploy", `{"order":"7"}`)
	if told.State != execution.Dispatched || told.ExecutionID != got.ExecutionID {
		t.Errorf("the retry got %s %s", told.ExecutionID, told.Result)
	}
	r.target.mu.Lock()
	r.target.status = always(200, `{"state":"failed"}`)
	r.target.mu.Unlock()
	close(r.hold)
	r.until(got.ExecutionID, execution.NotDelivered)
	x, _, _ := r.Execution(got.ExecutionID)
	last := r.target.asked[len(r.target.asked)-1]
	if x.Outcome != execution.TargetError || x.Source != execution.FromQuery || len(x.Attempts) != 1 || last.Effect.Status.HTTP.URL != job || r.target.effects() != before {
		t.Errorf("%+v, asked at %s, %d effects more", x, last.Effect.Status.HTTP.URL, r.target.effects()-before)
	}
}

func TestWhatTheTargetTookIsNeverSentAgainWhateverItSaysLater(t *testing.T) {
	with := strings.Replace(strings.Replace(awaiting, `url: "{answer:Location}", within: "https://api.example.com/v1/jobs"`, `url: "https://api.example.com/v1/orders/{order}", not_done: status == 404`, 1),
		"{poll: 5s,", "{poll: 5s, not_done_after: 10s,", 1)
	r := newRig(t, func(r *rig) {
		r.actions = append(r.actions, contract(t, "deploy", "status_query", with, "api", "session", inBinding))
	})
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = takes("", 0), always(404, "")
	began := r.clock.now()
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	r.want(got, "", 1)
	x, _, _ := r.Execution(got.ExecutionID)
	if passed := r.clock.now().Sub(began); got.State != execution.Unknown || passed < 2*time.Hour || passed > 3*time.Hour {
		t.Errorf("%s after %v", got.State, passed)
	}
	if c := x.LastCheck(); c.Finding != execution.FoundNotDone || !strings.Contains(x.Reason, "not believed, since the target itself said that it took it") || !x.LastAttempt().Awaited() {
		t.Errorf("%s; %+v", x.Reason, c)
	}
	// Nor for a retry or a check of the operator's, nor after a restart.
	found, _, err := r.Check(background, x.ID, "operator")
	if err != nil || found.Believed {
		t.Errorf("%+v, %v", found, err)
	}
	got = r.call(background, a, "deploy", `{"order":"7"}`)
	if r.want(got, "", 1); got.State != execution.Unknown {
		t.Errorf("the retry got %s", got.Result)
	}
	r.restart()
	r.trust(a)
	before := r.target.effects()
	if got = r.call(background, a, "deploy", `{"order":"7"}`); got.State != execution.Unknown || got.ExecutionID != x.ID || r.target.effects() != before {
		t.Errorf("after the restart the retry got %s", got.Result)
	}
	// The end may still come.
	r.target.mu.Lock()
	r.target.status = always(200, doneBody)
	r.target.mu.Unlock()
	if got = r.call(background, a, "deploy", `{"order":"7"}`); got.State != execution.NotDelivered || r.target.effects() != before {
		t.Errorf("the retry got %s", got.Result)
	}
}

func TestAnAddressThatCannotBeUsedLeavesTheOutcomeUnknownAndIsNeverAsked(t *testing.T) {
	for name, location := range map[string]string{
		"none": "", "of another host": "https://evil.example/v1/jobs/1", "of another path": "https://api.example.com/v1/pay", "out of the path": "https://api.example.com/v1/jobs/%2e%2e/pay",
		"without TLS": "http://api.example.com/v1/jobs/1", "a metadata service": "https://169.254.169.254/latest",
	} {
		r := newRig(t, withAwaiting())
		a := newAgent("1")
		r.trust(a)
		r.target.answer, r.target.status = takes(location, 0), always(200, doneBody)
		got := r.call(background, a, "deploy", `{"order":"7"}`)
		r.want(got, "", 1)
		if got.State != execution.Unknown || r.target.questions() != 0 || !bytes.Contains(got.Result, []byte("took the call")) || !bytes.Contains(got.Result, []byte("cannot be asked how that ends")) {
			t.Errorf("%s: %s after %d questions: %s", name, got.State, r.target.questions(), got.Result)
		}
		again := r.call(background, a, "deploy", `{"order":"7"}`)
		if r.want(again, "", 1); again.State != execution.Unknown {
			t.Errorf("%s: the retry got %s", name, again.Result)
		}
		r.halt()
	}
}

func TestAnAnswerThatWasLostCannotBeAskedBy(t *testing.T) {
	r := newRig(t, withAwaiting())
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = lost, always(200, doneBody)
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.State != execution.Unknown || r.target.questions() != 0 || !bytes.Contains(got.Result, []byte("the person has to settle it")) {
		t.Errorf("%s, %d questions", got.Result, r.target.questions())
	}
	if _, _, err := r.Check(background, got.ExecutionID, "operator"); err == nil || !strings.Contains(err.Error(), "needs the target's own answer to the call, which was lost") {
		t.Error(err)
	}
	if x, err := r.Settle(background, got.ExecutionID, engine.Verdict{Done: false}, "operator"); err != nil || x.State != execution.NotDone {
		t.Errorf("%s, %v", x.State, err)
	}
}

func TestTheOperatorCanEndTheWaiting(t *testing.T) {
	for _, done := range []bool{true, false} {
		r := newRig(t, withAwaiting(func(r *rig) { r.hold = make(chan struct{}) }))
		a := newAgent("1")
		r.trust(a)
		r.target.answer, r.target.status = takes(job, 0), always(202, "")
		call := r.begin(background, a, "deploy", `{"order":"7"}`)
		var id string
		r.untilTrue(func() bool {
			r.target.mu.Lock()
			defer r.target.mu.Unlock()
			if n := len(r.target.ledger); n > 0 && r.target.ledger[n-1].Effect.Status != nil {
				id = r.target.ledger[n-1].ExecutionID
			}
			return id != ""
		})
		r.untilTrue(func() bool { x, _, _ := r.Execution(id); return x.Awaits() })
		var found engine.Asked
		var x execution.Execution
		var err error
		for found, x, err = r.Check(background, id, "operator"); err != nil && strings.Contains(err.Error(), "try again"); { // until the answer is durable
			found, x, err = r.Check(background, id, "operator")
		}
		if found.Finding != execution.FoundRunning || found.Believed || !x.Awaits() || x.LastCheck().By != "operator" {
			t.Errorf("%+v, %s, %v", found, x.State, err)
		}
		word := engine.Verdict{Done: done, Note: "I looked"}
		if !done { // against the target's own word it stands only where the operator knows of that
			for _, against := range []execution.Finding{"", execution.FoundDone} {
				word.Against = against
				if x, err := r.Settle(background, id, word, "operator"); !errors.Is(err, engine.ErrContradicted) || !x.Awaits() {
					t.Fatalf("a verdict against %q: %s, %v", against, x.State, err)
				}
			}
			word.Against = execution.FoundRunning
		}
		x, err = r.Settle(background, id, word, "operator")
		want := execution.NotDone
		if done {
			want = execution.NotDelivered
		}
		if err != nil || x.State != want || x.Source != execution.FromOperator {
			t.Fatalf("verdict %v: %s by %s, %v", done, x.State, x.Source, err)
		}
		if got := <-call; got.ExecutionID != id || r.target.effects() != 1 {
			t.Errorf("the caller got %s, %d effects", got.Result, r.target.effects())
		}
		close(r.hold)
	}
}

func TestALockedVaultAsksNobodyAndLosesNothingThatTheTargetTook(t *testing.T) {
	hold := make(chan struct{})
	r := newRig(t, withAwaiting(func(r *rig) { r.cfg.AnswerWithin, r.hold = 50*time.Millisecond, hold }))
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = takes(job, 0), always(202, "")
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	r.lock()
	close(hold)
	if x, _, _ := r.Execution(got.ExecutionID); !x.Awaits() || r.target.questions() != 0 {
		t.Errorf("%s, %d questions", x.State, r.target.questions())
	}
	r.kinds()
	r.target.mu.Lock()
	r.target.status = always(200, doneBody)
	r.target.mu.Unlock()
	r.unlock()
	r.until(got.ExecutionID, execution.NotDelivered)
}

func TestAnAnswerThatCannotBeWrittenIsReliedUponOnlyWhenItIs(t *testing.T) {
	for _, op := range []string{"write", "sync"} {
		d := &disk{}
		r := newRig(t, withAwaiting(func(r *rig) { r.fs = d }))
		a := newAgent("1")
		r.trust(a)
		r.target.answer = func(n int, q channel.Request) channel.Outcome {
			d.set(on(op, syscall.EIO))
			return takes(job, 0)(n, q)
		}
		r.target.status = func(_ int, q channel.Query) channel.Finding {
			if x, _, _ := r.records.Find(q.ExecutionID); !x.Awaits() {
				t.Errorf("%s: asked by an answer that is not durable: %s", op, x.State)
			}
			return answered(q, 200, doneBody)
		}
		done := r.begin(background, a, "deploy", `{"order":"7"}`)
		r.untilTrue(func() bool { return r.Counts().Down })
		if r.target.questions() != 0 {
			t.Errorf("%s: asked while the answer could not be written", op)
		}
		d.set(nil)
		got := <-done
		r.want(got, "", 1)
		if got.State != execution.NotDelivered {
			t.Errorf("%s: got %s", op, got.Result)
		}
		r.halt()
	}
}

func TestAQuestionThatCannotBeAskedNowIsAskedLater(t *testing.T) {
	r := newRig(t, withAwaiting())
	a := newAgent("1")
	r.trust(a)
	r.target.answer = takes(job, 0)
	r.target.status = func(n int, q channel.Query) channel.Finding {
		switch n {
		case 1:
			panic("a fault of ours")
		case 2:
			return channel.Finding{Word: channel.CannotTell, Reason: "the status request was not answered: not permitted"}
		case 3:
			return answered(q, 503, "")
		}
		return answered(q, 200, doneBody)
	}
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	if r.want(got, "", 1); got.State != execution.NotDelivered || r.target.questions() != 4 {
		t.Errorf("%s after %d questions", got.Result, r.target.questions())
	}
}

func TestWhoeverCannotBeAskedAnyMoreIsNotWaitedFor(t *testing.T) {
	r := newRig(t, withAwaiting(func(r *rig) { r.cfg.AnswerWithin, r.hold = 50*time.Millisecond, make(chan struct{}) }))
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = takes(job, 0), always(202, "")
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	r.lock()
	deploy := r.actions[len(r.actions)-1]
	r.actions = r.actions[:len(r.actions)-1]
	r.unlock()
	r.until(got.ExecutionID, execution.Unknown)
	if x, _, _ := r.Execution(got.ExecutionID); !strings.Contains(x.Reason, "not in the vault any more") {
		t.Error(x.Reason)
	}
	r.SetActions(r.actions, []*policy.Action{deploy})
	r.target.mu.Lock()
	r.target.status = always(200, doneBody)
	r.target.mu.Unlock()
	if found, _, err := r.Check(background, got.ExecutionID, "operator"); err != nil || !found.Believed {
		t.Errorf("%+v, %v", found, err)
	}
	close(r.hold)
}

func TestWhatWasKeptOfAnAnswerIsErasedWithItsResult(t *testing.T) {
	r := newRig(t, withAwaiting())
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = takes(job, 0), always(200, doneBody)
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	r.want(got, "", 1)
	r.records.Settle()
	b, err := r.records.Payload(got.ExecutionID, execution.KindAwaited)
	if err != nil || !bytes.Contains(b, []byte(`"Location":"`+job)) {
		t.Fatalf("kept %s, %v", b, err)
	}
	if err := r.records.Erase(background, got.ExecutionID); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []execution.Kind{execution.KindAccepted, execution.KindAwaited, execution.KindObserved} {
		if b, err := r.records.Payload(got.ExecutionID, kind); err == nil {
			t.Errorf("of %s there is still %s", kind, b)
		}
	}
}

func TestAContractThatGoesWhileTheTargetTakesTheCallLeavesNobodyWaiting(t *testing.T) {
	r := newRig(t, withAwaiting())
	a := newAgent("1")
	r.trust(a)
	r.target.status = always(200, doneBody)
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		r.SetActions(r.actions[:len(r.actions)-1], nil)
		return takes(job, 0)(n, q)
	}
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	x, _, _ := r.Execution(got.ExecutionID)
	if x.State != execution.Unknown || !strings.Contains(x.Reason, "not in the vault any more") || r.target.questions() != 0 || r.target.effects() != 1 {
		t.Errorf("%s (%s), %d questions, %d effects", x.State, x.Reason, r.target.questions(), r.target.effects())
	}
}

func TestAVaultThatIsUnlockedBeforeTheQuestionComesBackAsksAgain(t *testing.T) {
	r := newRig(t, withAwaiting())
	a := newAgent("1")
	r.trust(a)
	r.target.answer, r.target.status = takes(job, 0), always(200, doneBody)
	var once sync.Once
	r.keys.lockedFor = func() (err error) {
		if r.target.effects() > 0 { // the question's own use: the vault was locked and unlocked while it was under way
			once.Do(func() { err = vault.ErrLocked })
		}
		return err
	}
	got := r.call(background, a, "deploy", `{"order":"7"}`)
	if r.want(got, "", 1); got.State != execution.NotDelivered {
		t.Errorf("got %s", got.Result)
	}
}
