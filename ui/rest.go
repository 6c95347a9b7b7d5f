package ui

import (
	"sync"
	"time"

	"fyne.io/fyne/v2"
)

// rest stops Fyne's loop while no window is in sight. The loop looks for events and redraws sixty times a second for as long as the app lives, which costs a processor between one and
// two per cent; an app that sits in the tray all day must cost none. A function that waits on Fyne's thread is all it takes: what others send there waits behind it, so everything
// that has to happen at once goes through [rest.do].
type rest struct {
	mu   sync.Mutex
	on   bool // owner: mu
	wake chan struct{}
}

func newRest() *rest { return &rest{wake: make(chan struct{}, 1)} }

// breath is how often the loop runs once all the same, so that what others sent does not wait for ever.
const breath = 30 * time.Second

// begin stops the loop until do.
func (r *rest) begin() {
	r.mu.Lock()
	r.on = true
	r.mu.Unlock()
	select {
	case <-r.wake:
	default:
	}
	go fyne.Do(r.wait)
}

func (r *rest) wait() {
	r.mu.Lock()
	on := r.on
	r.mu.Unlock()
	if !on {
		return
	}
	t := time.NewTimer(breath)
	defer t.Stop()
	select {
	case <-r.wake:
	case <-t.C:
		go fyne.Do(r.wait)
	}
}

// do runs f on Fyne's thread and lets the loop run from now on. It may be called on any goroutine but that one.
func (r *rest) do(f func()) {
	r.mu.Lock()
	r.on = false
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	fyne.Do(f)
}
