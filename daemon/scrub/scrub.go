// Package scrub takes a secret out of what a target answered.
//
// Promises: after scrubbing, the text holds none of these forms of the secret, also where they are mixed character by character, nested up to three deep, or lie across
// the chunks of a stream: the bytes themselves; percent-encoded, either case, with + for a space; JSON- and JavaScript-escaped (\", \/, \u0061 with surrogate pairs, \x61);
// hexadecimal in either case; the characters of base64, standard and URL alphabet, that the secret alone determines, for each of the three ways in which it can lie in what was encoded.
// Each is replaced by a marker that can neither be part of a form nor join one together, and that needs no escape in JSON. Text without a match is returned as it is, not copied.
//
// Non-promises: a secret of fewer than [MinLength] bytes is not looked for, since taking out every "a" would show that the secret is "a". An encoded form of fewer than 8
// characters is not looked for either (hexadecimal from 4 bytes on, base64 from 7, some alignments from 6): it would be found everywhere. In base64 up to four bits of the first and of the last
// byte remain beside the marker. Compressed, encrypted, reversed or split text is not seen through: this keeps an honest or careless target from showing
// the secret to an agent; it cannot stop a hostile target, which has the secret and can tell whom it likes.
//
// The package freezes no format.
package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"
)

// MinLength is the least number of bytes of a secret that is looked for.
const MinLength = 4

const (
	minForm = 8 // characters of an encoded form
	minCut  = 4 // characters of a form that a cut answer must end with to have its end taken out
)

// Scrubber looks for one secret, or for a set. A nil Scrubber finds nothing. It holds copies of what it looks for until Wipe; until then it is safe for concurrent use.
type Scrubber struct {
	forms  []form
	start  [256]bool // first bytes of forms
	first  [256]bool // and of their escapes
	second [256]bool // bytes that can follow such a byte, if it is no escape
	marker []byte
}

// New returns a Scrubber for value. Each of whole is something that contains the value and is sent in base64, such as the user:password of basic authentication, so that
// a short password is found in it too. It keeps copies: the arguments may be wiped afterwards.
func New(value []byte, whole ...[]byte) *Scrubber { return NewSet([][]byte{value}, whole...) }

// NewSet returns a Scrubber that looks for several values.
func NewSet(values [][]byte, whole ...[]byte) *Scrubber {
	s := &Scrubber{}
	for _, value := range values {
		s.addValue(value)
	}
	for _, w := range whole {
		s.add(base64.RawStdEncoding.AppendEncode(nil, w), &base64Text, minForm)
	}
	s.marker = marker(values)
	return s
}

func (s *Scrubber) addValue(value []byte) {
	if len(value) >= MinLength {
		s.add(bytes.Clone(value), &exact, 0)
		s.add(hex.AppendEncode(nil, value), &hexadecimal, minForm)
		for before := range 3 {
			// The characters wholly made of the secret's bits, with `before` bytes of something else ahead of it.
			padded := append(make([]byte, before, before+len(value)), value...)
			text := base64.RawStdEncoding.AppendEncode(nil, padded)
			from, to := (8*before+5)/6, 8*(before+len(value))/6
			s.add(text[from:to], &base64Text, minForm)
			clear(padded)
		}
	}
}

// Wipe overwrites the copies. The Scrubber must not be used afterwards.
func (s *Scrubber) Wipe() {
	if s == nil {
		return
	}
	for _, f := range s.forms {
		clear(f.text)
	}
	s.forms = nil
}

// Bytes returns b without the secret, and whether there was one. Without one it returns b itself.
func (s *Scrubber) Bytes(b []byte) ([]byte, bool) { return s.all(b, atEnd) }

// Cut does the same for the beginning of something longer: what b ends with goes too if it can be the beginning of the secret.
func (s *Scrubber) Cut(b []byte) ([]byte, bool) { return s.all(b, atCut) }

// String is Bytes for a string, such as a header field's value.
func (s *Scrubber) String(v string) (string, bool) {
	b, hit := s.Bytes([]byte(v))
	if !hit {
		return v, false
	}
	return string(b), true
}

func (s *Scrubber) all(b []byte, e ending) ([]byte, bool) {
	if s == nil || len(s.forms) == 0 {
		return b, false
	}
	out, _, hit := s.scan(nil, b, e)
	if !hit {
		return b, false
	}
	return out, true
}

func (s *Scrubber) add(text []byte, fold *[256]byte, least int) {
	if len(text) < max(least, 2) {
		return
	}
	s.forms = append(s.forms, form{text: text, fold: fold})
	for _, c := range sameAs(text[0], fold) {
		s.start[c], s.first[c] = true, true
	}
	for _, c := range sameAs(text[1], fold) {
		s.second[c] = true
	}
	for _, c := range []byte(`\%`) {
		s.first[c], s.second[c] = true, true
	}
}

// sameAs returns the bytes that c, which is written as this package writes it, can be found as.
func sameAs(c byte, fold *[256]byte) [2]byte {
	switch {
	case fold == &hexadecimal && c >= 'a' && c <= 'f':
		return [...]byte{c, c - 'a' + 'A'}
	case fold == &base64Text && c == '+':
		return [...]byte{c, '-'}
	case fold == &base64Text && c == '/':
		return [...]byte{c, '_'}
	case fold == &exact && c == ' ':
		return [...]byte{c, '+'}
	}
	return [...]byte{c, c}
}

// marker returns a replacement whose ends are in no form of a secret: no form can then overlap it, and nothing that it separates can become one.
func marker(values [][]byte) []byte {
	word := "secret"
	for _, value := range values {
		if bytes.Contains([]byte(word), value) {
			word = ""
		}
	}
	contains := func(any string) bool {
		return slices.ContainsFunc(values, func(value []byte) bool { return bytes.ContainsAny(value, any) })
	}
	for _, ends := range []string{"[]", "()", "{}", "<>", "**", "##", "~~", "||", "::", "!!", "??", ";;", ",,", "@@", "$$", "&&"} {
		if !contains(ends) {
			return []byte(ends[:1] + word + ends[1:])
		}
	}
	for c := byte(0x21); c < 0x7f; c++ {
		if !contains(string(rune(c))) && !strings.ContainsRune(`"\%+-/_=`, rune(c)) && !isBase64(c) {
			return []byte{c}
		}
	}
	return []byte("\u27e6\u27e7") // a secret with every one of those in it has none of these, or is not ours to print anyway
}

// ending says what it means that the bytes end.
type ending int

const (
	atMore ending = iota + 1 // more will come
	atEnd                    // this is all
	atCut                    // there was more, which nobody will see
)

// scan appends to dst what may be shown of b, or returns b itself if that is all of it and dst is nil. It returns how many bytes of b are settled: all of them, or, atMore, those before a form that may go on.
func (s *Scrubber) scan(dst, b []byte, e ending) (out []byte, settled int, hit bool) {
	from := 0
	for i := 0; i < len(b); {
		c := b[i]
		if !s.first[c] || !s.likely(b, i) {
			i++
			continue
		}
		end, open, reached := s.match(b, i)
		if open && e == atMore {
			return append(dst, b[from:i]...), i, hit
		}
		if end == 0 && e == atCut && reached >= minCut {
			end = len(b)
		}
		if end == 0 {
			i++
			continue
		}
		dst = append(append(dst, b[from:i]...), s.marker...)
		i, from, hit = end, end, true
	}
	if dst == nil { // nothing was found, and there is nothing to add to
		return b, len(b), hit
	}
	return append(dst, b[from:]...), len(b), hit
}

// likely is a quick look at b[i:], which starts with a byte that a form or an escape can start with: can a form follow?
func (s *Scrubber) likely(b []byte, i int) bool {
	c := b[i]
	if c != '%' && c != '\\' {
		return i+1 == len(b) || s.second[b[i+1]]
	}
	if s.start[c] {
		return true
	}
	if c == '%' {
		v, ended := digits(b, i+1, 2)
		return ended || v == '%' || v >= 0 && s.start[v]
	}
	run := backslashes(b, i)
	switch q := i + run; {
	case run > maxBackslashes:
		return false
	case q == len(b):
		return true
	case b[q] == 'u':
		v, ended := digits(b, q+1, 4)
		return ended || v >= utf8.RuneSelf || v >= 0 && s.start[v]
	case b[q] == 'x':
		return true
	default:
		v, ok := short(b[q])
		return ok && s.start[v]
	}
}

// match tries every form at b[at:]: the end of the longest that is there, whether b ended within one, and after how many characters of it.
func (s *Scrubber) match(b []byte, at int) (end int, open bool, reached int) {
	for i := range s.forms {
		e, o, r := s.forms[i].match(b, at)
		end, open, reached = max(end, e), open || o, max(reached, r)
	}
	return end, open, reached
}
