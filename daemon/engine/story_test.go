package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
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

type noNumberYet struct{}

func (noNumberYet) Done() <-chan struct{} { return nil }
func (noNumberYet) Err() error            { return nil }
func (noNumberYet) Seq() uint64           { return 0 }

func (w waiting) Append(entries ...engine.Entry) engine.Commit {
	c := w.Journal.Append(entries...)
	for _, e := range entries {
		if e.ID == "" || !e.Lazy {
			return c
		}
	}
	return noNumberYet{}
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
