package sessions

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

// UpdateGrants shows these standing grants, the newest first.
func (v *View) UpdateGrants(list []api.Grant) {
	v.grants = slices.Clone(list)
	slices.SortFunc(v.grants, func(a, b api.Grant) int { return strings.Compare(b.Grant, a.Grant) })
	v.draw()
}

// standing lists the standing grants, also that there is none.
func (v *View) standing() []fyne.CanvasObject {
	list := []fyne.CanvasObject{look.Heading(words.Say("grants.title")), look.Quiet(words.Say("grants.means"))}
	if len(v.grants) == 0 {
		return append(list, look.NewPanel(container.NewPadded(look.Quiet(words.Say("grants.none")))))
	}
	for _, g := range v.grants {
		list = append(list, v.grant(g))
	}
	return list
}

func (v *View) grant(g api.Grant) fyne.CanvasObject {
	now := v.cfg.Now()
	revoke := widget.NewButton(words.Say("sessions.revoke"), nil)
	revoke.OnTapped = func() {
		revoke.Disable()
		v.ending(revoke, func(ctx context.Context) error { return v.cfg.Daemon.RevokeGrant(ctx, g.Grant) }, v.Load)
	}
	tool := look.Brief(g.Tool, 60)
	covers := words.Say("grants.covers_action", "Tool", tool)
	if g.Scope == "arguments" {
		covers = words.Say("grants.covers_arguments", "Tool", tool, "Card", g.Card)
	}
	mono := look.Style{Mono: true}
	facts := []look.Fact{
		{Name: words.Say("sessions.covers"), Value: look.Body(covers)},
		{Name: words.Say("card.program"), Value: look.Rows(-6, look.Plain(g.Exe, mono), look.Plain(g.Actor, look.Style{Mono: true, Color: look.Muted}))},
		{Name: words.Say("grants.digest"), Value: look.Plain(g.Digest, look.Style{Mono: true, Color: look.Muted})},
		{Name: words.Say("grants.way"), Value: look.Plain(strings.Join(append([]string{g.Via}, g.Through...), ", "), mono)},
	}
	if len(g.Chain) > 0 {
		facts = append(facts, look.Fact{Name: words.Say("grants.started_by"), Value: look.Plain(strings.Join(g.Chain, ", "), mono)})
	}
	facts = append(facts,
		look.Fact{Name: words.Say("grants.given"), Value: look.Body(words.Say("sessions.at", "Time", look.Clock(g.At, now), "Ago", look.Ago(g.At, now)))},
		look.Fact{Name: words.Say("grants.until"), Value: look.Body(words.Say("sessions.at", "Time", look.Clock(g.Until, now), "Ago", look.Span(g.Until.Sub(now))))},
		look.Fact{Name: words.Say("grants.sessions"), Value: look.Body(words.Count("grants.now", len(g.Runs)))},
		look.Fact{Name: words.Say("grants.by"), Value: look.Plain(g.Grant, look.Style{Mono: true, Color: look.Muted})},
	)
	title := look.Label(look.Brief(look.Program(g.Actor), 40)+"  ·  "+tool, look.Style{Bold: true})
	return look.NewPanel(look.Rows(4, look.Line([]fyne.CanvasObject{title}, []fyne.CanvasObject{look.Wide(110, 34, revoke)}), look.Facts(facts...)))
}

// ending has the daemon end something, and says why where it could not.
func (v *View) ending(button *widget.Button, end func(ctx context.Context) error, ended func()) {
	v.work.Do(end, func(err error) {
		v.trouble = nil
		if err != nil {
			v.trouble = look.Trouble(err)
			button.Enable()
			v.draw()
			return
		}
		ended()
	})
}
