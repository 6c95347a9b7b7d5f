package httpchan_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/secret"
)

const canary = "canary-not-a-secret-7f3a+/9"

// attempt makes a request with a side effect; changes adapt it.
func attempt(url string, changes ...func(*channel.Request)) channel.Request {
	r := channel.Request{
		ExecutionID: "act_test",
		Attempt:     1,
		SideEffect:  true,
		Effect: effect.Effect{Channel: effect.HTTP, HTTP: &effect.HTTPRequest{
			Method: "POST", URL: url,
			Header: []effect.Field{{Name: "Content-Type", Value: "application/json"}, {Name: "Idempotency-Key", Value: "act_test"}},
			Body:   []byte(`{"n":1}`),
		}},
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func readOnly(r *channel.Request) {
	r.SideEffect = false
	r.Effect.HTTP.Method, r.Effect.HTTP.Body, r.Effect.HTTP.Header = "GET", nil, nil
}

func with(t testing.TB, a effect.Auth, value string) func(*channel.Request) {
	t.Helper()
	s := secret.New([]byte(value))
	t.Cleanup(s.Wipe)
	return func(r *channel.Request) { r.Effect.Auth, r.Secret = &a, s }
}

// both runs f for either class.
func both(t *testing.T, f func(t *testing.T, class func(*channel.Request))) {
	t.Run("side effect", func(t *testing.T) { f(t, func(*channel.Request) {}) })
	t.Run("read only", func(t *testing.T) { f(t, readOnly) })
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func client(t testing.TB, cfg httpchan.Config) *httpchan.Channel {
	t.Helper()
	c := httpchan.New(cfg)
	t.Cleanup(c.Close)
	return c
}

// told is what an agent reads.
type told struct {
	Content []struct {
		Type, Text string
	}
	StructuredContent struct {
		Status                    int
		Headers                   map[string]string
		Body                      json.RawMessage
		BodyEncoding              string `json:"body_encoding"`
		Incomplete, Cut, Scrubbed bool
	}
	IsError *bool
}

func read(t *testing.T, o channel.Outcome) told {
	t.Helper()
	var r told
	d := json.NewDecoder(bytes.NewReader(o.Result))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in %s (%+v)", err, o.Result, o)
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" || r.IsError == nil || *r.IsError != (o.Verdict != channel.Success) || r.StructuredContent.Status != o.Status {
		t.Fatalf("%s does not fit %+v", o.Result, o)
	}
	if bytes.ContainsAny(o.Result, "\r\n") {
		t.Fatalf("the result is more than one line: %s", o.Result)
	}
	return r
}

func TestTheRequestIsWhatTheEffectSays(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		var got *http.Request
		var body []byte
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = r
			body, _ = io.ReadAll(r.Body)
			w.Header().Set("Location", "/v1/releases/7")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"id":7}`)
		})
		r := attempt(s.URL+"/v1/rel%2Feases?a=1&b=%20;", class)
		o := client(t, httpchan.Config{}).Do(t.Context(), r)
		if o.Verdict != channel.Success || o.Status != 201 || o.Reason != "" {
			t.Fatalf("%+v", o)
		}
		if got.RequestURI != "/v1/rel%2Feases?a=1&b=%20;" || got.Method != r.Effect.HTTP.Method || string(body) != string(r.Effect.HTTP.Body) || got.Host != s.Listener.Addr().String() {
			t.Errorf("%s %s %s", got.Method, got.RequestURI, body)
		}
		if got.Header.Get("Accept-Encoding") != "identity" || got.Header.Get("User-Agent") != "singlepass" {
			t.Errorf("%v", got.Header)
		}
		for _, f := range r.Effect.HTTP.Header {
			if got.Header.Get(f.Name) != f.Value {
				t.Errorf("%s is %q", f.Name, got.Header.Get(f.Name))
			}
		}
		if want := `{"content":[{"type":"text","text":"HTTP 201 Created\n\n{\"id\":7}"}],"structuredContent":{"status":201,"headers":{"content-type":"application/json","location":"/v1/releases/7"},"body":{"id":7}},"isError":false}`; string(o.Result) != want {
			t.Errorf("\n%s\n%s", o.Result, want)
		}
	})
}

func TestTheCredentialIsPutWhereItsKindSays(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		var mu sync.Mutex
		var got *http.Request
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			got = r.Clone(context.Background())
			w.Header().Set("Location", r.RequestURI)
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			fmt.Fprint(w, r.Header, r.RequestURI)
		})
		c := client(t, httpchan.Config{})
		basic := base64.StdEncoding.EncodeToString([]byte("ci:" + canary))
		for _, kind := range []struct {
			auth  effect.Auth
			url   string
			where func() string
			want  string
		}{
			{effect.Auth{Credential: "c", Kind: "bearer"}, "/x", func() string { return got.Header.Get("Authorization") }, "Bearer " + canary},
			{effect.Auth{Credential: "c", Kind: "basic", Username: "ci"}, "/x", func() string { return got.Header.Get("Authorization") }, "Basic " + basic},
			{effect.Auth{Credential: "c", Kind: "header", Place: "X-Api-Key"}, "/x", func() string { return got.Header.Get("X-Api-Key") }, canary},
			{effect.Auth{Credential: "c", Kind: "query", Place: "api key"}, "/x", func() string { return got.RequestURI }, "/x?api+key=canary-not-a-secret-7f3a%2B%2F9"},
			{effect.Auth{Credential: "c", Kind: "query", Place: "k"}, "/x?a=1", func() string { return got.RequestURI }, "/x?a=1&k=canary-not-a-secret-7f3a%2B%2F9"},
			{effect.Auth{Credential: "c", Kind: "query", Place: "k"}, "/x?", func() string { return got.RequestURI }, "/x?k=canary-not-a-secret-7f3a%2B%2F9"},
		} {
			var asked string
			o := c.Do(t.Context(), attempt(s.URL+kind.url, class, with(t, kind.auth, canary), func(r *channel.Request) {
				r.Permitted = func(u string) error { asked = u; return nil }
			}))
			if o.Verdict != channel.Success {
				t.Fatalf("%+v", o)
			}
			mu.Lock()
			if kind.where() != kind.want {
				t.Errorf("%s: %q, not %q", kind.auth.Kind, kind.where(), kind.want)
			}
			mu.Unlock()
			if asked != s.URL+kind.url {
				t.Errorf("permission was asked for %q", asked)
			}
			if !read(t, o).StructuredContent.Scrubbed {
				t.Error("nothing was scrubbed")
			}
			for _, text := range []string{string(o.Result), string(o.Answer), o.Reason} {
				if strings.Contains(text, canary) || strings.Contains(text, basic) || strings.Contains(text, "7f3a") {
					t.Errorf("%s: the secret is in %s", kind.auth.Kind, text)
				}
			}
		}
	})
}

var quiet = log.New(io.Discard, "", 0)

func loopback(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}
