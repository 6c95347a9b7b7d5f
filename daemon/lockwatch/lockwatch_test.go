package lockwatch_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"singlepass.dev/daemon/lockwatch"
)

// patience bounds every wait for an event; only a failure reaches it.
const patience = time.Minute

// bus is a private message bus.
type bus struct {
	cmd *exec.Cmd

	mu      sync.Mutex
	address string // owner: mu
}

// move lets those who connect from now on reach another bus.
func (b *bus) move(to *bus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.address = to.address
}

func startBus(t *testing.T) *bus {
	t.Helper()
	config := filepath.Join(t.TempDir(), "bus.conf")
	if err := os.WriteFile(config, []byte(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>custom</type><listen>unix:tmpdir=/tmp</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--config-file="+config, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting a bus: %v", err)
	}
	b := &bus{cmd: cmd}
	t.Cleanup(b.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("starting a bus: %v", err)
	}
	b.address = strings.TrimSpace(line)
	return b
}

func (b *bus) stop() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

func (b *bus) connect(ctx context.Context) (*dbus.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return dbus.Connect(b.address, dbus.WithContext(ctx))
}

// service is a program on a bus that owns a name.
func (b *bus) service(t *testing.T, name string) *dbus.Conn {
	t.Helper()
	conn, err := b.connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if name != "" {
		if reply, err := conn.RequestName(name, 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
			t.Fatalf("owning %s: %v, %v", name, reply, err)
		}
	}
	return conn
}

// logind is what this package needs of it.
type logind struct {
	t     *testing.T
	conn  *dbus.Conn
	holds chan hold
}

// hold is one inhibitor: who has no copy of write any more sleeps.
type hold struct{ read, write *os.File }

// letGo closes this side's copy, so that the watch has the only one.
func (h hold) letGo(t *testing.T) {
	t.Helper()
	if err := h.write.Close(); err != nil {
		t.Fatal(err)
	}
}

// held says whether somebody has it.
func (h hold) held(t *testing.T) bool {
	t.Helper()
	if err := h.read.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	_, err := h.read.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func (h hold) waitReleased(t *testing.T) {
	t.Helper()
	if err := h.read.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.read.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the inhibitor is still held: %v", err)
	}
}

const loginPath = dbus.ObjectPath("/org/freedesktop/login1")

func session(id string) dbus.ObjectPath { return loginPath + "/session/" + dbus.ObjectPath(id) }

const ours, theirs = 1000, 2000

func startLogind(t *testing.T, b *bus) *logind {
	t.Helper()
	l := &logind{t: t, conn: b.service(t, ""), holds: make(chan hold, 10)}
	if err := l.conn.Export(l, loginPath, "org.freedesktop.login1.Manager"); err != nil {
		t.Fatal(err)
	}
	type user struct {
		UID  uint32
		Path dbus.ObjectPath
	}
	for id, uid := range map[string]uint32{"ours": ours, "theirs": theirs} {
		if _, err := prop.Export(l.conn, session(id), prop.Map{"org.freedesktop.login1.Session": {"User": {Value: user{uid, "/u"}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := l.conn.RequestName("org.freedesktop.login1", 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("being logind: %v, %v", reply, err)
	}
	return l
}

// Inhibit implements org.freedesktop.login1.Manager.
func (l *logind) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "sleep" || mode != "delay" || who == "" || why == "" {
		return 0, dbus.MakeFailedError(errors.New("not what was expected"))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	fd := dbus.UnixFD(w.Fd())
	l.holds <- hold{r, w}
	return fd, nil
}

func (l *logind) emit(path dbus.ObjectPath, name string, values ...any) {
	l.t.Helper()
	if err := l.conn.Emit(path, name, values...); err != nil {
		l.t.Fatal(err)
	}
}

// sessionSays announces a property of a session.
func (l *logind) sessionSays(id, property string, value any) {
	l.t.Helper()
	l.emit(session(id), "org.freedesktop.DBus.Properties.PropertiesChanged", "org.freedesktop.login1.Session", map[string]dbus.Variant{property: dbus.MakeVariant(value)}, []string{})
}

// front puts a session to the front of the seat.
func (l *logind) front(id string) {
	l.t.Helper()
	type named struct {
		ID   string
		Path dbus.ObjectPath
	}
	l.emit(loginPath+"/seat/seat0", "org.freedesktop.DBus.Properties.PropertiesChanged", "org.freedesktop.login1.Seat",
		map[string]dbus.Variant{"ActiveSession": dbus.MakeVariant(named{id, session(id)})}, []string{})
}

// watched is a running watch.
type watched struct {
	t       *testing.T
	system  *bus
	session *bus
	reasons chan lockwatch.Reason
	ready   chan string
	wiped   chan struct{} // what Lock waits for, where a test says so
}

func watch(t *testing.T, hold bool) *watched {
	t.Helper()
	w := &watched{t: t, system: startBus(t), session: startBus(t), reasons: make(chan lockwatch.Reason, 100), ready: make(chan string, 100), wiped: make(chan struct{})}
	if !hold {
		close(w.wiped)
	}
	return w
}

// run starts the watch, and ends it with the test.
func (w *watched) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- lockwatch.Run(ctx, lockwatch.Config{
			UID: ours, System: w.system.connect, Session: w.session.connect,
			Lock:  func(r lockwatch.Reason) { w.reasons <- r; <-w.wiped },
			Ready: func(bus string) { w.ready <- bus },
			Wait: func(ctx context.Context, _ int) error {
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
				return ctx.Err()
			},
		})
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

func (w *watched) waitReady(want ...string) {
	w.t.Helper()
	missing := map[string]bool{}
	for _, name := range want {
		missing[name] = true
	}
	for len(missing) > 0 {
		select {
		case name := <-w.ready:
			delete(missing, name)
		case <-time.After(patience):
			w.t.Fatalf("not watched: %v", missing)
		}
	}
}

func (w *watched) want(r lockwatch.Reason) {
	w.t.Helper()
	select {
	case got := <-w.reasons:
		if got != r {
			w.t.Errorf("locked for %s, want %s", got, r)
		}
	case <-time.After(patience):
		w.t.Fatalf("not locked for %s", r)
	}
}

func TestTheMachineSleepsOnlyAfterTheKeysAreWiped(t *testing.T) {
	w := watch(t, true)
	l := startLogind(t, w.system)
	w.run()
	w.waitReady("system", "session")
	h := <-l.holds
	h.letGo(t)
	if !h.held(t) {
		t.Fatal("nobody holds the inhibitor")
	}
	l.emit(loginPath, "org.freedesktop.login1.Manager.PrepareForSleep", true)
	w.want(lockwatch.Suspend)
	if !h.held(t) {
		t.Error("the machine may sleep before the keys are wiped")
	}
	close(w.wiped)
	h.waitReleased(t)
	l.emit(loginPath, "org.freedesktop.login1.Manager.PrepareForSleep", false)
	select {
	case <-l.holds:
	case <-time.After(patience):
		t.Error("after the sleep nobody asks for the next delay")
	}
}

func TestALockOfOurSessionLocks(t *testing.T) {
	w := watch(t, false)
	l := startLogind(t, w.system)
	w.run()
	w.waitReady("system", "session")
	l.emit(session("theirs"), "org.freedesktop.login1.Session.Lock")
	l.sessionSays("theirs", "LockedHint", true)
	l.sessionSays("ours", "LockedHint", false)
	l.sessionSays("ours", "IdleHint", true)
	l.emit(loginPath, "org.freedesktop.login1.Manager.PrepareForSleep", true) // what comes before it, in order, did not lock
	w.want(lockwatch.Suspend)
	l.emit(session("ours"), "org.freedesktop.login1.Session.Lock")
	w.want(lockwatch.ScreenLock)
	l.sessionSays("ours", "LockedHint", true)
	w.want(lockwatch.ScreenLock)
	l.emit(session("nobody_knows"), "org.freedesktop.login1.Session.Lock")
	w.want(lockwatch.ScreenLock)
}

func TestAnotherUsersSessionAtTheFrontLocks(t *testing.T) {
	w := watch(t, false)
	l := startLogind(t, w.system)
	w.run()
	w.waitReady("system", "session")
	l.front("ours")
	l.emit(session("ours"), "org.freedesktop.login1.Session.Lock") // a switch between two sessions of ours did not lock before it
	w.want(lockwatch.ScreenLock)
	l.front("theirs")
	w.want(lockwatch.UserSwitch)
}

func TestEveryKnownScreenSaverLocks(t *testing.T) {
	w := watch(t, false)
	w.run()
	w.waitReady("system", "session")
	for _, name := range []string{"org.freedesktop.ScreenSaver", "org.gnome.ScreenSaver", "org.cinnamon.ScreenSaver", "org.mate.ScreenSaver", "org.xfce.ScreenSaver"} {
		saver := w.session.service(t, name)
		path := dbus.ObjectPath("/" + strings.ReplaceAll(name, ".", "/"))
		for _, active := range []bool{false, true} {
			if err := saver.Emit(path, name+".ActiveChanged", active); err != nil {
				t.Fatal(err)
			}
		}
		w.want(lockwatch.ScreenLock)
	}
}

func TestASignalOfSomebodyElseIsNotHeard(t *testing.T) {
	w := watch(t, false)
	l := startLogind(t, w.system)
	saver := w.session.service(t, "org.gnome.ScreenSaver")
	w.run()
	w.waitReady("system", "session")
	forger := w.system.service(t, "")
	for _, name := range []string{"org.freedesktop.login1.Manager.PrepareForSleep"} {
		if err := forger.Emit(loginPath, name, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := forger.Emit(session("ours"), "org.freedesktop.login1.Session.Lock"); err != nil {
		t.Fatal(err)
	}
	// The bus handles the messages of one connection in order: once the forger's question is answered, its signals were passed on or dropped.
	if err := forger.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
	l.front("theirs")
	w.want(lockwatch.UserSwitch)
	forger = w.session.service(t, "")
	if err := forger.Emit("/org/gnome/ScreenSaver", "org.gnome.ScreenSaver.ActiveChanged", true); err != nil {
		t.Fatal(err)
	}
	if err := forger.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
	if err := saver.Emit("/org/gnome/ScreenSaver", "org.gnome.ScreenSaver.ActiveChanged", true); err != nil {
		t.Fatal(err)
	}
	w.want(lockwatch.ScreenLock)
	select {
	case r := <-w.reasons:
		t.Errorf("it locked once more, for %s", r)
	default:
	}
}

func TestABusThatComesBackIsWatchedAgain(t *testing.T) {
	w := watch(t, false)
	w.system.stop()
	w.run()
	w.waitReady("session") // in spite of a machine without a system bus
	w.session.stop()
	next := startBus(t)
	w.session.move(next)
	w.waitReady("session")
	saver := next.service(t, "org.gnome.ScreenSaver")
	if err := saver.Emit("/org/gnome/ScreenSaver", "org.gnome.ScreenSaver.ActiveChanged", true); err != nil {
		t.Fatal(err)
	}
	w.want(lockwatch.ScreenLock)
}
