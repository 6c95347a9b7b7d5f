package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// cleaner lets nothing through that a terminal would act on. Everything that spctl prints goes through it, so that no command can forget. The form \uXXXX is JSON's own, so JSON
// stays what it was.
type cleaner struct{ w io.Writer }

func clean(w io.Writer) io.Writer { return cleaner{w} }

func (c cleaner) Write(p []byte) (int, error) {
	if _, err := io.WriteString(c.w, cleanText(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// cleanText escapes control and format characters, except for line breaks and tabs.
func cleanText(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

// oneLine escapes line breaks as well: a value must not be able to look like another line of ours.
func oneLine(s string) string {
	return escape(s, func(rune) bool { return false })
}

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

func escape(s string, keep func(rune) bool) string {
	harmless := func(r rune) bool {
		return keep(r) || r == ' ' || (unicode.IsPrint(r) && r != utf8.RuneError && !unicode.Is(blank, r))
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return !harmless(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case harmless(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// cut shortens a value for a table.
func cut(s string, n int) string {
	s = oneLine(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
