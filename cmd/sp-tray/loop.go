package main

import (
	"time"

	"github.com/go-gl/glfw/v3.3/glfw"
)

// windows is GLFW, by which Fyne opens its windows, as ui.Loop.
type windows struct{}

// Wait implements ui.Loop. The handlers of Fyne's windows are called from in here, as they are when Fyne polls.
func (windows) Wait(limit time.Duration) (over bool) {
	begun := time.Now()
	glfw.WaitEventsTimeout(limit.Seconds())
	return time.Since(begun) >= limit-time.Millisecond
}

// Wake implements ui.Loop.
func (windows) Wake() { glfw.PostEmptyEvent() }
