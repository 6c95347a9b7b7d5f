package ui

import (
	"sync"
	"time"

	"fyne.io/fyne/v2"
)

// Loop is the window system's side of Fyne's loop.
type Loop interface {
	// Wait takes what the window system has to say, on Fyne's thread: it returns after the first events, after Wake, or when the time is over, which it says.
	Wait(limit time.Duration) (over bool)
	// Wake ends a Wait that is under way or about to be. It is called on any goroutine.
	Wake()
}

// How long the loop goes on, in frames, and how long it rests.
const (
	lively = 60 // after something that the person did: what that began to move is over by then
	drawn  = 2  // after work that others sent: what it changed is in sight
	// breath is how often the loop runs once all the same, for what Fyne sends to its thread without a word to us. A text cursor that blinks needs more.
	breath        = time.Second
	breathBlinks  = 250 * time.Millisecond
	breathOfSight = 30 * time.Second
)

// rest stops Fyne's loop while there is nothing to do. By itself that loop looks for events sixty times a second for as long as the app lives, which costs a processor about two per
// cent; an app that sits in the tray all day must cost none. A function on Fyne's thread that waits for the window system is all it takes: events end the wait, and work that others
// send there does too, when it is sent by [rest.do].
type rest struct {
	loop   Loop
	send   func(func()) // fyne.Do
	blinks func() bool  // whether a text cursor blinks; called on Fyne's thread

	mu      sync.Mutex
	sent    int  // owner: mu; work that was sent and is not done
	waiting bool // owner: mu; Wait is under way, or about to be

	hidden bool // Fyne's thread: no window is in sight
	left   int  // Fyne's thread: frames until the loop may rest
	queued bool // Fyne's thread: it will
}

func newRest(loop Loop) *rest {
	return &rest{loop: loop, send: fyne.Do, blinks: func() bool { return false }, hidden: true, left: lively}
}

// begin makes the loop rest from now on. It is called on Fyne's thread.
func (r *rest) begin() {
	if r.loop == nil {
		return
	}
	// The one thing that Fyne calls with every frame.
	frames := fyne.NewAnimation(time.Hour, func(float32) { r.frame() })
	frames.RepeatCount = fyne.AnimationRepeatForever
	frames.Start()
}

// sight says whether a window is in sight. It is called on Fyne's thread.
func (r *rest) sight(visible bool) { r.hidden, r.left = !visible, lively }

// frame is called on Fyne's thread before each frame.
func (r *rest) frame() {
	if r.left > 0 {
		r.left--
		return
	}
	if !r.queued {
		r.queued = true
		r.send(r.wait)
	}
}

// wait is called on Fyne's thread.
func (r *rest) wait() {
	r.queued = false
	if r.left > 0 || !r.mayWait() {
		return
	}
	limit := breath
	switch {
	case r.hidden:
		limit = breathOfSight
	case r.blinks():
		limit = breathBlinks
	}
	over := r.loop.Wait(limit)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = false
	if !over && r.sent == 0 {
		r.left = lively
	}
}

// mayWait notes that Wait follows, unless there is work. Work that comes later wakes it.
func (r *rest) mayWait() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = r.sent == 0
	return r.waiting
}

// do runs f on Fyne's thread, now. It may be called on any goroutine but that one.
func (r *rest) do(f func()) {
	r.mu.Lock()
	r.sent++
	r.mu.Unlock()
	r.send(func() {
		f()
		r.left = max(r.left, drawn)
		r.mu.Lock()
		r.sent--
		r.mu.Unlock()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	// Under mu, and only while it waits: the window system has not begun before, and may have ended afterwards.
	if r.waiting {
		r.loop.Wake()
	}
}
