package look

import (
	"image/color"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"
)

// Sheet is the form of a question: what is asked stands still at the top, what can be answered stands still at the bottom, and everything else scrolls in between.
type Sheet struct {
	widget.BaseWidget
	head, body, foot *fyne.Container
	scroll           *container.Scroll
	middle           fyne.CanvasObject
}

// SheetWidth is how wide the text of a sheet gets at most.
const SheetWidth = 860

// Init makes the sheet ready, as a part of the widget that embeds it.
func (s *Sheet) Init(whole fyne.Widget) {
	s.head, s.body, s.foot = Rows(4), Rows(12), Rows(8)
	s.middle, s.scroll = Scrolled(Inset(18, 12, Column(SheetWidth, s.body)))
	s.ExtendBaseWidget(whole)
}

// Set replaces what is shown; a nil list leaves that part as it is. The scroll goes to the top when the body is replaced.
func (s *Sheet) Set(head, body, foot []fyne.CanvasObject) {
	for _, part := range []struct {
		into *fyne.Container
		list []fyne.CanvasObject
	}{{s.head, head}, {s.body, body}, {s.foot, foot}} {
		if part.list == nil {
			continue
		}
		part.into.Objects = part.into.Objects[:0]
		for _, o := range part.list {
			if o != nil {
				part.into.Objects = append(part.into.Objects, o)
			}
		}
	}
	if body != nil {
		s.scroll.Offset = fyne.Position{}
	}
	s.Refresh()
}

// CreateRenderer implements fyne.Widget.
func (s *Sheet) CreateRenderer() fyne.WidgetRenderer {
	r := &sheetRenderer{s: s, top: canvas.NewRectangle(color.Transparent), bottom: canvas.NewRectangle(color.Transparent), line1: canvas.NewRectangle(color.Transparent), line2: canvas.NewRectangle(color.Transparent)}
	r.head, r.foot = Inset(18, 12, Column(SheetWidth, s.head)), Inset(18, 10, Column(SheetWidth, s.foot))
	r.paint()
	return r
}

type sheetRenderer struct {
	s                         *Sheet
	top, bottom, line1, line2 *canvas.Rectangle
	head, foot                fyne.CanvasObject
}

func (r *sheetRenderer) paint() {
	r.top.FillColor, r.bottom.FillColor = theme.Color(Surface), theme.Color(Surface)
	r.line1.FillColor, r.line2.FillColor = theme.Color(theme.ColorNameSeparator), theme.Color(theme.ColorNameSeparator)
	empty := len(r.s.foot.Objects) == 0
	r.bottom.Hidden, r.line2.Hidden = empty, empty
}

func (r *sheetRenderer) Layout(size fyne.Size) {
	h := settle(r.head, size.Width)
	f := float32(0)
	if len(r.s.foot.Objects) > 0 {
		f = settle(r.foot, size.Width)
	}
	// A heading that would not leave room for anything else gives way: the answers stay reachable at any size.
	h = min(h, max(0, size.Height-f-80))
	set := func(o fyne.CanvasObject, y, height float32) {
		o.Move(fyne.NewPos(0, y))
		o.Resize(fyne.NewSize(size.Width, max(0, height)))
	}
	set(r.top, 0, h)
	set(r.head, 0, h)
	set(r.line1, h, 1)
	set(r.s.middle, h+1, size.Height-h-f-2)
	set(r.line2, size.Height-f-1, 1)
	set(r.bottom, size.Height-f, f)
	set(r.foot, size.Height-f, f)
}

func (r *sheetRenderer) MinSize() fyne.Size { return fyne.NewSize(360, 240) }

func (r *sheetRenderer) Refresh() {
	r.paint()
	r.Layout(r.s.Size())
	for _, o := range r.Objects() {
		o.Refresh()
	}
}

func (r *sheetRenderer) Objects() []fyne.CanvasObject {
	return []fyne.CanvasObject{r.s.middle, r.top, r.line1, r.head, r.bottom, r.line2, r.foot}
}

func (r *sheetRenderer) Destroy() {}
