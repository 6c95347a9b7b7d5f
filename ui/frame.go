package ui

import (
	"context"
	"errors"
	"image/color"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/driver/desktop"
	"fyne.io/fyne/v2/layout"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/actions"
	"singlepass.dev/ui/activity"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/pending"
	"singlepass.dev/ui/record"
	"singlepass.dev/ui/sessions"
	"singlepass.dev/ui/vaultview"
	"singlepass.dev/ui/watch"
	"singlepass.dev/ui/words"
)

// Page is one of the window's pages.
type Page string

// The pages, in the order of the rail.
const (
	Pending  Page = "pending"
	Activity Page = "activity"
	Sessions Page = "sessions"
	Vault    Page = "vault"
	Actions  Page = "actions"
)

// Operator is what the pages ask of the daemon on the person's behalf; a *client.Operator with Tickets is one. It is safe for concurrent use.
type Operator interface {
	record.Daemon
	activity.Daemon
	sessions.Daemon
	vaultview.Vault
	vaultview.Credentials
	vaultview.Keeper
	actions.Daemon
	actions.Upstreams
}

// Watch is what the frame tells the watch; a *watch.Watch is one.
type Watch interface {
	Nudge()
	Answering(card string) (undo func())
	Seen(ctx context.Context, execution string)
}

// Config is what a Frame needs.
type Config struct {
	Window   fyne.Window      // required
	Operator Operator         // required
	Watch    Watch            // required
	Now      func() time.Time // required
	Context  context.Context  // required: ends with the app
	Close    func()           // required: takes the window out of sight
	Quit     func()           // required
	Go       func(func())     // optional: how work is started; a goroutine
	After    look.After       // optional: look.AfterFunc
}

// Frame is the content of the window: a rail with the pages, the banners, and the page in sight. Everything of it is called on Fyne's thread.
type Frame struct {
	cfg    Config
	state  watch.State
	hosted bool
	page   Page

	pending  *pending.View
	activity *activity.View
	sessions *sessions.View
	vault    *vaultview.View
	actions  *actions.View
	loaded   map[Page]bool // pages that were read since presence was proven

	rail    map[Page]*widget.Button
	lock    *widget.Button
	face    *canvas.Image
	said    *widget.Label
	banners *fyne.Container
	above   fyne.CanvasObject // the banners with the room around them; not there where there are none
	shown   []banner
	body    *fyne.Container
	main    *fyne.Container   // what stands above, and the page
	nothing fyne.CanvasObject // while there is no daemon
	door    string            // in which state the vault's door was shown last
}

// New fills the window.
func New(cfg Config) (*Frame, error) {
	if cfg.Window == nil || cfg.Operator == nil || cfg.Watch == nil || cfg.Now == nil || cfg.Context == nil || cfg.Close == nil || cfg.Quit == nil {
		return nil, errors.New("ui: every field of Config but Go and After is required")
	}
	if cfg.Go == nil {
		cfg.Go = func(f func()) { go f() }
	}
	f := &Frame{cfg: cfg, state: watch.State{Link: watch.Starting}, page: Pending, rail: map[Page]*widget.Button{}, loaded: map[Page]bool{}}
	if err := f.makePages(); err != nil {
		return nil, err
	}
	f.banners = look.Rows(6)
	f.body, f.nothing = container.NewStack(), container.NewStack()
	// In this order, which is the order of the Tab key as well: the rail, the banners, the page.
	rail := f.makeRail()
	f.above = look.Inset(12, 6, f.banners)
	f.above.Hide()
	main := container.New(layout.NewBorderLayout(f.above, nil, nil, nil), f.above, f.body)
	f.main = main
	cfg.Window.SetContent(container.New(layout.NewBorderLayout(nil, nil, rail, nil), rail, main))
	f.keys()
	f.SetState(f.state, true)
	return f, nil
}

// makeRail is the left edge: how things stand, the pages, and the lock.
func (f *Frame) makeRail() fyne.CanvasObject {
	f.face = canvas.NewImageFromResource(nil)
	f.face.FillMode = canvas.ImageFillContain
	f.face.SetMinSize(fyne.NewSquareSize(28))
	f.said = widget.NewLabel("")
	f.said.Wrapping = fyne.TextWrapWord
	f.said.TextStyle.Bold = true
	list := container.NewVBox(container.NewBorder(nil, nil, container.NewPadded(f.face), nil, f.said))
	for _, p := range f.pages() {
		b := widget.NewButton("", func() { f.Show(p.page, "") })
		b.Alignment, b.Importance = widget.ButtonAlignLeading, widget.LowImportance
		f.rail[p.page] = b
		list.Add(b)
	}
	f.lock = widget.NewButton("", f.lockNow)
	f.lock.Alignment, f.lock.Importance = widget.ButtonAlignLeading, widget.LowImportance
	back := canvas.NewRectangle(color.Transparent)
	rail := container.NewBorder(nil, f.lock, nil, nil, list)
	return container.NewHBox(look.Wide(190, 0, container.NewStack(back, container.NewPadded(rail))), widget.NewSeparator())
}

// pageEntry is one page of the rail.
type pageEntry struct {
	page  Page
	name  func() string
	shape look.Shape
}

func (f *Frame) pages() []pageEntry {
	return []pageEntry{
		{Pending, func() string { return words.Say("page.pending") }, look.ShapeWaiting},
		{Activity, func() string { return words.Say("page.activity") }, look.ShapeSent},
		{Sessions, func() string { return words.Say("page.sessions") }, look.ShapeProgram},
		{Vault, func() string { return words.Say("page.vault") }, look.ShapeKey},
		{Actions, func() string { return words.Say("page.actions") }, look.ShapeInfo},
	}
}

// keys: Ctrl and a number choose a page, Ctrl+L locks, Ctrl+W closes the window, Ctrl+Q quits. No key of the frame answers anything.
func (f *Frame) keys() {
	c := f.cfg.Window.Canvas()
	for i, p := range f.pages() {
		c.AddShortcut(&desktop.CustomShortcut{KeyName: fyne.KeyName(rune('1' + i)), Modifier: fyne.KeyModifierControl}, func(fyne.Shortcut) { f.Show(p.page, "") })
	}
	c.AddShortcut(&desktop.CustomShortcut{KeyName: fyne.KeyL, Modifier: fyne.KeyModifierControl}, func(fyne.Shortcut) { f.lockNow() })
	c.AddShortcut(&desktop.CustomShortcut{KeyName: fyne.KeyW, Modifier: fyne.KeyModifierControl}, func(fyne.Shortcut) { f.cfg.Close() })
	c.AddShortcut(&desktop.CustomShortcut{KeyName: fyne.KeyQ, Modifier: fyne.KeyModifierControl}, func(fyne.Shortcut) { f.cfg.Quit() })
}

func (f *Frame) lockNow() {
	if f.state.Link != watch.Up || f.state.Status.Vault != "unlocked" {
		return
	}
	f.cfg.Go(func() {
		_, _ = f.cfg.Operator.Lock(f.cfg.Context) // whether it is locked is what the status says next
		f.cfg.Watch.Nudge()
	})
}

// Show chooses a page, and what is looked at there: a card, an execution, or nothing in particular.
func (f *Frame) Show(p Page, id string) {
	f.page = p
	f.loaded[p] = false
	if id != "" && p == Pending {
		f.pending.Choose(id)
	}
	f.arrange()
	f.knock(soonPainted)
}

// soonPainted is how often a look is taken whether a page was painted, which is when it can have the keyboard.
const soonPainted = 40

// knock puts the keyboard where the passphrase is typed, if that is what the person has to do.
func (f *Frame) knock(tries int) {
	switch {
	case f.state.Proven || f.state.Link != watch.Up:
	case fyne.CurrentApp().Driver().CanvasForObject(f.vault) != nil:
		f.vault.Focus()
	case tries > 0:
		time.AfterFunc(50*time.Millisecond, func() { look.Do(func() { f.knock(tries - 1) }) })
	}
}

// Sighted says that the window came into sight just now. Any program of the user can bring that about, at a moment of its choosing.
func (f *Frame) Sighted() { f.pending.Sighted() }

// Stale says that changes were not told: what is shown next is read anew.
func (f *Frame) Stale() { clear(f.loaded) }

// Changed takes a change of an execution that the daemon told.
func (f *Frame) Changed(r api.Record) {
	if f.loaded[Activity] {
		f.activity.Update(r)
	}
	f.sessions.Seen(r.Run, r.ChangedAt)
}

// SetState shows a state. hosted says whether anybody shows the tray's icon.
func (f *Frame) SetState(s watch.State, hosted bool) {
	if s.Status.Sessions != f.state.Status.Sessions || s.Status.Grants != f.state.Status.Grants {
		f.loaded[Sessions] = false
	}
	if s.Status.Actions != f.state.Status.Actions || s.Status.Changed != f.state.Status.Changed {
		f.loaded[Actions] = false
	}
	if !s.Proven {
		clear(f.loaded)
	}
	f.state, f.hosted = s, hosted
	waits := pending.State{Cards: s.Cards, Open: s.Open}
	for _, g := range s.Gone {
		e := api.CardEvent{Event: "answered", Card: g.Card, By: g.By, Note: g.Reason}
		if g.Void {
			e.Event = "void"
		}
		waits.Gone = append(waits.Gone, e)
	}
	for _, a := range s.Again {
		waits.Again = append(waits.Again, a.Record)
	}
	f.pending.Update(waits)
	f.vault.Update(s.Status, s.Proven)
	f.arrange()
}

// arrange brings rail, banners and page in line with the state.
func (f *Frame) arrange() {
	s := f.state
	face, count := s.Face()
	shape, tone := railFace(face)
	f.face.Resource = shape.Resource(tone)
	f.face.Refresh()
	f.said.SetText(railText(s, face, count))
	for _, p := range f.pages() {
		b, text := f.rail[p.page], p.name()
		if n := s.Waiting() + s.Unknown(); p.page == Pending && n > 0 {
			text = words.Say("page.counted", "Page", text, "N", n)
		}
		b.Importance = widget.LowImportance
		if p.page == f.page {
			b.Importance = widget.MediumImportance
		}
		b.SetIcon(p.shape.Resource(theme.ColorNameForeground))
		b.SetText(text)
	}
	if s.Link == watch.Up && s.Status.Vault == "unlocked" {
		f.lock.SetText(words.Say("tray.lock"))
		f.lock.SetIcon(look.ShapeLock.Resource(theme.ColorNameForeground))
		f.lock.Show()
	} else {
		f.lock.Hide()
	}
	f.showBanners(banners(s, f.hosted))
	f.showPage()
}

func railFace(face watch.Face) (look.Shape, fyne.ThemeColorName) {
	switch face {
	case watch.FaceWaiting:
		return look.ShapeWaiting, look.Busy
	case watch.FaceQuarantine:
		return look.ShapeWarning, look.Bad
	case watch.FaceUnknown:
		return look.ShapeUnknown, look.Doubt
	case watch.FaceLocked:
		return look.ShapeLock, look.Muted
	case watch.FaceUnlocked:
		return look.ShapeOpenLock, look.Good
	}
	return look.ShapeNothing, look.Muted
}

func railText(s watch.State, face watch.Face, count int) string {
	switch face {
	case watch.FaceWaiting:
		return words.Count("rail.waiting", count)
	case watch.FaceQuarantine:
		return words.Say("rail.quarantine")
	case watch.FaceUnknown:
		return words.Count("rail.unknown", count)
	case watch.FaceLocked:
		if s.Status.Vault == "uninitialized" {
			return words.Say("rail.no_vault")
		}
		return words.Say("rail.locked")
	case watch.FaceUnlocked:
		return words.Say("rail.unlocked")
	}
	return words.Say("rail.down")
}

func (f *Frame) showBanners(list []banner) {
	if equal(list, f.shown) {
		return
	}
	f.shown = list
	f.banners.Objects = nil
	for _, b := range list {
		content := fyne.CanvasObject(look.Body(b.text))
		if b.hint != "" {
			content = look.Rows(-6, look.Body(b.text), look.Quiet(b.hint))
		}
		f.banners.Objects = append(f.banners.Objects, look.NewNotice(b.tone, b.shape, content))
	}
	f.banners.Refresh()
	if len(list) > 0 {
		f.above.Show()
	} else {
		f.above.Hide()
	}
	if f.main != nil {
		f.main.Refresh() // the page has another room now
	}
}

func equal(a, b []banner) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (f *Frame) showPage() {
	var o fyne.CanvasObject
	s := f.state
	switch {
	case s.Link != watch.Up:
		o = f.nothing
	case !s.Proven:
		o = f.vault // the door, or the first run
	default:
		o = f.pageView()
		defer f.load() // once it has its place
	}
	door := s.Status.Vault
	if s.Proven {
		door = ""
	}
	knocks := door != f.door && !s.Proven
	f.door = door
	if len(f.body.Objects) == 1 && f.body.Objects[0] == o {
		if knocks {
			f.knock(soonPainted)
		}
		return
	}
	f.body.Objects = []fyne.CanvasObject{o}
	f.body.Refresh()
	if o == fyne.CanvasObject(f.pending) {
		f.pending.Sighted()
	}
	// What is not in sight any more must not take the keys.
	f.cfg.Window.Canvas().Unfocus()
	f.knock(soonPainted)
}

// Tick brings what depends on the time up to now; once a second while the window is in sight.
func (f *Frame) Tick() {
	if f.page == Pending {
		f.pending.Tick()
	}
}

// Ticks says whether anything in sight depends on the time.
func (f *Frame) Ticks() bool { return f.page == Pending && len(f.state.Cards) > 0 }
