package ui_test

import (
	"testing"
	"time"

	"singlepass.dev/ui"
)

// loop is Fyne's loop and the window system, one step at a time.
type loop struct {
	queue     []func()
	rests     []time.Duration // how long each rest would have been
	woken     int
	meanwhile func() // what happens during a rest
}

func (l *loop) Wait(limit time.Duration) (over bool) {
	l.rests = append(l.rests, limit)
	woken := l.woken
	if l.meanwhile != nil {
		f := l.meanwhile
		l.meanwhile = nil
		f()
		return false
	}
	return l.woken == woken
}

func (l *loop) Wake() { l.woken++ }

// frames lets the loop run so many frames, each after what was sent to it before.
func (l *loop) frames(r *ui.Rest, n int) {
	for range n {
		for len(l.queue) > 0 {
			f := l.queue[0]
			l.queue = l.queue[1:]
			f()
		}
		r.Frame()
	}
}

func newLoop() (*loop, *ui.Rest) {
	l := &loop{}
	r := ui.NewRest(l, func(f func()) { l.queue = append(l.queue, f) })
	r.Sight(true)
	return l, r
}

func TestALoopWithNothingToDoRunsOnceASecond(t *testing.T) {
	l, r := newLoop()
	l.frames(r, 60)
	if len(l.rests) != 0 {
		t.Fatalf("it rested %v right after the window came into sight", l.rests)
	}
	l.frames(r, 11)
	if len(l.rests) != 10 {
		t.Errorf("in ten more frames it rested %d times", len(l.rests))
	}
	for _, d := range l.rests {
		if d != time.Second {
			t.Errorf("it rests for %v", d)
		}
	}
	l.rests = nil
	r.Sight(false)
	l.frames(r, 62)
	if len(l.rests) != 1 || l.rests[0] != 30*time.Second {
		t.Errorf("out of sight it rests for %v", l.rests)
	}
}

func TestATextCursorGoesOnBlinking(t *testing.T) {
	l, r := newLoop()
	r.Blinks(func() bool { return true })
	l.frames(r, 62)
	if len(l.rests) != 1 || l.rests[0] != 250*time.Millisecond {
		t.Errorf("with a text cursor it rests for %v", l.rests)
	}
}

func TestWhatThePersonDoesMakesTheLoopLively(t *testing.T) {
	l, r := newLoop()
	l.frames(r, 61)
	l.meanwhile = func() {} // an event of the window system
	l.frames(r, 1)
	if len(l.rests) != 1 {
		t.Fatalf("it rested %d times, want once", len(l.rests))
	}
	l.frames(r, 59)
	if len(l.rests) != 1 {
		t.Error("it rested within a second of an event")
	}
}

func TestWorkEndsTheRestAndIsDrawn(t *testing.T) {
	l, r := newLoop()
	done := false
	l.frames(r, 61)
	l.meanwhile = func() { r.Do(func() { done = true }) }
	l.frames(r, 1)
	if l.woken != 1 {
		t.Errorf("the loop was woken %d times", l.woken)
	}
	l.frames(r, 1)
	if !done {
		t.Fatal("the work was not done with the next frame")
	}
	l.frames(r, 1)
	if len(l.rests) != 1 {
		t.Error("it rested before what was done was drawn")
	}
	l.frames(r, 1)
	if len(l.rests) != 2 {
		t.Error("it does not rest again once it was drawn")
	}
}

func TestItDoesNotRestOverWork(t *testing.T) {
	l, r := newLoop()
	l.frames(r, 61) // the rest is on the queue
	rest := l.queue
	l.queue = nil
	r.Do(func() {})
	work := l.queue
	l.queue = append(rest, work...)
	l.frames(r, 1)
	if len(l.rests) != 0 || l.woken != 0 {
		t.Errorf("with work behind it, it rested %d times and was woken %d times", len(l.rests), l.woken)
	}
}
