package visible_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"singlepass.dev/daemon/visible"
)

func TestNothingThatHidesOrReordersIsLeft(t *testing.T) {
	for in, want := range map[string]string{
		"plain äöü 日本 ‹›…\t|\n":       "plain äöü 日本 ‹›…\t|\n",
		"\x1b[31mred\x1b[0m":          `\u001b[31mred\u001b[0m`,
		"\u202egpj.exe":               `\u202egpj.exe`,
		"a\u2066b\u200b\ufeffc":       `a\u2066b\u200b\ufeffc`,
		"\u009b2J":                    `\u009b2J`,
		"pay\u3164\u115f\u2800\u034f": `pay\u3164\u115f\u2800\u034f`,
		"a\U000e0101":                 `a\udb40\udd01`,
		"\r\x00\x7f":                  `\u000d\u0000\u007f`,
		"\U000e0041":                  `\udb40\udc41`,
		"not utf-8: \xff":             `not utf-8: \ufffd`,
		"line\u2028separator\u2029":   `line\u2028separator\u2029`,
		"no-break\u00a0space":         `no-break\u00a0space`,
	} {
		if got := visible.Text(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := visible.Line("a\nb\tc"); got != `a\u000ab\u0009c` {
		t.Errorf("a line holds %q", got)
	}
}

func TestAnEscapeIsToldApartFromTextThatSpellsTheSame(t *testing.T) {
	got := visible.LineParts("\\u202e and \u202e\u200b!")
	want := []visible.Part{{Text: `\u202e and `}, {Text: `\u202e\u200b`, Mark: true}, {Text: "!"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestHiddenCharactersAreCountedByWhatTheyDo(t *testing.T) {
	got := visible.Hidden("a\x1b\n\t\u202e\u2066\u200b\u3164\u00a0\xff\u0378")
	for kind, n := range map[visible.Kind]int{visible.Control: 1, visible.Direction: 2, visible.Invisible: 3, visible.Broken: 2} {
		if got[kind] != n {
			t.Errorf("%s: %d, want %d", kind, got[kind], n)
		}
	}
	if visible.Hidden("plain 日本語 עברית\n") != nil {
		t.Error("plain text hides something")
	}
}

func TestALongValueIsCutToItsRoom(t *testing.T) {
	if got := visible.Cut(strings.Repeat("ä", 4000), 10); got != "äääääääää…" {
		t.Errorf("got %q", got)
	}
	if got := visible.Cut("short\n", 20); got != `short\u000a` {
		t.Errorf("got %q", got)
	}
}

func TestALookAlikeHostIsShownWithWhatItReallyIs(t *testing.T) {
	for _, c := range []struct {
		host, shown, ascii, like string
		scripts                  []string
	}{
		{host: "api.example.com", shown: "api.example.com"},
		{host: "api.example.com:8443", shown: "api.example.com:8443"},
		{host: "[::1]:80", shown: "[::1]:80"},
		{host: "xn--80ak6aa92e.com", shown: "аррӏе.com", ascii: "xn--80ak6aa92e.com", like: "apple.com"},
		{host: "pаypal.com:443", shown: "pаypal.com:443", ascii: "xn--pypal-4ve.com:443", like: "paypal.com", scripts: []string{"Cyrillic", "Latin"}},
		{host: "bücher.example", shown: "bücher.example", ascii: "xn--bcher-kva.example"},
		{host: "例え.テスト", shown: "例え.テスト", ascii: "xn--r8jz45g.xn--zckzah"},
		{host: "xn--\xff", shown: `xn--\ufffd`},
		{host: "evil\u202e.com", shown: `evil\u202e.com`, ascii: "xn--evil-1h0a.com"},
	} {
		got := visible.Host(c.host)
		if got.Shown != c.shown || got.LooksLike != c.like || !slices.Equal(got.Scripts, c.scripts) || (c.ascii != "" && got.ASCII == "") {
			t.Errorf("%q: got %+v", c.host, got)
		}
		if c.ascii != "" && !strings.HasPrefix(c.host, "evil") && got.ASCII != c.ascii {
			t.Errorf("%q is %q on the wire, want %q", c.host, got.ASCII, c.ascii)
		}
		if got.Suspicious() != (c.ascii != "") {
			t.Errorf("%q: suspicious is %v", c.host, got.Suspicious())
		}
	}
}

func FuzzWhatIsShownActsOnNothingAndMeansTheSame(f *testing.F) {
	for _, s := range []string{"", "\x1b]0;x\a", "\u202e", "\U000e0041\U0001f600", "\\u202e", "\u2028", "xn--80ak6aa92e.com", "[::1]:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, shown := range []string{visible.Line(s), visible.Host(s).Shown, visible.Host(s).ASCII, visible.Host(s).LooksLike} {
			if strings.ContainsFunc(shown, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
				t.Fatalf("%q shown as %q", s, shown)
			}
		}
		join := func(list []visible.Part) string {
			var b strings.Builder
			for _, p := range list {
				b.WriteString(p.Text)
			}
			return b.String()
		}
		if join(visible.LineParts(s)) != visible.Line(s) || join(visible.TextParts(s)) != visible.Text(s) {
			t.Fatalf("the parts of %q are not the whole", s)
		}
		if n := utf8.RuneCountInString(visible.Cut(s, 20)); n > 20 {
			t.Fatalf("%q was cut to %d characters", s, n)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(b, &before) != nil || json.Unmarshal([]byte(visible.Text(string(b))), &after) != nil || before != after {
			t.Fatalf("%s became %s", b, visible.Text(string(b)))
		}
	})
}
