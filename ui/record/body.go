package record

import (
	"fmt"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

func (v *View) body() []fyne.CanvasObject {
	r := v.record
	list := []fyne.CanvasObject{}
	if why := v.why(); why != "" {
		list = append(list, look.NewNotice(look.Working, look.ShapeInfo, look.Rows(-7, look.Plain(words.Say("why.title"), look.Style{Bold: true}), look.Body(why))))
	}
	if v.said != nil {
		list = append(list, v.said)
	}
	list = append(list,
		look.Section(words.Say("record.timeline"), look.NewPanel(look.NewTimeline(Moments(r), Calls(r)))),
		look.Section(words.Say("record.result"), Result(r, v.cfg.Now())),
	)
	if len(r.Checks) > 0 {
		list = append(list, look.Section(words.Say("record.checks"), checks(r, v.cfg.Now())))
	}
	list = append(list, look.Section(words.Count("record.callers", len(r.Callers)+r.CallersDropped), callers(r, v.card, v.cfg.Now())))
	if warning := look.Hidden(r.Tool, r.Target, r.Reason); warning != nil {
		list = append(list, warning)
	}
	if len(v.opened.Objects) > 0 {
		list = append(list, v.opened)
	} else {
		b := widget.NewButton(words.Say("record.open"), v.open)
		b.Importance = widget.LowImportance
		list = append(list, look.Line([]fyne.CanvasObject{b}, nil))
	}
	return append(list, look.Section(words.Say("record.steps"), steps(r)), facts(r))
}

// Moments are the five stages of an execution as the picture shows them.
func Moments(r api.Record) []look.Moment {
	open := func(states ...string) bool {
		for _, s := range states {
			if r.State == s {
				return true
			}
		}
		return false
	}
	result := look.Moment{Name: words.Say("stage.completed"), At: r.CompletedAt, Shape: look.ShapeStored, Tone: look.Fine, Open: open("dispatched", "unknown")}
	switch {
	case r.State == "unknown":
		result.Shape, result.Tone, result.Name = look.ShapeUnknown, look.Careful, words.Say("stage.no_answer")
	case r.Outcome == "target_error":
		result.Shape, result.Tone, result.Name = look.ShapeFailed, look.Wrong, words.Say("stage.error")
	}
	list := []look.Moment{
		{Name: words.Say("stage.accepted"), At: r.AcceptedAt, Shape: look.ShapeWaiting, Tone: look.Working},
		{Name: words.Say("stage.authorized"), At: r.AuthorizedAt, Shape: look.ShapeReady, Tone: look.Working, Open: open("accepted")},
		{Name: words.Say("stage.dispatched"), At: r.DispatchedAt, Shape: look.ShapeSent, Tone: look.Working, Open: open("authorized")},
	}
	if open("rejected", "expired", "withdrawn", "not_sent", "not_done") {
		tone, shape, name := look.State(r)
		last := look.Moment{Name: name, At: r.ChangedAt, Shape: shape, Tone: tone}
		for i := range list {
			if list[i].At.IsZero() {
				return append(list[:i:i], last)
			}
		}
		return append(list, last)
	}
	list = append(list, result, look.Moment{Name: words.Say("stage.delivered"), At: r.DeliveredAt, Shape: look.ShapeDone, Tone: look.Fine, Open: open("completed_result_not_delivered")})
	for i := range list {
		// What has yet to come must not look as if it had.
		if list[i].Open && r.State != "unknown" {
			list[i].Shape, list[i].Tone = look.ShapeWaiting, look.Working
		}
	}
	return list
}

// Calls are the calls that belong to an execution as the picture shows them.
func Calls(r api.Record) []look.Call {
	var list []look.Call
	if len(r.Callers)+r.CallersDropped < 2 {
		return nil // the one that made it says nothing new
	}
	for i, c := range r.Callers {
		if !c.At.IsZero() {
			list = append(list, look.Call{At: c.At, Number: i + 1})
		}
	}
	return list
}

// Result is the known result, or the plain word that none is known.
func Result(r api.Record, now time.Time) fyne.CanvasObject {
	say := func(t look.Tone, s look.Shape, text, more string) fyne.CanvasObject {
		runs := []look.Run{{Text: text, Style: look.Style{Bold: true}}}
		if more != "" {
			runs = append(runs, look.Run{Text: "  " + more, Style: look.Style{Color: look.Muted}})
		}
		return look.NewNotice(t, s, look.Paragraph(runs...))
	}
	if r.Code == api.RecordedInstead {
		return say(look.Fine, look.ShapeStored, words.Say("result.recorded"), r.Reason)
	}
	switch r.State {
	case "accepted", "authorized", "rejected", "expired", "withdrawn", "not_sent":
		return say(look.Calm, look.ShapeNothing, words.Say("result.nothing_sent"), r.Reason)
	case "dispatched":
		if r.Awaits() {
			since := r.Attempts[len(r.Attempts)-1].AwaitedSince
			return say(look.Working, look.ShapeSent, words.Say("result.awaits", "Ago", look.Ago(since, now)), "")
		}
		return say(look.Working, look.ShapeSent, words.Say("result.awaited", "Ago", look.Ago(r.DispatchedAt, now)), "")
	case "unknown":
		return say(look.Careful, look.ShapeUnknown, words.Say("result.unknown"), r.Reason)
	case "not_done":
		return say(look.Calm, look.ShapeNothing, words.Say("result.not_done"), r.Reason)
	}
	source := look.Source(r.OutcomeSource)
	status := ""
	if r.TargetStatus != 0 {
		status = words.Say("result.status", "Status", r.TargetStatus)
	}
	if source != "" {
		status += "  " + source
	}
	if r.Pruned {
		status += "  " + words.Say("result.pruned")
	}
	if r.Outcome == "target_error" {
		return say(look.Wrong, look.ShapeFailed, words.Say("result.error"), status)
	}
	return say(look.Fine, look.ShapeDone, words.Say("result.success"), status)
}

// callers lists every call that belongs to the execution, with what its transport can prove about it.
func callers(r api.Record, card *api.Card, now time.Time) fyne.CanvasObject {
	var rows []fyne.CanvasObject
	mute := look.Style{Color: look.Muted}
	for i, c := range r.Callers {
		runs := []look.Run{
			{Text: words.Say("timeline.call", "N", i+1), Style: look.Style{Bold: true, Color: look.Busy}},
			{Text: "   " + look.Clock(c.At, now) + "   ", Style: look.Style{}},
			{Text: words.Say("caller.request", "ID", c.RequestID, "Transport", c.Transport, "Run", c.Run), Style: mute},
		}
		if c.Client != "" {
			runs = append(runs, look.Run{Text: "   " + words.Say("caller.client", "Client", c.Client), Style: mute})
		}
		switch {
		case c.Disputed:
			runs = append(runs, look.Run{Text: "   " + words.Say("caller.disputed"), Style: look.Style{Color: look.Doubt, Bold: true}})
		case c.Delivered != "":
			runs = append(runs, look.Run{Text: "   " + words.Say("caller.delivered", "How", c.Delivered), Style: look.Style{Color: look.Good}})
		}
		rows = append(rows, look.Paragraph(runs...))
	}
	if card != nil && card.ExecutionID != r.ExecutionID {
		rows = append(rows, look.Paragraph(
			look.Run{Text: words.Say("caller.now"), Style: look.Style{Bold: true, Color: look.Doubt}}, look.Run{Text: "   " + look.Clock(card.Created, now) + "   ", Style: look.Style{}},
			look.Run{Text: words.Say("caller.waits", "Run", card.Run, "ID", card.ExecutionID), Style: mute},
		))
	}
	if r.CallersDropped > 0 {
		rows = append(rows, look.Quiet(words.Count("caller.more", r.CallersDropped)))
	}
	return look.NewPanel(look.Rows(-7, rows...))
}

func checks(r api.Record, now time.Time) fyne.CanvasObject {
	var rows []fyne.CanvasObject
	for _, c := range r.Checks {
		text := look.Clock(c.At, now) + "   " + look.Found(c.Finding)
		if c.Times > 1 {
			text += "   " + words.Count("check.times", c.Times)
		}
		more := c.Evidence
		if c.Reason != "" {
			more += "  " + c.Reason
		}
		rows = append(rows, look.Paragraph(look.Run{Text: text, Style: look.Style{}}, look.Run{Text: "   " + more, Style: look.Style{Color: look.Muted}}))
	}
	return look.NewPanel(look.Rows(-7, rows...))
}

// steps is the whole story in words.
func steps(r api.Record) fyne.CanvasObject {
	var rows []fyne.CanvasObject
	for i, s := range r.Timeline {
		gap := ""
		if i > 0 {
			gap = look.Gap(time.Duration(s.AfterMS) * time.Millisecond)
		}
		rows = append(rows, look.Paragraph(
			look.Run{Text: look.ClockMS(s.At) + "  ", Style: look.Style{Mono: true, Size: theme.SizeNameCaptionText}},
			look.Run{Text: fmt.Sprintf("%-9s ", gap), Style: look.Style{Mono: true, Size: theme.SizeNameCaptionText, Color: look.Muted}},
			look.Run{Text: look.Said(s.Said, s.Text), Style: look.Style{}},
		))
	}
	return look.NewPanel(look.Rows(-8, rows...))
}

func facts(r api.Record) fyne.CanvasObject {
	mono := look.Style{Mono: true, Color: look.Muted}
	var list []look.Fact
	add := func(name, value string, s look.Style) {
		if value != "" {
			list = append(list, look.Fact{Name: name, Value: look.Plain(value, s)})
		}
	}
	add(words.Say("card.lost"), look.LostAnswer(r.Class, ""), look.Style{})
	add(words.Say("card.credential"), r.Credential, look.Style{Bold: true})
	add(words.Say("record.actor"), r.Actor, look.Style{Mono: true})
	add(words.Say("record.by"), r.AuthorizedBy, look.Style{})
	add(words.Say("record.scope"), r.IntentScope, mono)
	add(words.Say("card.execution"), r.ExecutionID, mono)
	add(words.Say("record.again_of"), r.Again, mono)
	add(words.Say("record.fingerprint"), r.Fingerprint, mono)
	return look.Facts(list...)
}
