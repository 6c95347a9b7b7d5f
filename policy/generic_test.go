package policy_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

func genericAction(t *testing.T, class execution.Class) *policy.Action {
	t.Helper()
	a, err := policy.GenericHTTP("api", class)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The digests stand in journals: what was sent is matched under them for ever.
func TestTheDigestOfAGenericActionIsFrozen(t *testing.T) {
	for class, want := range map[execution.Class]string{
		execution.Irreversible: `{"singlepass_generic":1,"tool":"http_request","credential":"api","class":"irreversible"}`,
		execution.ReadOnly:     `{"singlepass_generic":1,"tool":"http_request","credential":"api","class":"read_only"}`,
	} {
		if got := genericAction(t, class).Contract().Digest; got != policy.Digest([]byte(want)) {
			t.Errorf("%s: %s", class, got)
		}
	}
	if _, err := policy.GenericHTTP("api", execution.Idempotent); err == nil {
		t.Error("any class is possible")
	}
}

func TestAGenericRequestIsSentAsItIsWritten(t *testing.T) {
	a := genericAction(t, execution.Irreversible)
	for arguments, want := range map[string]effect.HTTPRequest{
		`{"method":"GET","url":"https://h.example/a%20b?c=d&e"}`:                                     {Method: "GET", URL: "https://h.example/a%20b?c=d&e"},
		`{"method":"POST","url":"https://h.example","json":{"b":[1,2.50],"a":null}}`:                 {Method: "POST", URL: "https://h.example", Header: []effect.Field{{Name: "Content-Type", Value: "application/json"}}, Body: []byte(`{"a":null,"b":[1,2.5]}`)},
		`{"method":"PUT","url":"https://h.example/","body":"ä","headers":{"content-type":"text/x"}}`: {Method: "PUT", URL: "https://h.example/", Header: []effect.Field{{Name: "Content-Type", Value: "text/x"}}, Body: []byte("ä")},
		`{"method":"PATCH","url":"https://h.example/","body_base64":"AAE=","headers":{"b":"2","A":"1"}}`: {
			Method: "PATCH", URL: "https://h.example/", Header: []effect.Field{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "Content-Type", Value: "application/octet-stream"}}, Body: []byte{0, 1},
		},
	} {
		p, err := a.Prepare(json.RawMessage(arguments))
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		e, err := a.Render(p, "act_x")
		if err != nil || e.Auth.Credential != "api" || e.HTTP.Method != want.Method || e.HTTP.URL != want.URL || !bytes.Equal(e.HTTP.Body, want.Body) || len(e.HTTP.Header) != len(want.Header) {
			t.Errorf("%s: %+v %v", arguments, e.HTTP, err)
			continue
		}
		for i, f := range want.Header {
			if e.HTTP.Header[i] != f {
				t.Errorf("%s: %+v", arguments, e.HTTP.Header)
			}
		}
	}
}

func TestAGenericRequestThatWouldBeSentOtherwiseIsRefused(t *testing.T) {
	a := genericAction(t, execution.Irreversible)
	with := func(more string) string { return `{"method":"POST","url":"https://h.example/"` + more + `}` }
	url := func(u string) string { return `{"method":"GET","url":"` + u + `"}` }
	for arguments, says := range map[string]string{
		url("h.example/x"):                                       "not an absolute https URL",
		url("ftp://h.example/"):                                  "not an absolute https URL",
		url("https:h.example"):                                   "not an absolute https URL",
		url("https://u:p@h.example/"):                            "user or password",
		url("https://h.example/#a"):                              "fragment",
		url("https://h.example/ä"):                               "percent-encode",
		url("https://h.example/a b"):                             "percent-encode",
		url("https://h.example/%zz"):                             "not an absolute https URL",
		url("https://-x/"):                                       "its host is none",
		url("https://h.example:99999/"):                          "its host is none",
		url(`https://h.example/\"x\"`):                           "it would be sent as",
		with(`,"headers":{"Host":"x"}`):                          "/headers/Host",
		with(`,"headers":{"Authorization":"x"}`):                 "/headers/Authorization",
		with(`,"headers":{"X-HTTP-Method-Override":"DELETE"}`):   "another request",
		with(`,"headers":{"x-method-override":"DELETE"}`):        "another request",
		with(`,"headers":{"a b":"x"}`):                           "no header name",
		with(`,"headers":{"A":"x","a":"y"}`):                     "twice",
		with(`,"headers":{"A":"x\r\nHost: y"}`):                  "cannot carry",
		with(`,"headers":{"A":" x"}`):                            "cannot carry",
		with(`,"json":1,"body":"x"`):                             "one body",
		with(`,"body_base64":"?"`):                               "not base64",
		with(`,"proxy":"x"`):                                     "proxy",
		`{"method":"GET","url":"https://h.example/","body":"x"}`: "has no body",
		`{"method":"TRACE","url":"https://h.example/"}`:          "method",
	} {
		if _, err := a.Prepare(json.RawMessage(arguments)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

func TestTheFingerprintOfAGenericRequestIsThatOfTheRequest(t *testing.T) {
	a, reads := genericAction(t, execution.Irreversible), genericAction(t, execution.ReadOnly)
	of := func(a *policy.Action, arguments string) string {
		p, err := a.Prepare(json.RawMessage(arguments))
		if err != nil {
			t.Fatalf("%s: %v", arguments, err)
		}
		return a.Fingerprint(func(b []byte) [32]byte { return sha256.Sum256(b) }, p, "exe:/a", "run:1")
	}
	const one = `{"method":"POST","url":"https://h.example/","headers":{"X-A":"1"},"json":{"a":1}}`
	for _, same := range []string{
		`{"url":"https://h.example/","method":"POST","json":{"a":1.0},"headers":{"x-a":"1"}}`,
		`{"method":"POST","url":"https://h.example/","headers":{"X-A":"1"},"json":{"a":1},"credential":"api","intent_key":"k"}`,
		`{"method":"POST","url":"https://h.example/","headers":{"X-A":"1","Content-Type":"application/json"},"body":"{\"a\":1}"}`,
	} {
		if of(a, same) != of(a, one) {
			t.Errorf("another intent: %s", same)
		}
	}
	if of(reads, one) != of(a, one) {
		t.Error("the class is in the fingerprint, so that a leave that was changed would hide what was sent")
	}
	for _, other := range []string{
		strings.Replace(one, "POST", "PUT", 1), strings.Replace(one, "h.example/", "h.example/x", 1), strings.Replace(one, `"X-A":"1"`, `"X-A":"2"`, 1), strings.Replace(one, `{"a":1}`, `{"a":2}`, 1),
	} {
		if of(a, other) == of(a, one) {
			t.Errorf("the same intent: %s", other)
		}
	}
}
