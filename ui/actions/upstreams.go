package actions

import (
	"context"
	"slices"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// Upstreams are the MCP servers behind the gateway. It is called in goroutines of the view's.
type Upstreams interface {
	Upstreams(ctx context.Context) ([]api.Upstream, error)
	// UpstreamTools asks the server, which may have to be started for it.
	UpstreamTools(ctx context.Context, name string) ([]api.UpstreamTool, error)
	AcceptUpstreamTool(ctx context.Context, name string, in api.UpstreamAccept) (api.UpstreamTool, error)
	RemoveUpstream(ctx context.Context, name string) error
	// AddUpstream asks the new server for its tools, which may have to be started for it.
	AddUpstream(ctx context.Context, in api.UpstreamRequest) (api.Upstream, error)
}

// UpstreamsConfig is what an UpstreamsView is made of.
type UpstreamsConfig struct {
	Daemon  Upstreams       // required
	Context context.Context // optional: ends with the window
	Go      func(func())    // optional: how work is started; a goroutine
}

// UpstreamsView is the list of servers. A server's tools are asked for when the person wants to see them, and each is accepted by itself, as it was shown.
type UpstreamsView struct {
	widget.BaseWidget
	cfg    UpstreamsConfig
	work   look.Work
	list   []api.Upstream
	tools  map[string][]api.UpstreamTool
	said   fyne.CanvasObject
	asking string      // the server that is about to be removed
	form   *serverForm // for a new server; nil while none is added
	rows   *fyne.Container
	root   fyne.CanvasObject
}

// NewUpstreams returns an empty view. Load reads the servers.
func NewUpstreams(cfg UpstreamsConfig) (*UpstreamsView, error) {
	if cfg.Daemon == nil {
		return nil, errNoUpstreams
	}
	v := &UpstreamsView{cfg: cfg, work: look.NewWork(cfg.Context, cfg.Go), tools: map[string][]api.UpstreamTool{}, rows: look.Rows(12)}
	v.root, _ = look.Scrolled(look.Inset(18, 14, look.Column(look.SheetWidth, v.rows)))
	v.ExtendBaseWidget(v)
	v.draw()
	return v, nil
}

// CreateRenderer implements fyne.Widget.
func (v *UpstreamsView) CreateRenderer() fyne.WidgetRenderer {
	return widget.NewSimpleRenderer(v.root)
}

// Load reads the servers.
func (v *UpstreamsView) Load() {
	var list []api.Upstream
	v.work.Do(func(ctx context.Context) (err error) {
		list, err = v.cfg.Daemon.Upstreams(ctx)
		return err
	}, func(err error) {
		if err != nil {
			v.said = look.Trouble(err)
		} else {
			v.list = list
		}
		v.draw()
	})
}

// do does something to a server and reads the list again.
func (v *UpstreamsView) do(f func(ctx context.Context) error, done string) {
	v.work.Do(f, func(err error) {
		v.asking, v.said = "", look.NewNotice(look.Fine, look.ShapeDone, look.Body(done))
		if err != nil {
			v.said = look.Trouble(err)
		}
		v.Load()
	})
}

func (v *UpstreamsView) ask(name string) {
	var tools []api.UpstreamTool
	v.work.Do(func(ctx context.Context) (err error) {
		tools, err = v.cfg.Daemon.UpstreamTools(ctx, name)
		return err
	}, func(err error) {
		v.said = nil
		if err != nil {
			v.said = look.Trouble(err)
		} else {
			slices.SortStableFunc(tools, func(a, b api.UpstreamTool) int { return toolOrder(a.State) - toolOrder(b.State) })
			v.tools[name] = tools
		}
		v.draw()
	})
}

func toolOrder(state string) int {
	return slices.Index([]string{"changed", "new", "invalid", "gone", "accepted"}, state)
}

func (v *UpstreamsView) draw() {
	add := widget.NewButton(words.Say("server.add"), func() {
		v.form, v.said = v.newForm(), nil
		v.draw()
	})
	list := []fyne.CanvasObject{look.Heading(words.Say("upstreams.title")), look.Quiet(words.Say("upstreams.means"))}
	if v.form == nil {
		list = append(list, look.Line(nil, []fyne.CanvasObject{look.Wide(140, 34, add)}))
	} else {
		list = append(list, v.form.root)
	}
	if v.said != nil {
		list = append(list, v.said)
	}
	if len(v.list) == 0 {
		list = append(list, look.NewPanel(container.NewPadded(look.Rows(0, look.Subheading(words.Say("upstreams.none")), look.Quiet(words.Say("upstreams.none_means"))))))
	}
	for _, u := range v.list {
		list = append(list, v.one(u))
	}
	v.rows.Objects = list
	v.root.Refresh()
}

func (v *UpstreamsView) one(u api.Upstream) fyne.CanvasObject {
	tone, shape, state := look.Calm, look.ShapeInfo, words.Say("upstreams.not_asked")
	switch u.State {
	case "ready":
		tone, shape, state = look.Fine, look.ShapeDone, words.Say("upstreams.ready")
	case "failed":
		tone, shape, state = look.Wrong, look.ShapeWarning, words.Say("upstreams.failed")
	}
	low := func(text string, f func()) fyne.CanvasObject {
		b := widget.NewButton(text, f)
		b.Importance = widget.LowImportance
		return b
	}
	rows := []fyne.CanvasObject{
		look.Line([]fyne.CanvasObject{look.Named(tone, shape, look.Brief(u.Name, 60)), look.Label(state, look.Style{Color: tone.Color()})}, []fyne.CanvasObject{
			low(words.Say("upstreams.tools"), func() { v.ask(u.Name) }), low(words.Say("cred.remove"), func() {
				v.asking = u.Name
				v.draw()
			}),
		}),
	}
	if u.Problem != "" {
		rows = append(rows, look.NewNotice(look.Wrong, look.ShapeWarning, look.Body(u.Problem)))
	}
	facts := []look.Fact{}
	add := func(name, text string, s look.Style) {
		if text != "" {
			facts = append(facts, look.Fact{Name: name, Value: look.Plain(text, s)})
		}
	}
	if len(u.Command) > 0 {
		add(words.Say("sent.program"), look.Quoted(u.Command), look.Style{Mono: true})
	}
	add(words.Say("sent.address"), u.URL, look.Style{Mono: true})
	add(words.Say("sent.directory"), u.Dir, look.Style{Mono: true})
	for _, e := range u.Env {
		add(words.Say("sent.variable"), e, look.Style{Mono: true})
	}
	add(words.Say("card.credential"), strings.Join(u.Credentials, ", "), look.Style{Bold: true})
	add(words.Say("upstreams.calls_itself"), u.Server, look.Style{Color: look.Muted})
	add(words.Say("upstreams.in_force"), words.Count("upstreams.accepted", u.Accepted)+"  ·  "+words.Count("pending.waiting", u.Waiting), look.Style{})
	add(words.Say("upstreams.open"), opened(u), look.Style{})
	rows = append(rows, look.Facts(facts...))
	for _, f := range u.Files {
		if f.Changed != "" {
			rows = append(rows, look.NewNotice(look.Wrong, look.ShapeWarning, look.Body(words.Say("upstreams.file_changed", "Path", f.Path))))
		}
	}
	if w := look.Host(look.HostOf(u.URL)); u.URL != "" && w != nil {
		rows = append(rows, w)
	}
	if v.asking == u.Name {
		remove := widget.NewButton(words.Say("cred.remove_do"), func() {
			v.do(func(ctx context.Context) error { return v.cfg.Daemon.RemoveUpstream(ctx, u.Name) }, words.Say("cred.removed", "Name", u.Name))
		})
		remove.Importance = widget.DangerImportance
		back := widget.NewButton(words.Say("again.back"), func() {
			v.asking = ""
			v.draw()
		})
		rows = append(rows, look.NewNotice(look.Careful, look.ShapeWarning, look.Rows(6, look.Body(words.Say("upstreams.remove_means")),
			look.Line([]fyne.CanvasObject{look.Wide(90, 34, back)}, []fyne.CanvasObject{look.Wide(120, 34, remove)}))))
	}
	for _, t := range v.tools[u.Name] {
		rows = append(rows, v.tool(u, t))
	}
	return look.NewPanel(look.Rows(4, rows...))
}

// opened says what agents may read of a server, beside its tools; "" if that is nothing.
func opened(u api.Upstream) string {
	var open []string
	if u.Resources {
		open = append(open, words.Say("upstreams.resources"))
	}
	if u.Prompts > 0 {
		open = append(open, words.Count("upstreams.prompts", u.Prompts))
	}
	if len(open) > 0 && u.ReadPerUse {
		open = append(open, words.Say("upstreams.read_asks"))
	}
	return strings.Join(open, "  ·  ")
}

// tool is one tool as its server describes it, and what accepting it would mean.
func (v *UpstreamsView) tool(u api.Upstream, t api.UpstreamTool) fyne.CanvasObject {
	tone, shape, state := State(t.State)
	if t.State == "gone" {
		tone, shape, state = look.Calm, look.ShapeNothing, words.Say("upstreams.gone")
	}
	rows := []fyne.CanvasObject{look.Line([]fyne.CanvasObject{look.Badge(tone, shape, look.Brief(t.Name, 60)), look.Label(state, look.Style{Color: tone.Color()})}, nil)}
	if t.Problem != "" {
		rows = append(rows, look.NewNotice(look.Wrong, look.ShapeWarning, look.Body(t.Problem)))
	}
	if t.Description != "" {
		rows = append(rows, look.Quote(words.Say("upstreams.says"), t.Description))
	}
	class := t.Class
	if class == "" {
		class = "irreversible"
	}
	rows = append(rows, look.Facts(look.Fact{Name: words.Say("card.lost"), Value: look.Body(look.LostAnswer(class, ""))}))
	if t.Diff != "" {
		rows = append(rows, look.Section(words.Say("action.diff"), look.NewSunken(look.NewDiff(t.Diff, 16))))
	} else if len(t.InputSchema) > 0 && t.State == "new" {
		rows = append(rows, look.Quote(words.Say("upstreams.schema"), string(t.InputSchema)))
	}
	if w := look.Hidden(t.Name, t.Title, t.Description, t.Diff, string(t.InputSchema)); w != nil {
		rows = append(rows, w)
	}
	if t.State == "new" || t.State == "changed" {
		only := widget.NewCheck(words.Say("upstreams.reads"), nil)
		accept := widget.NewButton(words.Say("action.accept_new"), func() {
			in := api.UpstreamAccept{Tool: t.Name, Digest: t.Digest}
			if only.Checked {
				in.Class = "read_only"
			}
			v.do(func(ctx context.Context) error {
				_, err := v.cfg.Daemon.AcceptUpstreamTool(ctx, u.Name, in)
				if err == nil {
					tools, err := v.cfg.Daemon.UpstreamTools(ctx, u.Name)
					if err == nil {
						look.Do(func() { v.tools[u.Name] = tools })
					}
				}
				return err
			}, words.Say("action.now_in_force"))
		})
		rows = append(rows, look.Line([]fyne.CanvasObject{only}, []fyne.CanvasObject{look.Wide(130, 34, accept)}))
	}
	return look.NewSunken(look.Rows(4, rows...))
}
