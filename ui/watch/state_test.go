package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/watch"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func up(vault string) watch.Event {
	return watch.StatusKnown{Status: api.Status{Vault: vault, Journal: "ok", PID: 7, Since: noon}}
}

func card(id string, after time.Duration) api.Card {
	return api.Card{Card: id, Tool: "tool of " + id, Created: noon.Add(after), Expires: noon.Add(after + time.Minute)}
}

func said(event string, c api.Card) watch.Event {
	return watch.CardSaid{Event: api.CardEvent{Event: event, Card: c, By: "operator", Note: "no need"}, At: noon}
}

func record(id, state string, callers int) api.Record {
	return api.Record{ExecutionID: id, State: state, AcceptedAt: noon, Callers: make([]api.Caller, callers)}
}

func told(event string, r api.Record) watch.Event {
	return watch.RecordSaid{Event: api.RecordEvent{Event: event, Record: r}, At: noon}
}

func after(events ...watch.Event) watch.State {
	s := watch.State{Link: watch.Starting}
	for _, e := range events {
		s = watch.Apply(s, e)
	}
	return s
}

func ids(cards []api.Card) (list []string) {
	for _, c := range cards {
		list = append(list, c.Card)
	}
	return list
}

func TestCardsStandInTheOrderInWhichTheyWereAsked(t *testing.T) {
	s := after(up("unlocked"), watch.ProofChanged{Proven: true}, said("waiting", card("b", 2)), said("added", card("a", 1)), said("added", card("c", 2)), said("changed", card("b", 2)))
	if diff := cmp.Diff([]string{"a", "b", "c"}, ids(s.Cards)); diff != "" {
		t.Error(diff)
	}
}

func TestACardAnsweredElsewhereIsShownForAWhileWithWhoDidIt(t *testing.T) {
	s := after(up("unlocked"), watch.ProofChanged{Proven: true}, said("waiting", card("a", 1)), said("answered", api.Card{Card: "a"}))
	if len(s.Cards) != 0 || len(s.Gone) != 1 || s.Gone[0].By != "operator" || s.Gone[0].Card.Tool != "tool of a" || s.Gone[0].Reason != "no need" {
		t.Errorf("got cards %v, gone %+v", s.Cards, s.Gone)
	}
	if s = watch.Apply(s, watch.TimePassed{Now: noon.Add(5 * time.Second)}); len(s.Gone) != 1 {
		t.Error("it went before it could be read")
	}
	if s = watch.Apply(s, watch.TimePassed{Now: noon.Add(time.Minute)}); len(s.Gone) != 0 {
		t.Error("it stays")
	}
}

func TestACardAnsweredHereIsNotShownAgain(t *testing.T) {
	s := after(up("unlocked"), watch.ProofChanged{Proven: true}, said("waiting", card("a", 1)),
		watch.CardSaid{Event: api.CardEvent{Event: "answered", Card: api.Card{Card: "a"}}, Mine: true, At: noon})
	if len(s.Cards) != 0 || len(s.Gone) != 0 {
		t.Errorf("got cards %v, gone %v", s.Cards, s.Gone)
	}
}

func TestWhatOnlyAProvenPersonMaySeeIsForgotten(t *testing.T) {
	full := []watch.Event{
		up("unlocked"),
		watch.ProofChanged{Proven: true},
		said("waiting", card("a", 1)), said("waiting", card("b", 1)), said("answered", api.Card{Card: "b"}),
		told("recorded", record("act_1", "unknown", 1)), told("changed", record("act_1", "unknown", 2)),
	}
	if s := after(full...); len(s.Cards) != 1 || len(s.Gone) != 1 || len(s.Open) != 1 || len(s.Again) != 1 || len(s.Recent) != 1 {
		t.Fatalf("nothing to forget: %+v", s)
	}
	for name, e := range map[string]watch.Event{
		"a lock":             up("locked"),
		"a lost socket":      watch.LinkLost{Link: watch.Down, Problem: "gone"},
		"the end of a proof": watch.ProofChanged{},
		"another daemon":     watch.StatusKnown{Status: api.Status{Vault: "unlocked", PID: 8, Since: noon}},
		"a restarted daemon": watch.StatusKnown{Status: api.Status{Vault: "unlocked", PID: 7, Since: noon.Add(1)}},
	} {
		if s := after(append(full, e)...); s.Proven || len(s.Cards)+len(s.Gone)+len(s.Open)+len(s.Again)+len(s.Recent) != 0 {
			t.Errorf("after %s there is still %+v", name, s)
		}
	}
}

func TestACallThatComesAgainIsNoticedOnce(t *testing.T) {
	proven := []watch.Event{up("unlocked"), watch.ProofChanged{Proven: true}}
	for _, c := range []struct {
		name   string
		events []watch.Event
		want   int
	}{
		{"a first call", []watch.Event{told("changed", record("act_1", "dispatched", 1))}, 0},
		{"another caller", []watch.Event{told("changed", record("act_1", "dispatched", 1)), told("changed", record("act_1", "dispatched", 2))}, 1},
		{"two callers of before", []watch.Event{told("recorded", record("act_1", "unknown", 2)), told("changed", record("act_1", "not_done", 2))}, 0},
		{"two more callers", []watch.Event{told("changed", record("act_1", "unknown", 2)), told("changed", record("act_1", "unknown", 3))}, 1},
	} {
		if s := after(append(proven, c.events...)...); len(s.Again) != c.want {
			t.Errorf("%s: %d came again, want %d", c.name, len(s.Again), c.want)
		}
	}
	s := after(append(proven, told("changed", record("act_1", "unknown", 2)), told("changed", record("act_1", "not_done", 2)))...)
	if s.Again[0].Record.State != "not_done" {
		t.Errorf("what came again stays at %s", s.Again[0].Record.State)
	}
}

func TestACallThatWasLookedAtGoesSooner(t *testing.T) {
	s := after(up("unlocked"), watch.ProofChanged{Proven: true}, told("changed", record("act_1", "completed_result_delivered", 2)), watch.Seen{Execution: "act_1"})
	if len(s.Again) != 1 || !s.Again[0].Seen {
		t.Fatalf("got %+v", s.Again)
	}
	if later := watch.Apply(s, watch.TimePassed{Now: noon.Add(3 * time.Minute)}); len(later.Again) != 0 {
		t.Errorf("got %+v", later.Again)
	}
	if s = watch.Apply(s, told("changed", record("act_1", "completed_result_delivered", 3))); s.Again[0].Seen {
		t.Error("one more call counts as looked at")
	}
}

func TestWhatIsNotSettledStaysInSight(t *testing.T) {
	s := after(up("unlocked"), watch.ProofChanged{Proven: true}, told("changed", record("act_1", "unknown", 2)), told("changed", record("act_2", "completed_result_delivered", 2)),
		watch.TimePassed{Now: noon.Add(24 * time.Hour)})
	if len(s.Again) != 1 || s.Again[0].Record.ExecutionID != "act_1" {
		t.Errorf("got %+v", s.Again)
	}
}

func TestTheFaceIsTheMostUrgentThing(t *testing.T) {
	waits := []watch.Event{watch.ProofChanged{Proven: true}, said("waiting", card("a", 1)), said("waiting", card("b", 1))}
	for _, c := range []struct {
		name   string
		events []watch.Event
		face   watch.Face
		count  int
	}{
		{"not asked yet", nil, watch.FaceDown, 0},
		{"no daemon", []watch.Event{up("unlocked"), watch.LinkLost{Link: watch.Down}}, watch.FaceDown, 0},
		{"a stranger", []watch.Event{watch.LinkLost{Link: watch.Stranger}}, watch.FaceDown, 0},
		{"no vault", []watch.Event{up("uninitialized")}, watch.FaceLocked, 0},
		{"locked", []watch.Event{up("locked")}, watch.FaceLocked, 0},
		{"unlocked", []watch.Event{up("unlocked")}, watch.FaceUnlocked, 0},
		{"cards", append([]watch.Event{up("unlocked")}, waits...), watch.FaceWaiting, 2},
		{"cards that may not be seen", []watch.Event{watch.StatusKnown{Status: api.Status{Vault: "unlocked", Pending: 3}}}, watch.FaceWaiting, 3},
		{"quarantine", []watch.Event{watch.StatusKnown{Status: api.Status{Vault: "unlocked", Journal: "quarantine", Unknown: 1}}}, watch.FaceQuarantine, 0},
		{"quarantine and cards", append([]watch.Event{watch.StatusKnown{Status: api.Status{Vault: "unlocked", Journal: "quarantine"}}}, waits...), watch.FaceWaiting, 2},
		{"unknown and locked", []watch.Event{watch.StatusKnown{Status: api.Status{Vault: "locked", Unknown: 4}}}, watch.FaceUnknown, 4},
		{"settled before the status knows", []watch.Event{
			watch.StatusKnown{Status: api.Status{Vault: "unlocked", Unknown: 1}}, watch.ProofChanged{Proven: true}, told("recorded", record("act_1", "not_done", 1)),
		}, watch.FaceUnlocked, 0},
	} {
		if face, count := after(c.events...).Face(); face != c.face || count != c.count {
			t.Errorf("%s: %s %d, want %s %d", c.name, face, count, c.face, c.count)
		}
	}
}

func TestNoEventChangesTheStateBefore(t *testing.T) {
	events := []watch.Event{
		up("unlocked"),
		watch.ProofChanged{Proven: true},
		watch.CardsOpened{},
		watch.ActivityOpened{},
		said("waiting", card("b", 2)), said("waiting", card("a", 1)), said("changed", card("a", 3)),
		said("answered", api.Card{Card: "b"}), said("void", api.Card{Card: "a"}), told("recorded", record("act_1", "dispatched", 1)), told("changed", record("act_1", "unknown", 2)),
		told("changed", record("act_2", "unknown", 2)), told("changed", record("act_1", "unknown", 3)), told("changed", record("act_1", "not_done", 3)),
		watch.Seen{Execution: "act_1"},
		watch.TimePassed{Now: noon.Add(time.Hour)},
		watch.LinkLost{Link: watch.Down},
	}
	s := watch.State{}
	for i, e := range events {
		shown := fmt.Sprintf("%+v", s)
		next := watch.Apply(s, e)
		if now := fmt.Sprintf("%+v", s); now != shown {
			t.Errorf("event %d (%T) changed what was shown before:\n%s", i, e, cmp.Diff(shown, now))
		}
		s = next
	}
}

func TestOnlyTheNewestExecutionsAreKeptAndEveryUnknownOne(t *testing.T) {
	s := after(up("unlocked"), watch.ProofChanged{Proven: true})
	old := record("act_old", "unknown", 1)
	old.AcceptedAt = noon.Add(-24 * time.Hour)
	s = watch.Apply(s, told("recorded", old))
	for i := range 300 {
		r := record(fmt.Sprintf("act_%03d", i), "completed_result_delivered", 1)
		r.AcceptedAt = noon.Add(time.Duration(i) * time.Second)
		s = watch.Apply(s, told("recorded", r))
	}
	if len(s.Recent) != 100 || s.Recent[0].ExecutionID != "act_299" {
		t.Errorf("%d are kept, the first %s", len(s.Recent), s.Recent[0].ExecutionID)
	}
	if len(s.Open) != 1 || s.Unknown() != 1 {
		t.Errorf("the unknown one is lost: %+v", s.Open)
	}
}

func refusedWhileLocked(calls int, last, at time.Duration) watch.Event {
	return watch.StatusKnown{Status: api.Status{Vault: "locked", PID: 7, Since: noon, LockedCalls: &api.LockedCalls{Calls: calls, Last: noon.Add(last)}}, At: noon.Add(at)}
}

func TestCallsThatALockRefusedAreToldAtOnceAndThenNowAndThen(t *testing.T) {
	s := after(up("unlocked"))
	for _, c := range []struct {
		event watch.Event
		calls int
	}{
		{up("locked"), 0},
		{refusedWhileLocked(1, 0, time.Second), 1},
		{refusedWhileLocked(2, time.Minute, time.Minute), 1},
		{refusedWhileLocked(40, 9*time.Minute, 10*time.Minute), 1},
		{refusedWhileLocked(41, 9*time.Minute, 10*time.Minute+time.Second), 41},
		{refusedWhileLocked(41, 9*time.Minute, time.Hour), 41}, // none since
		{refusedWhileLocked(42, time.Hour, time.Hour), 42},
		{refusedWhileLocked(43, time.Hour+1, -time.Hour), 43}, // the clock was set back
		{up("unlocked"), 0},
		{refusedWhileLocked(1, 2*time.Hour, 2*time.Hour), 1},
		{watch.LinkLost{Link: watch.Down}, 0},
	} {
		if s = watch.Apply(s, c.event); s.Denied.Calls != c.calls {
			t.Errorf("after %+v: %d calls are told, want %d", c.event, s.Denied.Calls, c.calls)
		}
	}
}
