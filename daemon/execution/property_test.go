package execution_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
)

// witness watches one execution from outside and says when a promise of the package is broken. It keeps its own account of what may have happened at the target.
type witness struct {
	x        execution.Execution
	inFlight int  // attempts that were dispatched and have not ended
	mayHave  bool // an attempt that may have acted is not disproved
	done     bool // an outcome was observed
	taken    bool // the target said that it took the last attempt
	result   string
}

func (w *witness) apply(ev execution.Event) error {
	before, err := json.Marshal(w.x)
	if err != nil {
		return err
	}
	next, refused := execution.Apply(w.x, ev)
	after, err := json.Marshal(w.x)
	if err != nil {
		return err
	}
	if !bytes.Equal(before, after) {
		return fmt.Errorf("%s changed its argument from %s to %s", ev.Kind, before, after)
	}
	if refused != nil {
		if !reflect.DeepEqual(next, w.x) {
			return fmt.Errorf("refused %s returned another execution", ev.Kind)
		}
		return nil
	}
	switch ev.Kind {
	case execution.KindDispatched:
		if w.inFlight++; w.inFlight > 1 {
			return fmt.Errorf("two attempts are in flight")
		}
		if w.mayHave && (next.Class != execution.Idempotent && next.Class != execution.ReadOnly) {
			return fmt.Errorf("class %q was dispatched again without proof that the first attempt did nothing", next.Class)
		}
		if w.done {
			return fmt.Errorf("dispatched after its outcome was known")
		}
		w.mayHave = true
	case execution.KindSendFailed:
		w.inFlight--
		if len(w.x.Attempts) == 1 || !w.x.InDoubt {
			w.mayHave = false
		}
	case execution.KindUnknown:
		w.inFlight--
	case execution.KindObserved:
		w.inFlight, w.done, w.result = 0, true, ev.Result
	case execution.KindAwaited:
		if next.Class != execution.StatusQuery || w.inFlight != 1 {
			return fmt.Errorf("class %q with %d attempts in flight is awaited", next.Class, w.inFlight)
		}
		w.taken = true
	case execution.KindNotDone:
		if w.taken && ev.Source != execution.FromOperator {
			return fmt.Errorf("what the target said that it took was believed not to be done, by %q", ev.Source)
		}
		w.mayHave, w.taken = false, false
	case execution.KindPruned:
		if w.x.State.Open() {
			return fmt.Errorf("%s was pruned", w.x.State)
		}
		w.result = ""
	}
	if w.x.State.Final() && next.State != w.x.State {
		return fmt.Errorf("%s became %s", w.x.State, next.State)
	}
	if next.State.Final() && w.mayHave {
		return fmt.Errorf("%s, though an attempt may have acted", next.State)
	}
	if next.State.Completed() != w.done {
		return fmt.Errorf("%s, observed %v", next.State, w.done)
	}
	if (next.State == execution.Dispatched) != (w.inFlight == 1) {
		return fmt.Errorf("%s with %d attempts in flight", next.State, w.inFlight)
	}
	if next.Result != w.result {
		return fmt.Errorf("the result became %q, and %q was observed", next.Result, w.result)
	}
	if w.x.State != "" && next.Acceptance != w.x.Acceptance {
		return fmt.Errorf("what was accepted changed")
	}
	w.x = next
	return nil
}

func anyEvent(r *rand.Rand, x execution.Execution, at time.Time) execution.Event {
	kinds := execution.Kinds()
	ev := execution.Event{
		Kind: kinds[r.IntN(len(kinds))], ID: id, At: at, Attempt: max(0, len(x.Attempts)+r.IntN(3)-1), Waiting: r.IntN(2) == 0,
		Outcome: []execution.Outcome{execution.Success, execution.TargetError, execution.NothingSent, ""}[r.IntN(4)],
		Source:  []execution.Source{"", execution.FromTarget, execution.FromLate, execution.FromQuery, execution.FromOperator}[r.IntN(5)],
		Call:    fmt.Sprint(r.IntN(4)), Evidence: "drained", Reason: "reason", Result: fmt.Sprintf("sha256:%d", r.IntN(3)),
	}
	if r.IntN(3) > 0 { // or few stories would have many attempts
		ev.Kind = []execution.Kind{
			execution.KindAuthorized, execution.KindDispatched, execution.KindSendFailed, execution.KindUnknown, execution.KindNotDone, execution.KindAttached, execution.KindAwaited,
		}[r.IntN(7)]
	}
	if r.IntN(3) > 0 {
		ev.Caller = &execution.Caller{Call: fmt.Sprint(r.IntN(4)), Run: "run_1"}
	}
	if ev.Kind == execution.KindAccepted {
		ev.Acceptance = acceptance(execution.Classes()[r.IntN(4)])
	}
	return ev
}

func TestNoSequenceOfEventsBreaksAPromise(t *testing.T) {
	seen := map[execution.State]int{}
	attempts := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 7))
		var w witness
		var told []string
		for i := range 60 {
			ev := anyEvent(r, w.x, start.Add(time.Duration(i)*time.Second))
			if w.x.State == "" {
				ev.Kind, ev.Acceptance = execution.KindAccepted, acceptance(execution.Classes()[r.IntN(4)])
			}
			if (ev.Kind == execution.KindRejected || ev.Kind == execution.KindExpired || ev.Kind == execution.KindWithdrawn) && r.IntN(5) > 0 {
				continue // or hardly any story would come further
			}
			told = append(told, fmt.Sprintf("%s/%d", ev.Kind, ev.Attempt))
			if err := w.apply(ev); err != nil {
				t.Fatalf("seed %d: %v after %s", seed, err, strings.Join(told, " "))
			}
			seen[w.x.State]++
			attempts = max(attempts, len(w.x.Attempts))
		}
	}
	for _, s := range execution.States() {
		if seen[s] == 0 {
			t.Errorf("no story came to %s", s)
		}
	}
	if attempts < 4 {
		t.Errorf("no story had more than %d attempts", attempts)
	}
}

// Values share what they hold, so another future of an execution must not reach into one that was made before.
func TestTwoFuturesOfAnExecutionDoNotTouchEachOther(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		var x execution.Execution
		for i := range 40 {
			at := start.Add(time.Duration(i) * time.Second)
			ev, other := anyEvent(r, x, at), anyEvent(r, x, at.Add(time.Hour))
			if x.State == "" {
				ev.Kind, ev.Acceptance = execution.KindAccepted, acceptance(execution.Classes()[r.IntN(4)])
			}
			next, err := execution.Apply(x, ev)
			if err != nil {
				continue
			}
			before, err := json.Marshal(next)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range []execution.Event{ev, other} {
				ev.At = at.Add(time.Hour)
				_, _ = execution.Apply(x, ev)
			}
			after, err := json.Marshal(next)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(before, after) {
				t.Fatalf("seed %d: %s made %s, which became %s", seed, ev.Kind, before, after)
			}
			x = next
		}
	}
}

// What was journaled and read again tells the same story: the live path and recovery cannot part.
func TestAStoryReadBackIsTheSameStory(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8))
		var live, read execution.Execution
		for i := range 40 {
			ev := anyEvent(r, live, start.Add(time.Duration(i)*time.Second))
			if live.State == "" {
				ev.Kind, ev.Acceptance = execution.KindAccepted, acceptance(execution.Classes()[r.IntN(4)])
			}
			next, err := execution.Apply(live, ev)
			if err != nil {
				continue
			}
			live = next
			b, err := json.Marshal(ev)
			if err != nil {
				t.Fatal(err)
			}
			var again execution.Event
			if err := json.Unmarshal(b, &again); err != nil {
				t.Fatal(err)
			}
			again.At = ev.At
			if read, err = execution.Apply(read, again); err != nil {
				t.Fatalf("seed %d: %s: %v", seed, b, err)
			}
		}
		if !reflect.DeepEqual(live, read) {
			t.Fatalf("seed %d: live %+v, read back %+v", seed, live, read)
		}
	}
}

// FuzzEvents reads lines of events, as a journal that somebody else has written would hold them.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"kind":"accepted","execution_id":"` + id + `","acceptance":{"tool":"t","class":"idempotent"},"caller":{"call":"1"}}
{"kind":"authorized","execution_id":"` + id + `"}
{"kind":"dispatched","execution_id":"` + id + `","attempt":1}
{"kind":"outcome_unknown","execution_id":"` + id + `","attempt":1}
{"kind":"dispatched","execution_id":"` + id + `","attempt":2}
{"kind":"attempt_not_sent","execution_id":"` + id + `","attempt":2}
{"kind":"not_done_established","execution_id":"` + id + `","caller_waiting":true}
{"kind":"not_sent","execution_id":"` + id + `"}
{"kind":"pruned","execution_id":"` + id + `"}`))
	f.Add([]byte(`{"kind":"accepted","execution_id":"a","acceptance":{"class":"irreversible","attach_window":-1}}
{"kind":"authorized","execution_id":"a"}
{"kind":"dispatched","execution_id":"a","attempt":1}
{"kind":"outcome_observed","execution_id":"a","attempt":1,"outcome":"success","result_reference":"r"}
{"kind":"delivered","execution_id":"a","call":""}
{"kind":"delivery_disputed","execution_id":"a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var w witness
		for i, line := range bytes.Split(b, []byte("\n")) {
			var ev execution.Event
			if json.Unmarshal(line, &ev) != nil {
				continue
			}
			ev.At = start.Add(time.Duration(i) * time.Second)
			if err := w.apply(ev); err != nil {
				t.Fatal(err)
			}
			execution.Judge(w.x, execution.Claim{Actor: w.x.Actor, Scope: w.x.Scope, Fingerprint: w.x.Fingerprint, Now: ev.At})
		}
	})
}
