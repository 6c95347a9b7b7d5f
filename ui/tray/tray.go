// Package tray is the icon in the desktop's panel and its menu, by StatusNotifierItem and com.canonical.dbusmenu on the session bus.
//
// Promises: nothing that can be clicked here approves a call, or shows anything that a card's arguments hold. The menu is changed in place, so that an entry does not become
// another one while the person reaches for it. [Start] fails where there is no session bus; where nobody shows icons, [Tray.Hosted] says so.
//
// Non-promises: any program of the session bus can read the menu and click it. It can open the window, lock the vault and end the tray app.
package tray

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"fyne.io/systray"
	"github.com/godbus/dbus/v5"

	"singlepass.dev/ui/icon"
)

// Config is what a Tray needs.
type Config struct {
	Do     func(c Command, card string) // required: called for every click, one after the other
	Tapped func()                       // required: the icon itself was clicked
	Hosted func(bool)                   // optional: whether anybody shows the icon; called whenever that changes
}

// Tray is the icon. There can be one in a process: the library keeps it in a variable of its own.
type Tray struct {
	cfg  Config
	head *systray.MenuItem
	stop func()

	mu    sync.Mutex
	cards [slots + 1]line // owner: mu
	rest  []line          // owner: mu
	shown Look            // owner: mu
}

// line is one entry of the menu and what it says now.
type line struct {
	item  *systray.MenuItem
	entry Entry
}

// iconSize is larger than a panel needs: it scales down well.
const iconSize = 64

// Start shows the icon until ctx ends or Stop.
func Start(ctx context.Context, cfg Config, first Look) (*Tray, error) {
	if cfg.Do == nil || cfg.Tapped == nil {
		return nil, errors.New("tray: Do and Tapped are required")
	}
	// The library reports a missing bus in its log only, and fails to stop without one.
	bus, err := dbus.ConnectSessionBus(dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("showing the tray's icon: there is no session bus: %w", err)
	}
	t := &Tray{cfg: cfg}
	systray.SetTitle("Singlepass")
	systray.SetOnTapped(cfg.Tapped)
	png, err := icon.PNG(first.Kind, first.Count, iconSize)
	if err != nil {
		bus.Close()
		return nil, err
	}
	systray.SetIcon(png)
	start, stop := systray.RunWithExternalLoop(nil, nil)
	start()
	t.stop = sync.OnceFunc(func() { stop(); bus.Close() })

	clicks := make(chan Entry, 16)
	t.head = systray.AddMenuItem("", "")
	t.head.Disable()
	for i := range t.cards {
		t.cards[i].item = systray.AddMenuItem("", "")
		t.cards[i].item.Hide()
		go t.listen(ctx, &t.cards[i], clicks)
	}
	systray.AddSeparator()
	t.rest = make([]line, len(first.Rest))
	for i := range t.rest {
		if i == len(t.rest)-1 {
			systray.AddSeparator()
		}
		t.rest[i].item = systray.AddMenuItem("", "")
		t.rest[i].item.Hide()
		go t.listen(ctx, &t.rest[i], clicks)
	}
	go func() {
		for {
			select {
			case e := <-clicks:
				t.cfg.Do(e.Command, e.Card)
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Show(first)
	go t.watchHost(ctx, bus)
	return t, nil
}

// Stop takes the icon away.
func (t *Tray) Stop() { t.stop() }

// listen takes the clicks on one entry as the entry that it is at that moment.
func (t *Tray) listen(ctx context.Context, l *line, clicks chan<- Entry) {
	for {
		select {
		case _, ok := <-l.item.ClickedCh:
			if !ok {
				return
			}
			t.mu.Lock()
			e := l.entry
			t.mu.Unlock()
			if e.Command == None {
				continue
			}
			select {
			case clicks <- e:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Show shows a look. What is as it was is left alone.
func (t *Tray) Show(l Look) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Kind != t.shown.Kind || min(l.Count, 10) != min(t.shown.Count, 10) {
		if png, err := icon.PNG(l.Kind, l.Count, iconSize); err == nil {
			systray.SetIcon(png)
		}
	}
	if l.Tooltip != t.shown.Tooltip {
		systray.SetTooltip(l.Tooltip)
	}
	if l.Head != t.shown.Head {
		t.head.SetTitle(label(l.Head))
	}
	for i := range t.cards {
		var e Entry
		if i < len(l.Cards) {
			e = l.Cards[i]
		}
		t.cards[i].setLocked(e)
	}
	for i := range t.rest {
		t.rest[i].setLocked(l.Rest[i])
	}
	t.shown = l
}

func (l *line) setLocked(e Entry) {
	if l.entry == e {
		return
	}
	before := l.entry
	l.entry = e
	switch {
	case e.Label == "":
		l.item.Hide()
		return
	case e.Label != before.Label:
		l.item.SetTitle(label(e.Label))
	}
	if before.Label == "" {
		l.item.Show()
	}
}

// label escapes the mark of an access key: an underscore stands for itself when it is doubled (com.canonical.dbusmenu, property "label").
func label(s string) string { return strings.ReplaceAll(s, "_", "__") }
