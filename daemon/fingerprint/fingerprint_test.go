package fingerprint_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"singlepass.dev/daemon/fingerprint"
)

var update = flag.Bool("update", false, "write new frozen vectors; only ever to add some")

func example() fingerprint.Input {
	return fingerprint.Input{
		Actor: "deb:agent", Tool: "deploy_release", Channel: "http", Target: "https://deploy.example/v1/releases", CredentialRef: "deploy", Method: "POST",
		Arguments: json.RawMessage(`{"region":"us-east-1","replicas":3,"service":"billing","steps":["a",{"b":null}],"version":"v1.10.0"}`), IntentScope: "run:01JAAAAAAAAAAAAAAAAAAAAAAA",
	}
}

type vector struct {
	Name        string            `json:"name"`
	Input       fingerprint.Input `json:"input"`
	ActorHex    string            `json:"actor_hex,omitempty"` // an actor that is no UTF-8
	Fingerprint string            `json:"fingerprint"`
}

// The vectors are frozen: journals hold fingerprints, and a retry must find its execution after an upgrade. The key is that of mac.
func TestFrozenVectors(t *testing.T) {
	const path = "testdata/vectors.json"
	if *update {
		empty := fingerprint.Input{}
		none, keyed, hexed := example(), example(), example()
		none.Arguments, none.CredentialRef = json.RawMessage(`{}`), ""
		keyed.IntentScope, keyed.Actor, keyed.Target = "key:invoice 2026-11 \"a\"", "script:/home/ü/agent.py", "ssh://deploy@host.example:22"
		hexed.Actor = ""
		vectors := []vector{{Name: "a call", Input: example()}, {Name: "no arguments, no credential", Input: none}, {Name: "a client's key, text to be escaped", Input: keyed}, {Name: "an actor that is no UTF-8", Input: hexed, ActorHex: "6578653a2fff"}, {Name: "nothing at all", Input: empty}}
		for i := range vectors {
			in := vectors[i].Input
			if vectors[i].ActorHex != "" {
				in.Actor = "exe:/\xff"
			}
			vectors[i].Fingerprint = fingerprint.Compute(mac, in)
		}
		b, err := json.MarshalIndent(vectors, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil || len(vectors) < 5 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, v := range vectors {
		if v.ActorHex != "" {
			if _, err := fmt.Sscanf(v.ActorHex, "%x", &v.Input.Actor); err != nil {
				t.Fatal(err)
			}
		}
		// The file is indented, arguments included.
		if len(v.Input.Arguments) > 0 && string(v.Input.Arguments) != "null" {
			if v.Input.Arguments, err = fingerprint.Canonical(v.Input.Arguments); err != nil {
				t.Fatal(err)
			}
		}
		if got := fingerprint.Compute(mac, v.Input); got != v.Fingerprint {
			t.Errorf("%s: %s, frozen as %s", v.Name, got, v.Fingerprint)
		}
	}
}

func TestAFingerprintSaysHowItWasMadeAndNothingElse(t *testing.T) {
	got := fingerprint.Compute(mac, example())
	if !regexp.MustCompile(`^hmac-sha256:[0-9a-f]{64}$`).MatchString(got) {
		t.Errorf("got %s", got)
	}
}

// What is digested is the canonical JSON of the record behind its domain, written down here once more by another encoder.
func TestTheRecordIsCanonicalJSONBehindItsDomain(t *testing.T) {
	in := example()
	in.Actor = "exe:/opt/a \"b\"\\\n\u2028é😀"
	var digested []byte
	fingerprint.Compute(func(b []byte) [32]byte { digested = append(digested, b...); return [32]byte{} }, in)
	domain, record, found := strings.Cut(string(digested), "\x00")
	if !found || domain != "singlepass fingerprint v1" {
		t.Fatalf("domain %q", domain)
	}
	want, err := json.Marshal(map[string]any{
		"v": 1, "actor": in.Actor, "tool": in.Tool, "channel": in.Channel, "target": in.Target, "credential_ref": in.CredentialRef, "method": in.Method,
		"arguments": in.Arguments, "intent_scope": in.IntentScope,
	})
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := fingerprint.Canonical(want)
	if err != nil || string(canonical) != record {
		t.Errorf("digested %s\nwant %s, %v", record, canonical, err)
	}
}

// mutations returns copies of a JSON value, each changed in one place.
func mutations(v any) []any {
	switch v := v.(type) {
	case nil:
		return []any{false, 0.0, "", []any{}, map[string]any{}}
	case bool:
		return []any{!v, nil}
	case float64:
		return []any{v + 1, -v - 0.5, fmt.Sprint(v)}
	case string:
		return []any{v + " ", " " + v, v + "\x00", strings.ToUpper(v) + "'", []any{v}}
	case []any:
		list := []any{append(v[:len(v):len(v)], nil), map[string]any{"0": v}}
		for i := range v {
			list = append(list, append(append([]any{}, v[:i]...), v[i+1:]...))
			for _, m := range mutations(v[i]) {
				changed := append([]any{}, v...)
				changed[i] = m
				list = append(list, changed)
			}
		}
		return list
	case map[string]any:
		clone := func() map[string]any {
			c := map[string]any{}
			for k, e := range v {
				c[k] = e
			}
			return c
		}
		extra := clone()
		extra["zz"] = nil
		list := []any{extra}
		for k := range v {
			less, renamed := clone(), clone()
			delete(less, k)
			delete(renamed, k)
			renamed[k+"_"] = v[k]
			list = append(list, less, renamed)
			for _, m := range mutations(v[k]) {
				changed := clone()
				changed[k] = m
				list = append(list, changed)
			}
		}
		return list
	}
	panic("not JSON")
}

func TestEveryFieldAndEveryArgumentCounts(t *testing.T) {
	seen := map[string]string{fingerprint.Compute(mac, example()): "the example"}
	record := func(what string, in fingerprint.Input) {
		t.Helper()
		got := fingerprint.Compute(mac, in)
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s share a fingerprint", what, other)
		}
		seen[got] = what
	}
	fields := reflect.TypeFor[fingerprint.Input]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		in := example()
		v := reflect.ValueOf(&in).Elem().Field(i)
		if name == "Arguments" {
			arguments, err := fingerprint.Decode(in.Arguments)
			if err != nil {
				t.Fatal(err)
			}
			all := mutations(arguments)
			if len(all) < 40 {
				t.Fatalf("only %d mutations", len(all))
			}
			distinct := map[string]bool{}
			for _, m := range all {
				in.Arguments = fingerprint.Append(nil, m)
				if !distinct[string(in.Arguments)] {
					distinct[string(in.Arguments)] = true
					record(string(in.Arguments), in)
				}
			}
			continue
		}
		if v.Kind() != reflect.String {
			t.Fatalf("the field %s is of a kind that this test does not change", name)
		}
		was := v.String()
		for _, m := range []string{"", was + " ", was + `","x":"`, was + "\x00", was + "\xff", "x" + was, was[1:]} {
			v.SetString(m)
			record(fmt.Sprintf("%s = %q", name, m), in)
		}
	}
}

func TestTextThatMovesFromOneFieldToTheNextIsAnotherIntent(t *testing.T) {
	a, b := example(), example()
	a.Tool, a.Method = "ab", "c"
	b.Tool, b.Method = "a", "bc"
	if fingerprint.Compute(mac, a) == fingerprint.Compute(mac, b) {
		t.Error("the border between two fields does not count")
	}
	a, b = example(), example()
	a.Actor, b.Actor = "exe:/\xff", "exe:/\xfe" // an encoder that replaces them would make both U+FFFD
	if fingerprint.Compute(mac, a) == fingerprint.Compute(mac, b) {
		t.Error("two actors share a fingerprint")
	}
}

func TestASecretReferenceIsKeyedAndBoundToItsName(t *testing.T) {
	const canary = "canary-not-a-secret-4711"
	form := func(m func([]byte) [32]byte, name string, v any) string {
		return string(fingerprint.Append(nil, fingerprint.SecretReference(m, name, v)))
	}
	first := form(mac, "pin", canary)
	if strings.Contains(first, canary) || first != form(mac, "pin", canary) {
		t.Errorf("reference %s", first)
	}
	other := func(b []byte) [32]byte { return mac(append(b, 'x')) }
	for _, got := range []string{form(mac, "pin", canary+"x"), form(mac, "pin2", canary), form(other, "pin", canary), form(mac, "pin", []any{canary})} {
		if got == first {
			t.Errorf("two secrets share the reference %s", got)
		}
	}
}

// FuzzCompute looks for two different inputs with the same record.
func FuzzCompute(f *testing.F) {
	f.Add("a", "b", "a\"", "b", `{"x":1}`, `{"x":1.5}`)
	f.Add("\xff", "b", "\xfe", "b", `{}`, `{}`)
	f.Add(`{"hex":"ff"}`, "b", "\xff", "b", `null`, `null`)
	f.Fuzz(func(t *testing.T, actor1, tool1, actor2, tool2, arguments1, arguments2 string) {
		a1, err1 := fingerprint.Canonical([]byte(arguments1))
		a2, err2 := fingerprint.Canonical([]byte(arguments2))
		if err1 != nil || err2 != nil {
			t.Skip()
		}
		same := actor1 == actor2 && tool1 == tool2 && string(a1) == string(a2)
		one := fingerprint.Compute(mac, fingerprint.Input{Actor: actor1, Tool: tool1, Arguments: a1})
		two := fingerprint.Compute(mac, fingerprint.Input{Actor: actor2, Tool: tool2, Arguments: a2})
		if same != (one == two) {
			t.Fatalf("same intent %v, same fingerprint %v", same, one == two)
		}
	})
}
