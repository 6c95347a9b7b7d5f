// Package notify shows desktop notifications by org.freedesktop.Notifications (Desktop Notifications Specification 1.2).
//
// Promises: a notice with a key replaces the one that has the same key, and is withdrawn when it no longer holds. An action counts only when the program that showed the notice reports it:
// signals are matched on their sender. Nothing here can approve a call.
//
// Non-promises: whoever owns the name org.freedesktop.Notifications on the session bus can claim that the person clicked. Where nobody shows notifications, nothing is shown.
package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	name    = "org.freedesktop.Notifications"
	path    = dbus.ObjectPath("/org/freedesktop/Notifications")
	program = "Singlepass"
	desktop = "singlepass" // the desktop entry's name, which the icon comes from
)

// Notice is what one notification says.
type Notice struct {
	Key     string // which notice it is; a new one with the same key takes its place
	Title   string
	Body    string // plain text
	Actions []Action
	Urgent  bool // stays until it is answered or withdrawn
}

// Action is a button, or, with the id "default", a click on the notice itself. What an id means is for whoever shows the notice; it comes back as it was.
type Action struct{ ID, Label string }

// Config is what a Notifier needs.
type Config struct {
	Bus *dbus.Conn               // required: a connection of the notifier's own
	Do  func(key, action string) // required: called for each click, one after the other
}

// Notifier shows notices. It is safe for concurrent use.
type Notifier struct {
	cfg  Config
	want chan map[string]Notice
}

// New returns a Notifier that shows nothing until Run.
func New(cfg Config) (*Notifier, error) {
	if cfg.Bus == nil || cfg.Do == nil {
		return nil, errors.New("notify: Bus and Do are required")
	}
	return &Notifier{cfg: cfg, want: make(chan map[string]Notice, 1)}, nil
}

// Set says which notices hold now. What is shown is brought to that: a changed one is replaced, a new one shown, one that is gone withdrawn. One that the person waved away stays
// away until it changes. Only the newest set counts.
func (n *Notifier) Set(notices []Notice) {
	want := map[string]Notice{}
	for _, x := range notices {
		want[x.Key] = x
	}
	for {
		select {
		case n.want <- want:
			return
		default:
		}
		select {
		case <-n.want:
		default:
		}
	}
}

// shown is one notice on the screen, or one that was.
type shown struct {
	id     uint32 // 0: waved away
	notice Notice
}

// Run shows notices until ctx ends, and then withdraws them.
func (n *Notifier) Run(ctx context.Context) error {
	bus := n.cfg.Bus
	signals := make(chan *dbus.Signal, 64)
	bus.Signal(signals)
	defer bus.RemoveSignal(signals)
	if err := bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(name), dbus.WithMatchInterface(name), dbus.WithMatchObjectPath(path)); err != nil {
		return fmt.Errorf("listening to notifications: %w", err)
	}
	on := map[string]*shown{}
	defer func() {
		for _, s := range on {
			withdraw(bus, s.id)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case want := <-n.want:
			n.bring(ctx, on, want)
		case s, ok := <-signals:
			if !ok {
				return errors.New("listening to notifications: the session bus went away")
			}
			n.hear(ctx, on, s)
		}
	}
}

func (n *Notifier) bring(ctx context.Context, on map[string]*shown, want map[string]Notice) {
	for key, s := range on {
		if _, still := want[key]; !still {
			withdraw(n.cfg.Bus, s.id)
			delete(on, key)
		}
	}
	for key, notice := range want {
		s := on[key]
		switch {
		case s == nil:
			s = &shown{}
		case same(s.notice, notice):
			continue
		}
		id, err := n.show(ctx, s.id, notice)
		if err != nil {
			continue // nobody shows notifications now; the next set tries again
		}
		s.id, s.notice = id, notice
		on[key] = s
	}
}

func same(a, b Notice) bool {
	if a.Title != b.Title || a.Body != b.Body || a.Urgent != b.Urgent || len(a.Actions) != len(b.Actions) {
		return false
	}
	for i := range a.Actions {
		if a.Actions[i] != b.Actions[i] {
			return false
		}
	}
	return true
}

func (n *Notifier) show(ctx context.Context, replaces uint32, x Notice) (id uint32, err error) {
	actions := make([]string, 0, 2*len(x.Actions))
	for _, a := range x.Actions {
		actions = append(actions, a.ID, a.Label)
	}
	urgency, timeout := byte(1), int32(-1)
	if x.Urgent {
		urgency, timeout = 2, 0
	}
	hints := map[string]dbus.Variant{"urgency": dbus.MakeVariant(urgency), "desktop-entry": dbus.MakeVariant(desktop)}
	// Not cut short by the end of ctx: what is shown has to be known, or it could not be withdrawn.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = n.cfg.Bus.Object(name, path).CallWithContext(ctx, name+".Notify", 0, program, replaces, desktop, x.Title, escaped(x.Body), actions, hints, timeout).Store(&id)
	if err != nil {
		return 0, fmt.Errorf("showing a notification: %w", err)
	}
	return id, nil
}

// escaped keeps a text from being read as the markup that a notification's body may hold.
func escaped(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

func withdraw(bus *dbus.Conn, id uint32) {
	if id != 0 {
		bus.Object(name, path).Call(name+".CloseNotification", dbus.FlagNoReplyExpected, id)
	}
}

// hear takes a signal if it comes from the program that shows the notices.
func (n *Notifier) hear(ctx context.Context, on map[string]*shown, s *dbus.Signal) {
	var id uint32
	if len(s.Body) < 2 {
		return
	}
	if v, ok := s.Body[0].(uint32); ok {
		id = v
	}
	for key, x := range on {
		if x.id == 0 || x.id != id || !n.fromOwner(ctx, s.Sender) {
			continue
		}
		switch s.Name {
		case name + ".ActionInvoked":
			action, _ := s.Body[1].(string)
			for _, a := range x.notice.Actions {
				if a.ID == action {
					n.cfg.Do(key, action)
				}
			}
		case name + ".NotificationClosed":
			x.id = 0
		}
	}
}

// fromOwner says whether a sender is the one that shows notifications now. The match rule asked the bus for that already, and a bus resolves the name when it delivers; a second look
// costs nothing that counts.
func (n *Notifier) fromOwner(ctx context.Context, sender string) bool {
	var owner string
	err := n.cfg.Bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, name).Store(&owner)
	return err == nil && owner == sender
}
