package look

import (
	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/visible"
	"singlepass.dev/ui/words"
)

// Style is how a stretch of text is drawn.
type Style struct {
	Color fyne.ThemeColorName // empty: the foreground
	Size  fyne.ThemeSizeName  // empty: the text size
	Bold  bool
	Mono  bool

	rtl bool // a stretch that is read from right to left
}

// Run is a stretch of text in one style.
type Run struct {
	Text  string
	Style Style
}

// Paragraph is text that flows.
func Paragraph(runs ...Run) *Text { return newText(runs) }

// Plain is a paragraph in one style.
func Plain(text string, s Style) *Text { return Paragraph(Run{text, s}) }

// Body is ordinary text.
func Body(text string) *Text { return Plain(text, Style{}) }

// Quiet is text that explains.
func Quiet(text string) *Text {
	return Plain(text, Style{Color: Muted})
}

// Heading is the one sentence that a view is about.
func Heading(text string) *Text {
	return Plain(text, Style{Size: theme.SizeNameHeadingText, Bold: true})
}

// Subheading is the next smaller one.
func Subheading(text string) *Text {
	return Plain(text, Style{Size: theme.SizeNameSubHeadingText, Bold: true})
}

// Short is text of one line that is cut where there is no room.
func Short(text string, s Style) *Text {
	t := newText([]Run{{Text: text, Style: s}})
	t.oneRow = true
	return t
}

// Label is text of one line that takes the room that it needs.
func Label(text string, s Style) *Text {
	t := newText([]Run{{Text: text, Style: s}})
	t.still = true
	return t
}

// Section is content under a small title.
func Section(title string, content fyne.CanvasObject) fyne.CanvasObject {
	return Rows(0, Plain(title, Style{Color: Muted, Size: theme.SizeNameCaptionText, Bold: true}), content)
}

// Host shows a host name, and what it really is where it can be taken for another one.
func Host(host string) fyne.CanvasObject {
	h := visible.Host(host)
	if !h.Suspicious() {
		return nil
	}
	runs := []Run{{words.Say("host.written", "Host", h.Shown), Style{Bold: true}}}
	if h.ASCII != "" {
		runs = append(runs, Run{" " + words.Say("host.really", "Host", h.ASCII), Style{}})
	}
	if h.LooksLike != "" {
		runs = append(runs, Run{" " + words.Say("host.like", "Host", h.LooksLike), Style{Color: Bad, Bold: true}})
	}
	if len(h.Scripts) > 0 {
		list := h.Scripts[0]
		for _, s := range h.Scripts[1:] {
			list += ", " + s
		}
		runs = append(runs, Run{" " + words.Say("host.mixed", "Scripts", list), Style{}})
	}
	tone := Careful
	if h.LooksLike != "" || len(h.Scripts) > 0 {
		tone = Wrong
	}
	return NewNotice(tone, ShapeWarning, Paragraph(runs...))
}

// Hidden warns of characters in text that show nothing or reorder what is around them; nil where there are none.
func Hidden(texts ...string) fyne.CanvasObject {
	total := map[visible.Kind]int{}
	for _, t := range texts {
		for k, n := range visible.Hidden(t) {
			total[k] += n
		}
	}
	if len(total) == 0 {
		return nil
	}
	text := words.Say("hidden.title")
	for _, k := range []visible.Kind{visible.Direction, visible.Invisible, visible.Control, visible.Broken} {
		if n := total[k]; n > 0 {
			text += " " + map[visible.Kind]string{
				visible.Direction: words.Count("hidden.direction", n), visible.Invisible: words.Count("hidden.invisible", n),
				visible.Control: words.Count("hidden.control", n), visible.Broken: words.Count("hidden.broken", n),
			}[k]
		}
	}
	return NewNotice(Wrong, ShapeWarning, Body(text))
}
