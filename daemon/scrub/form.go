package scrub

import (
	"unicode/utf16"
	"unicode/utf8"
)

// form is one spelling of the secret, found whatever escapes its characters are written in.
type form struct {
	text []byte
	fold *[256]byte // two bytes are the same if they fold to the same
}

var exact, hexadecimal, base64Text [256]byte

func init() {
	for c := range 256 {
		exact[c], hexadecimal[c], base64Text[c] = byte(c), byte(c), byte(c)
	}
	for c := 'A'; c <= 'F'; c++ {
		hexadecimal[c] = byte(c - 'A' + 'a')
	}
	base64Text['-'], base64Text['_'] = '+', '/'
}

func isBase64(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '+' || c == '/' || c == '-' || c == '_'
}

// match walks all readings of b[at:] at once, because a backslash or a percent sign in the secret itself makes more than one possible.
func (f *form) match(b []byte, at int) (end int, open bool, reached int) {
	var room [2][8]int
	now, next := append(room[0][:0], at), room[1][:0]
	n := 0 // characters that were found; a byte that is not UTF-8 is one of its own
	for rest := f.text; len(rest) > 0; n++ {
		size := 1
		if rest[0] >= utf8.RuneSelf {
			_, size = utf8.DecodeRune(rest)
		}
		var unit []byte
		unit, rest = rest[:size], rest[size:]
		next = next[:0]
		for _, p := range now {
			var ended bool
			next, ended = f.step(next, b, p, unit)
			if ended {
				open, reached = true, n
			}
		}
		if len(next) == 0 {
			return 0, open, reached
		}
		now, next = next, now
	}
	for _, p := range now {
		end = max(end, p)
	}
	return end, open, reached
}

// maxBackslashes is what three levels of JSON in JSON make of one escape.
const maxBackslashes = 8

// step adds the places where b can go on after the character unit at b[p:], and says whether b ended before that could be told.
func (f *form) step(to []int, b []byte, p int, unit []byte) (_ []int, ended bool) {
	if p == len(b) {
		return to, true
	}
	if b[p] == '\\' {
		run := backslashes(b, p)
		ended = run <= maxBackslashes && p+run == len(b)
		if f.same(unit, '\\') {
			for _, n := range [...]int{2, 4, 8} { // and 1, below
				if n <= run {
					to = add(to, p+n)
				}
			}
		}
		if !ended && run <= maxBackslashes {
			q, more := f.escaped(b, p+run, unit)
			if q > 0 {
				to = add(to, q)
			}
			ended = more
		}
	}
	// Byte by byte: as it is, or percent-encoded.
	q := p
	for i, c := range unit {
		switch {
		case q == len(b):
			return to, true
		case f.fold[b[q]] == f.fold[c] || c == ' ' && b[q] == '+':
			if b[q] == '%' { // also the beginning of %25
				var more bool
				to, more = f.percent(to, b, q, c)
				ended = ended || more
			}
			q++
		case b[q] == '%':
			ends, more := f.percent(nil, b, q, c)
			if len(ends) == 0 {
				return to, ended || more
			}
			q = ends[0]
			for _, other := range ends[1:] { // only for a percent sign, which is a unit of its own
				to = add(to, other)
			}
		default:
			return to, ended
		}
		if i == len(unit)-1 {
			to = add(to, q)
		}
	}
	return to, ended
}

// escaped reads the escape whose letter is b[q] and returns its end, or 0 if it does not mean unit.
func (f *form) escaped(b []byte, q int, unit []byte) (end int, ended bool) {
	switch b[q] {
	case 'u':
		r, ended := digits(b, q+1, 4)
		if r < 0 {
			return 0, ended
		}
		q += 5
		if utf16.IsSurrogate(r) {
			low := q
			for low < len(b) && b[low] == '\\' && low-q < maxBackslashes {
				low++
			}
			if low == len(b) {
				return 0, true
			}
			if low == q || b[low] != 'u' {
				return 0, false
			}
			second, ended := digits(b, low+1, 4)
			if second < 0 {
				return 0, ended
			}
			r, q = utf16.DecodeRune(r, second), low+5
		}
		if f.isRune(unit, r) {
			return q, false
		}
		return 0, false
	case 'x':
		r, ended := digits(b, q+1, 2)
		if r < 0 || !f.same(unit, byte(r)) && !f.isRune(unit, r) {
			return 0, ended
		}
		return q + 3, false
	}
	c, ok := short(b[q])
	if !ok {
		return 0, false
	}
	if f.same(unit, c) {
		return q + 1, false
	}
	return 0, false
}

// short is what a backslash and one letter mean.
func short(letter byte) (byte, bool) {
	switch letter {
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case '"', '\'', '/', '&', '<', '>':
		return letter, true
	}
	return 0, false
}

// backslashes counts those at b[p:], to one past maxBackslashes.
func backslashes(b []byte, p int) int {
	n := 0
	for n <= maxBackslashes && p+n < len(b) && b[p+n] == '\\' {
		n++
	}
	return n
}

// percent adds the ends of the readings of b[q:], a percent sign, as c: %63, and %2563 for what was encoded twice.
func (f *form) percent(to []int, b []byte, q int, c byte) (_ []int, ended bool) {
	q++
	for range 3 {
		v, more := digits(b, q, 2)
		if v < 0 {
			return to, more
		}
		q += 2
		if f.fold[byte(v)] == f.fold[c] || c == ' ' && v == '+' {
			to = add(to, q)
		}
		if v != '%' {
			break
		}
	}
	return to, false
}

func (f *form) same(unit []byte, c byte) bool {
	return len(unit) == 1 && f.fold[unit[0]] == f.fold[c]
}

func (f *form) isRune(unit []byte, r rune) bool {
	if r < utf8.RuneSelf {
		return f.same(unit, byte(r))
	}
	got, n := utf8.DecodeRune(unit)
	return got == r && n == len(unit) && (r != utf8.RuneError || n > 1)
}

// digits reads n hexadecimal digits at b[q:]: -1 if they are not there, and whether that is because b ended.
func digits(b []byte, q, n int) (v rune, ended bool) {
	for i := q; i < q+n; i++ {
		if i >= len(b) {
			return -1, true
		}
		c := b[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1, false
		}
		v = v<<4 | rune(c)
	}
	return v, false
}

func add(to []int, p int) []int {
	for _, known := range to {
		if known == p {
			return to
		}
	}
	return append(to, p)
}
