package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"singlepass.dev/cmd/spctl/internal/cli"
)

func TestNothingThatATerminalActsOnIsPrinted(t *testing.T) {
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
	} {
		var out bytes.Buffer
		n, err := cli.Clean(&out).Write([]byte(in))
		if err != nil || n != len(in) || out.String() != want {
			t.Errorf("%q: got %q (%d, %v), want %q", in, out.String(), n, err, want)
		}
	}
}

func FuzzCleanedJSONMeansTheSame(f *testing.F) {
	for _, s := range []string{"", "\x1b]0;x\a", "\u202e", "\U000e0041\U0001f600", "\\u202e", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(map[string]string{"k": s})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := cli.Clean(&out).Write(b); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
			t.Fatalf("%q printed as %q", s, out.String())
		}
		var before, after map[string]string
		if json.Unmarshal(b, &before) != nil || json.Unmarshal(out.Bytes(), &after) != nil || before["k"] != after["k"] {
			t.Fatalf("%s became %s", b, out.String())
		}
	})
}
