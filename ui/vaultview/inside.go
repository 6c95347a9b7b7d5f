package vaultview

import (
	"context"
	"fmt"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/words"
)

// inside is the vault when it is open: how it and the journal are, and the credentials.
type inside struct {
	v      *View
	status api.Status
	list   []api.Credential
	rules  []api.Setting
	said   fyne.CanvasObject // what went wrong, or was done, last
	form   *form             // a credential is being added
	asking map[string]string // by credential: what is asked about it: rotate, remove or bind
	value  *look.Secret      // of the credential that is rotated
	rows   *fyne.Container
	root   fyne.CanvasObject
	known  bool
}

func newInside(v *View) *inside {
	i := &inside{v: v, rows: look.Rows(12), asking: map[string]string{}}
	i.root, _ = look.Scrolled(look.Inset(18, 14, look.Column(look.SheetWidth, i.rows)))
	return i
}

func (i *inside) wipe() {
	if i.form != nil {
		i.form.value.Clear()
		i.form = nil
	}
	if i.value != nil {
		i.value.Clear()
		i.value = nil
	}
	i.asking, i.said = map[string]string{}, nil
}

// update shows the vault's and the journal's health; what a person is typing stays.
func (i *inside) update(s api.Status) {
	same := i.known && i.status.Journal == s.Journal && i.status.Keyring == s.Keyring && i.status.Problem == s.Problem && headOf(i.status) == headOf(s)
	i.status, i.known = s, true
	if !same {
		i.draw()
	}
}

func headOf(s api.Status) uint64 {
	if s.Head == nil {
		return 0
	}
	return s.Head.Seq
}

func (i *inside) load() {
	var list []api.Credential
	var rules []api.Setting
	i.v.work.Do(func(ctx context.Context) (err error) {
		if list, err = i.v.cfg.Credentials.Credentials(ctx); err != nil {
			return err
		}
		rules, err = i.v.cfg.Keeper.Settings(ctx)
		return err
	}, func(err error) {
		if err != nil {
			i.said = look.Trouble(err)
		} else {
			i.list, i.rules = list, rules
		}
		i.draw()
	})
}

// change does something to a credential and reads the list again.
func (i *inside) change(f func(ctx context.Context) error, done string) {
	i.v.work.Do(f, func(err error) {
		if err != nil {
			i.said = look.Trouble(err)
			i.draw()
			return
		}
		i.said = look.NewNotice(look.Fine, look.ShapeDone, look.Body(done))
		i.form, i.value, i.asking = nil, nil, map[string]string{}
		i.load()
	})
}

func (i *inside) draw() {
	lock := widget.NewButton(words.Say("vault.lock"), func() {
		var s api.Status
		i.v.work.Do(func(ctx context.Context) (err error) {
			s, err = i.v.cfg.Vault.Lock(ctx)
			return err
		}, func(err error) {
			if err != nil {
				i.said = look.Trouble(err)
				i.draw()
				return
			}
			i.v.changed(s)
		})
	})
	add := widget.NewButton(words.Say("vault.add"), func() {
		i.form = newForm(i)
		i.draw()
	})
	list := []fyne.CanvasObject{
		look.Line([]fyne.CanvasObject{look.Named(look.Fine, look.ShapeOpenLock, words.Say("vault.open"))}, []fyne.CanvasObject{look.Wide(110, 34, lock)}),
		i.health(),
	}
	if i.said != nil {
		list = append(list, i.said)
	}
	list = append(list, look.Line([]fyne.CanvasObject{look.Label(words.Say("vault.credentials"), look.Style{Bold: true})}, []fyne.CanvasObject{look.Wide(150, 34, add)}))
	if i.form != nil {
		add.Disable()
		list = append(list, i.form.root)
	}
	if len(i.list) == 0 && i.form == nil {
		list = append(list, look.NewPanel(look.Inset(6, 4, look.Rows(0, look.Subheading(words.Say("vault.none")), look.Quiet(words.Say("vault.none_means"))))))
	}
	for _, c := range i.list {
		list = append(list, i.credential(c))
	}
	if len(i.rules) > 0 {
		list = append(list, look.Label(words.Say("vault.settings"), look.Style{Bold: true}), i.settings())
	}
	i.rows.Objects = list
	i.root.Refresh()
}

// settings are the security settings, which lie in the vault: how long it stays open, and when it locks by itself.
func (i *inside) settings() fyne.CanvasObject {
	var facts []look.Fact
	for _, s := range i.rules {
		value := widget.NewEntry()
		value.SetText(s.Value)
		save := widget.NewButton(words.Say("cred.bind_do"), nil)
		save.Disable()
		value.OnChanged = func(t string) {
			if t != s.Value {
				save.Enable()
			} else {
				save.Disable()
			}
		}
		save.OnTapped = func() {
			text := strings.TrimSpace(value.Text)
			i.change(func(ctx context.Context) error {
				to := &text
				if text == "" || text == s.Default {
					to = nil
				}
				_, err := i.v.cfg.Keeper.ChangeSetting(ctx, s.Key, to)
				return err
			}, words.Say("vault.setting_done", "Key", s.Key))
		}
		note := words.Say("vault.default", "Value", s.Default)
		if s.Meaning != "" {
			note = s.Meaning + "  " + note
		}
		facts = append(facts, look.Fact{Name: s.Key, Value: look.Rows(-4, look.Line([]fyne.CanvasObject{look.Wide(180, 0, value), save}, nil), look.Quiet(note))})
	}
	return look.NewPanel(look.Form(facts...))
}

// health says how the journal and the keyring are, in words and by a shape.
func (i *inside) health() fyne.CanvasObject {
	s := i.status
	rows := []fyne.CanvasObject{}
	switch s.Journal {
	case "ok":
		text := words.Say("health.ok")
		if s.Head != nil {
			text = words.Say("health.ok_at", "Seq", s.Head.Seq)
		}
		rows = append(rows, look.Marked(look.Fine, look.ShapeDone, text))
	case "quarantine":
		reason := widget.NewEntry()
		reason.SetPlaceHolder(words.Say("health.reason"))
		accept := widget.NewButton(words.Say("health.accept"), nil)
		accept.Disable()
		reason.OnChanged = func(t string) {
			if strings.TrimSpace(t) != "" {
				accept.Enable()
			} else {
				accept.Disable()
			}
		}
		accept.OnTapped = func() {
			text := reason.Text
			i.change(func(ctx context.Context) error { return i.v.cfg.Keeper.AcceptQuarantine(ctx, text) }, words.Say("health.accepted"))
		}
		rows = append(rows, look.NewNotice(look.Wrong, look.ShapeWarning, look.Rows(2,
			look.Plain(words.Say("health.quarantine"), look.Style{Bold: true}), look.Body(s.Problem), look.Quiet(words.Say("health.quarantine_means")), reason,
			look.Line(nil, []fyne.CanvasObject{look.Wide(150, 34, accept)}),
		)))
	default:
		rows = append(rows, look.NewNotice(look.Wrong, look.ShapeWarning, look.Rows(-6, look.Plain(words.Say("health.unavailable"), look.Style{Bold: true}), look.Body(s.Problem))))
	}
	if s.Keyring == "not_used" {
		rows = append(rows, look.Marked(look.Careful, look.ShapeWarning, words.Say("health.no_keyring")))
	}
	facts := []look.Fact{}
	if s.Head != nil {
		facts = append(facts, look.Fact{Name: words.Say("health.head"), Value: look.Plain(fmt.Sprintf("%d  %s", s.Head.Seq, s.Head.Hash), look.Style{Mono: true, Color: look.Muted})})
		if s.Head.Key != "" {
			facts = append(facts, look.Fact{Name: words.Say("health.key"), Value: look.Plain(s.Head.Key, look.Style{Mono: true, Color: look.Muted})})
		}
	}
	if !s.Since.IsZero() {
		facts = append(facts, look.Fact{Name: words.Say("health.verified"), Value: look.Body(look.Clock(s.Since, i.v.cfg.Now()) + " (" + words.Say("health.at_start") + ")")})
	}
	rows = append(rows, look.Facts(facts...))
	return look.NewPanel(look.Rows(2, rows...))
}

// credential is one credential: what it is for, never what it is.
func (i *inside) credential(c api.Credential) fyne.CanvasObject {
	now := i.v.cfg.Now()
	button := func(text, what string) fyne.CanvasObject {
		b := widget.NewButton(text, func() {
			if i.value != nil {
				i.value.Clear()
			}
			i.asking, i.value = map[string]string{c.Name: what}, nil
			i.draw()
		})
		b.Importance = widget.LowImportance
		return b
	}
	each := widget.NewCheck(words.Say("cred.per_use"), nil)
	each.Checked = c.PerUse
	each.OnChanged = func(on bool) {
		done := words.Say("cred.asks_session", "Name", c.Name)
		if on {
			done = words.Say("cred.asks_each", "Name", c.Name)
		}
		i.change(func(ctx context.Context) error {
			return i.v.cfg.Credentials.ChangeCredential(ctx, c.Name, api.CredentialChange{PerUse: &on})
		}, done)
	}
	var targets []fyne.CanvasObject
	for _, t := range c.Targets {
		targets = append(targets, look.Plain(t, look.Style{Mono: true}))
	}
	facts := []look.Fact{{Name: words.Say("cred.targets"), Value: look.Rows(-7, targets...)}}
	if c.Username != "" {
		facts = append(facts, look.Fact{Name: words.Say("cred.username"), Value: look.Body(c.Username)})
	}
	if c.Place != "" {
		facts = append(facts, look.Fact{Name: words.Say("cred.place"), Value: look.Plain(c.Place, look.Style{Mono: true})})
	}
	if len(c.UsedBy) > 0 {
		facts = append(facts, look.Fact{Name: words.Say("cred.used_by"), Value: look.Body(strings.Join(c.UsedBy, ", "))})
	}
	if !c.Rotated.IsZero() {
		facts = append(facts, look.Fact{Name: words.Say("cred.rotated"), Value: look.Body(words.Say("sessions.at", "Time", look.Clock(c.Rotated, now), "Ago", look.Ago(c.Rotated, now)))})
	}
	rows := []fyne.CanvasObject{
		look.Line([]fyne.CanvasObject{look.Named(look.Calm, look.ShapeKey, look.Brief(c.Name, 60)), look.Label(Kind(c.Kind), look.Style{Color: look.Muted})},
			[]fyne.CanvasObject{button(words.Say("cred.bind"), "bind"), button(words.Say("cred.rotate"), "rotate"), button(words.Say("cred.remove"), "remove")}),
		look.Facts(facts...), each,
	}
	if c.Generic {
		rows = append(rows, look.Marked(look.Careful, look.ShapeWarning, words.Say("cred.generic")))
	}
	for _, t := range c.Targets {
		if w := look.Host(look.HostOf(t)); w != nil {
			rows = append(rows, w)
		}
	}
	switch i.asking[c.Name] {
	case "rotate":
		rows = append(rows, i.rotating(c))
	case "remove":
		rows = append(rows, i.removing(c))
	case "bind":
		rows = append(rows, i.binding(c))
	}
	return look.NewPanel(look.Rows(2, rows...))
}

func (i *inside) back() fyne.CanvasObject {
	return look.Wide(90, 34, widget.NewButton(words.Say("again.back"), func() {
		if i.value != nil {
			i.value.Clear()
		}
		i.asking, i.value = map[string]string{}, nil
		i.draw()
	}))
}

func (i *inside) rotating(c api.Credential) fyne.CanvasObject {
	if i.value == nil {
		i.value = secretFor(c.Kind)
	}
	send := widget.NewButton(words.Say("cred.rotate_do"), func() {
		v := i.value.Take()
		i.change(func(ctx context.Context) error {
			return opened(v, func(b []byte) error { return i.v.cfg.Keeper.RotateCredential(ctx, c.Name, b) })
		}, words.Say("cred.rotated_done", "Name", c.Name))
	})
	return look.NewNotice(look.Working, look.ShapeKey, look.Rows(6, look.Body(words.Say("cred.rotate_means")), fieldWithFile(i.v, i.value, c.Kind), look.Line([]fyne.CanvasObject{i.back()}, []fyne.CanvasObject{look.Wide(120, 34, send)})))
}

func (i *inside) removing(c api.Credential) fyne.CanvasObject {
	remove := widget.NewButton(words.Say("cred.remove_do"), func() {
		i.change(func(ctx context.Context) error { return i.v.cfg.Credentials.RemoveCredential(ctx, c.Name) }, words.Say("cred.removed", "Name", c.Name))
	})
	remove.Importance = widget.DangerImportance
	text := words.Say("cred.remove_means")
	if len(c.UsedBy) > 0 {
		text += " " + words.Say("cred.remove_used", "Actions", strings.Join(c.UsedBy, ", "))
	}
	return look.NewNotice(look.Careful, look.ShapeWarning, look.Rows(6, look.Body(text), look.Line([]fyne.CanvasObject{i.back()}, []fyne.CanvasObject{look.Wide(120, 34, remove)})))
}

func (i *inside) binding(c api.Credential) fyne.CanvasObject {
	targets := widget.NewMultiLineEntry()
	targets.SetText(strings.Join(c.Targets, "\n"))
	targets.SetMinRowsVisible(3)
	problem := look.Plain("", look.Style{Color: look.Doubt})
	save := widget.NewButton(words.Say("cred.bind_do"), nil)
	judge := func(string) {
		list := lines(targets.Text)
		text := judgeTargets(c.Kind, list, false)
		problem.Set(look.Run{Text: text, Style: look.Style{Color: look.Doubt}})
		if text == "" {
			save.Enable()
		} else {
			save.Disable()
		}
	}
	targets.OnChanged = judge
	judge("")
	save.OnTapped = func() {
		list := lines(targets.Text)
		i.change(func(ctx context.Context) error {
			return i.v.cfg.Credentials.ChangeCredential(ctx, c.Name, api.CredentialChange{Targets: list})
		}, words.Say("cred.bound", "Name", c.Name))
	}
	return look.NewNotice(look.Working, look.ShapeKey, look.Rows(6, look.Body(words.Say("cred.bind_means")), targets, problem, look.Line([]fyne.CanvasObject{i.back()}, []fyne.CanvasObject{look.Wide(120, 34, save)})))
}

func lines(s string) []string {
	var list []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}
