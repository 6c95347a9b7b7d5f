// Package pending shows everything that waits for the person: cards, calls that came again, and outcomes that nobody knows. On the left they are listed by the process that asks, on the
// right is the one that is looked at: as a card, or, where it repeats an earlier call, as the record of that one.
//
// Promises: each is answered by itself; nothing here answers several. What is looked at changes only by the person's choice, or when it is over; a new one never takes its place. A card
// that was answered elsewhere says so where it stood, until the caller takes it off.
package pending

import (
	"context"
	"errors"
	"slices"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/card"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/record"
	"singlepass.dev/ui/words"
)

// State is what waits. The view keeps the slices and changes none.
type State struct {
	Cards []api.Card      // that wait, the oldest first
	Gone  []api.CardEvent // cards that ended lately and were not answered here, each with its card as it was
	Again []api.Record    // executions to which another call attached lately
	Open  []api.Record    // executions whose outcome is not known
}

// Config is what a View is made of.
type Config struct {
	Daemon   record.Daemon                                   // required
	Now      func() time.Time                                // required
	Context  context.Context                                 // optional: ends with the window
	Go       func(func())                                    // optional: how work is started; a goroutine
	After    func(d time.Duration, f func()) (cancel func()) // optional: time.AfterFunc
	Answered func(card string)                               // optional: a card was answered here
	Seen     func(execution string)                          // optional: the person is through with a call that came again
}

// entry is one line of the list: the process that asks, or one thing that waits.
type entry struct {
	id     string // of the card or the execution; empty for a process
	run    string
	title  string
	note   string
	tone   look.Tone
	shape  look.Shape
	card   *api.Card
	record *api.Record
	over   *api.CardEvent
}

// View is everything that waits.
type View struct {
	widget.BaseWidget
	cfg     Config
	entries []entry
	chosen  string
	shown   string // what the right side was made of last
	list    *widget.List
	card    *card.View
	record  *record.View
	right   *fyne.Container
	empty   fyne.CanvasObject
	root    *fyne.Container
	beside  fyne.CanvasObject // list and what is looked at
	split   bool
}

// New returns a view in which nothing waits.
func New(cfg Config) (*View, error) {
	if cfg.Daemon == nil || cfg.Now == nil {
		return nil, errors.New("pending: Daemon and Now are required")
	}
	v := &View{cfg: cfg}
	var err error
	answered := func(id string) {
		if cfg.Answered != nil {
			cfg.Answered(id)
		}
	}
	v.card, err = card.New(card.Config{
		Answerer: cfg.Daemon, Now: cfg.Now, Context: cfg.Context, Go: cfg.Go, After: cfg.After, Answered: func(id, _, _ string) { answered(id) },
	})
	if err != nil {
		return nil, err
	}
	v.record, err = record.New(record.Config{Daemon: cfg.Daemon, Now: cfg.Now, Context: cfg.Context, Go: cfg.Go, After: cfg.After, Decided: answered})
	if err != nil {
		return nil, err
	}
	v.list = widget.NewList(func() int { return len(v.entries) }, func() fyne.CanvasObject { return newLine() }, func(i widget.ListItemID, o fyne.CanvasObject) {
		o.(*line).set(v.entries[i], v.entries[i].id != "" && v.entries[i].id == v.chosen)
	})
	v.list.HideSeparators = true
	v.list.OnSelected = func(i widget.ListItemID) {
		if i < len(v.entries) && v.entries[i].id != "" {
			v.chosen = v.entries[i].id
			v.present()
			v.list.Refresh()
		}
	}
	v.empty = nothing()
	v.right = container.NewStack()
	v.beside = look.Beside(look.Ground(v.list), v.right)
	v.root = container.NewStack(v.empty)
	v.ExtendBaseWidget(v)
	return v, nil
}

func nothing() fyne.CanvasObject {
	return container.NewCenter(look.Wide(420, 0, look.Rows(2,
		look.Centered(look.ShapeDone, look.Good),
		look.Middle(look.Subheading(words.Say("pending.none"))),
		look.Middle(look.Quiet(words.Say("pending.none_means"))),
	)))
}

// CreateRenderer implements fyne.Widget.
func (v *View) CreateRenderer() fyne.WidgetRenderer { return widget.NewSimpleRenderer(v.root) }

// Update shows what waits now.
func (v *View) Update(s State) {
	v.entries = v.entries[:0]
	var items []entry
	for _, c := range s.Cards {
		items = append(items, v.ofCard(c, nil))
	}
	for _, g := range s.Gone {
		if !slices.ContainsFunc(items, func(e entry) bool { return e.id == g.Card.Card }) {
			items = append(items, v.ofCard(g.Card, &g))
		}
	}
	for _, list := range [][]api.Record{s.Open, s.Again} {
		for _, r := range list {
			known := func(e entry) bool {
				return e.id == r.ExecutionID || e.card != nil && e.card.ExecutionID == r.ExecutionID
			}
			if !slices.ContainsFunc(items, known) {
				items = append(items, ofRecord(r))
			}
		}
	}
	// By process, in the order in which each first has something that waits.
	var runs []string
	for _, e := range items {
		if !slices.Contains(runs, e.run) {
			runs = append(runs, e.run)
		}
	}
	for _, run := range runs {
		n, head := 0, len(v.entries)
		v.entries = append(v.entries, entry{run: run})
		for _, e := range items {
			if e.run == run {
				v.entries = append(v.entries, e)
				n++
			}
		}
		v.entries[head].title, v.entries[head].note = process(v.entries[head+1]), words.Count("pending.waiting", n)
	}
	v.arrange()
}

func process(e entry) string {
	if e.card != nil {
		return look.Brief(look.Program(e.card.Actor), 40) + "  " + words.Say("card.pid", "PID", e.card.Agent.PID)
	}
	return look.Brief(look.Program(e.record.Actor), 40)
}

func (v *View) ofCard(c api.Card, over *api.CardEvent) entry {
	e := entry{
		id: c.Card, run: c.Run, title: look.Brief(c.Tool, 60), note: look.Brief(look.HostOf(c.Target), 60), tone: look.Working, shape: look.ShapeWaiting, card: &c, over: over,
	}
	switch {
	case over != nil:
		e.tone, e.shape, e.note = look.Calm, look.ShapeOver, words.Say("pending.over")
	case c.Original != nil:
		e.shape, e.note = look.ShapeAgain, words.Say("record.came_again")
	case c.Question == "session" || c.Question == "session_and_use":
		e.tone, e.shape = look.Careful, look.ShapeProgram
	}
	return e
}

func ofRecord(r api.Record) entry {
	tone, shape, state := look.State(r)
	return entry{id: r.ExecutionID, run: r.Run, title: look.Brief(r.Tool, 60), note: state, tone: tone, shape: shape, record: &r}
}

// Chosen is the id of the card or execution that is looked at; empty where nothing waits.
func (v *View) Chosen() string { return v.chosen }

// Choose looks at a card, or at an execution. It reports whether there is one that waits.
func (v *View) Choose(id string) bool {
	for i, e := range v.entries {
		if e.id != "" && (e.id == id || e.card != nil && e.card.ExecutionID == id) {
			v.chosen = e.id
			v.list.Select(i)
			v.list.ScrollTo(i)
			v.present()
			return true
		}
	}
	return false
}

// arrange keeps what is looked at, and chooses the first where that is over.
func (v *View) arrange() {
	at := slices.IndexFunc(v.entries, func(e entry) bool { return e.id != "" && e.id == v.chosen })
	if at < 0 {
		v.chosen = ""
		if len(v.entries) > 1 {
			at, v.chosen = 1, v.entries[1].id
		}
	}
	switch things := v.things(); {
	case things == 0:
		v.shown = ""
		v.root.Objects = []fyne.CanvasObject{v.empty}
	case things == 1:
		// One alone needs no list: it has the whole window.
		v.root.Objects = []fyne.CanvasObject{v.right}
	default:
		v.root.Objects = []fyne.CanvasObject{v.beside}
	}
	v.split = v.things() > 1
	v.present()
	if v.split {
		v.list.Refresh()
	}
	v.root.Refresh()
}

func (v *View) things() int {
	n := 0
	for _, e := range v.entries {
		if e.id != "" {
			n++
		}
	}
	return n
}

// present shows what is chosen on the right.
func (v *View) present() {
	at := slices.IndexFunc(v.entries, func(e entry) bool { return e.id != "" && e.id == v.chosen })
	if at < 0 {
		v.right.Objects = nil
		return
	}
	e := v.entries[at]
	var face fyne.CanvasObject
	switch {
	case e.record != nil:
		v.record.Update(*e.record, nil)
		face = v.record
		if v.shown != e.id && v.cfg.Seen != nil && e.record.State != "unknown" {
			v.cfg.Seen(e.id)
		}
	case e.card.Original != nil:
		v.record.Update(*e.card.Original, e.card)
		if e.over != nil {
			v.record.Over(*e.over, card.Farewell(*e.over))
		}
		face = v.record
	default:
		v.card.Update(*e.card)
		if e.over != nil {
			v.card.Over(*e.over)
		}
		face = v.card
	}
	v.shown = e.id
	if len(v.right.Objects) != 1 || v.right.Objects[0] != face {
		v.right.Objects = []fyne.CanvasObject{face}
		v.right.Refresh()
	}
}

// Sighted says that the view came into sight just now.
func (v *View) Sighted() {
	v.card.Sighted()
	v.record.Sighted()
}

// Tick brings what depends on the time up to now. The caller does it once a second while the view is in sight and a card waits.
func (v *View) Tick() {
	if len(v.right.Objects) == 1 && v.right.Objects[0] == fyne.CanvasObject(v.card) {
		v.card.Tick()
	}
}

// line is one line of the list.
type line struct {
	widget.BaseWidget
	head        *fyne.Container
	item        *fyne.Container
	icon        *look.Icon
	title, note *look.Text
	group, many *look.Text
}

func newLine() *line {
	l := &line{icon: look.NewIcon(), title: look.Short("", look.Style{}), note: look.Short("", look.Style{}), group: look.Short("", look.Style{}), many: look.Short("", look.Style{})}
	l.item = container.NewBorder(nil, nil, look.Inset(4, 8, l.icon), nil, look.Rows(-8, l.title, l.note))
	l.head = look.Rows(-8, l.group, l.many)
	l.ExtendBaseWidget(l)
	return l
}

func (l *line) set(e entry, chosen bool) {
	small := look.Style{Color: look.Muted, Size: theme.SizeNameCaptionText}
	if e.id == "" {
		l.head.Show()
		l.item.Hide()
		l.group.Set(look.Run{Text: e.title, Style: look.Style{Bold: true, Color: look.Muted}})
		l.many.Set(look.Run{Text: e.note, Style: small})
		return
	}
	l.head.Hide()
	l.item.Show()
	l.icon.Set(e.shape, e.tone)
	l.title.Set(look.Run{Text: e.title, Style: look.Style{Bold: chosen}})
	l.note.Set(look.Run{Text: e.note, Style: small})
}

// CreateRenderer implements fyne.Widget.
func (l *line) CreateRenderer() fyne.WidgetRenderer {
	return widget.NewSimpleRenderer(container.NewStack(l.head, l.item))
}
