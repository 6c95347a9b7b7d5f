// Package actions shows the contracts: what each allows, what a lost answer means, what changed in its file, and takes the person's acceptance.
//
// Promises: a contract is accepted only as it was shown. The bytes that are sent are those whose digest the daemon named beside the words and the difference that stand here; if the file is
// another one by then, nothing is sent and that is said. What a contract means is said in words before its source.
package actions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// Daemon holds the contracts. It is called in goroutines of the view's.
type Daemon interface {
	Actions(ctx context.Context) ([]api.Action, error)
	AcceptAction(ctx context.Context, in api.ActionRequest) (api.Action, error)
	RemoveAction(ctx context.Context, name string) error
}

var errNoUpstreams = errors.New("actions: Daemon is required")

// Config is what a View is made of.
type Config struct {
	Daemon Daemon                            // required
	Read   func(path string) ([]byte, error) // required: reads a contract's file
	// Upstreams are shown on a page beside the contracts. Optional: without it there is no such page.
	Upstreams Upstreams
	Context   context.Context // optional: ends with the window
	Go        func(func())    // optional: how work is started; a goroutine
}

// View is the list of contracts and the one that is looked at.
type View struct {
	widget.BaseWidget
	cfg     Config
	work    look.Work
	actions []api.Action
	chosen  string
	said    fyne.CanvasObject
	asking  bool // withdraw it?
	list    *widget.List
	sheet   *sheet
	empty   fyne.CanvasObject
	root    *fyne.Container

	upstreams *UpstreamsView
	whole     fyne.CanvasObject
	pages     [2]*widget.Button
	page      *fyne.Container
}

type sheet struct{ look.Sheet }

// New returns an empty view. Load reads the contracts.
func New(cfg Config) (*View, error) {
	if cfg.Daemon == nil || cfg.Read == nil {
		return nil, errors.New("actions: Daemon and Read are required")
	}
	v := &View{cfg: cfg, work: look.NewWork(cfg.Context, cfg.Go), sheet: &sheet{}}
	v.sheet.Init(v.sheet)
	v.list = widget.NewList(func() int { return len(v.actions) }, func() fyne.CanvasObject { return newLine() }, func(i widget.ListItemID, o fyne.CanvasObject) {
		o.(*line).set(v.actions[i], v.actions[i].Name == v.chosen)
	})
	v.list.OnSelected = func(i widget.ListItemID) {
		if i < len(v.actions) && v.actions[i].Name != v.chosen {
			v.chosen, v.said, v.asking = v.actions[i].Name, nil, false
			v.present()
			v.list.Refresh()
		}
	}
	v.empty = container.NewCenter(look.Wide(420, 0, look.Rows(2, look.Centered(look.ShapeInfo, look.Muted), look.Middle(look.Subheading(words.Say("actions.none"))), look.Middle(look.Quiet(words.Say("actions.none_means"))))))
	v.root = container.NewStack(v.empty)
	v.whole = v.root
	if cfg.Upstreams != nil {
		if err := v.addUpstreams(); err != nil {
			return nil, err
		}
	}
	v.ExtendBaseWidget(v)
	return v, nil
}

// addUpstreams puts a page with the servers beside the contracts.
func (v *View) addUpstreams() (err error) {
	if v.upstreams, err = NewUpstreams(UpstreamsConfig{Daemon: v.cfg.Upstreams, Context: v.cfg.Context, Go: v.cfg.Go}); err != nil {
		return err
	}
	v.page = container.NewStack()
	v.pages = [2]*widget.Button{
		widget.NewButton(words.Say("actions.contracts"), func() { v.turn(0) }), widget.NewButton(words.Say("actions.servers"), func() { v.turn(1) }),
	}
	v.turn(0)
	bar := look.Ground(look.Inset(10, 6, look.Line([]fyne.CanvasObject{v.pages[0], v.pages[1]}, nil)))
	v.whole = container.NewBorder(bar, nil, nil, nil, v.page)
	return nil
}

// turn shows the contracts or the servers.
func (v *View) turn(page int) {
	for i, b := range v.pages {
		b.Importance = widget.LowImportance
		if i == page {
			b.Importance = widget.MediumImportance
		}
		b.Refresh()
	}
	v.page.Objects = []fyne.CanvasObject{v.root}
	if page == 1 {
		v.page.Objects = []fyne.CanvasObject{v.upstreams}
		v.upstreams.Load()
	}
	v.page.Refresh()
}

// CreateRenderer implements fyne.Widget.
func (v *View) CreateRenderer() fyne.WidgetRenderer { return widget.NewSimpleRenderer(v.whole) }

// Load reads the contracts.
func (v *View) Load() {
	if v.upstreams != nil && v.page.Objects[0] == fyne.CanvasObject(v.upstreams) {
		v.upstreams.Load()
	}
	var list []api.Action
	v.work.Do(func(ctx context.Context) (err error) {
		list, err = v.cfg.Daemon.Actions(ctx)
		return err
	}, func(err error) {
		if err != nil {
			v.said = look.Trouble(err)
			if len(v.actions) == 0 {
				v.root.Objects = []fyne.CanvasObject{look.Inset(18, 14, look.Rows(8, v.said, v.empty))}
				v.root.Refresh()
				return
			}
			v.present()
			return
		}
		v.Update(list)
	})
}

// Update shows these contracts, those that wait for the person first.
func (v *View) Update(list []api.Action) {
	v.actions = slices.Clone(list)
	slices.SortFunc(v.actions, func(a, b api.Action) int {
		if x, y := order(a.State), order(b.State); x != y {
			return x - y
		}
		return strings.Compare(a.Name+a.File, b.Name+b.File)
	})
	if !slices.ContainsFunc(v.actions, func(a api.Action) bool { return a.Name == v.chosen }) {
		v.chosen = ""
		if len(v.actions) > 0 {
			v.chosen = v.actions[0].Name
		}
	}
	if len(v.actions) == 0 {
		v.root.Objects = []fyne.CanvasObject{v.empty}
	} else {
		v.root.Objects = []fyne.CanvasObject{look.Beside(look.Ground(v.list), v.sheet)}
		v.present()
		v.list.Refresh()
	}
	v.root.Refresh()
}

func order(state string) int {
	return slices.Index([]string{"changed", "new", "invalid", "missing", "accepted"}, state)
}

// State says how a contract stands: in a word, by a shape, and in a tone.
func State(state string) (look.Tone, look.Shape, string) {
	switch state {
	case "accepted":
		return look.Fine, look.ShapeDone, words.Say("action.accepted")
	case "new":
		return look.Working, look.ShapeWaiting, words.Say("action.new")
	case "changed":
		return look.Careful, look.ShapeAgain, words.Say("action.changed")
	case "missing":
		return look.Careful, look.ShapeNothing, words.Say("action.missing")
	case "invalid":
		return look.Wrong, look.ShapeWarning, words.Say("action.invalid")
	}
	return look.Calm, look.ShapeInfo, state
}

// Choose looks at a contract.
func (v *View) Choose(name string) {
	if at := slices.IndexFunc(v.actions, func(a api.Action) bool { return a.Name == name }); at >= 0 {
		v.list.Select(at)
	}
}

func (v *View) present() {
	at := slices.IndexFunc(v.actions, func(a api.Action) bool { return a.Name == v.chosen })
	if at < 0 {
		return
	}
	a := v.actions[at]
	tone, shape, state := State(a.State)
	title := a.Name
	if a.Title != "" {
		title = a.Title
	}
	head := []fyne.CanvasObject{
		look.Line([]fyne.CanvasObject{look.Badge(tone, shape, state)}, nil),
		look.Rows(-6, look.Heading(look.Brief(title, 120)), look.Plain(a.Name, look.Style{Mono: true, Color: look.Muted})),
	}
	body := []fyne.CanvasObject{}
	if v.said != nil {
		body = append(body, v.said)
	}
	for _, p := range a.Problems {
		body = append(body, look.NewNotice(look.Wrong, look.ShapeWarning, look.Body(p)))
	}
	if a.State == "changed" {
		body = append(body, look.NewNotice(look.Careful, look.ShapeInfo, look.Body(words.Say("action.changed_means"))))
	}
	if a.State == "missing" {
		body = append(body, look.NewNotice(look.Careful, look.ShapeInfo, look.Body(words.Say("action.missing_means"))))
	}
	if a.Class != "" {
		body = append(body, look.Section(words.Say("action.means"), look.NewPanel(meaning(a))))
	}
	if w := look.Host(look.HostOf(a.Target)); w != nil {
		body = append(body, w)
	}
	if w := look.Hidden(a.Source, a.Diff, a.Title); w != nil {
		body = append(body, w)
	}
	if a.Diff != "" {
		body = append(body, look.Section(words.Say("action.diff"), look.NewSunken(look.NewDiff(a.Diff, 24))))
	}
	if a.Source != "" {
		body = append(body, look.Section(words.Say("action.source"), look.NewSunken(look.NewCode(a.Source, 24))))
	}
	v.sheet.Set(head, body, v.foot(a))
}

// meaning is what a contract says, in words.
func meaning(a api.Action) fyne.CanvasObject {
	facts := []look.Fact{}
	add := func(name, text string, s look.Style) {
		if text != "" {
			facts = append(facts, look.Fact{Name: name, Value: look.Plain(text, s)})
		}
	}
	add(words.Say("card.target"), a.Target, look.Style{Mono: true})
	credential := a.Credential
	if credential == "" {
		credential = words.Say("card.no_credential")
	}
	add(words.Say("card.credential"), credential, look.Style{Bold: true})
	add(words.Say("card.lost"), look.LostAnswer(a.Class, a.LostAnswer), look.Style{})
	add(words.Say("action.channel"), a.Channel, look.Style{})
	add(words.Say("action.file"), a.File, look.Style{Mono: true})
	add(words.Say("action.in_force"), a.Accepted, look.Style{Mono: true, Color: look.Muted})
	add(words.Say("action.of_file"), a.Digest, look.Style{Mono: true, Color: look.Muted})
	return look.Facts(facts...)
}

func (v *View) foot(a api.Action) []fyne.CanvasObject {
	if v.asking {
		remove := widget.NewButton(words.Say("action.remove_do"), func() { v.remove(a) })
		remove.Importance = widget.DangerImportance
		back := widget.NewButton(words.Say("again.back"), func() {
			v.asking = false
			v.present()
		})
		return []fyne.CanvasObject{
			look.NewNotice(look.Careful, look.ShapeWarning, look.Body(words.Say("action.remove_means"))),
			look.Line([]fyne.CanvasObject{look.Wide(90, 36, back)}, []fyne.CanvasObject{look.Wide(120, 36, remove)}),
		}
	}
	var left, right []fyne.CanvasObject
	if a.Accepted != "" {
		left = append(left, look.Wide(110, 36, widget.NewButton(words.Say("action.remove"), func() {
			v.asking = true
			v.present()
		})))
	}
	text := ""
	switch a.State {
	case "new":
		text = words.Say("action.accept_new")
	case "changed":
		text = words.Say("action.accept_changed")
	}
	if text != "" {
		right = append(right, look.Wide(150, 36, widget.NewButton(text, func() { v.accept(a) })))
	}
	if len(left)+len(right) == 0 {
		return []fyne.CanvasObject{}
	}
	return []fyne.CanvasObject{look.Line(left, right)}
}

// accept sends the very bytes that were shown: those with the digest that the daemon named.
func (v *View) accept(a api.Action) {
	v.work.Do(func(ctx context.Context) error {
		source, err := v.cfg.Read(a.File)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(source)
		if "sha256:"+hex.EncodeToString(sum[:]) != a.Digest {
			return api.Errorf(api.CodeConflict, "%s", words.Say("action.other_file"))
		}
		_, err = v.cfg.Daemon.AcceptAction(ctx, api.ActionRequest{Name: a.Name, Digest: a.Digest, File: a.File, Source: source})
		return err
	}, func(err error) {
		v.said = look.NewNotice(look.Fine, look.ShapeDone, look.Body(words.Say("action.now_in_force")))
		if err != nil {
			v.said = look.Trouble(err)
		}
		v.Load()
	})
}

func (v *View) remove(a api.Action) {
	v.asking = false
	v.work.Do(func(ctx context.Context) error { return v.cfg.Daemon.RemoveAction(ctx, a.Name) }, func(err error) {
		v.said = nil
		if err != nil {
			v.said = look.Trouble(err)
		}
		v.Load()
	})
}

// line is one contract in the list.
type line struct {
	widget.BaseWidget
	icon        *look.Icon
	title, note *look.Text
}

func newLine() *line {
	l := &line{icon: look.NewIcon(), title: look.Short("", look.Style{}), note: look.Short("", look.Style{})}
	l.ExtendBaseWidget(l)
	return l
}

func (l *line) set(a api.Action, chosen bool) {
	tone, shape, state := State(a.State)
	l.icon.Set(shape, tone)
	l.title.Set(look.Run{Text: look.Brief(a.Name, 60), Style: look.Style{Bold: chosen}})
	l.note.Set(look.Run{Text: state, Style: look.Style{Color: tone.Color(), Size: theme.SizeNameCaptionText}})
}

// CreateRenderer implements fyne.Widget.
func (l *line) CreateRenderer() fyne.WidgetRenderer {
	return widget.NewSimpleRenderer(container.NewBorder(nil, nil, look.Inset(6, 8, l.icon), nil, look.Rows(-9, l.title, l.note)))
}
