// Package lockwatch says when the desktop goes away from the person: before the machine sleeps, when the screen is locked, when another user's session comes to the front.
//
// Promises: Config.Lock has returned before the machine sleeps, as far as logind waits (a delay inhibitor is held until then and taken again after the sleep; logind.conf(5),
// InhibitDelayMaxSec). A signal counts only from the owner of the well-known name, by the bus's own filter. A session whose user cannot be told counts as ours: to lock is the careful
// answer. A bus that is not there, or goes away, is tried again, and never ends the daemon.
//
// Non-promises: a desktop that announces neither org.freedesktop.login1's Lock and LockedHint, nor ActiveChanged of a screen saver is not noticed. A program of the same user can own a screen
// saver's name on the session bus, or send us a signal that locks: it gains nothing by the second, and by the first hides a screen lock that logind does not announce either. The idle
// time ends what is left open.
package lockwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

// Reason says why it is time to lock. The zero value is invalid.
type Reason string

// The reasons.
const (
	Suspend    Reason = "suspend"
	ScreenLock Reason = "screen_lock"
	UserSwitch Reason = "user_switch"
)

// Config is what Run needs.
type Config struct {
	Lock    func(r Reason)                                 // required: wipes, and returns when it is done
	System  func(ctx context.Context) (*dbus.Conn, error)  // optional: connects to the system bus
	Session func(ctx context.Context) (*dbus.Conn, error)  // optional: connects to the session bus
	UID     int                                            // optional: whose sessions count; the process's user by default
	Logger  *slog.Logger                                   // optional
	Ready   func(bus string)                               // optional, for tests: called when a bus ("system", "session") is watched
	Wait    func(ctx context.Context, n int) (again error) // optional: the time until the next try to connect, the nth without success; growing to a minute by default
}

const (
	login         = "org.freedesktop.login1"
	loginPath     = dbus.ObjectPath("/org/freedesktop/login1")
	manager       = login + ".Manager"
	session       = login + ".Session"
	seat          = login + ".Seat"
	properties    = "org.freedesktop.DBus.Properties"
	changed       = properties + ".PropertiesChanged"
	activeChanged = "ActiveChanged"
)

// savers are the screen savers' names; the interface is called like the service.
var savers = []string{"org.freedesktop.ScreenSaver", "org.gnome.ScreenSaver", "org.cinnamon.ScreenSaver", "org.mate.ScreenSaver", "org.xfce.ScreenSaver"}

// answerWithin bounds a question to logind.
const answerWithin = 2 * time.Second

// Run watches until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Lock == nil {
		return errors.New("watching for locks: Lock is required")
	}
	if cfg.System == nil {
		cfg.System = func(ctx context.Context) (*dbus.Conn, error) {
			return dbus.ConnectSystemBus(dbus.WithContext(ctx))
		}
	}
	if cfg.Session == nil {
		cfg.Session = sessionBus
	}
	if cfg.UID == 0 {
		cfg.UID = os.Getuid()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Ready == nil {
		cfg.Ready = func(string) {}
	}
	if cfg.Wait == nil {
		cfg.Wait = growing
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		keep(ctx, cfg, "session", cfg.Session, watchSavers)
	}()
	keep(ctx, cfg, "system", cfg.System, watchLogin)
	<-done
	return nil
}

// sessionBus connects without ever starting a bus: godbus would run dbus-launch, and leak the daemon that it starts.
func sessionBus(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.SessionBusPrivateNoAutoStartup(dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err = conn.Auth(nil); err == nil {
		err = conn.Hello()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func growing(ctx context.Context, n int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(time.Second<<min(n, 10), time.Minute)):
		return nil
	}
}

// keep watches one bus, again and again.
func keep(ctx context.Context, cfg Config, name string, connect func(context.Context) (*dbus.Conn, error), watch func(context.Context, Config, *dbus.Conn) error) {
	for n := 0; ctx.Err() == nil; n++ {
		conn, err := connect(ctx)
		if err == nil {
			// The watch ends with ctx or the connection; what ctx ends must not leave it open.
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			began := time.Now()
			err = watch(ctx, cfg, conn)
			stop()
			_ = conn.Close()
			if time.Since(began) > time.Minute {
				n = 0
			}
		}
		if ctx.Err() != nil {
			return
		}
		cfg.Logger.Debug("the bus is not watched for locks; trying again", "bus", name, "error", err)
		if cfg.Wait(ctx, n) != nil {
			return
		}
	}
}

// errGone says that a bus went away.
var errGone = errors.New("the connection to the bus ended")

// watchSavers takes ActiveChanged of every screen saver.
func watchSavers(ctx context.Context, cfg Config, conn *dbus.Conn) error {
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	for _, name := range savers {
		if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(name), dbus.WithMatchInterface(name), dbus.WithMatchMember(activeChanged)); err != nil {
			return fmt.Errorf("asking for the signals of %s: %w", name, err)
		}
	}
	cfg.Ready("session")
	for s := range signals {
		var active bool
		if dbus.Store(s.Body, &active) == nil && active {
			cfg.Lock(ScreenLock)
		}
	}
	return errGone
}
