package look

import (
	"fmt"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"
)

// Outcome is what a call came to, in the few kinds that a picture can hold.
type Outcome int

// The outcomes, in the order in which a bar is built up.
const (
	OutcomeDone    Outcome = iota // it happened
	OutcomeBusy                   // under way, or it waits
	OutcomeNothing                // nothing was sent or done
	OutcomeFailed                 // the target answered with an error, or it was refused
	OutcomeUnknown                // nobody knows
	outcomes
)

// OutcomeOf sorts a record's state and outcome.
func OutcomeOf(state, outcome string) Outcome {
	switch state {
	case "completed_result_not_delivered", "completed_result_delivered":
		if outcome == "target_error" {
			return OutcomeFailed
		}
		return OutcomeDone
	case "unknown":
		return OutcomeUnknown
	case "accepted", "authorized", "dispatched":
		return OutcomeBusy
	case "rejected":
		return OutcomeFailed
	}
	return OutcomeNothing
}

// Day counts the calls of each hour of a day by what they came to.
type Day [24][outcomes]int

// Add counts a call.
func (d *Day) Add(at time.Time, o Outcome) { d[at.Local().Hour()][o]++ }

// Chart draws the calls of a day: a bar for each hour. What is unknown stands on top, in a colour of its own, with its number.
type Chart struct {
	widget.BaseWidget
	day Day
}

// NewChart returns a chart of a day without calls.
func NewChart() *Chart {
	c := &Chart{}
	c.ExtendBaseWidget(c)
	return c
}

// Set draws another day.
func (c *Chart) Set(d Day) {
	if c.day == d {
		return
	}
	c.day = d
	c.Refresh()
}

// CreateRenderer implements fyne.Widget.
func (c *Chart) CreateRenderer() fyne.WidgetRenderer { return &chartRenderer{c: c} }

type chartRenderer struct {
	c       *Chart
	objects []fyne.CanvasObject
}

func (r *chartRenderer) MinSize() fyne.Size { return fyne.NewSize(240, 84) }

func (r *chartRenderer) Layout(s fyne.Size) {
	r.objects = r.objects[:0]
	small := theme.CaptionTextSize()
	text := func(t string, x, y float32, c fyne.ThemeColorName) {
		o := canvas.NewText(t, theme.Color(c))
		o.TextSize = small - 1
		w := o.MinSize().Width
		o.Move(fyne.NewPos(min(max(0, x-w/2), max(0, s.Width-w)), y))
		o.Resize(o.MinSize())
		r.objects = append(r.objects, o)
	}
	base := s.Height - small - 6
	top := small + 4
	step := s.Width / 24
	most := 1
	for _, hour := range r.c.day {
		n := 0
		for _, count := range hour {
			n += count
		}
		most = max(most, n)
	}
	line := canvas.NewRectangle(theme.Color(theme.ColorNameSeparator))
	line.Move(fyne.NewPos(0, base))
	line.Resize(fyne.NewSize(s.Width, 1))
	r.objects = append(r.objects, line)
	colors := [outcomes]fyne.ThemeColorName{Good, Busy, theme.ColorNameInputBorder, Bad, Doubt}
	for h, hour := range r.c.day {
		y, total := base, 0
		x := float32(h) * step
		for o, n := range hour {
			if n == 0 {
				continue
			}
			total += n
			height := max(2, (base-top)*float32(n)/float32(most))
			bar := canvas.NewRectangle(theme.Color(colors[o]))
			y -= height
			bar.Move(fyne.NewPos(x+step*0.15, y))
			bar.Resize(fyne.NewSize(step*0.7, height))
			r.objects = append(r.objects, bar)
		}
		if total > 0 {
			c := Muted
			if hour[OutcomeUnknown] > 0 {
				c = Doubt
			}
			text(fmt.Sprint(total), x+step/2, y-small-2, c)
		}
		if h%6 == 0 {
			text(fmt.Sprintf("%02d:00", h), x+step/2, base+2, Muted)
		}
	}
}

func (r *chartRenderer) Refresh() {
	r.Layout(r.c.Size())
	canvas.Refresh(r.c)
}

func (r *chartRenderer) Objects() []fyne.CanvasObject { return r.objects }
func (r *chartRenderer) Destroy()                     {}

// Legend names the colours of the chart.
func Legend(names [5]string) fyne.CanvasObject {
	colors := [outcomes]Tone{Fine, Working, Calm, Wrong, Careful}
	shapes := [outcomes]Shape{ShapeDone, ShapeSent, ShapeNothing, ShapeFailed, ShapeUnknown}
	var list []fyne.CanvasObject
	for i, n := range names {
		c, _ := colors[i].colors()
		list = append(list, leading(shapes[i].icon(c), Label(n, Style{Color: Muted, Size: theme.SizeNameCaptionText})))
	}
	return Wrap(list...)
}
