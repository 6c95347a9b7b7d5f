package scrub_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"singlepass.dev/daemon/scrub"
)

const canary = `canary-not/a+secret"\7f3a é𝄞`

// spellings are the ways to write a secret that the package promises to find, by independent encoders where there are any.
var spellings = map[string]func(string) string{
	"raw":               func(s string) string { return s },
	"query":             url.QueryEscape,
	"path":              url.PathEscape,
	"percent upper":     func(s string) string { return percent(s, "%%%02X") },
	"percent lower":     func(s string) string { return percent(s, "%%%02x") },
	"percent twice":     func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
	"JSON":              quoted,
	"JSON in JSON":      func(s string) string { return quoted(quoted(s)) },
	"three times JSON":  func(s string) string { return quoted(quoted(quoted(s))) },
	"JSON of a query":   func(s string) string { return quoted(url.QueryEscape(s)) },
	"\\u lower":         func(s string) string { return unicodes(s, `\u%04x`) },
	"\\u upper":         func(s string) string { return unicodes(s, `\u%04X`) },
	"\\u in JSON":       func(s string) string { return quoted(unicodes(s, `\u%04x`)) },
	"slashes escaped":   func(s string) string { return strings.ReplaceAll(quoted(s), "/", `\/`) },
	"hex lower":         func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hex upper":         func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"base64":            func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 URL":        func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"base64 after one":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s + "yz")) },
	"base64 after two":  func(s string) string { return base64.URLEncoding.EncodeToString([]byte("ci" + s + "z")) },
	"base64 in a query": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"base64 by PHP": func(s string) string {
		return strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(s)), "/", `\/`)
	},
}

func percent(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func unicodes(s, format string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, format, u)
	}
	return b.String()
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b[1 : len(b)-1])
}

func TestNoSpellingOfTheSecretSurvives(t *testing.T) {
	s := scrub.New([]byte(canary))
	for name, spell := range spellings {
		form := spell(canary)
		for _, around := range [][2]string{{"", ""}, {`{"echo":"`, `","n":1}`}, {`\`, `\`}, {"%", "%"}, {canary[:9], canary[3:]}} {
			got, hit := s.Bytes([]byte(around[0] + form + around[1]))
			if !hit {
				t.Errorf("%s: not found in %s", name, form)
				continue
			}
			if strings.Contains(string(got), form) || leaks(string(got), canary) {
				t.Errorf("%s: left %s", name, got)
			}
			if !strings.HasPrefix(name, "base64") && around[0] != `\` && string(got) != around[0]+"[secret]"+around[1] {
				t.Errorf("%s: %q became %q", name, around[0]+form+around[1], got)
			}
			if again, hit := s.Bytes(got); hit {
				t.Errorf("%s: scrubbing again finds something in %s: %s", name, got, again)
			}
		}
	}
}

// leaks looks for the secret by decoding what it is given, which is another way than the package's.
func leaks(text, secret string) bool {
	views := []string{text, unescape(text)}
	if v, err := url.QueryUnescape(text); err == nil {
		views = append(views, v)
	}
	for _, v := range views {
		if strings.Contains(v, secret) || len(secret) >= 4 && strings.Contains(strings.ToLower(v), hex.EncodeToString([]byte(secret))) {
			return true
		}
	}
	return false
}

// unescape undoes one level of JSON escapes wherever there are some.
func unescape(text string) string {
	var s string
	if json.Unmarshal([]byte(`"`+text+`"`), &s) == nil {
		return s
	}
	return text
}

func TestSpellingsMayBeMixedCharacterByCharacter(t *testing.T) {
	s := scrub.New([]byte(canary))
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var b strings.Builder
		for _, r := range canary {
			c := string(r)
			switch random.IntN(5) {
			case 0:
				b.WriteString(unicodes(c, `\u%04x`))
			case 1:
				b.WriteString(percent(c, "%%%02X"))
			case 2:
				b.WriteString(quoted(c))
			case 3:
				b.WriteString(quoted(quoted(c)))
			default:
				b.WriteString(c)
			}
		}
		if got, _ := s.Bytes([]byte(b.String())); string(got) != "[secret]" {
			t.Fatalf("%q became %q", b.String(), got)
		}
	}
}

func TestTextWithoutTheSecretIsReturnedAsItIs(t *testing.T) {
	s := scrub.New([]byte(canary))
	text := []byte(`{"name":"canary","path":"C:\\temp\\7f3a","q":"%41%2542","b":"` + base64.StdEncoding.EncodeToString([]byte("canary-not/a")) + `"}`)
	got, hit := s.Bytes(text)
	if hit || &got[0] != &text[0] {
		t.Errorf("%v %s", hit, got)
	}
}

func TestAMarkerNeitherHoldsNorJoinsTheSecret(t *testing.T) {
	for _, secret := range []string{"[secret]", "]abcdefg", "a[secret]b", "cret", "[]", "()[]{}<>**##~~", "secretsecret"} {
		s := scrub.New([]byte(secret))
		for cut := range len(secret) {
			text := secret[:cut] + secret + secret[cut:] + secret
			got, hit := s.Bytes([]byte(text))
			if len(secret) < scrub.MinLength {
				if hit {
					t.Errorf("%q is too short to be looked for", secret)
				}
				continue
			}
			if !hit || strings.Contains(string(got), secret) {
				t.Errorf("%q: %q became %q", secret, text, got)
			}
		}
	}
}

func TestAShortPasswordIsFoundInBasicAuthentication(t *testing.T) {
	s := scrub.New([]byte("pw"), []byte("somebody:pw"))
	got, hit := s.String("Basic " + base64.StdEncoding.EncodeToString([]byte("somebody:pw")))
	if !hit || strings.Contains(got, base64.RawStdEncoding.EncodeToString([]byte("somebody:pw"))) {
		t.Error(got)
	}
	if got, hit := s.String("the pw"); hit {
		t.Errorf("two bytes were looked for: %s", got)
	}
}

func TestANilScrubberFindsNothing(t *testing.T) {
	var s *scrub.Scrubber
	if got, hit := s.Bytes([]byte("x")); hit || string(got) != "x" {
		t.Error(string(got))
	}
	s.Wipe()
}

func TestASecretThatACutWentThroughIsTakenOut(t *testing.T) {
	s := scrub.New([]byte(canary))
	for name, spell := range spellings {
		form := spell(canary)
		if strings.HasPrefix(name, "base64 after") {
			continue // begins with characters that are not the secret's
		}
		for n := range form {
			got, _ := s.Cut([]byte("text " + form[:n]))
			rest := strings.TrimPrefix(string(got), "text ")
			if rest != "[secret]" && len(rest) > 4*6*4 {
				t.Errorf("%s cut after %d: %q is left", name, n, rest)
			}
			if name == "raw" && n > 4 && rest != "[secret]" {
				t.Errorf("cut after %d: %q is left", n, rest)
			}
		}
	}
}

func TestAStreamIsScrubbedAcrossItsChunks(t *testing.T) {
	s := scrub.New([]byte(canary))
	for name, spell := range spellings {
		text := "before " + spell(canary) + " between " + spell(canary)[:5] + spell(canary) + " after" + spell(canary)[:3]
		want, _ := s.Bytes([]byte(text))
		for size := 1; size < len(text); size++ {
			var out bytes.Buffer
			w := s.NewWriter(&out)
			for rest := []byte(text); len(rest) > 0; {
				n := min(size, len(rest))
				if m, err := w.Write(rest[:n]); m != n || err != nil {
					t.Fatal(m, err)
				}
				rest = rest[n:]
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != string(want) || !w.Scrubbed() {
				t.Fatalf("%s by %d: %q, not %q", name, size, out.String(), want)
			}
		}
	}
}

func TestWhatAStreamHoldsBackIsBounded(t *testing.T) {
	s := scrub.New([]byte(canary))
	var out bytes.Buffer
	w := s.NewWriter(&out)
	for n, piece := range map[string][]byte{
		"backslashes": bytes.Repeat([]byte(`\`), 1<<12), "percent signs": bytes.Repeat([]byte("%25"), 1<<12), "beginnings": bytes.Repeat([]byte("canary"), 1<<12),
	} {
		before := out.Len()
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
		if held := len(piece) - (out.Len() - before); held > 1<<9 {
			t.Errorf("%s: %d bytes are held back", n, held)
		}
	}
}

func FuzzNoSpellingSurvives(f *testing.F) {
	f.Add("canary-not-a-secret", `{"a":"`, `"}`, byte(0), byte(3))
	f.Add(`\\\\\\\\`, `\`, `\`, byte(7), byte(1))
	f.Add("[secret]", "[", "]", byte(0), byte(2))
	f.Add("%25%25%25", "%", "25", byte(3), byte(2))
	f.Add("\xff\xfe\xfd\xfc", "\xff", "\xfc", byte(0), byte(2))
	names := slices.Sorted(maps.Keys(spellings))
	f.Fuzz(func(t *testing.T, secret, before, after string, spelling, chunk byte) {
		if len(secret) < scrub.MinLength || len(secret) > 200 || len(before)+len(after) > 1000 {
			return
		}
		name := names[int(spelling)%len(names)]
		if !utf8.ValidString(secret) && (strings.Contains(name, "JSON") || strings.Contains(name, `\u`) || name == "slashes escaped") {
			return // JSON cannot hold it
		}
		if strings.HasPrefix(name, "base64") && len(secret) < 9 {
			return // below the promise
		}
		form := spellings[name](secret)
		text := before + form + after
		s := scrub.New([]byte(secret))
		got, hit := s.Bytes([]byte(text))
		if !hit || strings.Contains(string(got), secret) || len(form) >= 8 && strings.Contains(string(got), form) {
			t.Fatalf("%s: %q became %q", name, text, got)
		}
		if _, hit := s.Bytes(got); hit {
			t.Fatalf("%s: %q became %q, which still has one", name, text, got)
		}
		var out bytes.Buffer
		w := s.NewWriter(&out)
		for rest := []byte(text); len(rest) > 0; {
			n := min(int(chunk)+1, len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if out.String() != string(got) {
			t.Fatalf("%s in chunks of %d: %q, whole: %q", name, chunk+1, out.String(), got)
		}
	})
}

func BenchmarkScrub(b *testing.B) {
	plain := bytes.Repeat([]byte(`{"id":"rel_000001","created":1700000000,"state":"succeeded","amount":1250,"note":"no secret here"},`), 100)
	escaped := bytes.Repeat([]byte(`{\"id\":\"rel_000001\",\"path\":\"C:\\\\temp\",\"q\":\"a%20b%2Fc\",\"note\":\"no secret\"},`), 100)
	for _, c := range []struct {
		name string
		text []byte
	}{{"no match", plain}, {"escapes, no match", escaped}, {"one match", append(bytes.Clone(plain), canary...)}} {
		b.Run(c.name, func(b *testing.B) {
			s := scrub.New([]byte("canary-not-a-secret-7f3a"))
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				s.Bytes(c.text)
			}
		})
	}
	b.Run("new and wipe", func(b *testing.B) {
		secret := []byte("canary-not-a-secret-7f3a")
		b.ReportAllocs()
		for b.Loop() {
			scrub.New(secret).Wipe()
		}
	})
}
