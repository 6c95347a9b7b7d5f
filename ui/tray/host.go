package tray

import (
	"context"

	"github.com/godbus/dbus/v5"
)

const (
	watcher     = "org.kde.StatusNotifierWatcher"
	watcherPath = dbus.ObjectPath("/StatusNotifierWatcher")
)

// watchHost tells whether anybody shows icons: a watcher that is there and knows of a host. It asks again when the watcher comes or goes or says that a host did.
func (t *Tray) watchHost(ctx context.Context, bus *dbus.Conn) {
	if t.cfg.Hosted == nil {
		return
	}
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	// A bus that refuses a match leaves what is asked now.
	_ = bus.AddMatchSignalContext(ctx, dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, watcher))
	_ = bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(watcher), dbus.WithMatchInterface(watcher))
	said, before := false, false
	for {
		if now := hosted(ctx, bus); !said || now != before {
			said, before = true, now
			t.cfg.Hosted(now)
		}
		select {
		case <-ctx.Done():
			return
		case _, ok := <-signals:
			if !ok {
				return
			}
		}
	}
}

func hosted(ctx context.Context, bus *dbus.Conn) bool {
	var has bool
	if err := bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, watcher).Store(&has); err != nil || !has {
		return false
	}
	v := dbus.Variant{}
	err := bus.Object(watcher, watcherPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, watcher, "IsStatusNotifierHostRegistered").Store(&v)
	if err != nil {
		return true // a watcher that has no such property is one that shows icons itself
	}
	host, ok := v.Value().(bool)
	return !ok || host
}
