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

func escape(s string, keep func(rune) bool) string {
	harmless := func(r rune) bool { return keep(r) || r == ' ' || (unicode.IsPrint(r) && r != utf8.RuneError) }
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
