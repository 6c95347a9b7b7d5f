package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// waiting is a journal whose lazy commits are as those that wait for a new segment: not done, and without a number.
type waiting struct{ engine.Journal }

type noNumberYet struct{ of engine.Commit }

func (noNumberYet) Done() <-chan struct{} { return nil }
func (noNumberYet) Err() error            { return nil }
func (noNumberYet) Seq() uint64           { return 0 }
func (n noNumberYet) Wait() error         { return n.of.Wait() }

func (w waiting) Append(entries ...engine.Entry) engine.Commit {
	c := w.Journal.Append(entries...)
	for _, e := range entries {
		if e.ID == "" || !e.Lazy {
			return c
		}
	}
	return noNumberYet{c}
}

func TestAnExecutionIsNotForgottenWhileItsLastEventHasNoNumberYet(t *testing.T) {
	r := newRig(t, func(r *rig) { r.through = func(j engine.Journal) engine.Journal { return waiting{j} } })
	a := newAgent("1")
	r.trust(a)
	r.behind.Store(true)
	for i := range 4 {
		got := r.call(background, a, "pay", `{"order":"7"}`)
		r.want(got, "", 1)
		if got.Recorded != (i > 0) {
			t.Errorf("call %d: recorded %v", i, got.Recorded)
		}
		r.call(background, a, "execution_wait", `{"execution_id":"`+got.ExecutionID+`"}`)
		if got := r.call(background, a, "pay", `{"order":"another"}`, "key-1"); got.Code != "" {
			t.Error(got.Code)
		}
		r.target.mu.Lock()
		r.target.ledger = r.target.ledger[:1]
		r.target.mu.Unlock()
	}
	r.behind.Store(false)
}

func TestACallThatCannotBeRecordedTouchesNoOther(t *testing.T) {
	d := &disk{}
	r := newRig(t, func(r *rig) { r.fs = d })
	a := newAgent("1")
	r.trust(a)
	r.kinds()
	var syncs atomic.Int32
	first, second, one, two := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	d.set(func(op string) error {
		if op == "allocate" {
			return &fs.PathError{Op: op, Path: "journal", Err: syscall.ENOSPC}
		}
		if op == "sync" {
			switch syncs.Add(1) {
			case 1:
				close(first)
				<-one
			case 2:
				close(second)
				<-two
			}
		}
		return nil
	})
	before := r.begin(background, a, "pay", `{"order":"6"}`)
	<-first
	large := r.begin(background, a, "pay", `{"order":"8","note":"`+strings.Repeat("n", 600<<10)+`"}`)
	r.untilTrue(func() bool { return r.Counts().Waiting == 2 })
	small := r.begin(background, a, "pay", `{"order":"7"}`)
	r.untilTrue(func() bool { return r.Counts().Waiting == 3 })
	close(one)
	<-second
	r.untilTrue(func() bool { return r.Counts().Down })
	close(two)
	if got := <-large; got.Code != api.CodeJournal {
		t.Errorf("what does not fit on the disk: %q", got.Code)
	}
	<-before
	if got := <-small; got.Code != "" {
		t.Errorf("it was sent, and the agent is told %s", got.Result)
	}
	d.set(nil)
	r.untilTrue(func() bool { return !r.Counts().Down })
	r.want(r.call(background, a, "pay", `{"order":"7"}`), "", 2)
}

func TestAnAnswerThatCannotBeRecordedIsStillAnOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = func(int, channel.Request) channel.Outcome {
		return channel.Outcome{Verdict: channel.Success, Status: 200, Result: json.RawMessage(`"` + strings.Repeat("r", 40<<20) + `"`)}
	}
	got := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(got, "", 1)
	if got.State != execution.NotDelivered || !bytes.Contains(got.Result, []byte("too large")) {
		t.Errorf("got %s and %d bytes", got.State, len(got.Result))
	}
	again := r.call(background, a, "pay", `{"order":"7"}`)
	r.want(again, "", 1)
	if !again.Recorded || !bytes.Equal(again.Result, got.Result) {
		t.Error("the recorded result is another one")
	}
}

func TestUnlockingDoesNotWaitForItself(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	ctx, cancel := context.WithCancel(background)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for ctx.Err() == nil {
				r.call(ctx, a, "look", `{"order":"7"}`)
				r.Note(struct { //nolint:errcheck // it makes the journal write
					Kind string `json:"kind"`
				}{"test_barrier"})
			}
		})
	}
	done := make(chan error, 1)
	go func() {
		for range 300 {
			if err := r.Recover(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		panic("recovery waits for the fold, and the fold for the engine")
	}
	cancel()
	calls.Wait()
}

func TestAReadThatTheJournalMissedLeavesNoImpossibleStory(t *testing.T) {
	t.Parallel()
	d := &disk{}
	r := newRig(t, func(r *rig) { r.fs = d })
	a := newAgent("1")
	r.trust(a)
	asked, release := make(chan struct{}), make(chan struct{})
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		if n == 1 {
			close(asked)
			<-release
		}
		return success(n)
	}
	read := r.begin(background, a, "look", `{"order":"1"}`)
	<-asked
	d.set(on("sync", syscall.EIO))
	r.want(r.call(background, a, "pay", `{"order":"2"}`), api.CodeJournal, 1)
	d.set(nil)
	r.untilTrue(func() bool { return !r.Counts().Down })
	close(release)
	r.want(<-read, "", 1)
	r.want(r.call(background, a, "pay", `{"order":"2"}`), "", 2)
	r.kinds()
	r.records.Settle()
	if at, head := r.records.Index().Position().Seq, r.records.Journal().Head().Seq; at != head {
		t.Errorf("the index stands at %d and the journal at %d", at, head)
	}
	r.restart()
}

func TestOnAFullDiskACardThatWasNotRecordedIsWorthNothing(t *testing.T) {
	d := &disk{}
	r := newRig(t, func(r *rig) { r.fs = d })
	a := newAgent("1")
	r.kinds()
	d.set(on("allocate", syscall.ENOSPC))
	done := r.begin(background, a, "pay", `{"order":"7","note":"`+strings.Repeat("n", 600<<10)+`"}`)
	select {
	case c := <-r.anyCard():
		_ = r.Answer(background, c.Card.ID, approval.Decision{Answer: approval.Once, By: "operator"})
		r.want(<-done, api.CodeJournal, 0)
	case got := <-done:
		r.want(got, api.CodeJournal, 0)
	}
	d.set(nil)
	r.untilTrue(func() bool { return !r.Counts().Down })
	r.kinds()
	r.records.Settle()
	if at, head := r.records.Index().Position().Seq, r.records.Journal().Head().Seq; at != head {
		t.Errorf("the index stands at %d and the journal at %d", at, head)
	}
	r.restart()
}

func TestARepeatIsAskedAboutHoweverOftenItsCardLapsed(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	first := r.call(background, a, "pay", `{"order":"1"}`)
	first.Delivered("pipe drained")
	r.until(first.ExecutionID, execution.Delivered)
	for range 10 {
		done := r.begin(background, a, "pay", `{"order":"1"}`)
		select {
		case c := <-r.anyCard():
			if c.Card.Question != approval.AskAgain || c.Earlier == nil || c.Earlier.ID != first.ExecutionID {
				t.Fatalf("the card is %+v", c)
			}
		case got := <-done:
			t.Fatalf("it was not asked about: %s, %d effects", got.Result, r.target.effects())
		}
		r.lock()
		r.want(<-done, api.CodeVaultLocked, 1)
		r.unlock()
		r.kinds()
		r.records.Settle()
	}
}

func TestASessionDoesNotRunAgainWhatWasDelivered(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	r.answer(r.card(), approval.Once)
	first := <-done
	first.Delivered("pipe drained")
	r.until(first.ExecutionID, execution.Delivered)

	repeat := r.begin(background, a, "pay", `{"order":"1"}`)
	again := r.card()
	other := r.begin(background, a, "pay", `{"order":"2"}`)
	r.waitCards(2)
	for _, c := range r.Cards() {
		if c.Card.ID != again.Card.ID {
			r.answer(c, approval.ForRun)
		}
	}
	r.want(<-other, "", 2)
	// The session settles whether the run may act, not whether this is done a second time.
	cards := r.Cards()
	if len(cards) != 1 || cards[0].Card.Question != approval.AskAgain {
		t.Fatalf("the cards are %+v, and there were %d effects", cards, r.target.effects())
	}
	r.answer(cards[0], approval.Recorded)
	got := <-repeat
	r.want(got, "", 2)
	if got.ExecutionID != first.ExecutionID {
		t.Errorf("got %s", got.ExecutionID)
	}
}

func TestAChangedContractDoesNotHideWhatWasSentUnderAKey(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	sent := r.call(background, a, "pay", `{"order":"1"}`, "key-1")
	changed := contract(t, "pay", "irreversible", "  attach_window: 1h\n  fingerprint: [order]", "api", "session", inBinding+"/v2")
	r.SetActions(append([]*policy.Action{changed}, r.actions[1:]...), r.actions[:1])
	got := r.call(background, a, "pay", `{"order":"1"}`, "key-1")
	r.want(got, "", 1)
	if got.ExecutionID != sent.ExecutionID || got.State != execution.Unknown {
		t.Errorf("got %s %s", got.ExecutionID, got.Result)
	}
	r.want(r.call(background, a, "pay", `{"order":"2"}`, "key-1"), api.CodeKeyReused, 1)
}

func TestACallIsJudgedByTheCredentialAsItIsNow(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	var once sync.Once
	r.keys.read = func() {
		once.Do(func() {
			r.keys.perUse.Store(true)
			r.CredentialChanged("api")
		})
	}
	done := r.begin(background, a, "pay", `{"order":"1"}`)
	select {
	case c := <-r.anyCard():
		r.answer(c, approval.Once)
		r.want(<-done, "", 1)
	case <-done:
		t.Error("it was sent without the question that its credential asks at each use")
	}
}

func TestNothingStartsOnceTheEngineCloses(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	var once sync.Once
	closed := make(chan error, 1)
	r.keys.read = func() {
		once.Do(func() { closed <- r.Close(background) })
	}
	r.want(r.call(background, a, "pay", `{"order":"1"}`), api.CodeShuttingDown, 0)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestADaemonInQuarantineSaysUnknownAndRecordsItWhenItIsAccepted(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	asked, release := make(chan struct{}), make(chan struct{})
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		close(asked)
		<-release
		return success(n)
	}
	r.kinds()
	ctx, cancel := context.WithCancel(background)
	done := r.begin(ctx, a, "pay", `{"order":"7"}`)
	<-asked
	// A daemon that is killed here leaves this.
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(r.dir)); err != nil {
		t.Fatal(err)
	}
	cancel()
	close(release)
	<-done
	for _, d := range []string{dir, filepath.Join(dir, "journal")} {
		if err := os.Chmod(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range append(journalFiles(dir), filepath.Join(dir, "index.db")) {
		if err := os.Chmod(f, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := journalFiles(dir)[0]
	b, err := os.ReadFile(f)
	if err != nil {
		t.Fatal(err)
	}
	// What comes behind the dispatch is garbage that no crash leaves.
	end := bytes.LastIndexByte(b, '\n') + 1
	b = append(append(b[:end:end], "{\"entry\":{}}\n"...), b[:bytes.IndexByte(b, '\n')+1]...)
	if err := os.WriteFile(f, b, 0o600); err != nil {
		t.Fatal(err)
	}
	next := newRig(t, func(n *rig) { n.dir, n.keys, n.clock, n.quarantined = dir, r.keys, r.clock, true })
	if next.records.Found().Quarantine == nil {
		t.Fatal("the journal is not in quarantine")
	}
	got := next.call(background, a, "pay", `{"order":"7"}`)
	next.want(got, "", 0)
	if got.State != execution.Unknown {
		t.Errorf("in quarantine it is %s: %s", got.State, got.Result)
	}
	next.want(next.call(background, a, "pay", `{"order":"8"}`), api.CodeQuarantine, 0)
	next.trust(a) // a read works
	if _, err := next.records.Journal().AcceptQuarantine("looked", nil); err != nil {
		t.Fatal(err)
	}
	if err := next.records.Rebuild(); err != nil {
		t.Fatal(err)
	}
	next.SetQuarantine(false)
	if err := next.Recover(); err != nil {
		t.Fatal(err)
	}
	next.want(next.call(background, a, "pay", `{"order":"8"}`), "", 1)
	next.restart()
	next.trust(a)
	again := next.call(background, a, "pay", `{"order":"7"}`)
	next.want(again, "", 0)
	if again.State != execution.Unknown || again.ExecutionID != got.ExecutionID {
		t.Errorf("after it was accepted: %s %s", again.State, again.Result)
	}
}

func TestAnAgentIsToldNoStateThatIsNotDurable(t *testing.T) {
	d := &disk{}
	r := newRig(t, func(r *rig) { r.fs = d })
	a := newAgent("1")
	r.trust(a)
	syncing, release := make(chan struct{}), make(chan struct{})
	r.target.answer = func(n int, _ channel.Request) channel.Outcome {
		d.set(func(op string) error {
			if op == "sync" {
				d.set(nil)
				close(syncing)
				<-release
			}
			return nil
		})
		return success(n)
	}
	done := r.begin(background, a, "pay", `{"order":"7"}`)
	<-syncing
	for _, tool := range []string{"execution_status", "executions_recent"} {
		arguments := `{}`
		if tool == "execution_status" {
			list := r.call(background, a, "executions_recent", `{}`)
			var l struct {
				StructuredContent struct {
					Executions []struct {
						ID string `json:"execution_id"`
					} `json:"executions"`
				} `json:"structuredContent"`
			}
			if err := json.Unmarshal(list.Result, &l); err != nil || len(l.StructuredContent.Executions) == 0 {
				t.Fatalf("%s: %v", list.Result, err)
			}
			arguments = `{"execution_id":"` + l.StructuredContent.Executions[0].ID + `"}`
		}
		if got := r.call(background, a, tool, arguments); bytes.Contains(got.Result, []byte(`"pay","state":"completed`)) || bytes.Contains(got.Result, []byte(`"pay\",\"state\":\"completed`)) {
			t.Errorf("%s says %s", tool, got.Result)
		}
	}
	close(release)
	r.want(<-done, "", 1)
}

func TestAttemptsAreBoundedWhateverTheirMix(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		switch {
		case n == 1:
			return lost(n, q)
		case n > 50:
			return success(n)
		}
		return channel.Outcome{Verdict: channel.NotSent, Reason: "connection refused"}
	}
	got := r.call(background, a, "release", `{"order":"7"}`)
	if n := r.target.effects(); n > 6 || got.State != execution.Unknown {
		t.Errorf("%d attempts, and it is %s", n, got.State)
	}
	before := r.target.effects()
	got = r.call(background, a, "release", `{"order":"7"}`)
	if n := r.target.effects(); n == before || n > before+6 || got.State != execution.Unknown {
		t.Errorf("a retry made %d attempts, and it is %s", n-before, got.State)
	}
}

func TestAnOutcomeIsKeptThoughTheDaemonLocksAtThatMoment(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	for i := range 50 {
		order := fmt.Sprintf(`{"order":"%d"}`, i)
		asked := make(chan struct{})
		r.target.answer = func(n int, _ channel.Request) channel.Outcome {
			close(asked)
			return success(n)
		}
		done := r.begin(background, a, "pay", order)
		<-asked
		r.lock()
		got := <-done
		if got.Code != "" || !bytes.Contains(got.Result, []byte("receipt")) {
			t.Fatalf("round %d: %s %s", i, got.Code, got.Result)
		}
		r.unlock()
		if again := r.call(background, a, "pay", order); !bytes.Equal(again.Result, got.Result) {
			t.Fatalf("round %d: the recorded result is %s", i, again.Result)
		}
	}
}

// TestWhateverTheDiskDoesEachIntentIsOneEffect lets callers race and retry while writes, syncs and allocations fail at random, the vault is locked and its answers are lost.
func TestWhateverTheDiskDoesEachIntentIsOneEffect(t *testing.T) {
	t.Parallel()
	d := &disk{}
	r := newRig(t, func(r *rig) { r.fs, r.small = d, 64<<10 })
	a := newAgent("1")
	r.trust(a)
	r.target.answer = func(n int, q channel.Request) channel.Outcome {
		switch {
		case n%7 == 0:
			return channel.Outcome{Verdict: channel.NotSent, Reason: "connection refused"}
		case n%5 == 0 && !q.SideEffect, strings.Contains(string(q.Effect.HTTP.Body), "asked"):
			return lost(n, q)
		}
		return success(n)
	}
	r.target.status = func(_ int, q channel.Query) channel.Finding {
		r.target.mu.Lock()
		defer r.target.mu.Unlock()
		for n, sent := range r.target.ledger {
			if sent.ExecutionID == q.ExecutionID && (n+1)%7 != 0 {
				return answered(q, 200, doneBody)
			}
		}
		return answered(q, 404, "")
	}
	var operations, faults atomic.Int64
	d.set(func(op string) error {
		if n := operations.Add(1); n%11 == 0 {
			faults.Add(1)
			return &fs.PathError{Op: op, Path: "journal", Err: syscall.EIO}
		}
		return nil
	})
	orders := 24
	if testing.Short() {
		orders = 8
	}
	tools := []string{"pay", "release", "look", "order"}
	note := func(tool string) string {
		if tool == "order" {
			return "asked " + strings.Repeat("n", 3000)
		}
		return strings.Repeat("n", 3000)
	}
	var callers sync.WaitGroup
	for i := range orders {
		tool := tools[i%len(tools)]
		arguments := fmt.Sprintf(`{"order":"%d","note":"%s"}`, i, note(tool))
		for range 4 {
			callers.Go(func() {
				for {
					got := r.call(background, a, tool, arguments)
					if got.State.Completed() {
						if got.Delivered != nil && i%2 == 0 {
							got.Disputed()
						}
						return
					}
					if got.Code == "" && tool != "look" && tool != "order" {
						t.Errorf("order %d: %s", i, got.Result)
						return
					}
					r.untilTrue(func() bool { return !r.Counts().Down })
				}
			})
		}
	}
	callers.Wait()
	d.set(nil)
	r.untilTrue(func() bool { return !r.Counts().Down })
	if faults.Load() == 0 {
		t.Error("nothing failed")
	}
	acted, ids := map[string]int{}, map[string]map[string]bool{}
	for n, q := range r.target.ledger {
		if !q.SideEffect || (n+1)%7 == 0 {
			continue
		}
		var body struct {
			Order string `json:"order"`
		}
		if err := json.Unmarshal(q.Effect.HTTP.Body, &body); err != nil {
			t.Fatal(err)
		}
		acted[body.Order]++
		if ids[body.Order] == nil {
			ids[body.Order] = map[string]bool{}
		}
		ids[body.Order][q.ExecutionID] = true
	}
	for order, n := range acted {
		if n != 1 || len(ids[order]) != 1 {
			t.Errorf("order %s: %d effects of %d executions", order, n, len(ids[order]))
		}
	}
	r.kinds()
	r.records.Settle()
	if at, head := r.records.Index().Position().Seq, r.records.Journal().Head().Seq; at != head {
		t.Errorf("the index stands at %d and the journal at %d", at, head)
	}
	before := r.target.effects()
	r.restart()
	r.trust(a)
	for i := range orders {
		if tools[i%len(tools)] == "look" {
			continue
		}
		got := r.call(background, a, tools[i%len(tools)], fmt.Sprintf(`{"order":"%d","note":"%s"}`, i, note(tools[i%len(tools)])))
		if !got.Recorded {
			t.Errorf("order %d: after a restart (%d requests before) it got %s %s", i, before, got.State, got.Result)
		}
	}
}
