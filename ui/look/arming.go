package look

import (
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/widget"
)

// ArmingDelay is how long a question has to be in sight before it takes an answer.
const ArmingDelay = 700 * time.Millisecond

// After calls f on the thread that draws once a time has passed, unless it is cancelled before.
type After func(d time.Duration, f func()) (cancel func())

// AfterFunc is time.AfterFunc as an After, for a Config that has none.
func AfterFunc(d time.Duration, f func()) (cancel func()) {
	t := time.AfterFunc(d, func() { Do(f) })
	return func() { t.Stop() }
}

// Arming keeps the buttons of a question shut until it was in sight for ArmingDelay, so that a click or a key that was meant for what was there before answers nothing. It is used on the
// thread that draws.
type Arming struct {
	after   After
	changed func() // brings the buttons in line
	armed   bool
	begun   int // counts the times that arming began anew, so that a timer that was too late to be stopped arms nothing
	cancel  func()
}

// NewArming is not armed, and begins with the first Disarm. It calls changed whenever Armed has another answer.
func NewArming(after After, changed func()) *Arming {
	return &Arming{after: after, changed: changed, cancel: func() {}}
}

// Armed says whether the question takes an answer.
func (a *Arming) Armed() bool { return a.armed }

// Disarm takes no answer until the delay has passed from now on.
func (a *Arming) Disarm() {
	a.Stop()
	n := a.begun
	a.cancel = a.after(ArmingDelay, func() {
		if a.begun == n {
			a.armed = true
			a.changed()
		}
	})
}

// Stop takes no answer any more.
func (a *Arming) Stop() {
	a.cancel()
	a.begun++
	a.armed = false
	a.changed()
}

// Open enables buttons, or shuts them. Those that are not there are nil.
func Open(on bool, buttons ...*widget.Button) {
	for _, b := range buttons {
		switch {
		case b == nil:
		case on:
			b.Enable()
		default:
			b.Disable()
		}
	}
}

// Unfocus takes the keyboard away from what stands in o, if one of these has it: a key that was meant for what was there must not answer what is there now.
func Unfocus(o fyne.CanvasObject, list ...fyne.Focusable) {
	c := fyne.CurrentApp().Driver().CanvasForObject(o)
	if c == nil || c.Focused() == nil {
		return
	}
	for _, f := range list {
		if c.Focused() == f {
			c.Unfocus()
			return
		}
	}
}
