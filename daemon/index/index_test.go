package index_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
)

func TestTheIndexAnswersAsAPlainModelDoes(t *testing.T) {
	for seed := range uint64(4) {
		j := newJournal(seed)
		ix := unlocked(t, file(t))
		for range 4 {
			j.tell(150)
			catchUp(t, ix, j)
			j.compare(t, ix) // half of it in memory
			if j.rng.IntN(2) == 0 {
				flush(t, ix)
				j.compare(t, ix) // all of it in the file
			}
		}
	}
}

func TestAnEmptyIndexAnswersNothing(t *testing.T) {
	ix := unlocked(t, file(t))
	if p := ix.Position(); p != (index.Position{}) {
		t.Errorf("position %v", p)
	}
	_, get, err1 := ix.Get("act_1")
	match, err2 := ix.Match("a", "s", "f")
	_, byKey, err3 := ix.MatchKey("a", "key:1")
	list, err4 := ix.List(index.Query{})
	runs, err5 := ix.Runs("", 0)
	openOnes, err6 := ix.OpenExecutions(index.Filter{})
	prunable, err7 := ix.Prunable(time.Now(), 10)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	if get || byKey || len(match)+len(list)+len(runs)+len(openOnes)+len(prunable) > 0 {
		t.Error("something was found")
	}
}

// A loop of repeats must not push an open execution out of sight: it is the one that forbids another effect.
func TestAnOpenExecutionIsMatchedHoweverManyCameAfterIt(t *testing.T) {
	j := newJournal(18)
	ix := unlocked(t, file(t))
	const n = 30
	for i := range n {
		id := fmt.Sprintf("act_%d", i)
		j.apply(execution.Event{Kind: execution.KindAccepted, ID: id, Acceptance: &execution.Acceptance{Class: execution.Irreversible, Actor: "a", Scope: "run:1", Fingerprint: "f"}})
		if i != 2 && i != 5 {
			j.apply(execution.Event{Kind: execution.KindExpired, ID: id})
		}
		catchUp(t, ix, j)
		if i%7 == 0 {
			flush(t, ix)
		}
	}
	j.apply(execution.Event{Kind: execution.KindWithdrawn, ID: "act_5"})
	catchUp(t, ix, j)
	var ids []string
	for _, x := range must[[]execution.Execution](t)(ix.Match("a", "run:1", "f")) {
		ids = append(ids, x.ID)
	}
	same(t, "matches", ids, []string{"act_29", "act_28", "act_27", "act_26", "act_25", "act_24", "act_23", "act_22", "act_2"})
}

func TestACrashAtAnyPointLosesNothing(t *testing.T) {
	j := newJournal(11).tell(900)
	whole := unlocked(t, file(t))
	catchUp(t, whole, j)
	want := dump(t, whole)

	path := file(t)
	ix := open(t, path)
	for crashes := 0; ; {
		if err := ix.Authenticate(key("a")); err != nil {
			t.Fatal(err)
		}
		at := ix.Position().Seq
		if at == uint64(len(j.entries)) && crashes > 5 {
			break
		}
		for range 1 + j.rng.IntN(3) {
			to := min(at+uint64(j.rng.IntN(120)), uint64(len(j.entries)))
			fold(t, ix, j.entries[at:to])
			if at = to; j.rng.IntN(3) > 0 {
				flush(t, ix)
			}
		}
		if err := ix.Crash(); err != nil {
			t.Fatal(err)
		}
		ix = open(t, path)
		crashes++
	}
	same(t, "rows after crashes", dump(t, ix), want)
	j.compare(t, ix)
	if err := errors.Join(ix.Check(), ix.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestARebuiltIndexIsIdentical(t *testing.T) {
	j := newJournal(12).tell(700)
	path := file(t)
	ix := unlocked(t, path)
	for ix.Position().Seq < uint64(len(j.entries)) {
		at := ix.Position().Seq
		fold(t, ix, j.entries[at:min(at+64, uint64(len(j.entries)))])
		flush(t, ix)
	}
	want := dump(t, ix)
	if err := ix.Reset(); err != nil {
		t.Fatal(err)
	}
	if p := ix.Position(); p.Seq != 0 {
		t.Fatalf("after reset the index stands at %d", p.Seq)
	}
	catchUp(t, ix, j)
	same(t, "rebuilt rows", dump(t, ix), want)
	flush(t, ix)
	same(t, "rebuilt rows in the file", dump(t, ix), want)
}

func TestADeletedFileIsBegunAnew(t *testing.T) {
	j := newJournal(13).tell(200)
	path := file(t)
	ix := open(t, path)
	if err := ix.Authenticate(key("a")); err != nil {
		t.Fatal(err)
	}
	catchUp(t, ix, j)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ix = unlocked(t, path)
	if ix.Position().Seq != 0 {
		t.Fatal("an index without its file has a position")
	}
	catchUp(t, ix, j)
	j.compare(t, ix)
}

func TestEventsThatComeDecodedGiveTheSameRows(t *testing.T) {
	j := newJournal(14).tell(300)
	a, b := unlocked(t, file(t)), unlocked(t, file(t))
	catchUp(t, a, j)
	for _, e := range j.entries {
		var ev execution.Event
		if err := json.Unmarshal(e.Event, &ev); err != nil {
			t.Fatal(err)
		}
		if ev.ID != "" {
			e.Event, e.Decoded = nil, &ev
		}
		fold(t, b, []index.Entry{e})
	}
	same(t, "rows", dump(t, b), dump(t, a))
}

func TestAnImpossibleEventChangesNothing(t *testing.T) {
	j := newJournal(15).tell(100)
	ix := unlocked(t, file(t))
	catchUp(t, ix, j)
	before, at := dump(t, ix), ix.Position()
	next := func(event string) index.Entry {
		return index.Entry{Position: index.Position{Seq: at.Seq + 1}, Time: j.now, Event: []byte(event)}
	}
	for event, want := range map[string]error{
		`{"kind":"delivered","execution_id":"act_nobody"}`:                      execution.ErrIllegal,
		`{"kind":"accepted","execution_id":"act_new"}`:                          execution.ErrIllegal,
		`{"kind":"accepted","execution_id":"` + j.order[0] + `"}`:               execution.ErrIllegal,
		`{"kind":"run_seen"}`:                                                   nil,
		`{"kind":"accepted","execution_id":7}`:                                  nil,
		`{"kind":`:                                                              nil,
		`{"kind":"accepted","execution_id":"` + strings.Repeat("x", 256) + `"}`: nil,
	} {
		err := ix.Fold([]index.Entry{next(event)})
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", event, err)
		}
	}
	gap := next(`{"kind":"call_denied"}`)
	gap.Seq++
	if err := ix.Fold([]index.Entry{gap}); err == nil {
		t.Error("an entry was skipped")
	}
	if err := ix.Skip(at); err == nil {
		t.Error("the position was set back")
	}
	if ix.Position() != at {
		t.Error("the position moved")
	}
	same(t, "rows", dump(t, ix), before)
	fold(t, ix, []index.Entry{next(`{"kind":"call_denied"}`)})

	gap.Seq += 10
	fatal(t, ix.Skip(index.Position{Seq: gap.Seq - 1}))
	fold(t, ix, []index.Entry{gap})
	same(t, "rows after a gap", dump(t, ix), before)
}

func TestAFullDiskLosesNothing(t *testing.T) {
	j := newJournal(16).tell(400)
	path := file(t)
	ix := unlocked(t, path)
	fold(t, ix, j.entries[:100])
	flush(t, ix)
	ix.LimitFile(true)
	catchUp(t, ix, j)
	if err := ix.Flush(); err == nil || errors.Is(err, index.ErrNotAuthentic) {
		t.Fatalf("flushing to a full disk: %v", err)
	}
	j.compare(t, ix)
	ix.LimitFile(false)
	flush(t, ix)
	if n := ix.Pending(); n != 0 {
		t.Errorf("%d rows are pending", n)
	}
	j.compare(t, ix)
}

func TestLookupsFoldAndFlushGoOnTogether(t *testing.T) {
	j := newJournal(17).tell(1500)
	ix := unlocked(t, file(t))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	loop := func(f func() error) {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(ix.Flush)
	loop(func() error {
		list, err := ix.List(index.Query{Limit: 50})
		for _, x := range list {
			match, err := ix.Match(x.Actor, x.Scope, x.Fingerprint)
			if err != nil || len(match) == 0 {
				return errors.Join(err, errors.New("a listed execution has no match"))
			}
		}
		return err
	})
	loop(func() error {
		_, err1 := ix.OpenExecutions(index.Filter{})
		_, err2 := ix.Prunable(j.now, 10)
		_, err3 := ix.Runs("", 10)
		ix.Counts()
		return errors.Join(err1, err2, err3)
	})
	for i := range j.entries {
		fold(t, ix, j.entries[i:i+1])
	}
	stop()
	group.Wait()
	j.compare(t, ix)
}

func TestAStandingGrantCountsFromItsFirstWordUntilItEndsOrAQuarantineIsAccepted(t *testing.T) {
	ix := open(t, file(t))
	j := newJournal(1)
	say := func(kind, grant string) {
		j.append(struct {
			Kind  string `json:"kind"`
			Grant string `json:"grant"`
		}{kind, grant}, false)
		catchUp(t, ix, j)
		flush(t, ix)
	}
	counts := func(grant string) bool {
		t.Helper()
		_, ok, err := ix.Grant(grant)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if counts("grant_1") {
		t.Error("one that was never given counts")
	}
	say(index.GrantGiven, "grant_1")
	say(index.GrantGiven, "grant_2")
	if !counts("grant_1") || !counts("grant_2") {
		t.Error("what was given does not count")
	}
	say(index.GrantEnded, "grant_1")
	say(index.GrantGiven, "grant_1")
	if counts("grant_1") || !counts("grant_2") {
		t.Error("what has ended counts again, or another one ended with it")
	}
	say("quarantine_accepted", "")
	say(index.GrantGiven, "grant_2") // a line that somebody wrote
	if counts("grant_2") {
		t.Error("it outlives a quarantine: its end may have been in what was lost")
	}
}
