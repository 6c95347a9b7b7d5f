// Package looktest renders views for tests, always alike: without a display, in English, with Fyne's own fonts, in one of the app's two themes.
//
// A golden file is made anew by running the test with UPDATE_GOLDEN=1. Whoever does that looks at what changed.
package looktest

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/driver/software"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// Now is the time in every test.
var Now = time.Date(2026, 3, 14, 14, 2, 30, 0, time.UTC)

// Start makes a test's app in one variant and language. The local time is UTC.
func Start(t testing.TB, variant fyne.ThemeVariant, locale string) {
	t.Helper()
	for _, name := range []string{"LANGUAGE", "LC_ALL", "LC_MESSAGES"} {
		t.Setenv(name, "")
	}
	t.Setenv("LANG", locale)
	if err := words.Reload(); err != nil {
		t.Fatal(err)
	}
	time.Local = time.UTC
	app := test.NewApp()
	t.Cleanup(app.Quit)
	app.Settings().SetTheme(look.Fixed(variant))
}

// Window shows an object in a window of a size.
func Window(t testing.TB, o fyne.CanvasObject, w, h float32) fyne.Window {
	t.Helper()
	win := test.NewWindow(nil)
	win.SetPadded(false)
	win.SetContent(o)
	win.Resize(fyne.NewSize(w, h))
	t.Cleanup(win.Close)
	return win
}

func update() bool { return os.Getenv("UPDATE_GOLDEN") != "" }

// Markup holds what a window shows against testdata/NAME.xml.
func Markup(t *testing.T, win fyne.Window, name string) {
	t.Helper()
	golden(t, name+".xml", []byte(test.RenderToMarkup(win.Canvas())), func(a, b []byte) bool { return bytes.Equal(a, b) })
}

// Picture holds what a window looks like, at a scale, against testdata/NAME.png.
func Picture(t *testing.T, o fyne.CanvasObject, w, h, scale float32, name string) {
	t.Helper()
	c := software.NewCanvas()
	c.SetPadded(false)
	c.SetScale(scale)
	c.SetContent(o)
	c.Resize(fyne.NewSize(w, h))
	o.Refresh()
	var b bytes.Buffer
	if err := png.Encode(&b, c.Capture()); err != nil {
		t.Fatal(err)
	}
	golden(t, name+".png", b.Bytes(), alike)
}

// alike compares the pixels: an encoder may pack the same picture otherwise.
func alike(a, b []byte) bool {
	x, err := png.Decode(bytes.NewReader(a))
	if err != nil {
		return false
	}
	y, err := png.Decode(bytes.NewReader(b))
	if err != nil || x.Bounds() != y.Bounds() {
		return false
	}
	return far(x, y) == 0
}

// far counts the pixels that differ by more than rounding.
func far(x, y image.Image) int {
	n := 0
	for py := x.Bounds().Min.Y; py < x.Bounds().Max.Y; py++ {
		for px := x.Bounds().Min.X; px < x.Bounds().Max.X; px++ {
			r1, g1, b1, _ := x.At(px, py).RGBA()
			r2, g2, b2, _ := y.At(px, py).RGBA()
			for _, d := range []int{int(r1) - int(r2), int(g1) - int(g2), int(b1) - int(b2)} {
				if d > 0x0800 || d < -0x0800 {
					n++
					break
				}
			}
		}
	}
	return n
}

func golden(t *testing.T, name string, got []byte, same func(a, b []byte) bool) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if update() {
		if old, err := os.ReadFile(path); err == nil && same(old, got) {
			return
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; make it with UPDATE_GOLDEN=1 and look at it", err)
	}
	if same(want, got) {
		return
	}
	failed := filepath.Join(t.ArtifactDir(), name)
	if err := os.MkdirAll(filepath.Dir(failed), 0o755); err == nil {
		_ = os.WriteFile(failed, got, 0o644)
	}
	t.Errorf("%s is not what it was; the new one is %s", path, failed)
}

// Clock is time that passes only when a test says so.
type Clock struct {
	now   time.Time
	later []timer
}

type timer struct {
	at time.Time
	f  func()
}

// NewClock starts at Now.
func NewClock() *Clock { return &Clock{now: Now} }

// Now is the clock's time.
func (c *Clock) Now() time.Time { return c.now }

// After calls f once the clock has come so far.
func (c *Clock) After(d time.Duration, f func()) (cancel func()) {
	live := true
	c.later = append(c.later, timer{c.now.Add(d), func() {
		if live {
			f()
		}
	}})
	return func() { live = false }
}

// Pass lets time pass.
func (c *Clock) Pass(d time.Duration) {
	c.now = c.now.Add(d)
	waiting := c.later
	c.later = nil
	for _, t := range waiting {
		if t.at.After(c.now) {
			c.later = append(c.later, t)
			continue
		}
		t.f()
	}
}

// Buttons are the buttons in an object that can be seen, in the order in which they are drawn.
func Buttons(o fyne.CanvasObject) []*widget.Button { return all[*widget.Button](o) }

// Entries are the fields in an object that can be seen.
func Entries(o fyne.CanvasObject) []*widget.Entry { return all[*widget.Entry](o) }

func all[T fyne.CanvasObject](o fyne.CanvasObject) []T {
	var found []T
	for _, o := range test.LaidOutObjects(o) {
		if w, ok := o.(T); ok {
			found = append(found, w)
		}
	}
	return found
}

// Selects are the menus in an object that can be seen.
func Selects(o fyne.CanvasObject) []*widget.Select { return all[*widget.Select](o) }

// Radios are the choices in an object that can be seen.
func Radios(o fyne.CanvasObject) []*widget.RadioGroup { return all[*widget.RadioGroup](o) }

// Texts are the words in an object, paragraph by paragraph.
func Texts(o fyne.CanvasObject) []string {
	var list []string
	for _, o := range test.LaidOutObjects(o) {
		switch w := o.(type) {
		case *look.Text:
			list = append(list, w.String())
		case *look.Code:
			list = append(list, w.String())
		case *canvas.Text:
			// Those of a paragraph are there already.
			if n := len(list); n == 0 || !strings.Contains(list[n-1], w.Text) {
				list = append(list, w.Text)
			}
		case *widget.Button:
			list = append(list, w.Text)
		}
	}
	return list
}

// Theme is the app's theme in one variant.
func Theme(v fyne.ThemeVariant) fyne.Theme { return look.Fixed(v) }
