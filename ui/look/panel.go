package look

import (
	"image/color"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"
)

// Panel is content on a surface with a quiet border.
type Panel struct {
	widget.BaseWidget
	content fyne.CanvasObject
	fill    fyne.ThemeColorName
	border  fyne.ThemeColorName
	edge    fyne.ThemeColorName // a thick left edge; empty for none
	pad     float32
}

// NewPanel puts content on a surface.
func NewPanel(content fyne.CanvasObject) *Panel {
	return newPanel(content, Surface, theme.ColorNameSeparator, "", 10)
}

// NewSunken puts what is quoted on a darker ground.
func NewSunken(content fyne.CanvasObject) *Panel {
	return newPanel(content, Sunken, theme.ColorNameSeparator, "", 6)
}

func newPanel(content fyne.CanvasObject, fill, border, edge fyne.ThemeColorName, pad float32) *Panel {
	p := &Panel{content: content, fill: fill, border: border, edge: edge, pad: pad}
	p.ExtendBaseWidget(p)
	return p
}

// CreateRenderer implements fyne.Widget.
func (p *Panel) CreateRenderer() fyne.WidgetRenderer {
	r := &panelRenderer{p: p, back: canvas.NewRectangle(color.Transparent), edge: canvas.NewRectangle(color.Transparent)}
	r.back.CornerRadius, r.back.StrokeWidth = 8, 1
	r.edge.CornerRadius = 2
	r.paint()
	return r
}

type panelRenderer struct {
	p          *Panel
	back, edge *canvas.Rectangle
}

func (r *panelRenderer) paint() {
	r.back.FillColor, r.back.StrokeColor = theme.Color(r.p.fill), theme.Color(r.p.border)
	r.edge.Hidden = r.p.edge == ""
	if r.p.edge != "" {
		r.edge.FillColor = theme.Color(r.p.edge)
	}
}

func (r *panelRenderer) inset() (left, other float32) {
	if r.p.edge != "" {
		return r.p.pad + 6, r.p.pad
	}
	return r.p.pad, r.p.pad
}

func (r *panelRenderer) Layout(s fyne.Size) {
	left, pad := r.inset()
	r.back.Resize(s)
	r.edge.Move(fyne.NewPos(5, 6))
	r.edge.Resize(fyne.NewSize(4, max(0, s.Height-12)))
	r.p.content.Move(fyne.NewPos(left, pad))
	r.p.content.Resize(fyne.NewSize(max(0, s.Width-left-pad), max(0, s.Height-2*pad)))
}

func (r *panelRenderer) MinSize() fyne.Size {
	left, pad := r.inset()
	return r.p.content.MinSize().Add(fyne.NewSize(left+pad, 2*pad))
}

func (r *panelRenderer) Refresh() {
	r.paint()
	r.back.Refresh()
	r.edge.Refresh()
	r.Layout(r.p.Size())
	r.p.content.Refresh()
}

func (r *panelRenderer) Objects() []fyne.CanvasObject {
	return []fyne.CanvasObject{r.back, r.edge, r.p.content}
}

func (r *panelRenderer) Destroy() {}

// Tone says how something is to be taken.
type Tone int

// The tones.
const (
	Calm Tone = iota
	Fine
	Careful
	Wrong
	Working
)

func (t Tone) colors() (text, back fyne.ThemeColorName) {
	switch t {
	case Fine:
		return Good, GoodBack
	case Careful:
		return Doubt, DoubtBack
	case Wrong:
		return Bad, BadBack
	case Working:
		return Busy, BusyBack
	}
	return Muted, Sunken
}

// Color is the colour of text in this tone.
func (t Tone) Color() fyne.ThemeColorName {
	c, _ := t.colors()
	return c
}

// NewNotice is content that has to be taken in a certain way: a shape, a coloured edge and the words.
func NewNotice(t Tone, shape Shape, content fyne.CanvasObject) *Panel {
	text, back := t.colors()
	icon := shape.icon(text)
	return newPanel(leading(icon, content), back, back, text, 8)
}

// leading puts a small picture before content, at the height of its first line.
func leading(icon fyne.CanvasObject, content fyne.CanvasObject) fyne.CanvasObject {
	return &fyne.Container{Layout: leadingLayout{}, Objects: []fyne.CanvasObject{icon, content}}
}

type leadingLayout struct{}

const iconSize = 20

func (leadingLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	o[0].Resize(fyne.NewSquareSize(iconSize))
	first := theme.TextSize() + 2*theme.InnerPadding()
	o[0].Move(fyne.NewPos(0, max(0, (min(first+3, s.Height)-iconSize)/2)))
	o[1].Move(fyne.NewPos(iconSize+2, 0))
	o[1].Resize(fyne.NewSize(max(0, s.Width-iconSize-2), s.Height))
}

func (leadingLayout) MinSize(o []fyne.CanvasObject) fyne.Size {
	m := o[1].MinSize()
	return fyne.NewSize(m.Width+iconSize+2, max(m.Height, iconSize))
}
