package tray_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"singlepass.dev/ui/bustest"
	"singlepass.dev/ui/icon"
)

// panelGrey is the panel's colour, and panelSettings is a panel with nothing in it but the icons of others, below the window.
const (
	panelGrey     = 51
	panelSettings = `<?xml version="1.0" encoding="UTF-8"?>
<channel name="xfce4-panel" version="1.0">
  <property name="configver" type="int" value="2"/>
  <property name="panels" type="array">
    <value type="int" value="1"/>
    <property name="panel-1" type="empty">
      <property name="position" type="string" value="p=0;x=1150;y=800"/>
      <property name="position-locked" type="bool" value="true"/>
      <property name="size" type="uint" value="72"/>
      <property name="icon-size" type="uint" value="64"/>
      <property name="length" type="uint" value="1"/>
      <property name="length-adjust" type="bool" value="true"/>
      <property name="background-style" type="uint" value="1"/>
      <property name="background-rgba" type="array">
        <value type="double" value="0.2"/><value type="double" value="0.2"/><value type="double" value="0.2"/><value type="double" value="1"/>
      </property>
      <property name="plugin-ids" type="array"><value type="int" value="1"/></property>
    </property>
  </property>
  <property name="plugins" type="empty">
    <property name="plugin-1" type="string" value="systray">
      <property name="icon-size" type="int" value="64"/>
      <property name="square-icons" type="bool" value="true"/>
    </property>
  </property>
</channel>
`
)

// newXfce is a desktop with Xfce's panel and notification daemon.
func newXfce(t *testing.T) *rig {
	t.Helper()
	if _, err := exec.LookPath("xfce4-panel"); err != nil {
		t.Fatal("this test needs xfce4-panel and xfce4-notifyd: bash .ci/setup")
	}
	r, address := newDesktop(t)
	r.write("c/xfce4/xfconf/xfce-perchannel-xml/xfce4-panel.xml", panelSettings)
	r.env = append(r.env, "XDG_CONFIG_HOME="+filepath.Join(r.dir, "c"), "XDG_CACHE_HOME="+filepath.Join(r.dir, "k"), "NO_AT_BRIDGE=1", "GSETTINGS_BACKEND=memory")
	// These are started by a session bus that knows where they are; the test's knows nothing.
	r.background(service(t, "org.xfce.Xfconf"))
	r.background(service(t, "org.xfce.xfce4-notifyd.Notifications"))
	r.background("xfce4-panel", "--disable-wm-check")
	r.panel = bustest.Beside(t, address)
	return r
}

// service is the program behind a name on the session bus.
func service(t *testing.T, name string) string {
	t.Helper()
	file := "/usr/share/dbus-1/services/" + name + ".service"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: bash .ci/setup", err)
	}
	for line := range strings.Lines(string(b)) {
		if program, ok := strings.CutPrefix(line, "Exec="); ok {
			return strings.TrimSpace(program)
		}
	}
	t.Fatalf("%s names no program", file)
	return ""
}

// background runs a program until the end of the test.
func (r *rig) background(name string, args ...string) {
	r.t.Helper()
	cmd := r.command(name, args...)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { end(cmd) })
}

// pane is a window on the screen.
type pane struct {
	id string
	at image.Rectangle
}

// seen finds the visible windows whose class or name (by is one of the two) matches.
func (r *rig) seen(by, pattern string) (panes []pane) {
	r.t.Helper()
	out, err := r.command("xdotool", "search", "--onlyvisible", "--"+by, pattern, "getwindowgeometry", "--shell", "%@").Output()
	if err != nil {
		return nil // there is none, or it has just gone
	}
	for line := range strings.Lines(string(out)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		if k == "WINDOW" {
			panes = append(panes, pane{id: v})
		}
		n, err := strconv.Atoi(v)
		if err != nil || len(panes) == 0 {
			continue
		}
		switch at := &panes[len(panes)-1].at; k {
		case "X":
			at.Min.X = n
		case "Y":
			at.Min.Y = n
		case "WIDTH":
			at.Max.X = at.Min.X + n
		case "HEIGHT":
			at.Max.Y = at.Min.Y + n
		}
	}
	return panes
}

// click presses a button of the pointer at a place.
func (r *rig) click(button int, x, y int) {
	r.t.Helper()
	r.run("xdotool", "mousemove", strconv.Itoa(x), strconv.Itoa(y), "click", strconv.Itoa(button))
}

// clickIcon clicks the middle of the panel, which has the one icon in it.
func (r *rig) clickIcon(button int) {
	r.t.Helper()
	at := r.seen("class", "xfce4-panel")[0].at
	r.click(button, (at.Min.X+at.Max.X)/2, (at.Min.Y+at.Max.Y)/2)
}

// awaitPainted waits until the panel shows an icon that looks more like this one than like any other.
func (r *rig) awaitPainted(k icon.Kind, count int) {
	r.t.Helper()
	want, last := fmt.Sprintf("%s %d", k, count), ""
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the panel's icon looked like %s", last)
		}
	}()
	r.until("an icon "+want+" on the panel", func() {}, func() bool {
		last = r.painted()
		return last == want
	})
}

// painted is which icon the panel shows.
func (r *rig) painted() string {
	r.t.Helper()
	panes := r.seen("class", "xfce4-panel")
	if len(panes) == 0 {
		return "nothing"
	}
	out, err := r.command("import", "-window", panes[0].id, "png:-").Output()
	if err != nil {
		return "nothing" // it was redrawn meanwhile
	}
	m, err := png.Decode(bytes.NewReader(out))
	if err != nil {
		r.t.Fatal(err)
	}
	best, name := 30.0, "no icon of ours" // of 255
	for _, k := range icon.Kinds() {
		counts := []int{0}
		if k == icon.Waiting {
			counts = []int{1, 2, 3, 9, 10}
		}
		for _, n := range counts {
			if d := r.distance(m, k, n); d < best {
				best, name = d, fmt.Sprintf("%s %d", k, n)
			}
		}
	}
	return name
}

// distance is how far the middle of a picture is from an icon on the panel's grey, at the best place: the mean difference of a colour.
func (r *rig) distance(m image.Image, k icon.Kind, count int) float64 {
	r.t.Helper()
	drawn, err := icon.Draw(k, count, iconSize)
	if err != nil {
		r.t.Fatal(err)
	}
	best := 255.0
	b := m.Bounds()
	for oy := b.Min.Y; oy+iconSize <= b.Max.Y; oy += 2 {
		for ox := b.Min.X; ox+iconSize <= b.Max.X; ox += 2 {
			sum := 0.0
			for y := 0; y < iconSize; y += 2 {
				for x := 0; x < iconSize; x += 2 {
					p := drawn.NRGBAAt(x, y)
					over := func(c uint8) float64 { return (float64(c)*float64(p.A) + panelGrey*float64(255-p.A)) / 255 }
					red, green, blue, _ := m.At(ox+x, oy+y).RGBA()
					for i, c := range []uint8{p.R, p.G, p.B} {
						d := over(c) - float64([]uint32{red, green, blue}[i]>>8)
						sum += max(d, -d)
					}
				}
			}
			best = min(best, sum/(3*iconSize*iconSize/4))
		}
	}
	return best
}

// choose opens the icon's menu on the panel and goes to an entry with the keyboard.
func (r *rig) choose(text string) {
	r.t.Helper()
	keys := []string{"key", "--delay", "30"}
	lines := r.item.AwaitMenu("menu entry "+text, func(l []bustest.Line) bool { _, ok := bustest.Has(l, text); return ok })
	for _, l := range lines {
		if l.Enabled {
			keys = append(keys, "Down")
		}
		if strings.Contains(l.Label, text) {
			break
		}
	}
	panel := r.seen("class", "xfce4-panel")[0].at
	open := func() bool { // the menu stands on the panel
		return slices.ContainsFunc(r.seen("name", ".*"), func(p pane) bool {
			return p.at.Dx() > panel.Dx() && p.at.Max.Y > panel.Min.Y-4 && p.at.Max.Y < panel.Min.Y+4
		})
	}
	r.until("opening the menu", func() { r.clickIcon(3) }, open)
	r.run("xdotool", append(keys, "Return")...)
	r.until("closing the menu", func() {}, func() bool { return !open() })
	r.aside()
}

// awaitBubble waits until Xfce shows a notification, and returns where.
func (r *rig) awaitBubble() (at image.Rectangle) {
	r.t.Helper()
	r.until("a notification on the screen", func() {}, func() bool {
		panes := r.seen("class", "xfce4-notifyd")
		if len(panes) == 0 {
			return false
		}
		at = panes[0].at
		return true
	})
	return at
}

// awaitNoBubble waits until it is gone.
func (r *rig) awaitNoBubble() {
	r.t.Helper()
	r.until("the end of the notification", func() {}, func() bool { return len(r.seen("class", "xfce4-notifyd")) == 0 })
}

// What bustest's panel and notification daemon take on trust: that a real panel paints the icon and opens the menu, and that a real notification daemon shows the buttons.
func TestOnXfcesPanelWithXfcesNotifications(t *testing.T) {
	r := newXfce(t)
	r.startTray("--background")
	r.awaitPainted(icon.Down, 0)
	r.startDaemon()
	r.setUp()
	r.awaitPainted(icon.Locked, 0)

	// The menu, as the panel draws it.
	r.choose("Unlock")
	r.awaitWindow()
	r.aside()
	r.unlock(icon.Unlocked, 0)
	r.awaitPainted(icon.Unlocked, 0)
	r.closed()

	// Denied by the button of the notification, as the desktop draws it.
	a := r.startAgent()
	denied := a.deploy("api", time.Minute)
	r.awaitPainted(icon.Waiting, 1)
	at := r.awaitBubble()
	// Buttons stand at the right, and Deny is the last.
	r.until("denying from the notification", func() { r.click(1, at.Max.X-57, at.Max.Y-31) }, r.shows(icon.Unlocked, 0))
	if got := denied(); !strings.Contains(string(got.Result), `"denied"`) {
		t.Errorf("the denied call came to %+v", got)
	}
	r.awaitNoBubble()
	if n := r.effects("api"); n != 0 {
		t.Errorf("the target acted %d times on what was denied", n)
	}

	// Withdrawn when it was answered elsewhere.
	denied = a.deploy("db", time.Minute)
	r.awaitPainted(icon.Waiting, 1)
	r.awaitBubble()
	r.run("spctl", "deny", r.cards()[0].Card)
	denied()
	r.awaitNoBubble()
	r.awaitPainted(icon.Unlocked, 0)

	// A click on the icon brings the window.
	allowed := a.deploy("web", time.Minute)
	r.awaitPainted(icon.Waiting, 1)
	r.until("bringing the window by the icon", func() { r.clickIcon(1) }, r.window)
	r.aside()
	r.last("allowing", icon.Unlocked, 0)
	if got := allowed(); !got.OK || !strings.Contains(string(got.Result), "rcpt_") {
		t.Errorf("the allowed call came to %+v", got)
	}
	r.awaitPainted(icon.Unlocked, 0)

	r.choose("Quit")
	r.awaitEnd()
}
