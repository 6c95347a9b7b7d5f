package ui

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/widget"
	"github.com/godbus/dbus/v5"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/notify"
	"singlepass.dev/ui/tray"
	"singlepass.dev/ui/watch"
	"singlepass.dev/ui/words"
)

// Client is the operator's client as the app uses it; a *client.Operator with Tickets is one.
type Client interface {
	Operator
	watch.Daemon
	ForgetTicket(ctx context.Context) error
}

// DeskConfig is what a Desk needs.
type DeskConfig struct {
	App        fyne.App         // required; its Run is called by Run
	Client     Client           // required
	Now        func() time.Time // required
	Logger     *slog.Logger     // required
	Raised     <-chan struct{}  // required: a second start
	Background bool             // do not show the window at the start
	Loop       Loop             // optional: without it the app never rests
}

// Desk is the whole app: the watch, the tray, the notifications, and the window while it is in sight.
type Desk struct {
	cfg   DeskConfig
	ctx   context.Context
	rest  *rest
	watch *watch.Watch
	notes *notify.Notifier // nil: there is no session bus
	tray  *tray.Tray       // nil: the same
	quit  func()

	mu      sync.Mutex
	state   watch.State // owner: mu
	hosted  bool        // owner: mu
	focused bool        // owner: mu
	queued  bool        // owner: mu; the window will be brought in line
	visible bool        // owner: mu

	window fyne.Window // Fyne's thread: nil until it is shown first
	frame  *Frame      // Fyne's thread
	untick func()      // Fyne's thread: stops the ticker; nil while there is none
}

// spoken is package words as an interface.
type spoken struct{}

func (spoken) Say(key string, pairs ...any) string { return words.Say(key, pairs...) }

func (spoken) Count(key string, n int, pairs ...any) string { return words.Count(key, n, pairs...) }

// Run runs the app until ctx ends or the person quits it. It must be called on the main goroutine.
func Run(ctx context.Context, cfg DeskConfig) error {
	if cfg.App == nil || cfg.Client == nil || cfg.Now == nil || cfg.Logger == nil || cfg.Raised == nil {
		return errors.New("ui: App, Client, Now, Logger and Raised are required")
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &Desk{cfg: cfg, ctx: ctx, rest: newRest(cfg.Loop), quit: cancel, state: watch.State{Link: watch.Starting}}
	defer cancel()
	var err error
	d.watch, err = watch.New(watch.Config{Daemon: cfg.Client, Changed: d.changed, Record: d.recorded, Now: cfg.Now})
	if err != nil {
		return err
	}
	look.Through(d.rest.do)
	d.rest.blinks = d.blinks
	cfg.App.Settings().SetTheme(&look.Theme{})
	focus := func(on bool) func() {
		return func() {
			d.mu.Lock()
			d.focused = on
			d.mu.Unlock()
			d.tell()
		}
	}
	cfg.App.Lifecycle().SetOnEnteredForeground(focus(true))
	cfg.App.Lifecycle().SetOnExitedForeground(focus(false))
	var running sync.WaitGroup
	// Before the loop runs, what is sent to Fyne's thread would run where it is sent from.
	cfg.App.Lifecycle().SetOnStarted(func() {
		d.rest.begin()
		running.Go(func() { d.start(&running) })
	})
	cfg.App.Run()
	cancel()
	running.Wait()
	if d.tray != nil {
		d.tray.Stop()
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = cfg.Client.ForgetTicket(ctx) // it ends with this process at the latest
	return nil
}

// start begins everything that runs beside Fyne's loop.
func (d *Desk) start(running *sync.WaitGroup) {
	d.startTray()
	d.startNotes(running)
	if !d.cfg.Background {
		d.show(Pending, "")
	}
	running.Go(func() { d.watch.Run(d.ctx) })
	for {
		select {
		case <-d.ctx.Done():
			d.rest.do(d.cfg.App.Quit)
			return
		case <-d.cfg.Raised:
			d.show("", "")
		}
	}
}

func (d *Desk) startTray() {
	t, err := tray.Start(d.ctx, tray.Config{
		Do: d.clicked, Tapped: func() { d.show("", "") },
		Hosted: func(hosted bool) {
			d.mu.Lock()
			d.hosted = hosted
			d.mu.Unlock()
			d.refresh()
		},
	}, tray.Of(d.now(), spoken{}))
	if err != nil {
		d.cfg.Logger.Warn("there is no icon in the panel", "error", err)
		return
	}
	d.mu.Lock()
	d.tray = t
	d.mu.Unlock()
}

func (d *Desk) startNotes(running *sync.WaitGroup) {
	// A connection of its own: a channel for signals must not be shared between two.
	bus, err := dbus.ConnectSessionBus()
	if err != nil {
		d.cfg.Logger.Warn("there are no notifications", "error", err)
		return
	}
	n, err := notify.New(notify.Config{Bus: bus, Do: d.noticed})
	if err != nil {
		bus.Close()
		d.cfg.Logger.Warn("there are no notifications", "error", err)
		return
	}
	d.mu.Lock()
	d.notes = n
	d.mu.Unlock()
	running.Go(func() {
		defer bus.Close()
		if err := n.Run(d.ctx); err != nil {
			d.cfg.Logger.Warn("there are no notifications any more", "error", err)
		}
	})
}

func (d *Desk) now() watch.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// changed takes a new state from the watch.
func (d *Desk) changed(s watch.State) {
	d.mu.Lock()
	d.state = s
	t := d.tray
	d.mu.Unlock()
	if t != nil {
		t.Show(tray.Of(s, spoken{}))
	}
	d.tell()
	d.refresh()
}

// recorded takes a change of an execution from the watch. A window that is not in sight reads anew when it is.
func (d *Desk) recorded(r api.Record) {
	d.mu.Lock()
	visible := d.visible
	d.mu.Unlock()
	if visible {
		look.Do(func() { d.frame.Changed(r) })
	}
}

// tell brings the notifications in line: whoever has the window before them needs none.
func (d *Desk) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.notes == nil:
	case d.visible && d.focused:
		d.notes.Set(nil)
	default:
		d.notes.Set(notify.Of(d.state, spoken{}))
	}
}

// refresh brings the window in line, once for however many changes come meanwhile, and not at all while it is not in sight.
func (d *Desk) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queued || !d.visible {
		return
	}
	d.queued = true
	look.Do(d.bring)
}

// bring is called on Fyne's thread.
func (d *Desk) bring() {
	d.mu.Lock()
	d.queued = false
	s, hosted := d.state, d.hosted
	d.mu.Unlock()
	if d.frame == nil {
		return
	}
	d.frame.SetState(s, hosted)
	d.tick()
}

// tick runs a ticker while anything in sight depends on the time.
func (d *Desk) tick() {
	d.mu.Lock()
	visible := d.visible
	d.mu.Unlock()
	want := visible && d.frame.Ticks()
	switch {
	case want == (d.untick != nil):
		return
	case !want:
		d.untick()
		d.untick = nil
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	d.untick = cancel
	go func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				look.Do(d.frame.Tick)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// show brings the window up at a page; an empty one is the page that was there. It may be called on any goroutine but Fyne's.
func (d *Desk) show(p Page, id string) {
	d.rest.do(func() {
		if d.window == nil {
			if err := d.open(); err != nil {
				d.cfg.Logger.Error("opening the window", "error", err)
				return
			}
		}
		d.mu.Lock()
		was := d.visible
		d.visible = true
		d.mu.Unlock()
		d.rest.sight(true)
		if !was {
			d.frame.Stale()
		}
		d.bring()
		if p != "" {
			d.frame.Show(p, id)
		}
		d.frame.Sighted()
		d.window.Show()
		d.window.RequestFocus()
		d.tell()
	})
}

// open makes the window. Closing it leaves the tray.
func (d *Desk) open() error {
	w := d.cfg.App.NewWindow("Singlepass")
	w.Resize(fyne.NewSize(1040, 720))
	f, err := New(Config{Window: w, Operator: d.cfg.Client, Watch: d.watch, Now: d.cfg.Now, Context: d.ctx, Close: d.hide, Quit: d.quit})
	if err != nil {
		w.Close()
		return err
	}
	w.SetCloseIntercept(d.hide)
	d.window, d.frame = w, f
	return nil
}

// blinks says whether a text cursor does. It is called on Fyne's thread.
func (d *Desk) blinks() bool {
	if d.window == nil {
		return false
	}
	_, typing := d.window.Canvas().Focused().(*widget.Entry)
	return typing
}

// hide takes the window out of sight. It is called on Fyne's thread.
func (d *Desk) hide() {
	d.mu.Lock()
	d.visible = false
	d.mu.Unlock()
	d.window.Hide()
	d.tick()
	d.tell()
	d.rest.sight(false)
	go debug.FreeOSMemory() // what drawing needed
}

// clicked takes a click on the tray's menu.
func (d *Desk) clicked(c tray.Command, card string) {
	switch c {
	case tray.Card:
		d.show(Pending, card)
	case tray.Pending, tray.Unlock:
		d.show(Pending, "")
	case tray.Activity:
		d.show(Activity, "")
	case tray.Unsettle:
		id := ""
		if s := d.now(); len(s.Open) > 0 {
			id = s.Open[0].ExecutionID
		}
		d.show(Pending, id)
	case tray.Lock:
		if _, err := d.cfg.Client.Lock(d.ctx); err != nil {
			d.cfg.Logger.Warn("locking", "error", err)
		}
		d.watch.Nudge()
	case tray.Quit:
		d.quit()
	}
}

// noticed takes a click on a notification.
func (d *Desk) noticed(_, action string) {
	deny, id := notify.Click(action)
	if !deny {
		d.show(Pending, id)
		return
	}
	undo := d.watch.Answering(id)
	if err := d.cfg.Client.Answer(d.ctx, id, api.CardAnswer{Answer: "deny"}); err != nil {
		undo()
		d.cfg.Logger.Warn("denying from a notification", "card", id, "error", err)
		d.show(Pending, id)
	}
}
