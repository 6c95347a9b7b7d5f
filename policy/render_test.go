package policy_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/policy"
)

const id = "act_01JAAAAAAAAAAAAAAAAAAAAAAA"

func render(t testing.TB, a *policy.Action, arguments string) effect.Effect {
	t.Helper()
	e, err := a.Render(prepare(t, a, arguments), id)
	if err != nil {
		t.Fatalf("rendering %s: %v", arguments, err)
	}
	return e
}

func TestARequestIsRenderedExactly(t *testing.T) {
	e := render(t, compile(t, plain), `{"to":"a/b c&d","weight":2.50,"labels":["x","\"y\""],"pin":"1234"}`)
	want := effect.Effect{
		Channel: effect.HTTP,
		Auth:    &effect.Auth{Credential: "parcels"},
		HTTP: &effect.HTTPRequest{
			Method: "POST", URL: "https://parcels.example/v1/a%2Fb%20c%26d/parcels?count=1",
			Header: []effect.Field{{Name: "X-Trace", Value: id}, {Name: "Content-Type", Value: "application/json"}},
			Body:   []byte(`{"to":"a/b c&d","weight":2.5,"note":"for a/b c&d","labels":["x","\"y\""],"pin":"1234"}`),
		},
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("rendered %+v, %s\nwant %+v, %s", e.HTTP, e.HTTP.Body, want.HTTP, want.HTTP.Body)
	}
}

func TestTheStatusesThatMeanSuccessAreSentToTheChannel(t *testing.T) {
	listed := render(t, compile(t, edit(t, plain, "  method: POST", "  method: POST\n  success: [201, 404]")), `{"to":"a"}`).HTTP
	if !slices.Equal(listed.Success, []int{201, 404}) || listed.Succeeded(200) || !listed.Succeeded(404) {
		t.Errorf("success %v", listed.Success)
	}
	class := render(t, compile(t, edit(t, plain, "  method: POST", "  method: POST\n  success: [2xx, 404]")), `{"to":"a"}`).HTTP
	if len(class.Success) != 101 || !class.Succeeded(299) || class.Succeeded(400) {
		t.Errorf("success %v", class.Success)
	}
	if plainly := render(t, compile(t, plain), `{"to":"a"}`).HTTP; plainly.Success != nil || !plainly.Succeeded(299) {
		t.Errorf("success %v", plainly.Success)
	}
}

func TestTheIdempotencyKeyIsTheExecutionsID(t *testing.T) {
	a := compile(t, edit(t, plain, "class: irreversible", "class: idempotent\n  idempotency_header: idempotency-key\n  key_lifetime: 24h"))
	header := render(t, a, `{"to":"a"}`).HTTP.Header
	if !slices.Contains(header, effect.Field{Name: "Idempotency-Key", Value: id}) {
		t.Errorf("header %v", header)
	}
}

func TestAnAbsentArgumentLeavesOutWhatNamesIt(t *testing.T) {
	a := compile(t, edit(t, plain, `headers: {X-Trace: "{execution_id}"}`, `headers: {X-Weight: "{weight} kg"}`, `query: {count: "{count}"}`, `query: {express: "{express}", w: "{weight}", fixed: x}`,
		`labels: "{labels}"`, `labels: ["{weight}", a, "{weight} kg", {w: "{weight}"}]`))
	e := render(t, a, `{"to":"a"}`)
	if got := string(e.HTTP.Body); got != `{"to":"a","note":"for a","labels":["a",{}]}` {
		t.Errorf("body %s", got)
	}
	if e.HTTP.URL != "https://parcels.example/v1/a/parcels?fixed=x" || len(e.HTTP.Header) != 1 {
		t.Errorf("URL %s, header %v", e.HTTP.URL, e.HTTP.Header)
	}
}

func TestFormsTextsAndBraces(t *testing.T) {
	form := compile(t, edit(t, plain, plain[strings.Index(plain, "  json:"):strings.Index(plain, "  timeout:")], "  form: {z: \"{to}\", a: \"{count} {{x}}\", w: \"{weight}\"}\n"))
	e := render(t, form, `{"to":"a&b=c +é"}`)
	if got := string(e.HTTP.Body); got != "z=a%26b%3Dc+%2B%C3%A9&a=1+%7Bx%7D" || e.HTTP.Header[1].Value != "application/x-www-form-urlencoded" {
		t.Errorf("form %s, header %v", got, e.HTTP.Header)
	}
	body := compile(t, edit(t, plain, plain[strings.Index(plain, "  json:"):strings.Index(plain, "  timeout:")], "  body: \"{{{to}}} as is: {to}\"\n"))
	e = render(t, body, `{"to":"<&"}`)
	if got := string(e.HTTP.Body); got != "{<&} as is: <&" || e.HTTP.Header[1].Value != "text/plain; charset=utf-8" {
		t.Errorf("text %q, header %v", got, e.HTTP.Header)
	}
	own := compile(t, edit(t, plain, `headers: {X-Trace: "{execution_id}"}`, `headers: {content-type: application/vnd.parcel+json}`))
	if h := render(t, own, `{"to":"a"}`).HTTP.Header; len(h) != 1 || h[0] != (effect.Field{Name: "Content-Type", Value: "application/vnd.parcel+json"}) {
		t.Errorf("header %v", h)
	}
}

func TestWhatCannotGoWhereItShouldIsRefused(t *testing.T) {
	a := compile(t, edit(t, plain, "maxLength: 40", "maxLength: 100", "express: {type: boolean}", "express: {type: string}", "X-Trace: \"{execution_id}\"", "X-Express: \"{express}\""))
	for _, c := range []struct{ arguments, pointer string }{
		{`{"to":""}`, "/to"},
		{`{"to":"."}`, "/to"},
		{`{"to":".."}`, "/to"},
		{`{"to":"../admin"}`, "/to"},
		{`{"to":"a/../../admin"}`, "/to"},
		{`{"to":"..\\admin"}`, "/to"},
		{`{"to":"..;x/admin"}`, "/to"},
		{`{"to":"a\u0000b"}`, "/to"},
		{`{"to":"a\r\nHost: b"}`, "/to"},
		{`{"to":"a","express":"x\r\nHost: evil.example"}`, "/express"},
		{`{"to":"a","express":"x\ny"}`, "/express"},
		{`{"to":"a","express":"\u0000"}`, "/express"},
		{`{"to":"a","express":"\u007f"}`, "/express"},
		{`{"to":"a","express":"é"}`, "/express"},
		{`{"to":"a","express":" x"}`, "/express"},
		{`{"to":"a","express":"x "}`, "/express"},
	} {
		_, err := a.Render(prepare(t, a, c.arguments), id)
		if e := argumentError(t, err); e.Pointer != c.pointer {
			t.Errorf("%s: refused at %q: %v", c.arguments, e.Pointer, err)
		}
	}
	half := compile(t, edit(t, plain, "v1/{to}/parcels", "v1/.{to}/parcels"))
	if _, err := half.Render(prepare(t, half, `{"to":"."}`), id); argumentError(t, err).Pointer != "/to" {
		t.Errorf("a segment that becomes .. only together: %v", err)
	}
	// What is only unusual is sent, encoded.
	for _, to := range []string{"...", "a..b", "%2e%2e", "a;b", "?", "#", "a/b", "é", " "} {
		b, err := json.Marshal(map[string]string{"to": to})
		if err != nil {
			t.Fatal(err)
		}
		render(t, a, string(b))
	}
}

const everywhere = `action: everywhere
description: Puts one text into every place that takes one.
channel: http
input: {type: object, properties: {a: {type: string}, any: {}}, required: [a]}
http:
  method: POST
  url: https://target.example:8443/base/{a}/x{a}y/end
  headers: {X-A: "v {a} v"}
  query: {q: "{a}", r: "1{a}2", s: fixed}
  json: {whole: "{a}", part: "<{a}>", fixed: 1, list: ["{a}", 2], any: "{any}", end: true}
replay: {attach_window: 1h}
`

// FuzzNoArgumentChangesTheStructure reads the rendered request back and finds the argument exactly where the contract puts it, and everything else as the contract
// writes it.
func FuzzNoArgumentChangesTheStructure(f *testing.F) {
	a := compile(f, everywhere)
	form := compile(f, edit(f, everywhere, `json: {whole: "{a}", part: "<{a}>", fixed: 1, list: ["{a}", 2], any: "{any}", end: true}`, `form: {"n&m": "{a}", part: "<{a}>", fixed: "1"}`))
	for _, s := range []string{"x", "", "..", "/", "%2f", "a&b=c", "\"}", `\`, "\r\nX: y", "?x#y", "{a}", "{{", "é", "\u2028", "@evil.example/", "../..", " ", "+"} {
		f.Add(s, `{"x":[1,"`+"y"+`"]}`)
	}
	f.Fuzz(func(t *testing.T, value, anything string) {
		arguments, err := json.Marshal(map[string]string{"a": value})
		if err != nil {
			t.Skip()
		}
		if json.Valid([]byte(anything)) {
			arguments = []byte(strings.TrimSuffix(string(arguments), "}") + `,"any":` + anything + `}`)
		}
		p, err := a.Prepare(arguments)
		if err != nil {
			t.Skip()
		}
		var sent struct {
			A   string
			Any any
		}
		if err := json.Unmarshal(p.Arguments, &sent); err != nil {
			t.Fatal(err)
		}
		e, err := a.Render(p, id)
		if err != nil {
			argumentError(t, err)
			return
		}
		u, err := url.Parse(e.HTTP.URL)
		if err != nil {
			t.Fatalf("URL %q: %v", e.HTTP.URL, err)
		}
		segments := strings.Split(u.EscapedPath(), "/")
		if u.Scheme != "https" || u.Host != "target.example:8443" || u.User != nil || u.Fragment != "" || len(segments) != 5 || segments[1] != "base" || segments[4] != "end" {
			t.Fatalf("URL %q", e.HTTP.URL)
		}
		if u.JoinPath().EscapedPath() != u.EscapedPath() {
			t.Fatalf("URL %q is cleaned to %q", e.HTTP.URL, u.JoinPath())
		}
		for i, want := range []string{sent.A, "x" + sent.A + "y"} {
			if got, err := url.PathUnescape(segments[2+i]); err != nil || got != want {
				t.Fatalf("path segment %q, want %q", got, want)
			}
		}
		query, err := url.ParseQuery(u.RawQuery)
		if err != nil || !reflect.DeepEqual(query, url.Values{"q": {sent.A}, "r": {"1" + sent.A + "2"}, "s": {"fixed"}}) {
			t.Fatalf("query %q", u.RawQuery)
		}
		request, err := http.NewRequest(e.HTTP.Method, e.HTTP.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range e.HTTP.Header {
			request.Header.Add(field.Name, field.Value)
		}
		var wire strings.Builder
		if err := request.Write(&wire); err != nil {
			t.Fatal(err)
		}
		if strings.Count(wire.String(), "\r\n") != 7 || !strings.Contains(wire.String(), "\r\nX-A: v "+sent.A+" v\r\n") {
			t.Fatalf("on the wire:\n%s", wire.String())
		}
		want := map[string]any{"whole": sent.A, "part": "<" + sent.A + ">", "fixed": 1.0, "list": []any{sent.A, 2.0}, "end": true}
		if strings.Contains(string(p.Arguments), `"any":`) {
			want["any"] = sent.Any
		}
		var body map[string]any
		if err := json.Unmarshal(e.HTTP.Body, &body); err != nil {
			t.Fatalf("body %s: %v", e.HTTP.Body, err)
		}
		if _, there := body["any"]; there != (sent.Any != nil) && sent.Any != nil {
			t.Fatalf("body %s", e.HTTP.Body)
		}
		if sent.Any == nil {
			delete(want, "any")
			delete(body, "any")
		}
		if !reflect.DeepEqual(body, want) {
			t.Fatalf("body %s, want %v", e.HTTP.Body, want)
		}
		e, err = form.Render(p, id)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := url.ParseQuery(string(e.HTTP.Body))
		if err != nil || !maps.EqualFunc(fields, url.Values{"n&m": {sent.A}, "part": {"<" + sent.A + ">"}, "fixed": {"1"}}, slices.Equal) {
			t.Fatalf("form %q", e.HTTP.Body)
		}
	})
}
