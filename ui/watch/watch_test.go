package watch_test

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/ui/watch"
)

// daemon is a daemon of which the test decides what it says.
type daemon struct {
	mu       sync.Mutex // owns what follows
	status   api.Status
	down     error
	ticket   bool
	waiting  []api.CardEvent // what a stream of cards begins with
	unknown  []api.Record
	cards    chan api.CardEvent // nil: no stream is open
	records  chan api.RecordEvent
	cut      context.CancelCauseFunc
	openings int
	looks    int
}

func (d *daemon) Status(context.Context) (api.Status, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looks++
	return d.status, d.down
}

func (d *daemon) HasTicket() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ticket
}

func (d *daemon) Activity(context.Context, client.Query) ([]api.Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unknown, d.down
}

func (d *daemon) WatchCards(ctx context.Context) iter.Seq2[api.CardEvent, error] {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.openings++
	d.cards = make(chan api.CardEvent)
	first, more := slices.Clone(d.waiting), d.cards
	ctx, d.cut = context.WithCancelCause(ctx)
	return func(yield func(api.CardEvent, error) bool) {
		for _, e := range first {
			if !yield(e, nil) {
				return
			}
		}
		follow(ctx, more, yield)
	}
}

func (d *daemon) WatchActivity(ctx context.Context, _ client.Query) iter.Seq2[api.RecordEvent, error] {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records = make(chan api.RecordEvent)
	more := d.records
	return func(yield func(api.RecordEvent, error) bool) { follow(ctx, more, yield) }
}

func follow[T any](ctx context.Context, more <-chan T, yield func(T, error) bool) {
	for {
		select {
		case e := <-more:
			if !yield(e, nil) {
				return
			}
		case <-ctx.Done():
			var zero T
			yield(zero, context.Cause(ctx))
			return
		}
	}
}

func (d *daemon) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// rig runs a watch in a bubble and keeps its newest state.
type rig struct {
	*daemon
	w     *watch.Watch
	mu    sync.Mutex
	state watch.State // owner: mu
	heard []api.Record
}

func (r *rig) now() watch.State {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func watching(t *testing.T, d *daemon, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{daemon: d}
		var err error
		r.w, err = watch.New(watch.Config{
			Daemon: d, Now: time.Now,
			Changed: func(s watch.State) { r.mu.Lock(); r.state = s; r.mu.Unlock() },
			Record:  func(x api.Record) { r.mu.Lock(); r.heard = append(r.heard, x); r.mu.Unlock() },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.w.Run(ctx); close(done) }()
		test(r)
		cancel()
		<-done
	})
}

func unlocked() *daemon {
	return &daemon{status: api.Status{Vault: "unlocked", PID: 7, Journal: "ok"}, ticket: true, waiting: []api.CardEvent{{Event: "waiting", Card: card("a", 1)}}}
}

func TestTheFirstThingKnownIsWhatWaits(t *testing.T) {
	watching(t, unlocked(), func(r *rig) {
		if s := r.now(); !s.Proven || len(s.Cards) != 1 || s.Link != watch.Up {
			t.Errorf("got %+v", s)
		}
		r.cards <- api.CardEvent{Event: "added", Card: card("b", 2)}
		if s := r.now(); len(s.Cards) != 2 {
			t.Errorf("got %v", ids(s.Cards))
		}
	})
}

func TestWithoutAProofOnlyTheStatusIsAsked(t *testing.T) {
	d := unlocked()
	d.ticket, d.status.Pending = false, 2
	watching(t, d, func(r *rig) {
		if s := r.now(); s.Proven || len(s.Cards) != 0 || s.Waiting() != 2 || d.openings != 0 {
			t.Errorf("got %+v after %d openings", s, d.openings)
		}
		d.set(func() { d.ticket = true })
		r.w.Nudge()
		if s := r.now(); !s.Proven || len(s.Cards) != 1 {
			t.Errorf("after the proof: %+v", s)
		}
	})
}

func TestARestartedDaemonIsFoundAndItsCardsAreNew(t *testing.T) {
	watching(t, unlocked(), func(r *rig) {
		r.now()
		gone := api.Errorf(api.CodeNoDaemon, "the daemon is not running").WithHint("start it")
		r.set(func() { r.down, r.waiting = gone, nil; r.cut(gone) })
		if s := r.now(); s.Link != watch.Down || s.Hint != "start it" || len(s.Cards) != 0 {
			t.Errorf("without a daemon: %+v", s)
		}
		r.set(func() {
			r.down, r.status.PID, r.waiting = nil, 8, []api.CardEvent{{Event: "waiting", Card: card("z", 1)}}
		})
		time.Sleep(3 * time.Second)
		if s := r.now(); s.Link != watch.Up || len(s.Cards) != 1 || s.Cards[0].Card != "z" {
			t.Errorf("with another daemon: %+v", s)
		}
	})
}

func TestAStreamThatEndsIsOpenedAgainAndNotInAHurry(t *testing.T) {
	watching(t, unlocked(), func(r *rig) {
		r.now()
		for range 5 {
			r.set(func() { r.cut(api.Errorf(api.CodeShuttingDown, "too slow")) })
			time.Sleep(3 * time.Second)
			if s := r.now(); len(s.Cards) != 1 {
				t.Errorf("got %v", ids(s.Cards))
			}
		}
		if r.openings != 6 {
			t.Errorf("%d openings for 5 ends", r.openings)
		}
	})
}

func TestATicketThatIsOverIsNoProof(t *testing.T) {
	watching(t, unlocked(), func(r *rig) {
		r.now()
		r.set(func() { r.ticket = false; r.cut(api.Errorf(api.CodeProofNeeded, "over")) })
		if s := r.now(); s.Proven || len(s.Cards) != 0 || s.Link != watch.Up {
			t.Errorf("got %+v", s)
		}
	})
}

func TestALockIsSeenAndShutsTheStreams(t *testing.T) {
	watching(t, unlocked(), func(r *rig) {
		r.now()
		r.set(func() { r.status.Vault, r.ticket = "locked", false })
		r.w.Nudge()
		if s := r.now(); s.Proven || s.Status.Vault != "locked" {
			t.Errorf("got %+v", s)
		}
	})
}

func TestWhatIsAnsweredHereIsNotToldAsAnothersDoing(t *testing.T) {
	watching(t, unlocked(), func(r *rig) {
		r.now()
		r.w.Answering("a")
		r.cards <- api.CardEvent{Event: "answered", Card: api.Card{Card: "a"}}
		if s := r.now(); len(s.Cards) != 0 || len(s.Gone) != 0 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestUnknownOutcomesOfLongAgoAreThereAndChangesAreHeard(t *testing.T) {
	d := unlocked()
	d.unknown = []api.Record{record("act_1", "unknown", 1)}
	watching(t, d, func(r *rig) {
		if s := r.now(); len(s.Open) != 1 {
			t.Errorf("got %+v", s.Open)
		}
		r.records <- api.RecordEvent{Event: "changed", Record: record("act_1", "not_done", 1)}
		if s := r.now(); len(s.Open) != 0 || len(r.heard) != 1 {
			t.Errorf("got %+v, heard %+v", s.Open, r.heard)
		}
	})
}

func TestAnIdleWatchHardlyLooks(t *testing.T) {
	watching(t, unlocked(), func(r *rig) {
		r.now()
		time.Sleep(10 * time.Minute)
		r.now()
		if r.looks > 45 {
			t.Errorf("%d looks in ten minutes", r.looks)
		}
	})
}
