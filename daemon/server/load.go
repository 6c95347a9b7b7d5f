package server

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	crowd = 8                // calls at the same time that count as load
	calm  = 10 * time.Second // after the last crowd it is over
)

// load says when calls come in crowds, and when they no longer do. The zero value with tell set is ready to use; all methods are safe for concurrent use.
type load struct {
	tell func(loaded bool) // optional; one call at a time

	calls atomic.Int64
	last  atomic.Int64 // when there was a crowd, in Unix nanoseconds
	on    atomic.Bool  // moves under mu

	mu sync.Mutex
}

// begin counts a call in; end counts it out.
func (l *load) begin() {
	if l.calls.Add(1) < crowd || l.tell == nil {
		return
	}
	l.last.Store(time.Now().UnixNano())
	if l.on.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on.CompareAndSwap(false, true) {
		l.tell(true)
		time.AfterFunc(calm, l.look)
	}
}

func (l *load) end() { l.calls.Add(-1) }

// look ends what begin began, once it is calm.
func (l *load) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := calm - time.Since(time.Unix(0, l.last.Load())); left > 0 {
		time.AfterFunc(left, l.look)
		return
	}
	l.on.Store(false)
	l.tell(false)
}
