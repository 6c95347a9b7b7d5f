package notify_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/bustest"
	"singlepass.dev/ui/notify"
	"singlepass.dev/ui/watch"
)

// keys says a text by its key and data.
type keys struct{}

func (keys) Say(key string, pairs ...any) string {
	return strings.TrimSpace(key + " " + fmt.Sprintln(pairs...))
}

func (keys) Count(key string, n int, _ ...any) string { return fmt.Sprint(key, " ", n) }

type desk struct {
	t       *testing.T
	address string
	shown   *bustest.Notifications
	n       *notify.Notifier
	clicks  chan string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, address: bustest.Start(t), clicks: make(chan string, 16)}
	d.shown = bustest.NewNotifications(t, d.address)
	var err error
	d.n, err = notify.New(notify.Config{Bus: bustest.Connect(t, d.address), Do: func(key, action string) { d.clicks <- key + " " + action }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	return d
}

func (d *desk) next() bustest.Notice {
	d.t.Helper()
	return bustest.Await(d.t, "notification", d.shown.Shown, func(bustest.Notice) bool { return true })
}

func cards(ids ...string) watch.State {
	s := watch.Apply(watch.State{}, watch.StatusKnown{Status: api.Status{Vault: "unlocked"}})
	s = watch.Apply(s, watch.ProofChanged{Proven: true})
	for _, id := range ids {
		s = watch.Apply(s, watch.CardSaid{Event: api.CardEvent{Event: "added", Card: api.Card{
			Card: id, Tool: "deploy_" + id, Actor: "exe:/usr/bin/claude", Target: "https://deploy.example", Effect: api.Effect{Body: "canary-not-a-secret-body"},
		}}})
	}
	return s
}

func TestNoticesAreReplacedAndWithdrawn(t *testing.T) {
	d := newDesk(t)
	d.n.Set(notify.Of(cards("a"), keys{}))
	first := d.next()
	if !strings.Contains(first.Title, "deploy_a") || first.Replaces != 0 {
		t.Errorf("got %+v", first)
	}
	d.n.Set(notify.Of(cards("a", "b"), keys{}))
	second := d.next()
	if second.ID != first.ID || second.Replaces != first.ID || !strings.Contains(second.Title, "deploy_b") || second.Body != "notify.more 1" {
		t.Errorf("got %+v after %+v", second, first)
	}
	d.n.Set(notify.Of(cards(), keys{}))
	if gone := d.next(); !gone.Closed || gone.ID != first.ID {
		t.Errorf("got %+v", gone)
	}
}

func TestAClickIsAboutWhatWasShown(t *testing.T) {
	d := newDesk(t)
	d.n.Set(notify.Of(cards("a"), keys{}))
	n := d.next()
	d.shown.Click(n.ID, n.Key("notify.deny"))
	got := bustest.Await(t, "click", d.clicks, func(string) bool { return true })
	key, action, _ := strings.Cut(got, " ")
	if deny, id := notify.Click(action); key != notify.KeyWaiting || !deny || id != "a" {
		t.Errorf("got %q", got)
	}
	// The card that took its place is not the one that the person saw.
	d.n.Set(notify.Of(cards("b"), keys{}))
	d.next()
	d.shown.Click(n.ID, n.Key("notify.deny"))
	d.shown.Click(n.ID, notify.Show)
	if got := bustest.Await(t, "click", d.clicks, func(string) bool { return true }); got != "waiting default" {
		t.Errorf("a click on what is gone did %q", got)
	}
}

func TestAnotherProgramCannotClick(t *testing.T) {
	d := newDesk(t)
	d.n.Set(notify.Of(cards("a"), keys{}))
	n := d.next()
	bustest.Forge(t, d.address, n.ID, n.Key("notify.deny"))
	d.shown.Click(n.ID, notify.Show)
	if got := bustest.Await(t, "click", d.clicks, func(string) bool { return true }); got != "waiting default" {
		t.Errorf("a forged click did %q", got)
	}
}

func TestWhatWasWavedAwayComesBackOnlyWhenItChanges(t *testing.T) {
	d := newDesk(t)
	d.n.Set(notify.Of(cards("a"), keys{}))
	n := d.next()
	d.shown.Click(n.ID, notify.Show)
	d.shown.Dismissed(n.ID)
	bustest.Await(t, "click", d.clicks, func(string) bool { return true })
	d.n.Set(notify.Of(cards("a"), keys{}))
	d.n.Set(notify.Of(cards("a", "b"), keys{}))
	if next := d.next(); !strings.Contains(next.Title, "deploy_b") {
		t.Errorf("got %+v", next)
	}
}

func TestTheEndOfTheAppWithdrawsWhatItShows(t *testing.T) {
	address := bustest.Start(t)
	shown := bustest.NewNotifications(t, address)
	n, err := notify.New(notify.Config{Bus: bustest.Connect(t, address), Do: func(string, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.Set(notify.Of(cards("a"), keys{}))
	bustest.Await(t, "notification", shown.Shown, func(bustest.Notice) bool { return true })
	cancel()
	bustest.Await(t, "withdrawal", shown.Shown, func(n bustest.Notice) bool { return n.Closed })
	<-done
}

func TestNothingOfACallIsInANotice(t *testing.T) {
	s := cards("a")
	s = watch.Apply(s, watch.CardSaid{Event: api.CardEvent{Event: "added", Card: api.Card{Card: "z", Tool: "<b>pay</b>\u202e\n\x1b[1m", Actor: "exe:/opt/<img>", Effect: api.Effect{Body: "canary-not-a-secret-body"}}}})
	record := api.Record{ExecutionID: "act_1", Tool: "pay", State: "unknown", Target: "https://deploy.example", Reason: "canary-not-a-secret-reason", Callers: make([]api.Caller, 2)}
	s = watch.Apply(s, watch.RecordSaid{Event: api.RecordEvent{Event: "changed", Record: record}})
	list := notify.Of(s, keys{})
	if len(list) != 3 {
		t.Fatalf("got %d notices", len(list))
	}
	for _, n := range list {
		text := fmt.Sprintf("%+v", n)
		if strings.Contains(text, "canary") || strings.Contains(text, "deploy.example") || strings.ContainsAny(text, "\u202e\x1b\n") {
			t.Errorf("got %q", text)
		}
	}
}

func TestTheBodyIsNoMarkup(t *testing.T) {
	d := newDesk(t)
	d.n.Set([]notify.Notice{{Key: "k", Title: "t", Body: `<a href="x">&`}})
	if n := d.next(); n.Body != `&lt;a href="x"&gt;&amp;` {
		t.Errorf("got %q", n.Body)
	}
}

func TestAnAgentThatALockRefusedIsToldOnceWithoutWhatItAskedFor(t *testing.T) {
	refused := func(calls int, last, at time.Time) watch.Event {
		return watch.StatusKnown{Status: api.Status{Vault: "locked", Reason: "canary-not-a-secret-reason", LockedCalls: &api.LockedCalls{Calls: calls, Last: last}}, At: at}
	}
	noon := time.Date(2026, 3, 14, 12, 0, 0, 0, time.Local)
	d := newDesk(t)
	s := watch.Apply(watch.State{}, refused(1, noon, noon))
	d.n.Set(notify.Of(s, keys{}))
	first := d.next()
	if first.Title != "notify.denied" || first.Body != "notify.denied_calls 1" || strings.Contains(fmt.Sprint(first), "canary") {
		t.Errorf("got %+v", first)
	}
	// An agent in a loop: nothing is shown again until there is something new to say.
	for i := range 5 {
		s = watch.Apply(s, refused(2+i, noon.Add(time.Duration(i+1)*time.Minute), noon.Add(time.Duration(i+1)*time.Minute)))
		d.n.Set(notify.Of(s, keys{}))
	}
	s = watch.Apply(s, refused(9, noon.Add(11*time.Minute), noon.Add(11*time.Minute)))
	d.n.Set(notify.Of(s, keys{}))
	if second := d.next(); second.ID != first.ID || second.Replaces != first.ID || second.Body != "notify.denied_calls 9" {
		t.Errorf("got %+v after %+v", second, first)
	}
	s = watch.Apply(s, watch.StatusKnown{Status: api.Status{Vault: "unlocked"}, At: noon.Add(12 * time.Minute)})
	d.n.Set(notify.Of(s, keys{}))
	if gone := d.next(); !gone.Closed {
		t.Errorf("got %+v", gone)
	}
}
