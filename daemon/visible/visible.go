// Package visible makes text that somebody else wrote safe to look at: what an agent, a target or a file says is shown as it is, and nothing in it can hide, reorder or imitate what
// stands beside it.
//
// Promises: what comes back holds no character that a terminal or a text widget acts on, but for the line breaks and tabs that Text keeps. The form of an escape is JSON's own (\u202e), so
// that JSON stays what it was. Parts joined are exactly what Line and Text return.
//
// Non-promises: two different letters may still look alike in a font. Host says where a host name makes use of that.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Part is a stretch of text. A mark stands for characters that show nothing, or something else than they are; it is drawn so that plain text cannot imitate it.
type Part struct {
	Text string
	Mark bool
}

// Line escapes everything that a reader would not see as it is, line breaks too: a value must not be able to look like another line of ours.
func Line(s string) string { return escape(s, func(rune) bool { return false }) }

// Text does the same, but keeps line breaks and tabs.
func Text(s string) string { return escape(s, layout) }

// LineParts is Line, with the escapes told apart from text that only spells the same.
func LineParts(s string) []Part { return parts(s, func(rune) bool { return false }) }

// TextParts is Text, with the escapes told apart from text that only spells the same.
func TextParts(s string) []Part { return parts(s, layout) }

// Cut shortens a value to n characters for a place that has no room for more. The whole of it has to be reachable elsewhere.
func Cut(s string, n int) string {
	s = Line(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n-1)]) + "…"
}

func layout(r rune) bool { return r == '\n' || r == '\t' }

// blank are characters that Unicode counts as letters, marks or symbols and that show nothing: the printable ones of Default_Ignorable_Code_Point (UAX #44), and the empty braille
// pattern. The variation selectors FE00 to FE0F stay: emoji are written with them.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1},
		{Lo: 0x115f, Hi: 0x1160, Stride: 1},
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1},
		{Lo: 0x180b, Hi: 0x180f, Stride: 1},
		{Lo: 0x2800, Hi: 0x2800, Stride: 1},
		{Lo: 0x3164, Hi: 0x3164, Stride: 1},
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0xe0100, Hi: 0xe01ef, Stride: 1}},
}

func harmless(r rune) bool {
	return r == ' ' || (unicode.IsPrint(r) && r != utf8.RuneError && !unicode.Is(blank, r))
}

func escape(s string, keep func(rune) bool) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !keep(r) && !harmless(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if keep(r) || harmless(r) {
			b.WriteRune(r)
		} else {
			write(&b, r)
		}
	}
	return b.String()
}

func write(b *strings.Builder, r rune) {
	if r > 0xffff {
		high, low := utf16.EncodeRune(r)
		fmt.Fprintf(b, `\u%04x\u%04x`, high, low)
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

func parts(s string, keep func(rune) bool) []Part {
	var out []Part
	var b strings.Builder
	mark := false
	flush := func() {
		if b.Len() > 0 {
			out = append(out, Part{Text: b.String(), Mark: mark})
			b.Reset()
		}
	}
	for _, r := range s {
		hidden := !keep(r) && !harmless(r)
		if hidden != mark {
			flush()
			mark = hidden
		}
		if hidden {
			write(&b, r)
		} else {
			b.WriteRune(r)
		}
	}
	flush()
	return out
}

// Hidden counts the characters of s that Text would escape, by what they are, so that a reader can be told in words. Empty: there are none.
func Hidden(s string) map[Kind]int {
	var found map[Kind]int
	for _, r := range s {
		if layout(r) || harmless(r) {
			continue
		}
		if found == nil {
			found = map[Kind]int{}
		}
		found[kindOf(r)]++
	}
	return found
}

// Kind says what a hidden character does.
type Kind string

// The kinds.
const (
	Control   Kind = "control"   // acts on a terminal, or on nothing at all
	Direction Kind = "direction" // changes the order in which the text around it is read
	Invisible Kind = "invisible" // takes no room, or looks like a space
	Broken    Kind = "broken"    // is no text: the bytes are not UTF-8, or the character is assigned to nothing
)

func kindOf(r rune) Kind {
	switch {
	case r == utf8.RuneError:
		return Broken
	case unicode.Is(unicode.Bidi_Control, r):
		return Direction
	case unicode.Is(unicode.Cc, r):
		return Control
	case unicode.Is(blank, r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Z, r):
		return Invisible
	}
	return Broken
}
