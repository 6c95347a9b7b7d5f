package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"singlepass.dev/policy"
)

func TestSpellingsOfOneCallAreOneIntent(t *testing.T) {
	a := compile(t, plain)
	const want = `{"count":1,"to":"é","weight":2}`
	first := a.Fingerprint(mac, prepare(t, a, `{"to":"é","weight":2}`), "deb:agent", "run:1")
	for _, spelling := range []string{
		`{"weight":2,"to":"é"}`,
		" {\n\t\"to\" : \"é\" , \"weight\" : 2.0 } ",
		`{"to":"\u00e9","weight":2e0,"count":1}`,
		`{"t\u006f":"\u00E9","weight":0.2e1,"count":1.0}`,
		`{"to":"é","weight":2,"intent_key":"a key is no argument"}`,
	} {
		p := prepare(t, a, spelling)
		if string(p.Arguments) != want || string(p.Raw) != spelling {
			t.Errorf("%s prepared as %s, raw %s", spelling, p.Arguments, p.Raw)
		}
		if got := a.Fingerprint(mac, p, "deb:agent", "run:1"); got != first {
			t.Errorf("%s is another intent", spelling)
		}
	}
}

func TestDefaultsWithinArgumentsAreFilledInToo(t *testing.T) {
	a := compile(t, edit(t, plain, "express: {type: boolean}",
		"items: {type: string, default: x}\n    box: {type: object, default: {w: 2}, properties: {h: {type: integer, default: 3}, w: {type: integer}}}\n    stops: {type: array, items: {type: object, properties: {wait: {type: boolean, default: false}}}}"))
	for in, want := range map[string]string{
		`{"to":"a"}`:                              `{"box":{"h":3,"w":2},"count":1,"items":"x","to":"a"}`,
		`{"to":"a","box":{}}`:                     `{"box":{"h":3},"count":1,"items":"x","to":"a"}`,
		`{"to":"a","box":{"h":4}}`:                `{"box":{"h":4},"count":1,"items":"x","to":"a"}`,
		`{"to":"a","stops":[{},{"wait":true}]}`:   `{"box":{"h":3,"w":2},"count":1,"items":"x","stops":[{"wait":false},{"wait":true}],"to":"a"}`,
		`{"to":"a","intent_key":null,"stops":[]}`: `{"box":{"h":3,"w":2},"count":1,"items":"x","stops":[],"to":"a"}`,
	} {
		for range 2 { // a default is not changed by the call that it is filled into
			if got := string(prepare(t, a, in).Arguments); got != want {
				t.Errorf("%s prepared as %s, want %s", in, got, want)
			}
		}
	}
}

func TestEveryChangeOfWhatWasAskedIsAnotherIntent(t *testing.T) {
	a := compile(t, plain)
	arguments := `{"to":"a","weight":2,"count":3,"express":true,"labels":["x"],"pin":"canary-not-a-secret-1"}`
	seen := map[string]string{}
	record := func(what, fingerprint string) {
		t.Helper()
		if other, ok := seen[fingerprint]; ok {
			t.Errorf("%s and %s share a fingerprint", what, other)
		}
		seen[fingerprint] = what
	}
	record("the call itself", a.Fingerprint(mac, prepare(t, a, arguments), "deb:agent", "run:1"))
	record("another actor", a.Fingerprint(mac, prepare(t, a, arguments), "deb:other", "run:1"))
	record("another run", a.Fingerprint(mac, prepare(t, a, arguments), "deb:agent", "run:2"))
	record("another key of the vault", a.Fingerprint(func(b []byte) [32]byte { return mac(append(b, 'x')) }, prepare(t, a, arguments), "deb:agent", "run:1"))
	for _, change := range [][2]string{
		{`"to":"a"`, `"to":"A"`},
		{`"weight":2`, `"weight":2.5`},
		{`"count":3`, `"count":4`},
		{`"express":true`, `"express":false`},
		{`["x"]`, `["x","x"]`},
		{`["x"]`, `[]`},
		{`secret-1"`, `secret-2"`},
		{`"weight":2,`, ``},
		{`,"pin":"canary-not-a-secret-1"`, ``},
		{`"to":"a"`, `"to":"e\u0301"`},
		{`"to":"a"`, `"to":"\u00e9"`}, // looks the same, and is sent as other bytes
	} {
		record(change[0]+" as "+change[1], a.Fingerprint(mac, prepare(t, a, edit(t, arguments, change[0], change[1])), "deb:agent", "run:1"))
	}
	for _, change := range [][2]string{
		{"action: send_parcel", "action: send_parcel2"},
		{"https://parcels.example/", "https://parcels.example:8443/"},
		{"/v1/{to}", "/v2/{to}"},
		{"method: POST", "method: PUT"},
		{"credential: parcels", "credential: parcels2"},
	} {
		b := compile(t, edit(t, plain, change[0], change[1]))
		record("a contract with "+change[1], b.Fingerprint(mac, prepare(t, b, arguments), "deb:agent", "run:1"))
	}
}

func TestOnlyTheArgumentsOfTheContractsFingerprintCount(t *testing.T) {
	a := compile(t, edit(t, plain, "  attach_window: 1h", "  attach_window: 1h\n  fingerprint: [to, count]"))
	one := prepare(t, a, `{"to":"a","weight":2,"labels":["x"]}`)
	two := prepare(t, a, `{"to":"a","weight":3,"count":1}`)
	if a.Fingerprint(mac, one, "deb:agent", "run:1") != a.Fingerprint(mac, two, "deb:agent", "run:1") {
		t.Error("an argument that does not count made another intent")
	}
	if got := string(a.FingerprintArguments(mac, one)); got != `{"count":1,"to":"a"}` {
		t.Errorf("counted %s", got)
	}
}

func TestASecretArgumentEntersTheFingerprintAsAReference(t *testing.T) {
	a := compile(t, plain)
	p := prepare(t, a, `{"to":"a","pin":"canary-not-a-secret-1"}`)
	got := string(a.FingerprintArguments(mac, p))
	if strings.Contains(got, "canary") || !strings.Contains(got, `"pin":{"secret":"hmac-sha256:`) {
		t.Errorf("counted %s", got)
	}
}

func TestArgumentsAreRefusedWithThePlaceAndTheRemedy(t *testing.T) {
	a := compile(t, plain)
	library := compile(t, edit(t, plain, "weight: {type: number, minimum: 0}", "weight: {anyOf: [{type: number, minimum: 0}]}", `weight: "{weight}"`, `w: "{weight}"`))
	for _, c := range []struct{ in, pointer, problem string }{
		{`[]`, "", "object is needed"},
		{`"x"`, "", "object is needed"},
		{`{"to":"a","to":"b"}`, "/to", "twice"},
		{`{"to":"a","weight":9007199254740993}`, "/weight", "beyond ±2^53"},
		{`{"to":"a","weight":1e400}`, "/weight", "too large"},
		{`{"to":"\ud800"}`, "/to", "surrogate"},
		{`{"to":"a"`, "", "ends too early"},
		{`{}`, "/to", "missing"},
		{`{"to":1}`, "/to", "integer"},
		{`{"to":null}`, "/to", "null"},
		{`{"to":"a","count":1.5}`, "/count", "number"},
		{`{"to":"a","weight":-1}`, "/weight", ""},
		{`{"to":"a","labels":["x",1]}`, "/labels/1", "integer"},
		{`{"to":"a","colour":"red"}`, "/colour", "no such argument"},
		{`{"to":"a","wieght":1}`, "/wieght", "no such argument"},
		{`{"to":"a","":1}`, "/", "no such argument"},
		{`{"to":"` + strings.Repeat("é", 41) + `"}`, "/to", "too long"},
		{`{"to":"a","intent_key":""}`, "/intent_key", "1 to 255"},
		{`{"to":"a","intent_key":7}`, "/intent_key", "1 to 255"},
		{`{"to":"a","intent_key":"` + strings.Repeat("k", 256) + `"}`, "/intent_key", "1 to 255"},
	} {
		_, err := a.Prepare([]byte(c.in))
		if e := argumentError(t, err); e.Pointer != c.pointer || !strings.Contains(e.Problem, c.problem) {
			t.Errorf("%s: %q: %v; want %q: …%s…", c.in, e.Pointer, err, c.pointer, c.problem)
		}
		if _, err := library.Prepare([]byte(c.in)); err == nil {
			t.Errorf("%s: taken where the library validates", c.in)
		}
	}
	if _, err := library.Prepare([]byte(`{"to":"a","weight":-1}`)); argumentError(t, err).Pointer != "/weight" {
		t.Errorf("the library's error does not lead to the argument: %v", err)
	}
}

func TestAKeyOf255CharactersIsTakenAside(t *testing.T) {
	a := compile(t, plain)
	key := strings.Repeat("ü", policy.MaxIntentKey)
	p := prepare(t, a, `{"to":"a","intent_key":"`+key+`"}`)
	if p.IntentKey != key || strings.Contains(string(p.Arguments), "intent_key") {
		t.Errorf("key %q, arguments %s", p.IntentKey, p.Arguments)
	}
}

func TestNoArgumentsAtAllAreAnEmptyObject(t *testing.T) {
	a := compile(t, edit(t, plain, "v1/{to}/parcels", "v1/parcels", "note: \"for {to}\"", "note: x", "  required: [to]\n", ""))
	for _, in := range []string{"", "null", "{}"} {
		if p := prepare(t, a, in); string(p.Arguments) != `{"count":1}` {
			t.Errorf("%q prepared as %s", in, p.Arguments)
		}
	}
}

func TestARefusedSecretArgumentIsNotShown(t *testing.T) {
	const canary = "canary-not-a-secret-4711"
	for name, src := range map[string]string{
		"our own check": edit(t, plain, "secret: true", "secret: true, maxLength: 3"),
		"the library":   edit(t, plain, "secret: true", "secret: true, allOf: [{maxLength: 3}]"),
		"an enum":       edit(t, plain, "secret: true", "secret: true, enum: [a, b]"),
		"another type":  edit(t, plain, "secret: true", "secret: true, not: {type: string}"),
	} {
		_, err := compile(t, src).Prepare([]byte(`{"to":"a","pin":"` + canary + `"}`))
		if e := argumentError(t, err); strings.Contains(err.Error(), canary) || e.Pointer != "/pin" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzCheckIsTheLibrary holds our own validation against the JSON Schema library: both take and refuse the same arguments, for every plain schema.
func FuzzCheckIsTheLibrary(f *testing.F) {
	schemas := []string{
		`{type: string}`,
		`{type: [integer, "null"], minimum: -2, exclusiveMaximum: 7}`,
		`{type: number, exclusiveMinimum: 0, maximum: 2.5}`,
		`{type: string, minLength: 2, maxLength: 4, pattern: "^[a-é]*$"}`,
		`{enum: [1, "1", null, [1, 2], {a: 1}, true]}`,
		`{const: {a: [1, 2.0]}}`,
		`{type: array, minItems: 1, maxItems: 3, items: {type: integer}}`,
		`{type: object, properties: {a: {type: string}, b: {type: array, items: {type: boolean}}}, required: [a], additionalProperties: false}`,
		`{properties: {a: {minimum: 3}}, required: [b], minLength: 2}`,
	}
	const head = "action: x\ndescription: x\nchannel: http\nhttp: {method: POST, url: 'https://x.example/', json: {v: '{v}'}}\nreplay: {attach_window: 1h}\ninput:\n  type: object\n  properties:\n    v: "
	var plainActions, libraryActions []*policy.Action
	for _, s := range schemas {
		plainActions = append(plainActions, compile(f, head+s+"\n"))
		// A keyword that changes nothing, and that our own check does not know.
		libraryActions = append(libraryActions, compile(f, head+s+"\n    w: {minProperties: 0}\n"))
	}
	for i := range plainActions {
		if !policy.ChecksItself(plainActions[i]) || policy.ChecksItself(libraryActions[i]) {
			f.Fatalf("schema %s is not compared", schemas[i])
		}
	}
	for _, v := range []string{`"a"`, `"aé"`, `"ab\u0000c"`, `1`, `1.0`, `-2`, `7`, `0`, `2.5`, `null`, `true`, `[]`, `[1,2]`, `[2,1]`, `{"a":1}`, `{"a":"x","b":[true]}`, `{"a":"x","c":1}`, `{"a":[1,2]}`, `{"b":1,"a":2}`} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, value string) {
		arguments := []byte(`{"v":` + value + `}`)
		if !json.Valid([]byte(value)) {
			t.Skip()
		}
		for i, s := range schemas {
			_, ours := plainActions[i].Prepare(arguments)
			_, theirs := libraryActions[i].Prepare(arguments)
			if (ours == nil) != (theirs == nil) {
				t.Fatalf("schema %s, arguments %s: ours says %v, the library %v", s, arguments, ours, theirs)
			}
		}
	})
}

var threeFields = []byte(`{"service": "billing-api", "version": "v1.10.0", "region": "eu-central-1"}`)

func benchmarkAction(b *testing.B, library bool) *policy.Action {
	src := edit(b, plain, "to: {type: string, maxLength: 40}", "service: {type: string, maxLength: 40}\n    version: {type: string, pattern: \"^v[0-9.]+$\"}\n    region: {type: string, enum: [us-east-1, eu-central-1], default: us-east-1}",
		"required: [to]", "required: [service, version]", "v1/{to}/parcels", "v1/{service}/parcels", `to: "{to}"`, `to: "{service}"`, `note: "for {to}"`, `note: "{version} in {region}"`)
	if library {
		src = edit(b, src, "express: {type: boolean}", "express: {type: boolean, not: {type: string}}")
	}
	return compile(b, src)
}

func BenchmarkPrepare(b *testing.B) {
	for _, library := range []bool{false, true} {
		b.Run(fmt.Sprintf("library=%v", library), func(b *testing.B) {
			a := benchmarkAction(b, library)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Prepare(threeFields); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFingerprint(b *testing.B) {
	a := benchmarkAction(b, false)
	p := prepare(b, a, string(threeFields))
	b.ReportAllocs()
	for b.Loop() {
		a.Fingerprint(mac, p, "deb:agent", "run:01JAAAAAAAAAAAAAAAAAAAAAAA")
	}
}

func BenchmarkRender(b *testing.B) {
	a := benchmarkAction(b, false)
	p := prepare(b, a, string(threeFields))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Render(p, "act_01JAAAAAAAAAAAAAAAAAAAAAAA"); err != nil {
			b.Fatal(err)
		}
	}
}
