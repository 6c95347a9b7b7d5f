// Package record shows an execution that exists already, in place of a card for a call that came again: the question is not whether it may be done, but whether it was done.
//
// Promises: it says first whether it happened, did not happen, or that nobody knows; then when it was sent, what came of it, who asked, and why nothing was sent again. What can be done
// about it depends on its state, and none of it is a bare "approve": what sends something a second time says so twice, in a decision of its own. The keyboard's focus never starts on a
// button that sends or settles, and leaves it when another record takes the place. Nothing is taken until the record was in sight for the arming delay.
//
// Non-promises: the daemon has the last word about each of them; what it says is shown.
package record

import (
	"context"
	"errors"
	"slices"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// Daemon is asked about an execution, and told what the person decided. Every method is called in a goroutine of the view's.
type Daemon interface {
	Answer(ctx context.Context, card string, in api.CardAnswer) error
	Check(ctx context.Context, id string) (api.Checked, error)
	Settle(ctx context.Context, id string, in api.Verdict) (api.Record, error)
	Payload(ctx context.Context, id string) (api.Payload, error)
}

// Config is what a View is made of.
type Config struct {
	Daemon  Daemon            // required
	Now     func() time.Time  // required
	Context context.Context   // optional: ends with the window
	Go      func(func())      // optional: how work is started; a goroutine
	After   look.After        // optional: look.AfterFunc
	Decided func(card string) // optional: the card beside the record was answered here
}

// panel is what stands at the foot.
type panel int

const (
	choices  panel = iota // what can be done
	settling              // it happened, or it did not
	against               // that is not what the target said when it was asked: let your word stand against it?
	again                 // send it a second time?
)

// View is one record at a time.
type View struct {
	look.Sheet
	cfg    Config
	record api.Record
	card   *api.Card // the call that came again and waits for an answer; nil where the record stands alone
	panel  panel
	arming *look.Arming
	busy   bool
	over   fyne.CanvasObject // what became of the card
	said   fyne.CanvasObject // what the target, or the daemon, said last

	note    *widget.Entry
	verdict *widget.RadioGroup
	word    api.Verdict // the person's, while it waits for being said against the target's
	contra  string      // what the target said, as it was shown beside that
	buttons []*widget.Button
	opened  *fyne.Container // request and result, once they were asked for
}

// New returns a view that shows nothing yet.
func New(cfg Config) (*View, error) {
	if cfg.Daemon == nil || cfg.Now == nil {
		return nil, errors.New("record: Daemon and Now are required")
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
	v := &View{cfg: cfg, opened: look.Rows(10)}
	v.arming = look.NewArming(cfg.After, v.enable)
	v.Init(v)
	return v, nil
}

// Record is the record that is shown.
func (v *View) Record() api.Record { return v.record }

// Update shows a record, and the card of the call that came again where one waits. The same record as it is now keeps what the person began; a change of its state does not.
func (v *View) Update(r api.Record, c *api.Card) {
	id := func(c *api.Card) string {
		if c == nil {
			return ""
		}
		return c.Card
	}
	same := v.record.ExecutionID == r.ExecutionID && v.record.State == r.State && v.record.Awaits() == r.Awaits() && id(v.card) == id(c)
	moved := v.record.ExecutionID != r.ExecutionID
	v.record, v.card = r, c
	if same {
		v.Set(v.head(), v.body(), nil)
		return
	}
	v.panel, v.over, v.busy = choices, nil, false
	if moved {
		v.said, v.opened.Objects = nil, nil
	}
	v.unfocus()
	v.Set(v.head(), v.body(), v.foot())
	v.arming.Disarm()
}

// Over says what became of the card beside the record.
func (v *View) Over(e api.CardEvent, what fyne.CanvasObject) {
	if v.card == nil || v.card.Card != e.Card.Card || v.over != nil {
		return
	}
	v.over = what
	v.unfocus()
	v.Set(nil, nil, v.foot())
}

// Say shows something above the record, until another one takes the place.
func (v *View) Say(o fyne.CanvasObject) {
	v.said = o
	v.Set(nil, v.body(), nil)
}

func (v *View) unfocus() {
	list := make([]fyne.Focusable, 0, len(v.buttons))
	for _, b := range v.buttons {
		list = append(list, b)
	}
	look.Unfocus(v, list...)
}

// Sighted says that the record came into sight just now: a click that was meant for what was there decides nothing.
func (v *View) Sighted() {
	if v.record.ExecutionID != "" {
		v.unfocus()
		v.arming.Disarm()
	}
}

func (v *View) enable() { look.Open(v.arming.Armed() && !v.busy, v.buttons...) }

// work does something of the daemon's in a goroutine, with the buttons shut meanwhile, and shows the error if there is one.
func (v *View) work(f func(ctx context.Context) (done func(), err error)) {
	if !v.arming.Armed() || v.busy {
		return
	}
	v.busy = true
	v.enable()
	id := v.record.ExecutionID
	v.cfg.Go(func() {
		done, err := f(v.cfg.Context)
		look.Do(func() {
			if v.record.ExecutionID != id {
				return
			}
			v.busy = false
			if err != nil {
				v.said = look.Trouble(err)
			} else {
				done()
			}
			v.Set(v.head(), v.body(), v.foot())
			v.enable()
		})
	})
}

func (v *View) answer(how, reason string) {
	card := v.card.Card
	v.work(func(ctx context.Context) (func(), error) {
		err := v.cfg.Daemon.Answer(ctx, card, api.CardAnswer{Answer: how, Reason: reason})
		return func() {
			v.over = look.NewNotice(look.Calm, look.ShapeInfo, look.Body(map[string]string{
				"once": words.Say("record.did_again"), "session": words.Say("record.did_session"), "recorded": words.Say("record.did_recorded"), "deny": words.Say("record.did_deny"),
			}[how]))
			if how != "deny" && v.own() {
				v.over = look.NewNotice(look.Calm, look.ShapeInfo, look.Body(words.Say("record.did_recorded")))
			}
			if v.cfg.Decided != nil {
				v.cfg.Decided(card)
			}
		}, err
	})
}

func (v *View) check() {
	id := v.record.ExecutionID
	v.work(func(ctx context.Context) (func(), error) {
		got, err := v.cfg.Daemon.Check(ctx, id)
		return func() {
			v.record = got.Record
			v.said = Finding(got)
		}, err
	})
}

// Finding says what the target answered when it was asked.
func Finding(c api.Checked) fyne.CanvasObject {
	tone, shape := look.Careful, look.ShapeUnknown
	switch c.Finding {
	case "done":
		tone, shape = look.Fine, look.ShapeDone
	case "failed":
		tone, shape = look.Wrong, look.ShapeFailed
	case "not_done":
		tone, shape = look.Calm, look.ShapeNothing
	case "running":
		tone, shape = look.Working, look.ShapeSent
	}
	runs := []look.Run{{Text: look.Found(c.Finding), Style: look.Style{Bold: true}}}
	if c.Text != "" {
		runs = append(runs, look.Run{Text: "  " + c.Text, Style: look.Style{Color: look.Muted}})
	}
	return look.NewNotice(tone, shape, look.Paragraph(runs...))
}

// settle writes the person's word down, unless the target said otherwise when it was asked: then it asks whether the word is to stand against that.
func (v *View) settle() {
	if !v.arming.Armed() || v.busy {
		return
	}
	v.word = api.Verdict{Done: v.verdict.Selected == words.Say("settle.done"), Note: v.note.Text}
	if v.contra = v.record.Contradicts(v.word.Done); v.contra != "" {
		v.show(against)
		return
	}
	v.write()
}

// overrule writes the person's word down against the target's, if that still is what the person was shown.
func (v *View) overrule() {
	switch said := v.record.Contradicts(v.word.Done); said {
	case v.contra:
		v.write()
	case "":
		v.back()
	default:
		v.contra = said
		v.show(against)
	}
}

// back shows the person's word again as it was chosen and typed.
func (v *View) back() {
	word, note := v.verdict.Selected, v.note.Text
	v.show(settling)
	v.note.SetText(note)
	v.verdict.SetSelected(word)
}

func (v *View) write() {
	id, in := v.record.ExecutionID, v.word
	in.Against = v.contra
	v.work(func(ctx context.Context) (func(), error) {
		r, err := v.cfg.Daemon.Settle(ctx, id, in)
		return func() {
			v.record, v.panel = r, choices
			v.said = look.NewNotice(look.Fine, look.ShapeInfo, look.Body(words.Say("settle.written")))
		}, err
	})
}

func (v *View) open() {
	id := v.record.ExecutionID
	v.work(func(ctx context.Context) (func(), error) {
		p, err := v.cfg.Daemon.Payload(ctx, id)
		return func() { v.opened.Objects = Payload(p) }, err
	})
}

// Payload shows what was sent and what came back.
func Payload(p api.Payload) []fyne.CanvasObject {
	var list []fyne.CanvasObject
	if p.Erased {
		list = append(list, look.NewNotice(look.Calm, look.ShapeInfo, look.Body(words.Say("payload.erased"))))
	}
	if p.Place != nil {
		tone, shape, text := look.Fine, look.ShapeLock, words.Say("payload.verified")
		if !p.Place.Verified {
			tone, shape, text = look.Wrong, look.ShapeWarning, words.Say("payload.unverified")
		}
		list = append(list, look.NewNotice(tone, shape, look.Body(words.Say("payload.place", "From", p.Place.Accepted, "To", p.Place.Last)+" "+text)))
	}
	if p.Effect != nil {
		list = append(list, look.Section(words.Say("payload.sent"), look.Sent(*p.Effect)))
	}
	for _, part := range []struct {
		title string
		raw   []byte
	}{{words.Say("payload.arguments"), p.Arguments}, {words.Say("payload.answer"), p.Answer}, {words.Say("payload.result"), p.Result}} {
		if len(part.raw) > 0 {
			list = append(list, look.Quote(part.title, string(part.raw)))
		}
	}
	return list
}

// own says that the card asks only for the result of the very execution that is shown, for another process: nothing would be sent for it.
func (v *View) own() bool { return v.card != nil && v.card.ExecutionID == v.record.ExecutionID }

func (v *View) may(answer string) bool {
	return v.card != nil && slices.Contains(v.card.Answers, answer)
}

func (v *View) head() []fyne.CanvasObject {
	r := v.record
	tone, shape, eyebrow := look.Working, look.ShapeAgain, words.Say("record.came_again")
	if v.card == nil && len(r.Callers)+r.CallersDropped < 2 {
		tone, shape, eyebrow = look.State(r)
	}
	right := []fyne.CanvasObject{}
	if v.card != nil && v.over == nil {
		left := look.Label(look.Left(v.cfg.Now(), v.card.Created, v.card.Expires), look.Style{Color: look.Muted, Bold: true})
		right = append(right, left)
	}
	what := look.Paragraph(
		look.Run{Text: look.Brief(r.Tool, 60), Style: look.Style{Bold: true}}, look.Run{Text: "  " + words.Say("record.at") + "  ", Style: look.Style{Color: look.Muted}},
		look.Run{Text: r.Target, Style: look.Style{Mono: true}},
	)
	return []fyne.CanvasObject{
		look.Line([]fyne.CanvasObject{look.Badge(tone, shape, eyebrow)}, right),
		look.Rows(-6, look.Heading(v.headline()), what),
	}
}

// headline answers the one question: did it already happen?
func (v *View) headline() string {
	r, now := v.record, v.cfg.Now()
	sent := look.Clock(r.DispatchedAt, now)
	switch r.State {
	case "accepted":
		return words.Say("headline.accepted")
	case "authorized":
		return words.Say("headline.authorized")
	case "dispatched":
		if r.Awaits() {
			return words.Say("headline.awaits", "Time", sent)
		}
		return words.Say("headline.dispatched", "Time", sent)
	case "unknown":
		return words.Say("headline.unknown", "Time", sent)
	case "completed_result_not_delivered", "completed_result_delivered":
		if r.Outcome == "target_error" {
			return words.Say("headline.error", "Time", sent)
		}
		if r.State == "completed_result_delivered" {
			return words.Say("headline.delivered", "Time", look.Clock(r.CompletedAt, now))
		}
		return words.Say("headline.stored", "Time", look.Clock(r.CompletedAt, now))
	case "not_done":
		return words.Say("headline.not_done")
	}
	if r.Code == api.RecordedInstead {
		return words.Say("headline.recorded")
	}
	return words.Say("headline.nothing")
}

// why says why nothing was sent again. Only a call that came again is told it.
func (v *View) why() string {
	r := v.record
	if v.card == nil && len(r.Callers)+r.CallersDropped < 2 {
		return ""
	}
	switch r.State {
	case "accepted", "authorized":
		return words.Say("why.waiting")
	case "dispatched":
		if r.Awaits() {
			return words.Say("why.awaits")
		}
		return words.Say("why.dispatched")
	case "unknown":
		switch r.Class {
		case "idempotent":
			return words.Say("why.unknown_idempotent")
		case "status_query":
			return words.Say("why.unknown_status")
		case "read_only":
			return words.Say("why.unknown_read_only")
		}
		return words.Say("why.unknown")
	case "completed_result_not_delivered":
		return words.Say("why.stored")
	case "completed_result_delivered":
		return words.Say("why.delivered")
	}
	return ""
}
