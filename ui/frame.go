package ui

import (
	"context"
	"errors"
	"fmt"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
)

// Daemon is what the frame asks of the daemon.
type Daemon interface {
	Status(ctx context.Context) (api.Status, error)
}

// Config is what a Frame needs.
type Config struct {
	Window fyne.Window // required
	Daemon Daemon      // required
}

// Frame is the content of the window.
type Frame struct {
	cfg    Config
	status *widget.Label
}

// New fills the window. It is called on Fyne's thread.
func New(cfg Config) (*Frame, error) {
	if cfg.Window == nil || cfg.Daemon == nil {
		return nil, errors.New("ui: Window and Daemon are required")
	}
	f := &Frame{cfg: cfg, status: widget.NewLabel("")}
	f.status.Wrapping = fyne.TextWrapWord
	cfg.Window.SetContent(container.NewPadded(f.status))
	return f, nil
}

// Refresh asks the daemon how it is and shows it.
func (f *Frame) Refresh(ctx context.Context) {
	st, err := f.cfg.Daemon.Status(ctx)
	text := fmt.Sprintf("vault %s, %d waiting, %d unknown, journal %s", st.Vault, st.Pending, st.Unknown, st.Journal)
	if err != nil {
		text = err.Error()
	}
	fyne.Do(func() { f.status.SetText(text) })
}
