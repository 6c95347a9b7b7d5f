package httpchan_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
)

func zip(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.Bytes()
}

func deflate(text string) []byte {
	var b bytes.Buffer
	z, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.Bytes()
}

func wide(text string) []byte {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return b
}

func TestASecretInAPackedAnswerIsWithheld(t *testing.T) {
	const echo = `{"headers":{"Authorization":"Bearer ` + canary + `"}}`
	for _, c := range []struct {
		name, coding string
		body         []byte
		withheld     bool
	}{
		{"gzip with the secret", "gzip", zip(echo), true},
		{"gzip twice", "gzip, gzip", zip(string(zip(echo))), true},
		{"gzip that is broken", "gzip", zip(echo)[:20], true},
		{"another packing", "deflate", deflate(echo), true},
		{"UTF-16", "", wide(echo), true},
		{"gzip without the secret", "gzip", zip(`{"id":7}`), false},
		{"zeros without the secret", "", []byte("a\x00b\xff"), false},
	} {
		both(t, func(t *testing.T, class func(*channel.Request)) {
			t.Run(c.name, func(t *testing.T) {
				s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if c.coding != "" {
						w.Header().Set("Content-Encoding", c.coding)
					}
					_, _ = w.Write(c.body)
				})
				o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class, with(t, effect.Auth{Credential: "c", Kind: "bearer"}, canary)))
				got := read(t, o)
				if o.Verdict != channel.Success || strings.Contains(o.Reason, "withheld") != c.withheld || strings.Contains(got.Content[0].Text, "withheld") != c.withheld {
					t.Errorf("%+v", o)
				}
				if shown := strings.Contains(string(o.Result), base64.StdEncoding.EncodeToString(c.body)); shown == c.withheld {
					t.Errorf("the body is shown: %t, in %s", shown, o.Result)
				}
			})
		})
	}
}
