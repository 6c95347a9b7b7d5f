package look

import (
	"unicode"

	"singlepass.dev/daemon/visible"
)

// rightToLeft are the scripts that are read from right to left.
var rightToLeft = []*unicode.RangeTable{
	unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Samaritan, unicode.Mandaic, unicode.Adlam, unicode.Hanifi_Rohingya, unicode.Mende_Kikakui,
}

func isRTL(r rune) bool { return r >= 0x0590 && unicode.In(r, rightToLeft...) }

// isolate cuts text into stretches that are read from right to left, which carry the mark, and the others. Each is drawn by itself, in the order of the text: the letters of a word
// stand as they are read, and cannot move what stands beside them, as they do in one line of a text whose direction they decide (UAX #9).
func isolate(s string) []visible.Part {
	var out []visible.Part
	start, last := 0, 0 // where the stretch begins, and where its last letter that counts ends
	rtl := false
	for i, r := range s {
		switch {
		case isRTL(r):
			if !rtl && i > start {
				out = append(out, visible.Part{Text: s[start:i]})
				start = i
			}
			rtl, last = true, i+len(string(r))
		case rtl && (r == ' ' || unicode.Is(unicode.Mn, r)):
			// It belongs to the stretch if another letter of it follows.
			if r != ' ' {
				last = i + len(string(r))
			}
		case rtl:
			out = append(out, visible.Part{Text: s[start:last], Mark: true})
			start, rtl = last, false
		}
	}
	if rtl {
		out = append(out, visible.Part{Text: s[start:last], Mark: true})
		start = last
	}
	if start < len(s) {
		out = append(out, visible.Part{Text: s[start:]})
	}
	return out
}
