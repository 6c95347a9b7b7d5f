package look

import (
	"math"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/ui/words"
)

// Moment is one stage of an execution's life in the picture. One without a time was not reached.
type Moment struct {
	Name  string
	At    time.Time
	Shape Shape
	Tone  Tone
	Open  bool // not reached, but still possible
}

// Call is a call that came for the execution.
type Call struct {
	At     time.Time
	Number int
}

// Timeline draws moments from left to right, the longer the gap the longer the line, and above them the calls that came. Where there is no room for that it draws them downwards.
type Timeline struct {
	widget.BaseWidget
	moments []Moment
	calls   []Call
	width   float32
}

// NewTimeline draws the moments in the order given, and the calls by their times.
func NewTimeline(moments []Moment, calls []Call) *Timeline {
	t := &Timeline{moments: moments, calls: calls}
	t.ExtendBaseWidget(t)
	return t
}

// Set replaces what is drawn.
func (t *Timeline) Set(moments []Moment, calls []Call) {
	t.moments, t.calls = moments, calls
	t.Refresh()
}

// CreateRenderer implements fyne.Widget.
func (t *Timeline) CreateRenderer() fyne.WidgetRenderer {
	return &timelineRenderer{t: t}
}

type timelineRenderer struct {
	t       *Timeline
	objects []fyne.CanvasObject
}

const (
	node        = 26
	laneHeight  = 34 // the calls
	momentWidth = 104
	rowHeight   = 44
)

func (r *timelineRenderer) wide(width float32) bool {
	return width >= float32(len(r.t.moments))*momentWidth
}

func (r *timelineRenderer) lane() float32 {
	if len(r.t.calls) == 0 {
		return 0
	}
	return laneHeight
}

func (r *timelineRenderer) MinSize() fyne.Size {
	if r.t.width == 0 || r.wide(r.t.width) {
		return fyne.NewSize(220, r.lane()+node+2*(theme.TextSize()+6)+6)
	}
	return fyne.NewSize(220, float32(len(r.t.moments)+len(r.t.calls))*rowHeight)
}

func (r *timelineRenderer) Layout(s fyne.Size) {
	r.t.width = s.Width
	r.objects = r.objects[:0]
	if r.wide(s.Width) {
		r.across(s.Width)
	} else {
		r.down(s.Width)
	}
}

func (r *timelineRenderer) Refresh() {
	r.Layout(r.t.Size())
	canvas.Refresh(r.t)
}

func (r *timelineRenderer) Objects() []fyne.CanvasObject { return r.objects }
func (r *timelineRenderer) Destroy()                     {}

func (r *timelineRenderer) add(o ...fyne.CanvasObject) { r.objects = append(r.objects, o...) }

func (r *timelineRenderer) text(s string, size float32, c fyne.ThemeColorName, bold bool, center, y float32, width float32) {
	t := canvas.NewText(s, theme.Color(c))
	t.TextSize, t.TextStyle.Bold = size, bold
	w := t.MinSize().Width
	t.Move(fyne.NewPos(min(max(0, center-w/2), max(0, width-w)), y))
	t.Resize(t.MinSize())
	r.add(t)
}

func (r *timelineRenderer) line(x1, y1, x2, y2 float32, c fyne.ThemeColorName, dashed bool) {
	draw := func(ax, ay, bx, by float32) {
		l := canvas.NewLine(theme.Color(c))
		l.StrokeWidth = 2
		l.Position1, l.Position2 = fyne.NewPos(ax, ay), fyne.NewPos(bx, by)
		r.add(l)
	}
	if !dashed {
		draw(x1, y1, x2, y2)
		return
	}
	length := float32(math.Hypot(float64(x2-x1), float64(y2-y1)))
	for at := float32(0); at < length; at += 8 {
		end := min(at+4, length)
		draw(x1+(x2-x1)*at/length, y1+(y2-y1)*at/length, x1+(x2-x1)*end/length, y1+(y2-y1)*end/length)
	}
}

func (r *timelineRenderer) node(m Moment, x, y float32) {
	text, back := m.Tone.colors()
	disc := canvas.NewCircle(theme.Color(back))
	disc.StrokeWidth, disc.StrokeColor = 2, theme.Color(text)
	if m.At.IsZero() {
		disc.FillColor, disc.StrokeColor = theme.Color(Surface), theme.Color(theme.ColorNameInputBorder)
		if m.Open {
			disc.StrokeColor = theme.Color(text)
		}
	}
	disc.Resize(fyne.NewSquareSize(node))
	disc.Move(fyne.NewPos(x-node/2, y-node/2))
	r.add(disc)
	if m.At.IsZero() && !m.Open {
		return
	}
	icon := m.Shape.icon(text)
	icon.Resize(fyne.NewSquareSize(16))
	icon.Move(fyne.NewPos(x-8, y-8))
	r.add(icon)
}

// places says where the moments stand between 0 and width: each gap has its least width, and the rest is shared by the logarithm of the time that passed.
func (r *timelineRenderer) places(width float32) []float32 {
	n := len(r.t.moments)
	x := make([]float32, n)
	edge := float32(momentWidth) / 2
	x[0] = edge
	if n == 1 {
		return x
	}
	weights, total := make([]float32, n), float32(0)
	for i := 1; i < n; i++ {
		a, b := r.t.moments[i-1].At, r.t.moments[i].At
		weights[i] = 1
		if !a.IsZero() && !b.IsZero() {
			weights[i] = 1 + float32(math.Log10(1+math.Max(0, float64(b.Sub(a).Milliseconds()))))
		}
		total += weights[i]
	}
	least := float32(momentWidth)
	rest := max(0, width-2*edge-least*float32(n-1))
	for i := 1; i < n; i++ {
		x[i] = x[i-1] + least + rest*weights[i]/total
	}
	return x
}

func (r *timelineRenderer) across(width float32) {
	x := r.places(width)
	y := r.lane() + float32(node)/2 + 2
	small := theme.CaptionTextSize()
	for i, m := range r.t.moments {
		if i > 0 {
			before := r.t.moments[i-1]
			reached := !before.At.IsZero() && !m.At.IsZero()
			c := theme.ColorNameInputBorder
			if reached {
				c = Muted
			}
			r.line(x[i-1]+node/2+3, y, x[i]-node/2-3, y, c, !reached)
			if reached {
				r.text(Gap(m.At.Sub(before.At)), small, Muted, false, (x[i-1]+x[i])/2, y-small-7, width)
			}
		}
		r.node(m, x[i], y)
		c, bold := Muted, false
		if !m.At.IsZero() || m.Open {
			c, bold = theme.ColorNameForeground, true
		}
		r.text(m.Name, small, c, bold, x[i], y+node/2+4, width)
		at := "–"
		if !m.At.IsZero() {
			at = ClockMS(m.At)
		}
		r.text(at, small, Muted, false, x[i], y+node/2+6+small*1.35, width)
	}
	r.lanes(x, width)
}

// lanes draws the calls above the line, each where its time belongs; those that would overlap share an arrow.
func (r *timelineRenderer) lanes(x []float32, width float32) {
	type group struct {
		at          float32
		first, last int
		time        time.Time
	}
	var groups []group
	for _, c := range r.t.calls {
		at := r.position(c.At, x, width)
		if n := len(groups); n > 0 && at-groups[n-1].at < 66 {
			groups[n-1].last = c.Number
			continue
		}
		groups = append(groups, group{at, c.Number, c.Number, c.At})
	}
	for _, g := range groups {
		label := words.Say("timeline.call", "N", g.first)
		if g.last != g.first {
			label = words.Say("timeline.calls", "From", g.first, "To", g.last)
		}
		small := theme.CaptionTextSize()
		r.text(label, small, Busy, true, g.at, 0, width)
		r.line(g.at, small+5, g.at, laneHeight-5, Busy, false)
		r.line(g.at-4, laneHeight-9, g.at, laneHeight-5, Busy, false)
		r.line(g.at+4, laneHeight-9, g.at, laneHeight-5, Busy, false)
	}
}

// position says where a time lies in the picture.
func (r *timelineRenderer) position(at time.Time, x []float32, width float32) float32 {
	last := -1
	for i, m := range r.t.moments {
		if m.At.IsZero() {
			continue
		}
		if at.Before(m.At) {
			if last < 0 {
				return x[i]
			}
			from, to := r.t.moments[last].At, m.At
			return x[last] + (x[i]-x[last])*float32(at.Sub(from).Seconds()/to.Sub(from).Seconds())
		}
		last = i
	}
	switch {
	case last < 0:
		return x[0]
	case at.Equal(r.t.moments[last].At):
		return x[last]
	case last+1 < len(x):
		return (x[last] + x[last+1]) / 2
	}
	return min(width-24, x[last]+momentWidth/2)
}

// down draws everything in the order of time, one below the other.
func (r *timelineRenderer) down(width float32) {
	x, y := float32(node)/2+2, float32(rowHeight)/2
	var before time.Time
	row := func(shape func(), name, at, gap string, c fyne.ThemeColorName, line bool) {
		if line {
			r.line(x, y-rowHeight+node/2+3, x, y-node/2-3, theme.ColorNameInputBorder, at == "–")
		}
		shape()
		t := canvas.NewText(name, theme.Color(c))
		t.TextStyle.Bold = true
		t.Move(fyne.NewPos(node+12, y-theme.TextSize()-3))
		t.Resize(t.MinSize())
		u := canvas.NewText(at, theme.Color(Muted))
		if gap != "" {
			u.Text += "   " + gap
		}
		u.TextSize = theme.CaptionTextSize()
		u.Move(fyne.NewPos(node+12, y+1))
		u.Resize(u.MinSize())
		r.add(t, u)
		y += rowHeight
	}
	calls := r.t.calls
	first := true
	for _, m := range r.t.moments {
		for len(calls) > 0 && (m.At.IsZero() || calls[0].At.Before(m.At)) {
			c := calls[0]
			row(func() {
				r.line(x-8, y, x+6, y, Busy, false)
				r.line(x+1, y-5, x+6, y, Busy, false)
				r.line(x+1, y+5, x+6, y, Busy, false)
			}, words.Say("timeline.call", "N", c.Number), ClockMS(c.At), "", Busy, !first)
			calls, first = calls[1:], false
		}
		at, gap, c := "–", "", Muted
		if !m.At.IsZero() {
			at, c = ClockMS(m.At), theme.ColorNameForeground
			if !before.IsZero() {
				gap = Gap(m.At.Sub(before))
			}
			before = m.At
		}
		row(func() { r.node(m, x, y) }, m.Name, at, gap, c, !first)
		first = false
	}
	for _, c := range calls {
		row(func() { r.line(x-8, y, x+6, y, Busy, false) }, words.Say("timeline.call", "N", c.Number), ClockMS(c.At), "", Busy, true)
	}
}
