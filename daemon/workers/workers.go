// Package workers runs functions in goroutines that are used again.
//
// A new goroutine begins with a small stack, and a call through the daemon is deep: growing that stack, copy by copy, was a twelfth of what a call cost. A goroutine that has
// carried out one call has room for the next.
//
// It promises what the go statement does: a function given to Go starts at once, however many run already. It does not bound how many run.
package workers

import "sync/atomic"

// Crew is safe for concurrent use.
type Crew struct {
	keep int32
	stop <-chan struct{}
	jobs chan func()
	idle atomic.Int32
}

// New returns a crew that keeps at most so many idle goroutines, until stop is closed.
func New(keep int, stop <-chan struct{}) *Crew {
	return &Crew{keep: int32(keep), stop: stop, jobs: make(chan func())}
}

// Go runs f in a goroutine: one that waits for work, or else a new one.
func (c *Crew) Go(f func()) {
	select {
	case c.jobs <- f:
	default:
		go c.work(f)
	}
}

func (c *Crew) work(f func()) {
	for {
		f()
		f = nil // what it holds must not live on while this goroutine waits
		if c.idle.Add(1) > c.keep {
			c.idle.Add(-1)
			return
		}
		select {
		case f = <-c.jobs:
			c.idle.Add(-1)
		case <-c.stop:
			c.idle.Add(-1)
			return
		}
	}
}
