package bridge

import (
	"context"
	"syscall"
	"time"

	"singlepass.dev/daemon/mcpserver/drain"
)

const (
	firstLook = 200 * time.Microsecond
	lastLook  = 50 * time.Millisecond
)

// watcher tells the daemon which answers the agent has taken. It looks only while answers are outstanding. Its fields belong to bridge.mu.
type watcher struct {
	b    *bridge
	raw  syscall.RawConn
	kind drain.Kind // empty: nothing can be told

	waiting []answer // by position
	written uint64
	polling bool
}

type answer struct {
	id       string // raw
	position uint64 // bytes of standard output up to its end
}

func newWatcher(b *bridge) *watcher {
	w := &watcher{b: b}
	raw, err := b.cfg.Stdout.SyscallConn()
	if err != nil {
		return w
	}
	_ = raw.Control(func(fd uintptr) {
		if kind, err := drain.KindOf(int(fd)); err == nil && kind != drain.TCP {
			w.raw, w.kind = raw, kind
		}
	})
	return w
}

func (w *watcher) add(id string, position uint64) {
	if w.kind == "" {
		return
	}
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.waiting = append(w.waiting, answer{id, position})
}

// wrote is told how far standard output was written, after a flush.
func (w *watcher) wrote(position uint64) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.written = position
	if len(w.waiting) > 0 && !w.polling {
		w.polling = true
		go w.poll()
	}
}

func (w *watcher) poll() {
	wait := firstLook
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.b.ctx.Done():
			timer.Stop()
			return
		}
		if w.check(true) {
			wait = firstLook
		} else {
			wait = min(2*wait, lastLook)
		}
		w.b.mu.Lock()
		if len(w.waiting) == 0 {
			w.polling = false
			w.b.mu.Unlock()
			return
		}
		w.b.mu.Unlock()
	}
}

// check reports what was taken. fromClient calls it before each line that it forwards, so that the daemon hears of a taken answer before it hears what the agent did next.
func (w *watcher) check(flush bool) (progress bool) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	if len(w.waiting) == 0 {
		return false
	}
	queued, ok := w.queued()
	if ok && queued == 0 && w.written < w.waiting[len(w.waiting)-1].position {
		// The agent may have read what a write that is just returning gave it, and already acted on it.
		w.b.mu.Unlock()
		w.b.outMu.Lock()
		w.b.mu.Lock()
		w.b.outMu.Unlock()
		queued, ok = w.queued()
	}
	if !ok || w.b.to == nil {
		return false
	}
	n := 0
	for n < len(w.waiting) && w.waiting[n].position+uint64(queued) <= w.written {
		w.b.write([]byte(`{"jsonrpc":"2.0","method":"notifications/dev.singlepass/delivered","params":{"requestId":` + w.waiting[n].id + `,"evidence":"` + string(w.kind) + `"}}`))
		n++
	}
	w.waiting = append(w.waiting[:0], w.waiting[n:]...)
	if flush && n > 0 {
		_ = w.b.to.Flush()
	}
	return n > 0
}

// queued says how much of standard output is unread, if that can be told.
func (w *watcher) queued() (n int, ok bool) {
	err := w.raw.Control(func(fd uintptr) {
		if w.kind == drain.Socket {
			if gone, _ := drain.HungUp(int(fd), 0); gone {
				return // the kernel throws away what was not read
			}
		}
		got, err := drain.Queued(int(fd), w.kind)
		n, ok = got, err == nil
	})
	return n, ok && err == nil
}

// forgetLocked drops what a daemon that is gone cannot be told. Those answers stay "not delivered", and a repeat gets them again. The caller holds mu.
func (w *watcher) forgetLocked() { w.waiting = nil }

// settle waits until every answer was taken.
func (w *watcher) settle(ctx context.Context) {
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		w.check(true)
		w.b.mu.Lock()
		done := len(w.waiting) == 0
		w.b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}
