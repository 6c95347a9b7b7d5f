package visible

import (
	"net"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// HostName is a host as a person should see it.
type HostName struct {
	Shown     string   // letters as they are written, with hidden characters escaped
	ASCII     string   // as it goes over the wire; empty where it is the same as Shown
	Scripts   []string // the writing systems of one part of the name, where there are several
	LooksLike string   // the plain name that it can be taken for; empty where there is none
}

// Suspicious reports whether a reader has to be warned.
func (h HostName) Suspicious() bool { return h.ASCII != "" || h.LooksLike != "" || len(h.Scripts) > 0 }

// Host looks at a host name, with or without a port. It never refuses one: what cannot be read is shown as it is.
func Host(s string) HostName {
	name, port := s, ""
	if host, p, err := net.SplitHostPort(s); err == nil {
		name, port = host, ":"+p
	}
	decoded, err := idna.Punycode.ToUnicode(name)
	if err != nil {
		decoded = name
	}
	h := HostName{Shown: Line(s)}
	if decoded != name {
		h.Shown, h.ASCII = Line(decoded+port), Line(s)
	} else if encoded, err := idna.Punycode.ToASCII(name); err == nil && encoded != name {
		h.ASCII = Line(encoded + port)
	}
	for label := range strings.SplitSeq(decoded, ".") {
		if scripts := scriptsOf(label); len(scripts) > 1 {
			h.Scripts = scripts
		}
	}
	if plain := skeleton(decoded); plain != decoded && isASCII(plain) {
		h.LooksLike = Line(plain)
	}
	return h
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// scriptsOf names the writing systems in one label of a host. Japanese and Korean are written in several at once, which is no reason for a warning (UTS #39, section 5.2).
func scriptsOf(label string) []string {
	var found []string
	for _, r := range label {
		if unicode.In(r, unicode.Common, unicode.Inherited) {
			continue
		}
		for name, table := range unicode.Scripts {
			if unicode.Is(table, r) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	for _, together := range [][]string{{"Han", "Hiragana", "Katakana"}, {"Han", "Hangul"}, {"Bopomofo", "Han"}} {
		if !slices.ContainsFunc(found, func(s string) bool { return !slices.Contains(together, s) }) {
			return nil
		}
	}
	if len(found) < 2 {
		return nil
	}
	return found
}

// skeleton replaces every letter that is drawn like an ASCII one by that one.
func skeleton(s string) string {
	return strings.Map(func(r rune) rune {
		if plain, ok := lookAlikes[unicode.ToLower(r)]; ok {
			return plain
		}
		return r
	}, s)
}

// lookAlikes are lower-case letters of other alphabets that are drawn like ASCII letters or digits: the single-character part of Unicode's confusables.txt (UTS #39) for the scripts of which
// host names are made.
var lookAlikes = func() map[rune]rune {
	m := map[rune]rune{}
	for plain, list := range map[rune]string{
		'a': "аɑαа", 'b': "ЬьƄ", 'c': "сϲᴄ", 'd': "ԁ", 'e': "еҽєе", 'f': "ғ", 'g': "ɡց", 'h': "һհ", 'i': "іıιɩ", 'j': "јϳ", 'k': "κкқ",
		'l': "ӏǀ", 'm': "м", 'n': "ոп", 'o': "оοօᴏ", 'p': "рρ", 'q': "ԛգ", 'r': "гᴦ", 's': "ѕꜱ", 't': "тτ", 'u': "υսᴜ", 'v': "νѵᴠ", 'w': "ԝѡաᴡ",
		'x': "хχ", 'y': "уүγ", 'z': "ᴢ", '3': "зҙ", '4': "ч", '6': "б", '-': "‐‑‒–−", '/': "⁄∕", '.': "․",
	} {
		for _, r := range list {
			m[r] = plain
		}
	}
	return m
}()
