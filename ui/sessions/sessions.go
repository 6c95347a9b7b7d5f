// Package sessions shows which processes the person has allowed to act, and by which standing grants the next ones will be, and ends that at once.
//
// Promises: every session and every standing grant has its own button, which ends it by one press without asking back: taking a right away is always safe. What a session had running is not undone by that, and it
// says so.
package sessions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// Daemon knows the sessions. It is called in goroutines of the view's.
type Daemon interface {
	Sessions(ctx context.Context) ([]api.Session, error)
	RevokeSession(ctx context.Context, id string) error // of a run, or of the card or standing grant that gave one session of several
	Grants(ctx context.Context) ([]api.Grant, error)
	RevokeGrant(ctx context.Context, grant string) error
}

// Config is what a View is made of.
type Config struct {
	Daemon  Daemon           // required
	Now     func() time.Time // required
	Context context.Context  // optional: ends with the window
	Go      func(func())     // optional: how work is started; a goroutine
}

// View is the list of sessions.
type View struct {
	widget.BaseWidget
	cfg      Config
	work     look.Work
	sessions []api.Session
	grants   []api.Grant
	seen     map[string]time.Time // when each run called last, by what the caller tells
	rows     *fyne.Container
	root     fyne.CanvasObject
	trouble  fyne.CanvasObject
}

// New returns an empty view. Load reads the sessions.
func New(cfg Config) (*View, error) {
	if cfg.Daemon == nil || cfg.Now == nil {
		return nil, errors.New("sessions: Daemon and Now are required")
	}
	v := &View{cfg: cfg, work: look.NewWork(cfg.Context, cfg.Go), seen: map[string]time.Time{}, rows: look.Rows(10)}
	outer, _ := look.Scrolled(look.Inset(18, 14, look.Column(look.SheetWidth, v.rows)))
	v.root = outer
	v.ExtendBaseWidget(v)
	v.draw()
	return v, nil
}

// CreateRenderer implements fyne.Widget.
func (v *View) CreateRenderer() fyne.WidgetRenderer { return widget.NewSimpleRenderer(v.root) }

// Load reads the sessions and the standing grants.
func (v *View) Load() {
	var list []api.Session
	var grants []api.Grant
	v.work.Do(func(ctx context.Context) (err error) {
		if list, err = v.cfg.Daemon.Sessions(ctx); err == nil {
			grants, err = v.cfg.Daemon.Grants(ctx)
		}
		return err
	}, func(err error) {
		v.trouble = nil
		if err != nil {
			v.trouble = look.Trouble(err)
			v.draw()
			return
		}
		v.UpdateGrants(grants)
		v.Update(list)
	})
}

// Update shows these sessions, the newest first.
func (v *View) Update(list []api.Session) {
	v.sessions = slices.Clone(list)
	slices.SortFunc(v.sessions, func(a, b api.Session) int {
		if n := b.At.Compare(a.At); n != 0 {
			return n
		}
		return cmp.Or(strings.Compare(a.Run, b.Run), strings.Compare(a.Card, b.Card), strings.Compare(a.Grant, b.Grant))
	})
	v.draw()
}

// Seen says when a run called last; the activity tells it.
func (v *View) Seen(run string, at time.Time) {
	if at.After(v.seen[run]) {
		v.seen[run] = at
	}
}

func (v *View) draw() {
	list := []fyne.CanvasObject{look.Heading(words.Say("sessions.title")), look.Quiet(words.Say("sessions.means"))}
	if v.trouble != nil {
		list = append(list, v.trouble)
	}
	if len(v.sessions) == 0 {
		list = append(list, look.NewPanel(container.NewPadded(look.Rows(0, look.Subheading(words.Say("sessions.none")), look.Quiet(words.Say("sessions.none_means"))))))
	}
	for _, s := range v.sessions {
		list = append(list, v.one(s))
	}
	v.rows.Objects = append(list, v.standing()...)
	v.Refresh()
}

func (v *View) one(s api.Session) fyne.CanvasObject {
	now := v.cfg.Now()
	tone, shape, assurance := look.Assured(s.Level, s.Assurance)
	exe := s.Agent.Exe
	if s.Agent.Script != "" {
		exe = look.Quoted([]string{s.Agent.Exe, s.Agent.Script})
	}
	revoke := widget.NewButton(words.Say("sessions.revoke"), nil)
	revoke.OnTapped = func() {
		revoke.Disable()
		// A process can have several, each with its own button.
		id := cmp.Or(s.Card, s.Grant, s.Run)
		v.ending(revoke, func(ctx context.Context) error { return v.cfg.Daemon.RevokeSession(ctx, id) }, func() {
			if s.Grant != "" {
				v.Load() // other processes' sessions, and the grant, ended with it
				return
			}
			v.Update(slices.DeleteFunc(slices.Clone(v.sessions), func(o api.Session) bool { return o.Run == s.Run && (s.Card == "" || o.Card == s.Card) }))
		})
	}
	title := look.Label(look.Brief(look.Program(s.Actor), 40)+"  "+words.Say("card.pid", "PID", s.Agent.PID), look.Style{Bold: true})
	calls := words.Count("sessions.calls", s.Calls)
	if at := v.seen[s.Run]; !at.IsZero() {
		calls += "  ·  " + words.Say("sessions.last", "Time", look.Clock(at, now), "Ago", look.Ago(at, now))
	}
	rows := []fyne.CanvasObject{look.Line([]fyne.CanvasObject{title}, []fyne.CanvasObject{look.Wide(110, 34, revoke)})}
	if s.Suspended {
		rows = append(rows, look.NewNotice(look.Calm, look.ShapeLock, look.Body(words.Say("sessions.suspended"))))
	}
	facts := []look.Fact{
		{Name: words.Say("card.program"), Value: look.Rows(-6, look.Plain(exe, look.Style{Mono: true}), look.Marked(tone, shape, assurance))},
		{Name: words.Say("sessions.covers"), Value: look.Body(covers(s, now))},
		{Name: words.Say("sessions.since"), Value: look.Body(words.Say("sessions.at", "Time", look.Clock(s.At, now), "Ago", look.Ago(s.At, now)))},
		{Name: words.Say("sessions.so_far"), Value: look.Body(calls)},
		{Name: words.Say("filter.run"), Value: look.Plain(s.Run, look.Style{Mono: true, Color: look.Muted})},
	}
	if s.Grant != "" {
		facts = append(facts, look.Fact{Name: words.Say("grants.by"), Value: look.Rows(-6, look.Plain(s.Grant, look.Style{Mono: true, Color: look.Muted}), look.Quiet(words.Say("grants.ends_with")))})
	}
	rows = append(rows, look.Facts(facts...))
	return look.NewPanel(look.Rows(4, rows...))
}

// covers says what a session is for, and until when.
func covers(s api.Session, now time.Time) string {
	tool := look.Brief(s.Tool, 60)
	text := words.Say("sessions.covers_run")
	switch s.Scope {
	case "action":
		text = words.Say("sessions.covers_action", "Tool", tool)
	case "arguments":
		text = words.Say("sessions.covers_arguments", "Tool", tool, "Card", cmp.Or(s.Card, s.Grant))
	}
	if s.Until.IsZero() {
		return text + " " + words.Say("sessions.until_end")
	}
	return text + " " + words.Say("sessions.until", "Time", look.Clock(s.Until, now))
}
