package activity

import (
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
)

// row is one execution in the list: how it stands, what it was, and when.
type row struct {
	widget.BaseWidget
	icon                *look.Icon
	title, state, where *look.Text
	at                  *look.Text
	shown               api.Record // what was drawn last; a row that did not change costs nothing
	chosen              bool
	day                 int
	first               *fyne.Container
}

func newRow() *row {
	r := &row{icon: look.NewIcon(), title: look.Short("", look.Style{}), state: look.Short("", look.Style{}), where: look.Short("", look.Style{}), at: look.Label("", look.Style{})}
	r.first = container.NewBorder(nil, nil, nil, r.at, r.title)
	r.ExtendBaseWidget(r)
	return r
}

func (r *row) set(x api.Record, now time.Time, chosen bool) {
	if r.shown.ExecutionID == x.ExecutionID && r.shown.State == x.State && r.shown.Outcome == x.Outcome && r.chosen == chosen && r.day == now.YearDay() {
		return
	}
	before := r.at.String()
	r.shown, r.chosen, r.day = x, chosen, now.YearDay()
	tone, shape, word := look.State(x)
	small := theme.SizeNameCaptionText
	r.icon.Set(shape, tone)
	r.title.Set(look.Run{Text: look.Brief(x.Tool, 60), Style: look.Style{Bold: true}})
	r.at.Set(look.Run{Text: look.Clock(x.AcceptedAt, now), Style: look.Style{Color: look.Muted, Size: small}})
	r.state.Set(look.Run{Text: word, Style: look.Style{Size: small, Color: tone.Color()}}, look.Run{Text: "  " + look.Brief(look.HostOf(x.Target), 60), Style: look.Style{Size: small, Color: look.Muted}})
	if len(before) != len(r.at.String()) {
		r.first.Refresh() // the time takes another room now
	}
}

// CreateRenderer implements fyne.Widget.
func (r *row) CreateRenderer() fyne.WidgetRenderer {
	return widget.NewSimpleRenderer(container.NewBorder(nil, nil, look.Inset(6, 8, r.icon), nil, look.Rows(-9, r.first, r.state)))
}

// topLayout gives the first its height and the second the rest.
type topLayout struct{}

func (topLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	o[0].Resize(fyne.NewSize(s.Width, o[0].MinSize().Height))
	h := o[0].MinSize().Height
	o[0].Resize(fyne.NewSize(s.Width, h))
	o[1].Move(fyne.NewPos(0, h))
	o[1].Resize(fyne.NewSize(s.Width, max(0, s.Height-h)))
}

func (topLayout) MinSize(o []fyne.CanvasObject) fyne.Size {
	a, b := o[0].MinSize(), o[1].MinSize()
	return fyne.NewSize(max(a.Width, b.Width), a.Height+b.Height)
}

// halves puts the list beside the record, where there is room for both.
type halves struct{}

func (halves) Layout(o []fyne.CanvasObject, s fyne.Size) {
	w := max(300, min(440, s.Width*0.42))
	o[0].Move(fyne.Position{})
	o[0].Resize(fyne.NewSize(w, s.Height))
	o[1].Move(fyne.NewPos(w+1, 0))
	o[1].Resize(fyne.NewSize(max(0, s.Width-w-1), s.Height))
}

func (halves) MinSize(o []fyne.CanvasObject) fyne.Size { return fyne.NewSize(620, 400) }
