package ui

import (
	"errors"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/watch"
	"singlepass.dev/ui/words"
)

// gate stands in place of the pages until the person has proven presence: it takes the passphrase, opens the vault where that is locked, and earns the ticket.
type gate struct {
	frame   *Frame
	title   *widget.Label
	why     *widget.Label
	entry   *widget.Entry
	button  *widget.Button
	trouble *fyne.Container
	content fyne.CanvasObject
	locked  bool
	busy    bool
}

func newGate(f *Frame) *gate {
	g := &gate{frame: f, title: widget.NewLabel(""), why: widget.NewLabel(""), entry: widget.NewEntry(), trouble: look.Rows(0)}
	g.title.TextStyle.Bold, g.title.SizeName = true, "headingText"
	g.title.Wrapping, g.why.Wrapping = fyne.TextWrapWord, fyne.TextWrapWord
	g.why.Importance = widget.LowImportance
	g.entry.Password = true
	// In the place of Fyne's eye, which would show what is typed.
	g.entry.ActionItem = canvas.NewRectangle(nil)
	g.entry.SetPlaceHolder(words.Say("gate.passphrase"))
	g.entry.OnSubmitted = func(string) { g.open() }
	g.button = widget.NewButton("", g.open)
	g.button.Importance = widget.HighImportance
	g.content = container.NewCenter(look.Wide(460, 0, look.Rows(8, g.title, g.why, g.entry, g.trouble, container.NewHBox(g.button))))
	return g
}

// update says what the passphrase is for.
func (g *gate) update(s watch.State) {
	if g.busy {
		return // the vault may be open and the ticket not earned yet
	}
	g.locked = s.Status.Vault != "unlocked"
	if g.locked {
		g.title.SetText(words.Say("gate.locked"))
		g.why.SetText(words.Say("gate.locked_means"))
		g.button.SetText(words.Say("gate.unlock"))
	} else {
		g.title.SetText(words.Say("gate.proof"))
		g.why.SetText(words.Say("gate.proof_means"))
		g.button.SetText(words.Say("gate.prove"))
	}
}

// open sends what was typed. The field is empty from then on, whatever comes of it.
func (g *gate) open() {
	if g.busy || g.entry.Text == "" {
		return
	}
	passphrase := []byte(g.entry.Text)
	g.entry.SetText("")
	g.busy = true
	g.say(nil)
	g.button.Disable()
	locked := g.locked
	go func() {
		err := g.frame.prove(passphrase, locked)
		clear(passphrase)
		fyne.Do(func() {
			g.busy = false
			g.button.Enable()
			g.say(err)
			if err != nil {
				g.frame.cfg.Window.Canvas().Focus(g.entry)
			}
		})
	}()
}

func (g *gate) say(err error) {
	g.trouble.Objects = nil
	if err != nil {
		text := look.Trouble(err)
		var e *api.Error
		if errors.As(err, &e) {
			switch e.Code {
			case api.CodeProofWrong:
				text = look.NewNotice(look.Wrong, look.ShapeWarning, look.Body(words.Say("gate.wrong")))
			case api.CodeTooManyTries:
				text = look.NewNotice(look.Wrong, look.ShapeWarning, look.Body(words.Say("gate.wait", "Time", look.Span(time.Duration(e.RetryAfter)*time.Second))))
			}
		}
		g.trouble.Objects = []fyne.CanvasObject{text}
	}
	g.trouble.Refresh()
	g.content.Refresh()
}
