package vaultview

import (
	"context"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// leastPassphrase is how long a passphrase is at least.
const leastPassphrase = 12

// first is the guided set-up: a passphrase, the recovery kit, and the proof that the kit was kept.
type first struct {
	v             *View
	pass, again   *look.Secret
	weaker        *widget.Check
	make          *widget.Button
	advice        *look.Text
	trouble       *fyne.Container
	kit           string
	status        api.Status
	kitRoot, root fyne.CanvasObject
}

func newFirst(v *View) *first {
	return &first{v: v, pass: look.NewSecret(words.Say("first.passphrase")), again: look.NewSecret(words.Say("first.again")), trouble: look.Rows(6)}
}

func (f *first) wipe() {
	f.pass.Clear()
	f.again.Clear()
	f.kit = ""
}

func (f *first) ask() fyne.CanvasObject {
	f.make = widget.NewButton(words.Say("first.make"), f.create)
	f.weaker = widget.NewCheck(words.Say("first.no_keyring"), nil)
	f.advice = look.Quiet("")
	f.pass.OnChanged, f.again.OnChanged = f.judge, f.judge
	f.pass.OnSubmitted = func() {
		if c := fyne.CurrentApp().Driver().CanvasForObject(f.again); c != nil {
			c.Focus(f.again)
		}
	}
	f.again.OnSubmitted = f.create
	f.judge()
	weaker := look.Rows(-4, f.weaker, look.Plain(words.Say("first.no_keyring_means"), look.Style{Color: look.Muted}))
	f.root = page(
		look.Middle(look.Quiet(words.Say("first.step", "N", 1))), look.Middle(look.Subheading(words.Say("first.title"))), look.Quiet(words.Say("first.means")),
		f.pass, f.again, f.advice, weaker, f.trouble, look.Wide(0, 38, f.make),
	)
	return f.root
}

// judge says what is still missing, and lets the vault be made once nothing is.
func (f *first) judge() {
	style := look.Style{Color: look.Muted}
	text, ok := words.Say("first.advice"), false
	switch n := f.pass.Len(); {
	case n == 0:
	case n < leastPassphrase:
		text, style.Color = words.Count("first.short", leastPassphrase-n), look.Doubt
	case f.again.Len() == 0:
		text = words.Say("first.type_again")
	case !f.pass.Equal(f.again):
		text, style.Color = words.Say("first.different"), look.Doubt
	default:
		text, style.Color, ok = words.Say("first.fits"), look.Good, true
	}
	f.advice.Set(look.Run{Text: text, Style: style})
	if ok {
		f.make.Enable()
	} else {
		f.make.Disable()
	}
}

func (f *first) create() {
	if f.make.Disabled() {
		return
	}
	pass := f.pass.Take()
	f.again.Clear()
	f.make.Disable()
	weaker := f.weaker.Checked
	var answer api.InitAnswer
	f.v.work.Do(func(ctx context.Context) error {
		return opened(pass, func(b []byte) (err error) {
			answer, err = f.v.cfg.Vault.Init(ctx, api.InitRequest{Passphrase: b, NoKeyring: weaker})
			return err
		})
	}, func(err error) {
		if err != nil {
			f.trouble.Objects = []fyne.CanvasObject{look.Trouble(err)}
			f.judge()
			f.root.Refresh()
			return
		}
		f.kit, f.status = answer.RecoveryKit, answer.Status
		if strings.TrimSpace(f.kit) == "" {
			f.v.changed(f.status)
			return
		}
		f.v.show("kit")
	})
}

// kitPage shows the recovery kit and takes its last part back: a kit that was only looked at is none.
func (f *first) kitPage() fyne.CanvasObject {
	kit := strings.TrimSpace(f.kit)
	confirm := widget.NewEntry()
	confirm.SetPlaceHolder(words.Say("kit.last"))
	done := widget.NewButton(words.Say("kit.done"), func() {
		status := f.status
		f.wipe()
		f.v.face = ""
		f.v.changed(status)
		f.v.Update(status, f.v.proven || f.v.cfg.Changed == nil)
	})
	done.Disable()
	confirm.OnChanged = func(s string) {
		if strings.EqualFold(strings.TrimSpace(s), lastPart(kit)) {
			done.Enable()
		} else {
			done.Disable()
		}
	}
	rows := []fyne.CanvasObject{
		look.Middle(look.Quiet(words.Say("first.step", "N", 2))), look.Middle(look.Subheading(words.Say("kit.title"))), look.Body(words.Say("kit.means")),
		look.NewSunken(look.Inset(6, 6, look.Plain(kit, look.Style{Mono: true, Bold: true}))),
	}
	if f.v.cfg.Copy != nil {
		copied := widget.NewButton(words.Say("kit.copy"), func() { f.v.cfg.Copy(kit) })
		copied.Importance = widget.LowImportance
		rows = append(rows, look.Line([]fyne.CanvasObject{copied}, nil))
	}
	rows = append(rows, look.NewNotice(look.Careful, look.ShapeWarning, look.Body(words.Say("kit.once"))), look.Body(words.Say("kit.confirm")), confirm, look.Wide(0, 38, done))
	f.kitRoot = page(rows...)
	return f.kitRoot
}

// lastPart is the last group of a kit, as its groups are separated.
func lastPart(kit string) string {
	parts := strings.FieldsFunc(kit, func(r rune) bool { return r == '-' || r == ' ' || r == '\n' || r == '\t' })
	if len(parts) == 0 {
		return kit
	}
	return parts[len(parts)-1]
}
