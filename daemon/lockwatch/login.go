package lockwatch

import (
	"context"
	"fmt"
	"os"

	"github.com/godbus/dbus/v5"
)

// loginWatch is one connection to logind (org.freedesktop.login1(5)).
type loginWatch struct {
	Config
	ctx  context.Context
	conn *dbus.Conn
	hold *os.File // the delay inhibitor; closed, the machine sleeps. nil while there is none
}

// watchLogin takes what logind says of sleep, locks and seats.
func watchLogin(ctx context.Context, cfg Config, conn *dbus.Conn) error {
	w := &loginWatch{Config: cfg, ctx: ctx, conn: conn}
	defer w.release()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	for what, options := range map[string][]dbus.MatchOption{
		"sleep": {dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForSleep")},
		"lock":  {dbus.WithMatchPathNamespace(loginPath + "/session"), dbus.WithMatchInterface(session), dbus.WithMatchMember("Lock")},
		"state": {dbus.WithMatchPathNamespace(loginPath), dbus.WithMatchInterface(properties), dbus.WithMatchMember("PropertiesChanged")},
	} {
		if err := conn.AddMatchSignalContext(ctx, append(options, dbus.WithMatchSender(login))...); err != nil {
			return fmt.Errorf("asking logind for %s: %w", what, err)
		}
	}
	if err := w.delay(); err != nil {
		cfg.Logger.Warn("the machine will not wait for the vault to be wiped before it sleeps", "error", err)
	}
	cfg.Ready("system")
	for s := range signals {
		w.take(s)
	}
	return errGone
}

// delay asks logind to wait for us before the next sleep.
func (w *loginWatch) delay() error {
	if w.hold != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, answerWithin)
	defer cancel()
	var fd dbus.UnixFD
	err := w.conn.Object(login, loginPath).CallWithContext(ctx, manager+".Inhibit", 0, "sleep", "Singlepass", "the vault's keys are wiped first", "delay").Store(&fd)
	if err != nil {
		return fmt.Errorf("asking logind for a delay: %w", err)
	}
	w.hold = os.NewFile(uintptr(fd), "inhibitor")
	return nil
}

func (w *loginWatch) release() {
	if w.hold != nil {
		_ = w.hold.Close()
		w.hold = nil
	}
}

func (w *loginWatch) take(s *dbus.Signal) {
	switch s.Name {
	case manager + ".PrepareForSleep":
		var before bool
		if dbus.Store(s.Body, &before) != nil {
			return
		}
		if before {
			w.Lock(Suspend)
			w.release()
		} else if err := w.delay(); err != nil {
			w.Logger.Warn("the machine will not wait for the vault to be wiped before it sleeps again", "error", err)
		}
	case session + ".Lock":
		if w.ours(s.Path) {
			w.Lock(ScreenLock)
		}
	case changed:
		var of string
		var values map[string]dbus.Variant
		var stale []string
		if dbus.Store(s.Body, &of, &values, &stale) != nil {
			return
		}
		switch of {
		case session:
			if locked, ok := values["LockedHint"].Value().(bool); ok && locked && w.ours(s.Path) {
				w.Lock(ScreenLock)
			}
		case seat:
			if _, ok := values["ActiveSession"]; ok {
				w.switched(values["ActiveSession"])
			}
		}
	}
}

// switched looks whose session is at the front of a seat now. None at all is the moment between two.
func (w *loginWatch) switched(v dbus.Variant) {
	var front struct {
		ID   string
		Path dbus.ObjectPath
	}
	if dbus.Store([]any{v.Value()}, &front) != nil || front.Path == "/" || front.Path == "" {
		return
	}
	if uid, err := w.userOf(front.Path); err == nil && uid != uint32(w.UID) {
		w.Config.Lock(UserSwitch)
	}
}

// ours says whether a session belongs to our user. Where it cannot be told it does.
func (w *loginWatch) ours(path dbus.ObjectPath) bool {
	uid, err := w.userOf(path)
	return err != nil || uid == uint32(w.UID)
}

func (w *loginWatch) userOf(path dbus.ObjectPath) (uint32, error) {
	ctx, cancel := context.WithTimeout(w.ctx, answerWithin)
	defer cancel()
	var v dbus.Variant
	if err := w.conn.Object(login, path).CallWithContext(ctx, properties+".Get", 0, session, "User").Store(&v); err != nil {
		return 0, fmt.Errorf("asking whose session %s is: %w", path, err)
	}
	var user struct {
		UID  uint32
		Path dbus.ObjectPath
	}
	if err := dbus.Store([]any{v.Value()}, &user); err != nil {
		return 0, fmt.Errorf("asking whose session %s is: %w", path, err)
	}
	return user.UID, nil
}
