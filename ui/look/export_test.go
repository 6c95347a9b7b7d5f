package look

import (
	"strings"

	"fyne.io/fyne/v2"
)

// Lines are the lines of a text as they are drawn.
func (t *Text) Lines() []string {
	var out []string
	for _, l := range t.lines {
		s := ""
		for _, p := range l.pieces {
			s += p.text
		}
		out = append(out, s)
	}
	return out
}

// Widest is the width of the widest line.
func (t *Text) Widest() float32 {
	var w float32
	for _, l := range t.lines {
		line := float32(0)
		for i, p := range l.pieces {
			text := p.text
			if i == len(l.pieces)-1 {
				text = strings.TrimRight(text, " ") // spaces at the end of a line show nothing
			}
			line += p.style.measure(text)
		}
		w = max(w, line)
	}
	return w
}

// RowTexts are the rows of a code as they are drawn.
func (c *Code) RowTexts() []string {
	var out []string
	for _, r := range c.rows {
		s := ""
		for _, p := range r.parts {
			s += p.Text
		}
		out = append(out, s)
	}
	return out
}

// Isolate is isolate.
var Isolate = isolate

// Colors is the text and the ground of a tone.
func Colors(t Tone) (text, back fyne.ThemeColorName) { return t.colors() }

// Shapes are all shapes with their pictures.
func Shapes() map[Shape]string { return shapes }
