package look

import (
	"strings"
	"unicode/utf8"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/canvas"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/visible"
)

// Text is stretches of text in several styles that flow into lines. A line breaks at a space, and inside a word only where the word alone is wider than a line; so an address or a key is
// never out of sight. What hides or reorders is drawn as an escape in a colour of its own.
type Text struct {
	widget.BaseWidget
	runs   []Run
	oneRow bool // cut where there is no room, instead of breaking
	still  bool // never breaks and is never cut: as wide as it is
	middle bool
	width  float32
	lines  []flowLine
}

// piece is text of one style in one line.
type piece struct {
	text  string
	style Style
	width float32
}

type flowLine struct {
	pieces        []piece
	width, height float32
}

func newText(runs []Run) *Text {
	t := &Text{runs: marked(runs)}
	t.ExtendBaseWidget(t)
	return t
}

// Set replaces the text.
func (t *Text) Set(runs ...Run) {
	t.runs = marked(runs)
	t.Refresh()
}

// String is the text as it is shown.
func (t *Text) String() string {
	var b strings.Builder
	for _, r := range t.runs {
		b.WriteString(r.Text)
	}
	return b.String()
}

// marked gives what hides or reorders a style of its own.
func marked(runs []Run) []Run {
	var out []Run
	for _, r := range runs {
		for _, p := range visible.LineParts(r.Text) {
			style := r.Style
			if p.Mark {
				style.Color, style.Bold, style.Mono = Bad, true, true
			}
			for _, stretch := range isolate(p.Text) {
				style.rtl = stretch.Mark
				out = append(out, Run{stretch.Text, style})
			}
		}
	}
	return out
}

func (s Style) size() float32 {
	if s.Size == "" {
		return theme.TextSize()
	}
	return theme.Size(s.Size)
}

func (s Style) text() fyne.TextStyle { return fyne.TextStyle{Bold: s.Bold, Monospace: s.Mono} }

func (s Style) measure(text string) float32 { return fyne.MeasureText(text, s.size(), s.text()).Width }

func (s Style) height() float32 { return fyne.MeasureText("Mg", s.size(), s.text()).Height }

// flow breaks the text into lines of at most a width; 0 or less means that there is no limit.
func (t *Text) flow(width float32) {
	t.width = width
	t.lines = t.lines[:0]
	var line flowLine
	limit := width - 2*theme.InnerPadding()
	endless := t.oneRow || t.still || width <= 0
	end := func() {
		t.lines = append(t.lines, line)
		line = flowLine{}
	}
	put := func(text string, s Style, w float32) {
		if n := len(line.pieces); n > 0 && line.pieces[n-1].style == s {
			p := &line.pieces[n-1]
			p.text += text
			grown := s.measure(p.text)
			line.width += grown - p.width
			p.width = grown
		} else {
			line.pieces = append(line.pieces, piece{text, s, w})
			line.width += w
		}
		line.height = max(line.height, s.height())
	}
	for _, r := range t.runs {
		if endless {
			put(r.Text, r.Style, r.Style.measure(r.Text))
			continue
		}
		for _, word := range split(r.Text) {
			w := r.Style.measure(word)
			if line.width+r.Style.measure(strings.TrimRight(word, " ")) <= limit {
				put(word, r.Style, w)
				continue
			}
			// A word that has no room anywhere fills up this line and goes on below; another one begins a new line.
			if w <= limit && len(line.pieces) > 0 {
				end()
				if word = strings.TrimLeft(word, " "); word != "" {
					put(word, r.Style, r.Style.measure(word))
				}
				continue
			}
			for word != "" {
				n := fit(word, r.Style, limit-line.width)
				if n == 0 && len(line.pieces) > 0 {
					end()
					continue
				}
				if n == 0 {
					_, n = utf8.DecodeRuneInString(word)
				}
				put(word[:n], r.Style, r.Style.measure(word[:n]))
				if word = word[n:]; word != "" {
					end()
				}
			}
		}
	}
	end()
	if t.oneRow && width > 0 {
		t.cut(limit)
	}
	if t.lines[0].height == 0 {
		t.lines[0].height = Style{}.height()
	}
}

// cut shortens the only line to a width.
func (t *Text) cut(limit float32) {
	line := &t.lines[0]
	if line.width <= limit {
		return
	}
	x := float32(0)
	for i, p := range line.pieces {
		if x+p.width <= limit && i+1 < len(line.pieces) && x+p.width+line.pieces[i+1].style.measure("…") <= limit {
			x += p.width
			continue
		}
		room := limit - x - p.style.measure("…")
		p.text = p.text[:fit(p.text, p.style, room)] + "…"
		p.width = p.style.measure(p.text)
		line.pieces = append(line.pieces[:i:i], p)
		line.width = x + p.width
		return
	}
}

// split cuts text after each run of spaces, so that the pieces joined are the text; writing without spaces may be broken between any two letters of it.
func split(s string) []string {
	var out []string
	start, space := 0, false
	for i, r := range s {
		wide := columns(r) == 2
		if (space && r != ' ') || (wide && i > start) {
			out = append(out, s[start:i])
			start = i
		}
		space = r == ' '
	}
	return append(out, s[start:])
}

// fit is how many bytes of s, whole characters, have room in a width.
func fit(s string, style Style, width float32) int {
	if width <= 0 {
		return 0
	}
	ends := make([]int, 0, len(s))
	for i := range s {
		if i > 0 {
			ends = append(ends, i)
		}
	}
	ends = append(ends, len(s))
	low, high := 0, len(ends)
	for low < high {
		mid := (low + high) / 2
		if style.measure(s[:ends[mid]]) <= width {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0
	}
	return ends[low-1]
}

// CreateRenderer implements fyne.Widget.
func (t *Text) CreateRenderer() fyne.WidgetRenderer {
	t.flow(t.width)
	r := &textRenderer{t: t}
	r.draw()
	return r
}

type textRenderer struct {
	t       *Text
	objects []fyne.CanvasObject
}

func (r *textRenderer) Layout(s fyne.Size) {
	if s.Width != r.t.width {
		r.t.flow(s.Width)
		r.draw()
	}
}

func (r *textRenderer) MinSize() fyne.Size {
	pad := 2 * theme.InnerPadding()
	m := fyne.NewSize(pad, pad)
	for i, l := range r.t.lines {
		if r.t.still {
			m.Width = max(m.Width, l.width+pad)
		}
		m.Height += l.height
		if i > 0 {
			m.Height += theme.LineSpacing() - 2
		}
	}
	return m
}

func (r *textRenderer) Refresh() {
	r.t.flow(r.t.width)
	r.draw()
	canvas.Refresh(r.t)
}

func (r *textRenderer) Objects() []fyne.CanvasObject { return r.objects }
func (r *textRenderer) Destroy()                     {}

func (r *textRenderer) draw() {
	r.objects = r.objects[:0]
	y := theme.InnerPadding()
	for _, l := range r.t.lines {
		x := theme.InnerPadding()
		if r.t.middle {
			x = max(x, (r.t.width-l.width)/2)
		}
		for _, p := range l.pieces {
			color := p.style.Color
			if color == "" {
				color = theme.ColorNameForeground
			}
			o := canvas.NewText(p.text, theme.Color(color))
			o.TextSize, o.TextStyle = p.style.size(), p.style.text()
			// Letters of different fonts stand on one line by their lower edges, near enough for the sizes that are mixed here.
			o.Move(fyne.NewPos(x, y+(l.height-p.style.height())*0.8))
			o.Resize(fyne.NewSize(p.width, p.style.height()))
			r.objects = append(r.objects, o)
			x += p.width
		}
		y += l.height + theme.LineSpacing() - 2
	}
}
