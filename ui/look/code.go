package look

import (
	"image/color"
	"strconv"
	"strings"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"
	"golang.org/x/text/width"

	"singlepass.dev/daemon/visible"
)

// Code shows text exactly, in letters of one width, with the number of each line, however long it is: only the rows on the screen exist as objects. A line that is too wide goes on in the next
// row, without a number. What hides or reorders is drawn as an escape in a colour of its own.
type Code struct {
	widget.BaseWidget
	text  string
	find  string
	rows  []codeRow
	cols  int
	hits  []int // rows with what is looked for
	hit   int
	most  int // rows that are shown at once
	diff  bool
	list  *widget.List
	still []*codeLine // where all rows have room: no list, so that the wheel scrolls what is around
}

type codeRow struct {
	number int // 0: it goes on
	tone   Tone
	parts  []visible.Part
}

// NewCode shows at most so many rows at once; the others are reached by scrolling.
func NewCode(text string, most int) *Code {
	c := &Code{text: text, most: most}
	c.ExtendBaseWidget(c)
	return c
}

// NewDiff shows a unified difference: what is new and what is gone in their colours, which the + and - before them say as well.
func NewDiff(text string, most int) *Code {
	c := NewCode(text, most)
	c.diff = true
	return c
}

func (c *Code) toneOf(line string) Tone {
	switch {
	case !c.diff || line == "":
	case line[0] == '+':
		return Fine
	case line[0] == '-':
		return Wrong
	case line[0] == '@':
		return Working
	}
	return Calm
}

// SetText replaces the text.
func (c *Code) SetText(text string) {
	if c.text == text {
		return
	}
	c.text = text
	c.wrap()
	c.Refresh()
}

// Find marks a text wherever it stands, case aside, shows the first place, and returns in how many rows it is.
func (c *Code) Find(text string) int {
	c.find, c.hit = strings.ToLower(text), 0
	c.mark()
	c.show()
	c.Refresh()
	return len(c.hits)
}

// Next shows the next place of what is looked for.
func (c *Code) Next() {
	if len(c.hits) > 0 {
		c.hit = (c.hit + 1) % len(c.hits)
		c.show()
		c.Refresh()
	}
}

// String is the text as it is shown.
func (c *Code) String() string { return visible.Text(c.text) }

// Rows is how many rows there are at the present width.
func (c *Code) Rows() int { return len(c.rows) }

func (c *Code) mark() {
	c.hits = c.hits[:0]
	if c.find == "" {
		return
	}
	for i, r := range c.rows {
		var b strings.Builder
		for _, p := range r.parts {
			b.WriteString(p.Text)
		}
		if strings.Contains(strings.ToLower(b.String()), c.find) {
			c.hits = append(c.hits, i)
		}
	}
}

func (c *Code) show() {
	if c.list != nil && len(c.hits) > 0 {
		c.list.ScrollTo(c.hits[c.hit])
	}
}

const codeGutter = 5 // columns for the number

// wrap cuts the text into rows of at most cols columns.
func (c *Code) wrap() {
	c.rows = c.rows[:0]
	if c.cols < 1 {
		return
	}
	number := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(strings.ReplaceAll(c.text, "\t", "    "), "\n"), "\n") {
		number++
		tone := c.toneOf(line)
		row, used := codeRow{number: number, tone: tone}, 0
		for _, p := range visible.LineParts(line) {
			var b strings.Builder
			flush := func() {
				if b.Len() > 0 {
					row.parts = append(row.parts, visible.Part{Text: b.String(), Mark: p.Mark})
					b.Reset()
				}
			}
			for _, r := range p.Text {
				w := columns(r)
				if used+w > c.cols {
					flush()
					c.rows = append(c.rows, row)
					row, used = codeRow{tone: tone}, 0
				}
				b.WriteRune(r)
				used += w
			}
			flush()
		}
		c.rows = append(c.rows, row)
	}
	c.mark()
}

func columns(r rune) int {
	if r < 0x300 {
		return 1
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// letter is the size of one letter.
func letter() fyne.Size {
	s, _ := fyne.CurrentApp().Driver().RenderedTextSize("0", theme.CaptionTextSize()+1, fyne.TextStyle{Monospace: true}, nil)
	return s
}

func codeHeight() float32 { return letter().Height + 2 }

// CreateRenderer implements fyne.Widget.
func (c *Code) CreateRenderer() fyne.WidgetRenderer {
	c.list = widget.NewList(
		func() int { return len(c.rows) },
		func() fyne.CanvasObject { return newCodeLine() },
		func(i widget.ListItemID, o fyne.CanvasObject) { o.(*codeLine).set(c.rows[i], c.find, c.current(i)) },
	)
	c.list.HideSeparators = true
	return &codeRenderer{c: c}
}

func (c *Code) current(row int) bool {
	return len(c.hits) > 0 && c.hits[c.hit] == row
}

type codeRenderer struct{ c *Code }

func (r *codeRenderer) Layout(s fyne.Size) {
	cols := max(8, int(s.Width/letter().Width)-codeGutter-2)
	if cols != r.c.cols {
		r.c.cols = cols
		r.c.wrap()
	}
	r.place(s)
}

func (r *codeRenderer) place(s fyne.Size) {
	c := r.c
	if len(c.rows) > c.most {
		c.still = nil
		c.list.Resize(s)
		c.list.Refresh()
		return
	}
	for len(c.still) < len(c.rows) {
		c.still = append(c.still, newCodeLine())
	}
	c.still = c.still[:len(c.rows)]
	h := codeHeight()
	for i, l := range c.still {
		l.Move(fyne.NewPos(0, float32(i)*h))
		l.Resize(fyne.NewSize(s.Width, h))
		l.set(c.rows[i], c.find, c.current(i))
	}
}

func (r *codeRenderer) MinSize() fyne.Size {
	n := max(1, len(r.c.rows))
	if n > r.c.most {
		return fyne.NewSize(200, float32(r.c.most)*(codeHeight()+theme.Padding()))
	}
	return fyne.NewSize(200, float32(n)*codeHeight())
}

func (r *codeRenderer) Refresh() {
	r.place(r.c.Size())
	canvas.Refresh(r.c)
}

func (r *codeRenderer) Objects() []fyne.CanvasObject {
	if len(r.c.rows) > r.c.most {
		return []fyne.CanvasObject{r.c.list}
	}
	out := make([]fyne.CanvasObject, len(r.c.still))
	for i, l := range r.c.still {
		out[i] = l
	}
	return out
}

func (r *codeRenderer) Destroy() {}

// codeLine is one row.
type codeLine struct {
	widget.BaseWidget
	row     codeRow
	find    string
	current bool
}

func newCodeLine() *codeLine {
	l := &codeLine{}
	l.ExtendBaseWidget(l)
	return l
}

func (l *codeLine) set(row codeRow, find string, current bool) {
	l.row, l.find, l.current = row, find, current
	l.Refresh()
}

// CreateRenderer implements fyne.Widget.
func (l *codeLine) CreateRenderer() fyne.WidgetRenderer {
	r := &codeLineRenderer{l: l}
	r.draw()
	return r
}

type codeLineRenderer struct {
	l       *codeLine
	objects []fyne.CanvasObject
}

func (r *codeLineRenderer) Layout(fyne.Size)             {}
func (r *codeLineRenderer) MinSize() fyne.Size           { return fyne.NewSize(100, codeHeight()) }
func (r *codeLineRenderer) Objects() []fyne.CanvasObject { return r.objects }
func (r *codeLineRenderer) Destroy()                     {}
func (r *codeLineRenderer) Refresh() {
	r.draw()
	canvas.Refresh(r.l)
}

func (r *codeLineRenderer) draw() {
	r.objects = r.objects[:0]
	size := theme.CaptionTextSize() + 1
	one := letter().Width
	mono := fyne.TextStyle{Monospace: true}
	text := func(s string, c color.Color, style fyne.TextStyle, x float32) float32 {
		t := canvas.NewText(s, c)
		t.TextSize, t.TextStyle = size, style
		m := t.MinSize()
		t.Move(fyne.NewPos(x, 1))
		t.Resize(m)
		r.objects = append(r.objects, t)
		return m.Width
	}
	if n := r.l.row.number; n > 0 {
		s := strconv.Itoa(n)
		text(s, theme.Color(theme.ColorNameDisabled), mono, float32(codeGutter-1-len(s))*one)
	}
	x := float32(codeGutter) * one
	plain := theme.ColorNameForeground
	if r.l.row.tone != Calm {
		c, ground := r.l.row.tone.colors()
		plain = c
		back := canvas.NewRectangle(theme.Color(ground))
		back.Move(fyne.NewPos(x-2, 0))
		back.Resize(fyne.NewSize(max(0, r.l.Size().Width-x), codeHeight()))
		r.objects = append(r.objects, back)
	}
	for _, p := range r.l.row.parts {
		if p.Mark {
			back := canvas.NewRectangle(theme.Color(BadBack))
			r.objects = append(r.objects, back)
			w := text(p.Text, theme.Color(Bad), fyne.TextStyle{Monospace: true, Bold: true}, x)
			back.Move(fyne.NewPos(x, 0))
			back.Resize(fyne.NewSize(w, codeHeight()))
			x += w
			continue
		}
		for _, piece := range around(p.Text, r.l.find) {
			if !piece.Mark {
				for _, stretch := range isolate(piece.Text) {
					x += text(stretch.Text, theme.Color(plain), mono, x)
				}
				continue
			}
			back := canvas.NewRectangle(theme.Color(DoubtBack))
			if r.l.current {
				back.StrokeWidth, back.StrokeColor = 1, theme.Color(Doubt)
			}
			r.objects = append(r.objects, back)
			w := text(piece.Text, theme.Color(theme.ColorNameForeground), mono, x)
			back.Move(fyne.NewPos(x, 0))
			back.Resize(fyne.NewSize(w, codeHeight()))
			x += w
		}
	}
}

// around cuts s at what is looked for; the pieces that are it carry the mark.
func around(s, find string) []visible.Part {
	low := strings.ToLower(s)
	if find == "" || len(low) != len(s) {
		return []visible.Part{{Text: s}}
	}
	var out []visible.Part
	for {
		i := strings.Index(low, find)
		if i < 0 {
			break
		}
		if i > 0 {
			out = append(out, visible.Part{Text: s[:i]})
		}
		out = append(out, visible.Part{Text: s[i : i+len(find)], Mark: true})
		s, low = s[i+len(find):], low[i+len(find):]
	}
	if s != "" {
		out = append(out, visible.Part{Text: s})
	}
	return out
}
