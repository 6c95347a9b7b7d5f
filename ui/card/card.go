// Package card shows one card: a question to the person, with everything that the answer depends on.
//
// Promises: nothing of the card is shown otherwise than the daemon says it. The keyboard's focus never starts on a button that allows, and leaves it when another card takes the place. A
// card takes no answer until it was in sight for the arming delay, so that a click that was meant for something else does not answer it. One answer is sent for one press. Esc does
// nothing here.
//
// Non-promises: whether the answer counts is the daemon's word; what it says is shown.
package card

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// Answerer takes the person's answer. It is called in a goroutine of the view's and returns when the answer is taken.
type Answerer interface {
	Answer(ctx context.Context, card string, in api.CardAnswer) error
}

// Config is what a View is made of.
type Config struct {
	Answerer Answerer                                        // required
	Now      func() time.Time                                // required
	Context  context.Context                                 // optional: ends with the window
	Go       func(func())                                    // optional: how work is started; a goroutine
	After    look.After                                      // optional: look.AfterFunc
	Answered func(card string, answer string, reason string) // optional: an answer of this view was taken
}

// View is one card at a time.
type View struct {
	look.Sheet
	cfg    Config
	card   api.Card
	arming *look.Arming
	over   bool // answered, or void
	asking bool // an answer is on its way

	left                *look.Text
	reason              *widget.Entry
	deny, once, session *widget.Button
	scope, lasts        *widget.Select // what a session would cover and for how long; nil where the answer is none
	means               *look.Text
	trouble             *fyne.Container
}

// New returns a view that shows nothing yet.
func New(cfg Config) (*View, error) {
	if cfg.Answerer == nil || cfg.Now == nil {
		return nil, errors.New("card: Answerer and Now are required")
	}
	if cfg.Context == nil {
		cfg.Context = context.Background()
	}
	if cfg.Go == nil {
		cfg.Go = func(f func()) { go f() }
	}
	if cfg.After == nil {
		cfg.After = look.AfterFunc
	}
	v := &View{cfg: cfg}
	v.arming = look.NewArming(cfg.After, v.enable)
	v.Init(v)
	return v, nil
}

// Card is the card that is shown.
func (v *View) Card() api.Card { return v.card }

// Update shows a card. The same card again, as it is now, keeps what the person typed and does not disarm unless what is asked changed.
func (v *View) Update(c api.Card) {
	before := v.card
	v.card = c
	if before.Card == c.Card && !v.over {
		same := before.Question == c.Question && before.Fingerprint == c.Fingerprint && slices.Equal(before.Answers, c.Answers)
		v.Set(v.head(), v.body(), nil)
		if !same {
			v.arming.Disarm()
		}
		return
	}
	v.over, v.asking = false, false
	v.unfocus()
	foot := v.buttons()
	v.Set(v.head(), v.body(), foot)
	v.arming.Disarm()
}

// unfocus takes the keyboard away from what the card before had: Space must not answer this one.
func (v *View) unfocus() {
	look.Unfocus(v, v.once, v.session, v.deny, v.reason, v.scope, v.lasts)
}

// Sighted says that the card came into sight just now, from behind another page or window, or with its own: a click that was meant for what was there answers nothing.
func (v *View) Sighted() {
	if v.card.Card != "" && !v.over {
		v.unfocus()
		v.arming.Disarm()
	}
}

func (v *View) enable() {
	look.Open(v.arming.Armed() && !v.over && !v.asking, v.deny, v.once, v.session)
}

// Tick brings what depends on the time up to now.
func (v *View) Tick() {
	if v.left != nil && !v.over {
		v.left.Set(v.leftRun())
	}
}

func (v *View) leftRun() look.Run {
	now := v.cfg.Now()
	color := look.Muted
	if v.card.Expires.Sub(now) < time.Minute {
		color = look.Doubt
	}
	return look.Run{Text: look.Left(now, v.card.Created, v.card.Expires), Style: look.Style{Color: color, Bold: true}}
}

// Over says that the card takes no answer any more, and why. The view keeps showing what it was about until another card comes.
func (v *View) Over(e api.CardEvent) {
	if e.Card.Card != v.card.Card || v.over {
		return
	}
	v.over = true
	v.arming.Stop()
	v.unfocus()
	v.Set(nil, nil, []fyne.CanvasObject{Farewell(e)})
}

// Farewell says what became of a card.
func Farewell(e api.CardEvent) fyne.CanvasObject {
	if e.Event == "void" {
		text := words.Say("card.void")
		if e.Note != "" {
			text = words.Say("card.void_because", "Reason", e.Note)
		}
		return look.NewNotice(look.Calm, look.ShapeOver, look.Body(text))
	}
	what := map[string]string{
		"once": words.Say("card.was_once"), "session": words.Say("card.was_session"), "deny": words.Say("card.was_denied"), "recorded": words.Say("card.was_recorded"),
	}[e.Note]
	if what == "" {
		what = words.Say("card.was_answered")
	}
	return look.NewNotice(look.Calm, look.ShapeInfo, look.Body(words.Say("card.elsewhere", "By", by(e.By), "What", what)))
}

func by(who string) string {
	if who == "" || who == "operator" {
		return words.Say("card.by_you")
	}
	return who
}

func (v *View) head() []fyne.CanvasObject {
	c := v.card
	tone, shape, eyebrow := look.Working, look.ShapeWaiting, words.Say("card.asks")
	switch c.Question {
	case "session", "session_and_use":
		tone, shape, eyebrow = look.Careful, look.ShapeProgram, words.Say("card.asks_first")
	}
	run := v.leftRun()
	v.left = look.Label(run.Text, run.Style)
	who, tool, host := look.Brief(look.Program(c.Actor), 40), look.Brief(c.Tool, 60), look.Brief(look.HostOf(c.Target), 80)
	list := []fyne.CanvasObject{
		look.Line([]fyne.CanvasObject{look.Badge(tone, shape, eyebrow)}, []fyne.CanvasObject{v.left}),
		look.Rows(-6, look.Heading(words.Say("card.sentence", "Who", who, "Tool", tool, "Host", host)), look.Quiet(inShort(c))),
	}
	if c.Retry != "" && c.Record != nil && len(c.Record.Callers)+c.Record.CallersDropped > 1 {
		list = append(list, look.NewNotice(look.Working, look.ShapeAgain, look.Body(words.Count("card.attached", len(c.Record.Callers)+c.Record.CallersDropped))))
	}
	return list
}

// inShort is what the eye needs next: the credential, and what a lost answer would mean.
func inShort(c api.Card) string {
	text := words.Say("card.without")
	if c.Credential != "" {
		text = words.Say("card.with", "Credential", c.Credential)
	}
	return text + "  ·  " + Class(c.Class)
}

// Class is what a lost answer means, in a few words.
func Class(class string) string {
	switch class {
	case "read_only":
		return words.Say("class.read_only")
	case "idempotent":
		return words.Say("class.idempotent")
	case "status_query":
		return words.Say("class.status_query")
	}
	return words.Say("class.irreversible")
}

func (v *View) body() []fyne.CanvasObject {
	c := v.card
	list := []fyne.CanvasObject{
		look.Section(words.Say("card.sends"), look.Sent(c.Effect)),
		look.Section(words.Say("card.who"), who(c, v.cfg.Now())),
	}
	if len(c.Why) > 0 {
		var why []fyne.CanvasObject
		for i, w := range c.Why {
			why = append(why, look.Body("•  "+look.Said(at(c.WhySaid, i), w)))
		}
		list = append(list, look.Section(words.Say("card.why"), look.Rows(-7, why...)))
	}
	credential := look.Quiet(words.Say("card.no_credential"))
	if c.Credential != "" {
		credential = look.Plain(c.Credential, look.Style{Bold: true})
	}
	return append(list, look.Facts(
		look.Fact{Name: words.Say("card.credential"), Value: credential},
		look.Fact{Name: words.Say("card.lost"), Value: look.Body(look.LostAnswer(c.Class, c.LostAnswer))},
		look.Fact{Name: words.Say("card.target"), Value: look.Plain(c.Target, look.Style{Mono: true})},
		look.Fact{Name: words.Say("card.execution"), Value: look.Plain(c.ExecutionID, look.Style{Mono: true, Color: look.Muted})},
	))
}

// at is the code of the i-th sentence; an older daemon gives none.
func at(said []api.Said, i int) api.Said {
	if i < len(said) {
		return said[i]
	}
	return api.Said{}
}

// who says which program asks, how well it is known, and what started it.
func who(c api.Card, now time.Time) fyne.CanvasObject {
	tone, shape, assurance := look.Assured(c.Level, c.Assurance)
	exe := c.Agent.Exe
	if c.Agent.Script != "" {
		exe = look.Quoted([]string{c.Agent.Exe, c.Agent.Script})
	}
	facts := []look.Fact{
		{Name: words.Say("card.program"), Value: look.Rows(-6, look.Paragraph(
			look.Run{Text: exe, Style: look.Style{Mono: true, Bold: true}},
			look.Run{Text: "  " + words.Say("card.pid", "PID", c.Agent.PID), Style: look.Style{Color: look.Muted}},
		), look.Marked(tone, shape, assurance))},
	}
	for _, told := range []struct {
		name  string
		lines []string
		said  []api.Said
	}{{words.Say("card.doubts"), c.Doubts, c.DoubtsSaid}, {words.Say("card.changes"), c.Changes, c.ChangesSaid}} {
		var lines []fyne.CanvasObject
		for i, l := range told.lines {
			lines = append(lines, look.Body(look.Said(at(told.said, i), l)))
		}
		if len(lines) > 0 {
			facts = append(facts, look.Fact{Name: told.name, Value: look.Rows(-7, lines...)})
		}
	}
	if c.Package != "" || c.Contains != "" {
		facts = append(facts, look.Fact{Name: words.Say("card.package"), Value: look.Plain(strings.TrimSpace(c.Package+"  "+c.Contains), look.Style{Mono: true})})
	}
	if len(c.Chain) > 0 {
		runs := []look.Run{}
		for i, p := range c.Chain {
			if i > 0 {
				runs = append(runs, look.Run{Text: "  ←  ", Style: look.Style{Color: look.Muted}})
			}
			name := p.Exe
			if name == "" {
				name = "?"
			}
			runs = append(runs, look.Run{Text: name, Style: look.Style{Mono: true}}, look.Run{Text: " " + words.Say("card.pid", "PID", p.PID), Style: look.Style{Color: look.Muted}})
		}
		facts = append(facts, look.Fact{Name: words.Say("card.started_by"), Value: look.Paragraph(runs...)})
	}
	since := words.Count("card.calls_before", c.CallsBefore)
	if !c.Since.IsZero() {
		since = words.Say("card.since", "Time", look.Clock(c.Since, now), "Ago", look.Ago(c.Since, now)) + "  ·  " + since
	}
	facts = append(facts, look.Fact{Name: words.Say("card.known"), Value: look.Body(since)})
	return look.NewPanel(look.Facts(facts...))
}

func (v *View) buttons() []fyne.CanvasObject {
	v.reason = widget.NewEntry()
	v.reason.SetPlaceHolder(words.Say("card.reason"))
	v.reason.Validator = func(s string) error {
		if len(s) > maxReason {
			return errors.New(words.Say("card.reason_long"))
		}
		return nil
	}
	v.deny = widget.NewButton(words.Say("card.deny"), func() { v.answer("deny") })
	v.once = widget.NewButton(words.Say("card.once"), func() { v.answer("once") })
	right := []fyne.CanvasObject{look.Wide(110, 36, v.once)}
	v.session, v.scope, v.lasts = nil, nil, nil
	v.means = look.Plain("", look.Style{Color: look.Muted, Size: theme.SizeNameCaptionText})
	v.trouble = look.Rows(0)
	rows := []fyne.CanvasObject{v.trouble}
	if slices.Contains(v.card.Answers, "session") {
		v.session = widget.NewButton(words.Say("card.session"), func() { v.answer("session") })
		right = append(right, look.Wide(110, 36, v.session))
		rows = append(rows, v.narrowing())
	}
	v.explain()
	return append(rows, look.Line([]fyne.CanvasObject{look.Wide(120, 36, v.deny), look.Wide(190, 0, v.reason)}, right), v.means)
}

const maxReason = 1000 // bytes that the daemon takes

func (v *View) answer(how string) {
	if !v.arming.Armed() || v.over || v.asking {
		return
	}
	in := api.CardAnswer{Answer: how}
	switch how {
	case "deny":
		if v.reason.Validate() != nil {
			return
		}
		in.Reason = v.reason.Text
	case "session":
		in.Scope, in.Minutes = v.chosen()
	}
	v.asking = true
	v.enable()
	id := v.card.Card
	v.cfg.Go(func() {
		err := v.cfg.Answerer.Answer(v.cfg.Context, id, in)
		look.Do(func() {
			if v.card.Card != id {
				return
			}
			v.asking = false
			if err != nil {
				v.trouble.Objects = []fyne.CanvasObject{look.Trouble(err)}
				v.Refresh()
				v.enable()
				return
			}
			v.Over(api.CardEvent{Event: "answered", Card: api.Card{Card: id}, By: "operator", Note: how})
			if v.cfg.Answered != nil {
				v.cfg.Answered(id, how, in.Reason)
			}
		})
	})
}
