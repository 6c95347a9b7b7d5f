package look

import (
	"image/color"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"
)

// Icon is a shape that can be changed, for the rows of a list.
type Icon struct {
	widget.BaseWidget
	image *canvas.Image
	shape Shape
	tone  Tone
}

// NewIcon returns an icon that shows nothing yet.
func NewIcon() *Icon {
	i := &Icon{image: canvas.NewImageFromResource(nil)}
	i.image.FillMode = canvas.ImageFillContain
	i.image.SetMinSize(fyne.NewSquareSize(iconSize))
	i.ExtendBaseWidget(i)
	return i
}

// Set changes the shape.
func (i *Icon) Set(s Shape, t Tone) {
	if i.shape == s && i.tone == t && i.image.Resource != nil {
		return
	}
	i.shape, i.tone = s, t
	i.Refresh()
}

// Refresh draws the shape in the colours of the present theme.
func (i *Icon) Refresh() {
	if i.shape != "" {
		c, _ := i.tone.colors()
		i.image.Resource = i.shape.Resource(c)
		i.image.Refresh()
	}
	i.BaseWidget.Refresh()
}

// CreateRenderer implements fyne.Widget.
func (i *Icon) CreateRenderer() fyne.WidgetRenderer { return widget.NewSimpleRenderer(i.image) }

// Centered is a large shape in the middle of its row.
func Centered(s Shape, c fyne.ThemeColorName) fyne.CanvasObject {
	i := s.icon(c)
	i.SetMinSize(fyne.NewSquareSize(44))
	return container.NewCenter(i)
}

// Middle sets text in the middle of its row.
func Middle(t *Text) *Text {
	t.middle = true
	return t
}

// Ground puts content on a surface without a border, edge to edge.
func Ground(o fyne.CanvasObject) fyne.CanvasObject {
	g := &ground{content: o}
	g.ExtendBaseWidget(g)
	return g
}

type ground struct {
	widget.BaseWidget
	content fyne.CanvasObject
	back    *canvas.Rectangle
}

func (g *ground) CreateRenderer() fyne.WidgetRenderer {
	g.back = canvas.NewRectangle(color.Transparent)
	g.back.FillColor = theme.Color(Surface)
	return widget.NewSimpleRenderer(container.NewStack(g.back, g.content))
}

func (g *ground) Refresh() {
	if g.back != nil {
		g.back.FillColor = theme.Color(Surface)
	}
	g.BaseWidget.Refresh()
}
