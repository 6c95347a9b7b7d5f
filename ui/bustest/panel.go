package bustest

import (
	"bytes"
	"image/png"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"
	"github.com/godbus/dbus/v5/prop"
)

const (
	watcherName  = "org.kde.StatusNotifierWatcher"
	watcherPath  = "/StatusNotifierWatcher"
	itemName     = "org.kde.StatusNotifierItem"
	itemPath     = "/StatusNotifierItem"
	menuName     = "com.canonical.dbusmenu"
	menuPath     = "/StatusNotifierMenu"
	propertyName = "org.freedesktop.DBus.Properties"
)

// Panel is a StatusNotifierWatcher and host.
type Panel struct {
	t       testing.TB
	conn    *dbus.Conn
	signals chan *dbus.Signal
	Items   chan *Item // each icon that registers
}

// NewPanel shows icons until the end of the test.
func NewPanel(t testing.TB, address string) *Panel {
	t.Helper()
	p := listening(t, address)
	if err := p.conn.Export(watcher{p}, watcherPath, watcherName); err != nil {
		t.Fatal(err)
	}
	if _, err := prop.Export(p.conn, watcherPath, prop.Map{watcherName: {"IsStatusNotifierHostRegistered": {Value: true, Emit: prop.EmitTrue}}}); err != nil {
		t.Fatal(err)
	}
	if err := p.conn.Export(introspect.NewIntrospectable(&introspect.Node{Name: watcherPath}), watcherPath, "org.freedesktop.DBus.Introspectable"); err != nil {
		t.Fatal(err)
	}
	if r, err := p.conn.RequestName(watcherName, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("becoming the watcher: %v %v", r, err)
	}
	return p
}

func listening(t testing.TB, address string) *Panel {
	t.Helper()
	p := &Panel{t: t, conn: Connect(t, address), signals: make(chan *dbus.Signal, 1024), Items: make(chan *Item, 16)}
	p.conn.Signal(p.signals)
	for _, i := range []string{itemName, menuName} {
		if err := p.conn.AddMatchSignal(dbus.WithMatchInterface(i)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Beside waits for another program's panel and reads the icons that register there from now on, as that one does.
func Beside(t testing.TB, address string) *Panel {
	t.Helper()
	p, bus, signals := listening(t, address), Connect(t, address), make(chan *dbus.Signal, 64)
	bus.Signal(signals)
	for _, o := range [][]dbus.MatchOption{
		{dbus.WithMatchInterface(watcherName)},
		{dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, watcherName)},
	} {
		if err := bus.AddMatchSignal(o...); err != nil {
			t.Fatal(err)
		}
	}
	there := func() (yes bool) {
		return bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, watcherName).Store(&yes) == nil && yes
	}
	if !there() {
		Await(t, "panel", signals, func(*dbus.Signal) bool { return there() })
	}
	go func() {
		for s := range signals {
			if s.Name != watcherName+".StatusNotifierItemRegistered" || len(s.Body) != 1 {
				continue
			}
			if name, ok := s.Body[0].(string); ok { // the owner and its path, in one
				owner, _, _ := strings.Cut(name, "/")
				p.Items <- &Item{p: p, owner: owner}
			}
		}
	}()
	return p
}

// Close takes the panel away, as the end of a desktop shell does.
func (p *Panel) Close() { p.conn.Close() }

type watcher struct{ p *Panel }

// RegisterStatusNotifierItem is called by an icon with its path.
func (w watcher) RegisterStatusNotifierItem(sender dbus.Sender, _ string) *dbus.Error {
	w.p.Items <- &Item{p: w.p, owner: string(sender)}
	return nil
}

// Item is one program's icon in the panel.
type Item struct {
	p     *Panel
	owner string
}

func (i *Item) property(name string) dbus.Variant {
	i.p.t.Helper()
	var v dbus.Variant
	if err := i.p.conn.Object(i.owner, itemPath).Call(propertyName+".Get", 0, itemName, name).Store(&v); err != nil {
		i.p.t.Fatalf("reading the icon's %s: %v", name, err)
	}
	return v
}

// pixels is the icon's side and its pixels, as the bus carries them.
func (i *Item) pixels() (side int, pix []byte) {
	i.p.t.Helper()
	var maps []struct {
		W, H int32
		Pix  []byte
	}
	if err := i.property("IconPixmap").Store(&maps); err != nil || len(maps) != 1 || maps[0].W != maps[0].H {
		i.p.t.Fatalf("the icon has %d pictures: %v", len(maps), err)
	}
	return int(maps[0].W), maps[0].Pix
}

// carried is a picture as the bus carries it: alpha, red, green, blue, the colours multiplied by alpha.
func carried(t testing.TB, picture []byte) (side int, pix []byte) {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	side = m.Bounds().Dx()
	for y := range side {
		for x := range side {
			r, g, b, a := m.At(x, y).RGBA()
			pix = append(pix, byte(a), byte(r), byte(g), byte(b))
		}
	}
	return side, pix
}

// Tooltip is the text under the pointer.
func (i *Item) Tooltip() string {
	i.p.t.Helper()
	var tip struct {
		Name  string
		Icons []struct {
			W, H int32
			Pix  []byte
		}
		Title, Text string
	}
	if err := i.property("ToolTip").Store(&tip); err != nil {
		i.p.t.Fatal(err)
	}
	return tip.Title
}

// Line is one entry of the menu as the person sees it.
type Line struct {
	ID      int32
	Label   string
	Enabled bool
}

type layout struct {
	ID         int32
	Properties map[string]dbus.Variant
	Children   []dbus.Variant
}

// Menu reads the menu: what is visible, without the separators.
func (i *Item) Menu() (lines []Line) {
	i.p.t.Helper()
	var revision uint32
	var root layout
	if err := i.p.conn.Object(i.owner, menuPath).Call(menuName+".GetLayout", 0, int32(0), int32(-1), []string{}).Store(&revision, &root); err != nil {
		i.p.t.Fatalf("reading the menu: %v", err)
	}
	for _, v := range root.Children {
		var l layout
		if err := v.Store(&l); err != nil {
			i.p.t.Fatal(err)
		}
		text, _ := l.Properties["label"].Value().(string)
		visible, set := l.Properties["visible"].Value().(bool)
		enabled, known := l.Properties["enabled"].Value().(bool)
		if text == "" || set && !visible {
			continue
		}
		// What a panel makes of the mark of an access key.
		text = strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(text, "__", "\x00"), "_", ""), "\x00", "_")
		lines = append(lines, Line{l.ID, text, !known || enabled})
	}
	return lines
}

// AwaitMenu waits until the menu is as wanted.
func (i *Item) AwaitMenu(what string, match func([]Line) bool) []Line {
	i.p.t.Helper()
	if lines := i.Menu(); match(lines) {
		return lines
	}
	var lines []Line
	Await(i.p.t, what, i.p.signals, func(*dbus.Signal) bool { lines = i.Menu(); return match(lines) })
	return lines
}

// Shows says whether the icon is this PNG now.
func (i *Item) Shows(picture []byte) bool {
	i.p.t.Helper()
	side, want := carried(i.p.t, picture)
	s, got := i.pixels()
	return s == side && bytes.Equal(got, want)
}

// AwaitPicture waits until the icon is this PNG.
func (i *Item) AwaitPicture(what string, picture []byte) {
	i.p.t.Helper()
	if !i.Shows(picture) {
		Await(i.p.t, what, i.p.signals, func(*dbus.Signal) bool { return i.Shows(picture) })
	}
}

// Has looks for a line that contains a text.
func Has(lines []Line, text string) (Line, bool) {
	for _, l := range lines {
		if strings.Contains(l.Label, text) {
			return l, true
		}
	}
	return Line{}, false
}

// Click waits for an entry that contains a text and clicks it.
func (i *Item) Click(text string) {
	i.p.t.Helper()
	lines := i.AwaitMenu("menu entry "+text, func(l []Line) bool { _, ok := Has(l, text); return ok })
	l, _ := Has(lines, text)
	if err := i.p.conn.Object(i.owner, menuPath).Call(menuName+".Event", 0, l.ID, "clicked", dbus.MakeVariant(""), uint32(0)).Err; err != nil {
		i.p.t.Fatalf("clicking %s: %v", text, err)
	}
}

// Tap clicks the icon itself.
func (i *Item) Tap() {
	i.p.t.Helper()
	if err := i.p.conn.Object(i.owner, itemPath).Call(itemName+".Activate", 0, int32(0), int32(0)).Err; err != nil {
		i.p.t.Fatalf("clicking the icon: %v", err)
	}
}
