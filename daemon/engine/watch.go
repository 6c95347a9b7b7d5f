package engine

import (
	"context"

	"singlepass.dev/daemon/execution"
)

// Change is something that a watcher is told.
type Change struct {
	Kind      string               // card_added, card_changed, card_closed, execution, refused, status
	Card      *CardView            // card_…
	How       string               // card_closed: once, session, deny, recorded, void, expired
	By        string               // card_closed: who answered, or why it is void
	Execution *execution.Execution // execution
	Refused   *RefusedEvent        // refused; it is recorded with the next commit
	Counts    *Counts              // status
}

// watcher is one subscription. Its channel is closed when it does not keep up: whoever watches then watches again from a new snapshot, and has missed nothing.
type watcher struct {
	ch     chan Change
	closed bool // guarded by Engine.mu
}

func (w *watcher) close() {
	if !w.closed {
		w.closed = true
		close(w.ch)
	}
}

// watcherBuffer is how far a watcher may lag behind.
const watcherBuffer = 1024

// Watch returns the waiting cards and a channel with everything that changes after that. The channel is closed when ctx is done, when the engine closes, or when the
// watcher does not keep up.
func (e *Engine) Watch(ctx context.Context) ([]CardView, <-chan Change) {
	w := &watcher{ch: make(chan Change, watcherBuffer)}
	e.mu.Lock()
	defer e.mu.Unlock()
	snapshot := e.cardsLocked()
	if e.closing {
		w.close()
		return snapshot, w.ch
	}
	e.watchers[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.watchers, w)
		w.close()
	})
	return snapshot, w.ch
}

func (e *Engine) tellLocked(c Change) {
	for w := range e.watchers {
		if w.closed {
			continue
		}
		select {
		case w.ch <- c:
		default:
			delete(e.watchers, w)
			w.close()
		}
	}
}

func (e *Engine) publishLocked(l *live) {
	if len(e.watchers) == 0 {
		return
	}
	x := l.x
	e.tellLocked(Change{Kind: "execution", Execution: &x})
	if l.card != nil {
		e.publishCardLocked(l.card, "changed", "")
	}
}

func (e *Engine) publishCardLocked(c *card, how, by string) {
	if len(e.watchers) == 0 {
		return
	}
	v := e.viewLocked(c)
	ch := Change{Card: &v, By: by}
	switch how {
	case "added", "changed":
		ch.Kind = "card_" + how
	default:
		ch.Kind, ch.How = "card_closed", how
	}
	e.tellLocked(ch)
}

func (e *Engine) publishStatusLocked() {
	if len(e.watchers) == 0 {
		return
	}
	c := e.countsLocked()
	e.tellLocked(Change{Kind: "status", Counts: &c})
}
