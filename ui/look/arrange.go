package look

import (
	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/container"
	"fyne.io/fyne/v2/theme"
)

// settle gives o a width and returns the height that it wants with it: a text that wraps knows that only once it has its width.
func settle(o fyne.CanvasObject, width float32) float32 {
	h := o.MinSize().Height
	o.Resize(fyne.NewSize(width, h))
	if after := o.MinSize().Height; after != h {
		h = after
		o.Resize(fyne.NewSize(width, h))
	}
	return h
}

// Rows stacks what is given with a gap in between. Unlike a VBox it is right at the first layout for texts that wrap.
func Rows(gap float32, list ...fyne.CanvasObject) *fyne.Container {
	shown := make([]fyne.CanvasObject, 0, len(list))
	for _, o := range list {
		if o != nil {
			shown = append(shown, o)
		}
	}
	return container.New(rowLayout(gap), shown...)
}

type rowLayout float32

func (l rowLayout) Layout(list []fyne.CanvasObject, s fyne.Size) {
	y := float32(0)
	for _, o := range list {
		if !o.Visible() {
			continue
		}
		h := settle(o, s.Width)
		o.Move(fyne.NewPos(0, y))
		y += h + float32(l)
	}
}

func (l rowLayout) MinSize(list []fyne.CanvasObject) fyne.Size {
	var m fyne.Size
	for _, o := range list {
		if !o.Visible() {
			continue
		}
		s := o.MinSize()
		if m.Height > 0 {
			m.Height += float32(l)
		}
		m.Width, m.Height = max(m.Width, s.Width), m.Height+s.Height
	}
	return m
}

// Scrolled scrolls content up and down. The content has its height by its width from the first layout on.
func Scrolled(content fyne.CanvasObject) (outer fyne.CanvasObject, scroll *container.Scroll) {
	scroll = container.NewVScroll(content)
	return container.New(scrolledLayout{content}, scroll), scroll
}

type scrolledLayout struct{ content fyne.CanvasObject }

func (l scrolledLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	settle(l.content, s.Width)
	o[0].Move(fyne.Position{})
	o[0].Resize(s)
	o[0].Refresh()
}
func (scrolledLayout) MinSize(o []fyne.CanvasObject) fyne.Size { return o[0].MinSize() }

// Inset leaves room around content.
func Inset(x, y float32, o fyne.CanvasObject) fyne.CanvasObject {
	return container.New(insetLayout{x, y}, o)
}

type insetLayout struct{ x, y float32 }

func (l insetLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	o[0].Move(fyne.NewPos(l.x, l.y))
	o[0].Resize(fyne.NewSize(max(0, s.Width-2*l.x), max(0, s.Height-2*l.y)))
}

func (l insetLayout) MinSize(o []fyne.CanvasObject) fyne.Size {
	return o[0].MinSize().Add(fyne.NewSize(2*l.x, 2*l.y))
}

// Line puts things side by side: the ones before the gap at the left, the others at the right. Where there is no room they go into a second line.
func Line(left, right []fyne.CanvasObject) *fyne.Container {
	return container.New(&lineLayout{left: len(left)}, append(append([]fyne.CanvasObject{}, left...), right...)...)
}

type lineLayout struct {
	left  int
	width float32 // of the last layout
}

const lineGap = 8

func (l *lineLayout) parts(o []fyne.CanvasObject) (a, b []fyne.CanvasObject) {
	return o[:l.left], o[l.left:]
}

func natural(list []fyne.CanvasObject) fyne.Size {
	var m fyne.Size
	for _, o := range list {
		if !o.Visible() {
			continue
		}
		if m.Width > 0 {
			m.Width += lineGap
		}
		s := o.MinSize()
		m.Width, m.Height = m.Width+s.Width, max(m.Height, s.Height)
	}
	return m
}

// place puts things side by side; the last one gives way where there is no room for all.
func place(list []fyne.CanvasObject, x, y, h, end float32) {
	for _, o := range list {
		if !o.Visible() {
			continue
		}
		s := o.MinSize()
		s.Width = min(s.Width, max(0, end-x))
		o.Move(fyne.NewPos(x, y+(h-s.Height)/2))
		o.Resize(s)
		x += s.Width + lineGap
	}
}

func (l *lineLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	l.width = s.Width
	a, b := l.parts(o)
	na, nb := natural(a), natural(b)
	if na.Width+nb.Width+lineGap <= s.Width {
		place(a, 0, 0, s.Height, s.Width)
		place(b, s.Width-nb.Width, 0, s.Height, s.Width)
		return
	}
	place(a, 0, 0, na.Height, s.Width)
	place(b, max(0, s.Width-nb.Width), na.Height+lineGap/2, nb.Height, s.Width)
}

func (l *lineLayout) MinSize(o []fyne.CanvasObject) fyne.Size {
	a, b := l.parts(o)
	na, nb := natural(a), natural(b)
	if l.width > 0 && na.Width+nb.Width+lineGap > l.width && na.Width > 0 && nb.Width > 0 {
		return fyne.NewSize(120, na.Height+nb.Height+lineGap/2)
	}
	return fyne.NewSize(120, max(na.Height, nb.Height))
}

// Wide gives its only content a width of at least w and, if h is not 0, a height of at least h.
func Wide(w, h float32, o fyne.CanvasObject) fyne.CanvasObject {
	return &fyne.Container{Layout: leastLayout{fyne.NewSize(w, h)}, Objects: []fyne.CanvasObject{o}}
}

type leastLayout struct{ least fyne.Size }

func (l leastLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	o[0].Move(fyne.Position{})
	o[0].Resize(s)
}
func (l leastLayout) MinSize(o []fyne.CanvasObject) fyne.Size { return l.least.Max(o[0].MinSize()) }

// Column keeps text at a width that can be read, in the middle of what is wider.
func Column(width float32, o fyne.CanvasObject) fyne.CanvasObject {
	return &fyne.Container{Layout: columnLayout(width), Objects: []fyne.CanvasObject{o}}
}

type columnLayout float32

func (l columnLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	w := min(s.Width, float32(l))
	o[0].Move(fyne.NewPos((s.Width-w)/2, 0))
	settle(o[0], w)
}
func (l columnLayout) MinSize(o []fyne.CanvasObject) fyne.Size { return o[0].MinSize() }

// Fact is one thing that is known, by its name.
type Fact struct {
	Name  string
	Value fyne.CanvasObject
}

// Facts lists what is known in two columns, or one below the other where that is too narrow.
func Facts(list ...Fact) *fyne.Container {
	var objects []fyne.CanvasObject
	for _, f := range list {
		objects = append(objects, Plain(f.Name, Style{Color: Muted}), f.Value)
	}
	return container.New(&factLayout{}, objects...)
}

// Form lists fields by their names, as Facts does with texts, and leaves room between them.
func Form(list ...Fact) *fyne.Container {
	c := Facts(list...)
	c.Layout = &factLayout{gap: 8}
	return c
}

type factLayout struct{ width, gap float32 }

const (
	factName  = 150
	factLeast = 440 // below this width the name stands above the value
)

func (l *factLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	l.width = s.Width
	y := float32(0)
	for i := 0; i+1 < len(o); i += 2 {
		name, value := o[i], o[i+1]
		if s.Width < factLeast {
			h := settle(name, s.Width)
			name.Move(fyne.NewPos(0, y))
			y += h - theme.InnerPadding()
			h = settle(value, s.Width)
			value.Move(fyne.NewPos(0, y))
			y += h + l.gap
			continue
		}
		h := max(settle(name, factName), settle(value, s.Width-factName))
		name.Move(fyne.NewPos(0, y))
		value.Move(fyne.NewPos(factName, y))
		y += h + l.gap
	}
}

func (l *factLayout) MinSize(o []fyne.CanvasObject) fyne.Size {
	var m fyne.Size
	for i := 0; i+1 < len(o); i += 2 {
		name, value := o[i].MinSize(), o[i+1].MinSize()
		m.Width = max(m.Width, name.Width, value.Width)
		if i > 0 {
			m.Height += l.gap
		}
		if l.width > 0 && l.width < factLeast {
			m.Height += name.Height - theme.InnerPadding() + value.Height
		} else {
			m.Height += max(name.Height, value.Height)
		}
	}
	return m
}

// Wrap puts things side by side, and in further lines where there is no room.
func Wrap(list ...fyne.CanvasObject) *fyne.Container { return container.New(&wrapLayout{}, list...) }

type wrapLayout struct{ width float32 }

func (l *wrapLayout) each(o []fyne.CanvasObject, f func(o fyne.CanvasObject, x, y float32, s fyne.Size)) (height float32) {
	var x, y, row float32
	for _, o := range o {
		s := o.MinSize()
		if x > 0 && l.width > 0 && x+s.Width > l.width {
			x, y, row = 0, y+row+4, 0
		}
		f(o, x, y, s)
		x, row = x+s.Width+lineGap, max(row, s.Height)
	}
	return y + row
}

func (l *wrapLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	l.width = s.Width
	l.each(o, func(o fyne.CanvasObject, x, y float32, s fyne.Size) {
		o.Move(fyne.NewPos(x, y))
		o.Resize(s)
	})
}

func (l *wrapLayout) MinSize(o []fyne.CanvasObject) fyne.Size {
	return fyne.NewSize(120, l.each(o, func(fyne.CanvasObject, float32, float32, fyne.Size) {}))
}

// Beside gives a list a part of the width and the rest to what is looked at.
func Beside(list, face fyne.CanvasObject) *fyne.Container {
	return container.New(besideLayout{}, list, face)
}

type besideLayout struct{}

func (besideLayout) Layout(o []fyne.CanvasObject, s fyne.Size) {
	w := min(270, s.Width*0.36)
	o[0].Move(fyne.Position{})
	o[0].Resize(fyne.NewSize(w, s.Height))
	o[1].Move(fyne.NewPos(w+1, 0))
	o[1].Resize(fyne.NewSize(s.Width-w-1, s.Height))
}

func (besideLayout) MinSize(o []fyne.CanvasObject) fyne.Size {
	m := o[1].MinSize()
	return fyne.NewSize(m.Width+180, m.Height)
}
