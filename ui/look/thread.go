package look

import (
	"sync/atomic"

	"fyne.io/fyne/v2"
)

// through is what Do goes through; nil: fyne.Do.
var through atomic.Pointer[func(func())]

// Through makes Do go through another function. The app, whose loop rests while there is nothing to do, wakes it there.
func Through(do func(f func())) { through.Store(&do) }

// Do runs f on Fyne's thread, as fyne.Do does, and is used in its place everywhere: what fyne.Do sends waits until the loop has rested.
func Do(f func()) {
	if do := through.Load(); do != nil {
		(*do)(f)
		return
	}
	fyne.Do(f)
}
