package record

import (
	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// foot is what can be done about the record, by its state.
func (v *View) foot() []fyne.CanvasObject {
	v.buttons = nil
	if v.over != nil {
		return []fyne.CanvasObject{v.over}
	}
	var list []fyne.CanvasObject
	switch {
	case v.panel == settling && v.record.Open():
		list = v.settlePanel()
	case v.panel == against && v.record.Open():
		list = v.againstPanel()
	case v.panel == again && v.may("once"):
		list = v.againPanel()
	case v.card != nil && v.own():
		list = v.forOther()
	case v.card != nil:
		list = v.delivered()
	default:
		list = v.alone()
	}
	v.enable()
	return list
}

func (v *View) button(text string, f func()) fyne.CanvasObject {
	b := widget.NewButton(text, f)
	v.buttons = append(v.buttons, b)
	return look.Wide(110, 36, b)
}

func (v *View) show(p panel) {
	v.panel = p
	v.Set(nil, nil, v.foot())
	v.arming.Disarm() // a second click at the same place must not go through to what is there now
}

func caption(text string) fyne.CanvasObject {
	return look.Plain(text, look.Style{Color: look.Muted, Size: theme.SizeNameCaptionText})
}

// alone is a record without a card: nobody waits for an answer of the person's, or the answer is the target's to give.
func (v *View) alone() []fyne.CanvasObject {
	switch v.record.State {
	case "dispatched":
		if v.record.Awaits() {
			right := []fyne.CanvasObject{v.button(words.Say("foot.check"), v.check)}
			return []fyne.CanvasObject{look.Line([]fyne.CanvasObject{v.button(words.Say("foot.settle"), func() { v.show(settling) })}, right), caption(words.Say("foot.awaits_means"))}
		}
		return []fyne.CanvasObject{look.NewNotice(look.Working, look.ShapeWaiting, look.Body(words.Say("foot.wait")))}
	case "unknown":
		left := []fyne.CanvasObject{v.button(words.Say("foot.settle"), func() { v.show(settling) })}
		right := []fyne.CanvasObject{}
		text := words.Say("foot.no_check")
		if v.record.Class == "status_query" {
			right = append(right, v.button(words.Say("foot.check"), v.check))
			text = words.Say("foot.check_means")
		}
		return []fyne.CanvasObject{look.Line(left, right), caption(text)}
	case "completed_result_not_delivered":
		return []fyne.CanvasObject{look.NewNotice(look.Fine, look.ShapeStored, look.Body(words.Say("foot.stored")))}
	}
	return nil
}

// delivered is a repeat of something whose result an agent has, or of something before that the person has to see first.
func (v *View) delivered() []fyne.CanvasObject {
	left := []fyne.CanvasObject{}
	if v.may("deny") {
		reason := widget.NewEntry()
		reason.SetPlaceHolder(words.Say("card.reason"))
		left = append(left, v.button(words.Say("card.deny"), func() { v.answer("deny", reason.Text) }), look.Wide(220, 0, reason))
	}
	right := []fyne.CanvasObject{}
	text := words.Say("foot.again_means")
	if v.may("once") {
		right = append(right, v.button(words.Say("foot.again"), func() { v.show(again) }))
	}
	if v.may("recorded") {
		right = append(right, v.button(words.Say("foot.recorded"), func() { v.answer("recorded", "") }))
		text = words.Say("foot.recorded_means")
	}
	return []fyne.CanvasObject{look.Line(left, right), caption(text)}
}

// forOther is a process that asks for the result of what another one had done: nothing would be sent, but it would read the result.
func (v *View) forOther() []fyne.CanvasObject {
	left := []fyne.CanvasObject{v.button(words.Say("card.deny"), func() { v.answer("deny", "") })}
	right := []fyne.CanvasObject{}
	switch {
	case v.may("recorded"):
		right = append(right, v.button(words.Say("foot.hand_out"), func() { v.answer("recorded", "") }))
	case v.may("once"):
		right = append(right, v.button(words.Say("foot.hand_out"), func() { v.answer("once", "") }))
	}
	if v.may("session") {
		right = append(right, v.button(words.Say("foot.hand_out_session"), func() { v.answer("session", "") }))
	}
	return []fyne.CanvasObject{look.Line(left, right), caption(words.Say("foot.other_means"))}
}

// againPanel is the decision to do it a second time, apart from all others and in plain words.
func (v *View) againPanel() []fyne.CanvasObject {
	r := v.record
	text := words.Say("again.text", "Tool", r.Tool, "Host", look.HostOf(r.Target), "Time", look.Clock(r.DispatchedAt, v.cfg.Now()))
	send := widget.NewButton(words.Say("again.send"), func() { v.answer("once", "") })
	send.Importance = widget.DangerImportance
	v.buttons = append(v.buttons, send)
	right := []fyne.CanvasObject{look.Wide(110, 36, send)}
	return []fyne.CanvasObject{
		look.NewNotice(look.Careful, look.ShapeWarning, look.Rows(-7, look.Plain(words.Say("again.title"), look.Style{Bold: true}), look.Body(text))),
		look.Line([]fyne.CanvasObject{v.button(words.Say("again.back"), func() { v.show(choices) })}, right),
	}
}

// settlePanel takes the person's word on an unknown outcome, and says before what each word will cause.
func (v *View) settlePanel() []fyne.CanvasObject {
	done, not := words.Say("settle.done"), words.Say("settle.not_done")
	v.verdict = widget.NewRadioGroup([]string{done, not}, nil)
	v.verdict.Horizontal = true
	v.note = widget.NewEntry()
	v.note.SetPlaceHolder(words.Say("settle.note"))
	effect := look.Body(words.Say("settle.choose"))
	write := widget.NewButton(words.Say("settle.write"), v.settle)
	write.Disable()
	back := v.button(words.Say("again.back"), func() { v.show(choices) })
	v.verdict.OnChanged = func(s string) {
		text := words.Say("settle.choose")
		switch s {
		case done:
			text = words.Say("settle.done_means")
		case not:
			text = words.Say("settle.not_done_means")
		}
		effect.Set(look.Run{Text: text, Style: look.Style{}})
		v.buttons = v.buttons[:1]
		if s != "" {
			v.buttons = append(v.buttons, write)
		} else {
			write.Disable()
		}
		v.enable()
		v.Set(nil, nil, nil) // the words may need another line
	}
	return []fyne.CanvasObject{
		look.Rows(0, look.Plain(words.Say("settle.title"), look.Style{Bold: true}), v.verdict, effect),
		v.note,
		look.Line([]fyne.CanvasObject{back}, []fyne.CanvasObject{look.Wide(110, 36, write)}),
	}
}

// againstPanel is the decision to let the person's word stand against the target's, apart from all others and in plain words.
func (v *View) againstPanel() []fyne.CanvasObject {
	said, causes := look.Found(v.contra), words.Say("against.done_means")
	mine := words.Say("settle.done")
	if !v.word.Done {
		mine, causes = words.Say("settle.not_done"), words.Say("against.not_done_means")
	}
	at := v.record.Checks[len(v.record.Checks)-1].At // there is one, or nothing would speak against the word
	text := words.Say("against.text", "Time", look.Clock(at, v.cfg.Now()), "Target", said, "Word", mine)
	stand := widget.NewButton(words.Say("against.stand"), v.overrule)
	stand.Importance = widget.DangerImportance
	back := v.button(words.Say("again.back"), v.back)
	v.buttons = append(v.buttons, stand)
	return []fyne.CanvasObject{
		look.NewNotice(look.Wrong, look.ShapeWarning, look.Rows(-7, look.Plain(words.Say("against.title"), look.Style{Bold: true}), look.Body(text), look.Body(causes))),
		look.Line([]fyne.CanvasObject{back}, []fyne.CanvasObject{look.Wide(110, 36, stand)}),
	}
}
