package fingerprint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"singlepass.dev/daemon/fingerprint"
)

func TestSpellingsOfOneIntentHaveOneCanonicalForm(t *testing.T) {
	for want, spellings := range map[string][]string{
		`{"a":1,"b":"é","c":[true,null]}`: {
			"{\"a\":1,\"b\":\"é\",\"c\":[true,null]}",
			" { \"c\" : [ true , null ] ,\n\t\"b\":\"\\u00e9\", \"a\" : 1.0 }\r\n",
			`{"b":"\u00E9","a":1e0,"c":[true,null]}`,
			`{"\u0061":10e-1,"b":"é","c":[true,null]}`,
			`{"a":0.1E1,"b":"é","c":[true,null]}`,
		},
		`"😀"`:              {`"😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`},
		`"/"`:              {`"\/"`, `"/"`, `"\u002f"`},
		`0`:                {`0`, `-0`, `0.0`, `-0e5`, `0e-400`},
		`9007199254740992`: {`9007199254740992`, `9007199254740992.0`, `9.007199254740992e15`},
	} {
		for _, spelling := range spellings {
			got, err := fingerprint.Canonical([]byte(spelling))
			if err != nil || string(got) != want {
				t.Errorf("Canonical(%s) = %s, %v; want %s", spelling, got, err, want)
			}
		}
	}
}

// The examples of RFC 8785, sections 3.2.2 and 3.2.3 and appendix B, as far as this package takes their numbers.
func TestCanonicalFormIsRFC8785(t *testing.T) {
	for in, want := range map[string]string{
		`{"numbers":[4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`: `{"literals":[null,true,false],"numbers":[4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`:                                                                 "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}",
		`[5e-324,2.2250738585072014e-308,0.000001,0.0000009999,123456789.125]`:                                                                        `[5e-324,2.2250738585072014e-308,0.000001,9.999e-7,123456789.125]`,
		`"\u0000\u001f\u007f\u2028\b\f\t"`: "\"\\u0000\\u001f\u007f\u2028\\b\\f\\t\"",
	} {
		got, err := fingerprint.Canonical([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s)\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
}

func TestWhatTwoReadersCouldReadDifferentlyIsRefusedWithThePlace(t *testing.T) {
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for _, c := range []struct{ name, in, pointer, problem string }{
		{"a duplicate name", `{"a":{"b":1,"c":2,"b":3}}`, "/a/b", "occurs twice"},
		{"a duplicate name after unescaping", `{"ab":1,"\u0061b":2}`, "/ab", "occurs twice"},
		{"2^53+1", `{"n":9007199254740993}`, "/n", "beyond ±2^53"},
		{"-(2^53+1)", `{"n":[1,-9007199254740993]}`, "/n/1", "beyond ±2^53"},
		{"2^53+1 with a fraction", `9007199254740993.0`, "", "beyond ±2^53"},
		{"2^53 and a little", `9007199254740992.5`, "", "beyond ±2^53"},
		{"1e17", `{"n":1e17}`, "/n", "beyond ±2^53"},
		{"9007199254740993 spelt with an exponent", `9.007199254740993e15`, "", "beyond ±2^53"},
		{"1e400", `{"n":1e400}`, "/n", "too large"},
		{"-1e400", `{"n":-1e400}`, "/n", "too large"},
		{"1e-400, which a double takes for zero", `{"n":1e-400}`, "/n", "too small"},
		{"a lone high surrogate", `{"s":"\ud800"}`, "/s", "surrogate"},
		{"a lone low surrogate", `{"s":"a\udc00b"}`, "/s", "surrogate"},
		{"two high surrogates", `{"s":"\ud800\ud800"}`, "/s", "surrogate"},
		{"a lone surrogate in a name", `{"\ud800":1}`, "", "surrogate"},
		{"invalid UTF-8", "{\"s\":\"\xff\"}", "/s", "UTF-8"},
		{"an overlong encoding", "{\"s\":\"\xc0\xaf\"}", "/s", "UTF-8"},
		{"a surrogate in UTF-8", "{\"s\":\"\xed\xa0\x80\"}", "/s", "UTF-8"},
		{"too deep", deep, strings.Repeat("/0", 64), "deeper than 64"},
		{"NaN", `{"n":NaN}`, "/n", "not valid JSON"},
		{"a trailing comma", `{"n":1,}`, "", "not valid JSON"},
		{"two values", `{} {}`, "", "after the end"},
		{"nothing", ` `, "", "ends too early"},
		{"half an object", `{"a":`, "/a", "ends too early"},
		{"a leading zero", `{"n":01}`, "", "not valid JSON"},
		{"a byte order mark", "\xef\xbb\xbf{}", "", "not valid JSON"},
		{"too long", `"` + strings.Repeat("a", fingerprint.MaxBytes) + `"`, "", "limit"},
	} {
		err := fingerprint.Strict([]byte(c.in))
		var input *fingerprint.InputError
		if !errors.As(err, &input) {
			t.Errorf("%s: Strict gave %v, want an InputError", c.name, err)
			continue
		}
		if input.Pointer != c.pointer || !strings.Contains(input.Problem, c.problem) || input.Remedy == "" {
			t.Errorf("%s: at %q: %s; want at %q: …%s…", c.name, input.Pointer, err, c.pointer, c.problem)
		}
	}
}

// FuzzCanonical holds this package against jsontext, another implementation of RFC 8785: what we accept, it accepts, and both write the same bytes.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b":[1,2.5e-9,"\u00e9"],"a":{"x":null}}`, `{"\ufb33":1,"\ud83d\ude00":2}`, `[1e21,1e-7,-0,9007199254740993]`, `"\ud800"`, `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Add(twoHundred)
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		got, err := fingerprint.Canonical(raw)
		if !bytes.Equal(before, raw) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if msg := err.Error(); msg == "" {
				t.Fatal("an error without words")
			}
			return
		}
		want := jsontext.Value(bytes.Clone(raw))
		if err := want.Canonicalize(); err != nil {
			t.Fatalf("accepted %q, which jsontext refuses: %v", raw, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("Canonical(%q)\n got %s\nwant %s", raw, got, want)
		}
		again, err := fingerprint.Canonical(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("canonical form of %s is %s, %v", got, again, err)
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", raw, err)
		}
	})
}

func FuzzNumber(f *testing.F) {
	f.Add(1.5)
	f.Add(9007199254740992.0)
	f.Add(1e-7)
	f.Fuzz(func(t *testing.T, n float64) {
		if math.IsNaN(n) || math.Abs(n) > 1<<53 {
			t.Skip()
		}
		got := fingerprint.Append(nil, n)
		want := jsontext.Value(jsontext.Float(n).String())
		if err := want.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("number %v is written %s, want %s", n, got, want)
		}
	})
}
