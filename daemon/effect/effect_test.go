package effect_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
)

func whole() effect.Effect {
	return effect.Effect{
		Channel: effect.HTTP,
		HTTP: &effect.HTTPRequest{
			Method:  "POST",
			URL:     "https://deploy-api.internal.example/v1/releases?dry=0",
			Header:  []effect.Field{{Name: "Content-Type", Value: "application/json"}, {Name: "Idempotency-Key", Value: "act_01"}},
			Body:    []byte(`{"n":9007199254740991,"text":"<é>"}`),
			Success: []int{201, 202},
		},
		Auth: &effect.Auth{Credential: "deploy-service", Kind: "basic", Place: "", Username: "ci"},
	}
}

// asked is whole with a status request.
func asked() effect.Effect {
	e := whole()
	e.Status = &effect.StatusRequest{
		HTTP: effect.HTTPRequest{
			Method: "POST", URL: "https://status.internal.example/find?of=act_01", Header: []effect.Field{{Name: "Accept", Value: "application/json"}},
			Body: []byte(`{"id":"act_01"}`), Success: []int{200},
		},
		Auth: &effect.Auth{Credential: "deploy-reader", Kind: "header", Place: "X-Key", Username: ""},
	}
	return e
}

// awaited is asked of a target that can say that it is not done.
func awaited() effect.Effect {
	e := asked()
	e.Status.HTTP = effect.HTTPRequest{Method: "GET", URL: "{answer:Location}", Header: []effect.Field{{Name: "X-Job", Value: "{answer:/job/id}"}}, Body: []byte("-"), Success: []int{200}}
	e.Status.Fields, e.Status.Within = []string{"Location", "/job/id"}, "https://deploy-api.internal.example/v1/"
	e.Status.Accepted, e.Status.Done, e.Status.Failed, e.Status.NotDone, e.Status.Running = "status == 202", `body.state == "done"`, `body.state == "failed"`, "status == 404", `body.state == "<busy>"`
	return e
}

// The file was written when the fields were added. It is never regenerated.
func TestAStatusRequestWithFieldsOfTheAnswerIsFrozenToo(t *testing.T) {
	vector, err := os.ReadFile("testdata/v1-awaited.json")
	if err != nil {
		t.Fatal(err)
	}
	vector = bytes.TrimSuffix(vector, []byte("\n"))
	got, err := awaited().Encode()
	if err != nil || !bytes.Equal(got, vector) {
		t.Errorf("encoded:\n%s\nfrozen:\n%s\n%v", got, vector, err)
	}
	if back, err := effect.Decode(vector); err != nil || !reflect.DeepEqual(back, awaited()) {
		t.Errorf("decoded %+v, %v", back, err)
	}
}

// The file was written when the field was added. It is never regenerated.
func TestAStatusRequestIsFrozenToo(t *testing.T) {
	vector, err := os.ReadFile("testdata/v1-status.json")
	if err != nil {
		t.Fatal(err)
	}
	vector = bytes.TrimSuffix(vector, []byte("\n"))
	got, err := asked().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, vector) {
		t.Errorf("encoded:\n%s\nfrozen:\n%s", got, vector)
	}
	back, err := effect.Decode(vector)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, asked()) {
		t.Errorf("decoded %+v", back)
	}
}

// The files were written once, by version 1. They are never regenerated: a difference is a break of what lies sealed in journals.
func TestVersionOneIsFrozen(t *testing.T) {
	vector, err := os.ReadFile("testdata/v1.json")
	if err != nil {
		t.Fatal(err)
	}
	vector = bytes.TrimSuffix(vector, []byte("\n"))
	digest, err := os.ReadFile("testdata/v1.sha256")
	if err != nil {
		t.Fatal(err)
	}
	got, err := whole().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, vector) {
		t.Errorf("encoded:\n%s\nfrozen:\n%s", got, vector)
	}
	back, err := effect.Decode(vector)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, whole()) {
		t.Errorf("decoded %+v", back)
	}
	sum, err := whole().Digest()
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(sum[:]) != strings.TrimSpace(string(digest)) {
		t.Errorf("digest %x, frozen %s", sum, digest)
	}
}

func TestAnEffectWrittenBeforeAFieldWasAddedKeepsItsDigest(t *testing.T) {
	const old = `{"channel":"http","http":{"method":"GET","url":"https://a.example/"}}`
	e, err := effect.Decode([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := e.Encode(); err != nil || string(again) != old {
		t.Errorf("%s, %v", again, err)
	}
}

func TestDecodeRefusesWhatItDoesNotUnderstandWhole(t *testing.T) {
	for name, text := range map[string]string{
		"unknown field":          `{"channel":"http","http":{"method":"GET","url":"https://a.example/","proxy":"x"}}`,
		"unknown field at top":   `{"channel":"http","http":{"method":"GET","url":"https://a.example/"},"v":2}`,
		"unknown channel":        `{"channel":"gopher"}`,
		"no channel":             `{}`,
		"channel without":        `{"channel":"http"}`,
		"request of another":     `{"channel":"ssh","http":{"method":"GET","url":"https://a.example/"}}`,
		"status without request": `{"channel":"http","http":{"method":"GET","url":"https://a.example/"},"status":{}}`,
		"status of another kind": `{"channel":"http","http":{"method":"GET","url":"https://a.example/"},"status":{"http":{"method":"GET","url":"https://a.example/"},"ssh":{}}}`,
		"two values":             `{"channel":"http","http":{"method":"GET","url":"https://a.example/"}} {}`,
		"informational success":  `{"channel":"http","http":{"method":"GET","url":"https://a.example/","success":[100]}}`,
		"not JSON":               `{`,
		"body that is no base64": `{"channel":"http","http":{"method":"GET","url":"https://a.example/","body":"%"}}`,
	} {
		if e, err := effect.Decode([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %+v", name, e)
		}
	}
}

func TestEncodeRefusesTextThatJSONWouldChange(t *testing.T) {
	for name, change := range map[string]func(*effect.Effect){
		"header value": func(e *effect.Effect) { e.HTTP.Header[0].Value = "a\xff" },
		"header name":  func(e *effect.Effect) { e.HTTP.Header[0].Name = "a\xff" },
		"URL":          func(e *effect.Effect) { e.HTTP.URL += "\xff" },
		"status URL":   func(e *effect.Effect) { e.Status.HTTP.URL += "\xff" },
		"status user":  func(e *effect.Effect) { e.Status.Auth.Username = "\xff" },
		"user name":    func(e *effect.Effect) { e.Auth.Username = "\xff" },
	} {
		e := asked()
		change(&e)
		if b, err := e.Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, b)
		}
	}
}

func TestEveryFieldChangesTheDigest(t *testing.T) {
	first, err := awaited().Digest()
	if err != nil {
		t.Fatal(err)
	}
	var changed int
	var walk func(v reflect.Value, e func() effect.Effect)
	walk = func(v reflect.Value, e func() effect.Effect) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() { // another channel's
				walk(v.Elem(), e)
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), e)
			}
		case reflect.Slice:
			if v.Len() == 0 {
				t.Fatalf("%s is empty in the example", v.Type())
			}
			walk(v.Index(0), e)
		case reflect.String, reflect.Int, reflect.Uint8, reflect.Bool:
			old := reflect.ValueOf(v.Interface())
			switch {
			case v.Kind() == reflect.Bool:
				v.SetBool(!v.Bool())
			case v.Kind() == reflect.Int:
				v.SetInt(v.Int() + 1)
			case v.Kind() == reflect.Uint8:
				v.SetUint(v.Uint() + 1)
			case v.Type() == reflect.TypeFor[effect.Channel]():
				return // tied to the request's type
			default:
				v.SetString(v.String() + "x")
			}
			sum, err := e().Digest()
			if err != nil || sum == first {
				t.Errorf("changing %v left the digest as it was (%v)", old, err)
			}
			changed++
			v.Set(old)
		default:
			t.Fatalf("no mutation for %s", v.Kind())
		}
	}
	e := awaited()
	walk(reflect.ValueOf(&e), func() effect.Effect { return e })
	if changed < 20 {
		t.Errorf("only %d fields were changed", changed)
	}
}

func TestSuccessIsTwoHundredsUnlessTheContractListsIt(t *testing.T) {
	for _, c := range []struct {
		listed []int
		status int
		want   bool
	}{
		{nil, 200, true},
		{nil, 299, true},
		{nil, 301, false},
		{nil, 500, false},
		{[]int{201}, 200, false},
		{[]int{201, 409}, 409, true},
	} {
		if got := (effect.HTTPRequest{Success: c.listed}).Succeeded(c.status); got != c.want {
			t.Errorf("status %d with %v: %v", c.status, c.listed, got)
		}
	}
}

func TestTargetNamesNeitherQueryNorUser(t *testing.T) {
	e := effect.Effect{Channel: effect.HTTP, HTTP: &effect.HTTPRequest{URL: "https://u:p@a.example:8443/x%2Fy?token=canary-not-a-secret#f"}}
	if got := e.Target(); got != "https://a.example:8443/x%2Fy" {
		t.Error(got)
	}
}
