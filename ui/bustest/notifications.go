package bustest

import (
	"testing"

	"github.com/godbus/dbus/v5"
)

const (
	notifyName = "org.freedesktop.Notifications"
	notifyPath = "/org/freedesktop/Notifications"
)

// Notice is what a program asked to have shown, or to have taken away.
type Notice struct {
	ID, Replaces uint32
	Title, Body  string
	Actions      []string // key, label, key, label …
	Closed       bool
}

// Key returns the key of the action with that label.
func (n Notice) Key(label string) string {
	for i := 0; i+1 < len(n.Actions); i += 2 {
		if n.Actions[i+1] == label {
			return n.Actions[i]
		}
	}
	return ""
}

// Notifications is a notification daemon.
type Notifications struct {
	t     testing.TB
	conn  *dbus.Conn
	last  uint32
	Shown chan Notice
}

// NewNotifications shows notices until the end of the test.
func NewNotifications(t testing.TB, address string) *Notifications {
	t.Helper()
	n := &Notifications{t: t, conn: Connect(t, address), Shown: make(chan Notice, 1024)}
	if err := n.conn.Export(desktop{n}, notifyPath, notifyName); err != nil {
		t.Fatal(err)
	}
	if r, err := n.conn.RequestName(notifyName, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("becoming the notification daemon: %v %v", r, err)
	}
	return n
}

type desktop struct{ n *Notifications }

// Notify shows a notice. The library calls one method at a time.
func (d desktop) Notify(_ string, replaces uint32, _, title, body string, actions []string, _ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	id := replaces
	if id == 0 {
		d.n.last++
		id = d.n.last
	}
	d.n.Shown <- Notice{ID: id, Replaces: replaces, Title: title, Body: body, Actions: actions}
	return id, nil
}

// CloseNotification takes one away.
func (d desktop) CloseNotification(id uint32) *dbus.Error {
	d.n.Shown <- Notice{ID: id, Closed: true}
	return nil
}

// GetCapabilities says that actions can be shown.
func (desktop) GetCapabilities() ([]string, *dbus.Error) { return []string{"actions", "body"}, nil }

// Click invokes an action of a notice, as the person does.
func (n *Notifications) Click(id uint32, key string) {
	n.t.Helper()
	if err := n.conn.Emit(notifyPath, notifyName+".ActionInvoked", id, key); err != nil {
		n.t.Fatal(err)
	}
}

// Dismissed says that the person waved the notice away.
func (n *Notifications) Dismissed(id uint32) {
	n.t.Helper()
	if err := n.conn.Emit(notifyPath, notifyName+".NotificationClosed", id, uint32(2)); err != nil {
		n.t.Fatal(err)
	}
}

// Forge emits the same as Click from a program that shows no notices.
func Forge(t testing.TB, address string, id uint32, key string) {
	t.Helper()
	if err := Connect(t, address).Emit(notifyPath, notifyName+".ActionInvoked", id, key); err != nil {
		t.Fatal(err)
	}
}
