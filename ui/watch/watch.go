package watch

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"sync"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
)

// Daemon is what is asked of the daemon; a *client.Operator is one. It is safe for concurrent use.
type Daemon interface {
	Status(ctx context.Context) (api.Status, error)
	// HasTicket says whether cards and activity may be asked for. It asks nobody.
	HasTicket() bool
	WatchCards(ctx context.Context) iter.Seq2[api.CardEvent, error]
	WatchActivity(ctx context.Context, q client.Query) iter.Seq2[api.RecordEvent, error]
	Activity(ctx context.Context, q client.Query) ([]api.Record, error)
}

// Config is what a Watch is made of.
type Config struct {
	Daemon  Daemon           // required
	Changed func(State)      // required: called with every state that differs from the one before, in order, by the one goroutine; it must return soon
	Record  func(api.Record) // optional: every change of an execution, in the same way
	Now     func() time.Time // required
	Times   Times            // optional
}

// Times say how often the status is looked at.
type Times struct {
	Streaming time.Duration // while streams tell what happens: 15 s
	Alone     time.Duration // while they do not: 2 s
	Retry     time.Duration // the first wait before a stream is opened again; it doubles up to Alone: 250 ms
	Settle    time.Duration // how long after an event, so that many events are one look: 300 ms
}

// Watch follows one daemon.
type Watch struct {
	cfg    Config
	events chan any
	nudges chan struct{}

	mu   sync.Mutex
	mine map[string]bool // owner: mu; cards answered from here
}

// New returns a Watch that follows nothing until Run.
func New(cfg Config) (*Watch, error) {
	if cfg.Daemon == nil || cfg.Changed == nil || cfg.Now == nil {
		return nil, errors.New("watch: Daemon, Changed and Now are required")
	}
	t := &cfg.Times
	for _, d := range []struct {
		at        *time.Duration
		otherwise time.Duration
	}{{&t.Streaming, 15 * time.Second}, {&t.Alone, 2 * time.Second}, {&t.Retry, 250 * time.Millisecond}, {&t.Settle, 300 * time.Millisecond}} {
		if *d.at == 0 {
			*d.at = d.otherwise
		}
	}
	return &Watch{cfg: cfg, events: make(chan any, 256), nudges: make(chan struct{}, 1), mine: map[string]bool{}}, nil
}

// Nudge makes the watch look now: something was done that changes what the daemon says, or the proof.
func (w *Watch) Nudge() {
	select {
	case w.nudges <- struct{}{}:
	default:
	}
}

// Answering notes that a card is answered from here, so that its end is not shown as somebody else's doing. It is called before the answer is sent; undo is called where it failed.
func (w *Watch) Answering(card string) (undo func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mine[card] = true
	return func() { w.wasMine(card) }
}

func (w *Watch) wasMine(card string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.mine[card]
	delete(w.mine, card)
	return was
}

// Seen notes that the person has looked at a call that came again.
func (w *Watch) Seen(ctx context.Context, execution string) { w.send(ctx, Seen{execution}) }

func (w *Watch) send(ctx context.Context, e any) {
	select {
	case w.events <- e:
	case <-ctx.Done():
	}
}

// looked is the end of one look at the status.
type looked struct {
	status api.Status
	err    error
}

// streamed is what came of the streams of one opening; those of an earlier one are stale.
type streamed struct {
	opening int
	event   Event
}

// ended says that a stream is over.
type ended struct {
	opening int
	err     error
}

// follower is what the one goroutine owns.
type follower struct {
	w       *Watch
	state   State
	looking bool
	look    *time.Timer
	reopen  *time.Timer

	opening int // counts the openings of the streams
	close   context.CancelFunc
	retry   time.Duration
	opens   time.Time // not before
	told    bool      // this batch of events is worth a look at the status
	soon    bool      // that look is arranged
}

// Run follows until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	f := &follower{w: w, state: State{Link: Starting}, look: time.NewTimer(0), reopen: time.NewTimer(time.Hour), retry: w.cfg.Times.Retry}
	defer f.look.Stop()
	defer f.reopen.Stop()
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer running.Wait()
	defer cancel()
	forget := time.NewTicker(time.Second)
	forget.Stop()
	ticking := false
	defer forget.Stop()
	w.cfg.Changed(f.state)
	for {
		before := f.state
		select {
		case <-ctx.Done():
			return
		case <-f.look.C:
			f.soon = false
			f.ask(ctx, &running)
		case <-f.reopen.C: // below
		case <-w.nudges:
			f.retry, f.opens = w.cfg.Times.Retry, time.Time{}
			f.look.Reset(0)
		case <-forget.C:
			f.state = Apply(f.state, TimePassed{w.cfg.Now()})
		case e := <-w.events:
			f.take(e)
			for more := true; more; {
				select {
				case e := <-w.events:
					f.take(e)
				default:
					more = false
				}
			}
		}
		f.streams(ctx, &running)
		if f.told && !f.soon {
			f.soon = true
			f.look.Reset(w.cfg.Times.Settle)
		}
		f.told = false
		if f.state.temporary() != ticking {
			if ticking = !ticking; ticking {
				forget.Reset(time.Second)
			} else {
				forget.Stop()
			}
		}
		// A look at the status mostly finds what was there before, and nobody has to draw that again.
		if !reflect.DeepEqual(before, f.state) {
			w.cfg.Changed(f.state)
		}
	}
}

// ask looks at the status, unless somebody does.
func (f *follower) ask(ctx context.Context, running *sync.WaitGroup) {
	if f.looking {
		return
	}
	f.looking = true
	running.Go(func() {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		st, err := f.w.cfg.Daemon.Status(limited)
		f.w.send(ctx, looked{st, err})
	})
}

// take applies one event.
func (f *follower) take(e any) {
	switch e := e.(type) {
	case looked:
		f.looking = false
		next := f.w.cfg.Times.Alone
		if e.err != nil {
			f.state = Apply(f.state, lost(e.err))
		} else {
			f.state = Apply(f.state, StatusKnown{Status: e.status, At: f.w.cfg.Now()})
		}
		if !f.state.Proven {
			// Another daemon, or a lock: what the streams said before is forgotten, so they begin anew.
			f.shut()
		} else if f.close != nil {
			next = f.w.cfg.Times.Streaming
		}
		f.look.Reset(next)
	case streamed:
		if e.opening != f.opening || f.close == nil {
			return
		}
		f.retry = f.w.cfg.Times.Retry
		if said, ok := e.event.(CardSaid); ok && said.Event.Event == "answered" {
			said.Mine = f.w.wasMine(said.Event.Card.Card)
			e.event = said
		}
		f.told = true
		f.state = Apply(f.state, e.event)
		if said, ok := e.event.(RecordSaid); ok && said.Event.Event == "changed" && f.w.cfg.Record != nil {
			f.w.cfg.Record(said.Event.Record)
		}
	case ended:
		if e.opening != f.opening || f.close == nil {
			return
		}
		f.shut()
		f.opens = f.w.cfg.Now().Add(f.retry)
		f.retry = min(2*f.retry, f.w.cfg.Times.Alone)
		f.look.Reset(0)
	case Event:
		f.state = Apply(f.state, e)
	}
}

// lost puts an error of the client into words of a link.
func lost(err error) LinkLost {
	l := LinkLost{Link: Trouble, Problem: err.Error()}
	var e *api.Error
	if errors.As(err, &e) {
		l.Hint = e.Hint
		switch e.Code {
		case api.CodeNoDaemon, api.CodeShuttingDown:
			l.Link = Down
		case api.CodeStranger:
			l.Link = Stranger
		}
	}
	return l
}

func (f *follower) shut() {
	if f.close != nil {
		f.close()
		f.close = nil
	}
}

// streams opens or shuts the streams, as the state demands.
func (f *follower) streams(ctx context.Context, running *sync.WaitGroup) {
	may := f.state.Link == Up && f.state.Status.Vault == "unlocked"
	proven := may && f.w.cfg.Daemon.HasTicket()
	if proven != f.state.Proven {
		f.state = Apply(f.state, ProofChanged{proven})
	}
	switch {
	case !proven:
		f.shut()
		return
	case f.close != nil:
		return
	}
	if wait := f.opens.Sub(f.w.cfg.Now()); wait > 0 {
		f.reopen.Reset(wait)
		return
	}
	ctx, f.close = context.WithCancel(ctx)
	f.opening++
	opening, w := f.opening, f.w
	f.state = Apply(Apply(f.state, CardsOpened{}), ActivityOpened{})
	// Either stream's end ends both: what is shown together is from one opening.
	running.Go(func() {
		var failed error
		for e, err := range w.cfg.Daemon.WatchCards(ctx) {
			if failed = err; err != nil {
				break
			}
			w.send(ctx, streamed{opening, CardSaid{Event: e, At: w.cfg.Now()}})
		}
		w.send(ctx, ended{opening, failed})
	})
	running.Go(func() {
		said := func(e api.RecordEvent) { w.send(ctx, streamed{opening, RecordSaid{Event: e, At: w.cfg.Now()}}) }
		// However old they are, these wait for the person.
		open, failed := w.cfg.Daemon.Activity(ctx, client.Query{State: "unknown", Limit: maxRecent})
		for _, r := range open {
			said(api.RecordEvent{Event: "recorded", Record: r})
		}
		if failed == nil {
			for e, err := range w.cfg.Daemon.WatchActivity(ctx, client.Query{Limit: maxRecent}) {
				if failed = err; err != nil {
					break
				}
				said(e)
			}
		}
		w.send(ctx, ended{opening, failed})
	})
}
