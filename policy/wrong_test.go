package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"singlepass.dev/policy"
)

// asks is plain's replay with a status request.
const asks = `  class: status_query
  attach_window: 1h
  status:
    method: GET
    url: https://parcels.example/v1/parcels/{execution_id}
    done: status == 200 && body.state == "sent"
    not_done: status == 404
    failed: status == 200 && body.state == "returned"
    running: status == 200 && body.state == "packing"
  wait: {poll: 2s, not_done_after: 30s, give_up_after: 10m}
`

const replayOfPlain = "  class: irreversible\n  attach_window: 1h\n"

// fromHeaders is plain from http.headers to the end of replay.
var fromHeaders = plain[strings.Index(plain, "  headers:"):strings.Index(plain, "retention:")]

// asksWith is asks with one change.
func asksWith(old, new string) string {
	if strings.Count(asks, old) != 1 {
		panic(old)
	}
	return strings.Replace(asks, old, new, 1)
}

// awaits is asks with a target that can say that it is not done, and a field of that answer in the URL.
func awaits(field string) string {
	s := strings.Replace(asksWith("    not_done: status == 404\n", ""), "  status:\n", "  accepted: [202]\n  status:\n", 1)
	return strings.Replace(strings.Replace(s, "{execution_id}", field, 1), "not_done_after: 30s, ", "", 1)
}

// located is awaits with a URL that the target gives.
func located() string {
	return strings.Replace(awaits("x"), "https://parcels.example/v1/parcels/x", `"{answer:Location}"`, 1)
}

// Each case changes the correct contract in one way. The golden file holds what the operator then reads.
var wrong = []struct{ name, old, new string }{
	{"an unknown field", "credential: parcels", "credentials: parcels"},
	{"an unknown field in http", "  method: POST", "  method: POST\n  methd: POST"},
	{"an unknown field in replay", "  class: irreversible", "  class: irreversible\n  window: 1h"},
	{"a duplicate key", "title: Send a parcel", "title: Send a parcel\ntitle: Send two"},
	{"a duplicate key after unescaping", "title: Send a parcel", "title: Send a parcel\n\"titl\\u0065\": Send two"},
	{"a missing field", "description: Sends a parcel.\n", ""},
	{"a missing channel", "channel: http\n", ""},
	{"a missing http block", plain[strings.Index(plain, "http:\n"):strings.Index(plain, "replay:")], ""},
	{"a missing url", "  url: https://parcels.example/v1/{to}/parcels\n", ""},
	{"a missing attach window", "  attach_window: 1h\n", ""},
	{"no replay at all", "replay:\n  class: irreversible\n  attach_window: 1h\n", ""},
	{"a number for a text", "title: Send a parcel", "title: 1.10"},
	{"a boolean for a text", "title: Send a parcel", "title: true"},
	{"an empty value", "title: Send a parcel", "title:"},
	{"a list for an object", "retention: {result: 30d}", "retention: [30d]"},
	{"an unknown class", "class: irreversible", "class: idempotant"},
	{"an unknown method", "method: POST", "method: post"},
	{"the channel ssh", "channel: http", "channel: ssh"},
	{"an unknown channel", "channel: http", "channel: htpp"},
	{"YAML's no", "json: {to: \"{to}\"", "json: {fragile: no, to: \"{to}\""},
	{"YAML's True", "json: {to: \"{to}\"", "json: {fragile: True, to: \"{to}\""},
	{"YAML's octal", "json: {to: \"{to}\"", "json: {mode: 0755, to: \"{to}\""},
	{"YAML's hexadecimal", "json: {to: \"{to}\"", "json: {mode: 0x1F, to: \"{to}\""},
	{"YAML's underscores", "json: {to: \"{to}\"", "json: {size: 1_000, to: \"{to}\""},
	{"YAML's sexagesimal", "json: {to: \"{to}\"", "json: {at: 12:30, to: \"{to}\""},
	{"YAML's timestamp", "json: {to: \"{to}\"", "json: {day: 2026-11-30, to: \"{to}\""},
	{"YAML's tilde", "json: {to: \"{to}\"", "json: {day: ~, to: \"{to}\""},
	{"YAML's infinity", "json: {to: \"{to}\"", "json: {size: .inf, to: \"{to}\""},
	{"YAML's on as a name", "json: {to: \"{to}\"", "json: {on: 1, to: \"{to}\""},
	{"a number as a name", "json: {to: \"{to}\"", "json: {1: 1, to: \"{to}\""},
	{"an integer beyond 2^53", "json: {to: \"{to}\"", "json: {id: 9007199254740993, to: \"{to}\""},
	{"an anchor and its alias", "retention: {result: 30d}", "retention: &r {result: 30d}\nx: *r"},
	{"a merge key", "  class: irreversible", "  <<: {class: irreversible}"},
	{"a tag", "title: Send a parcel", "title: !!binary aGVsbG8="},
	{"two documents", "retention: {result: 30d}", "retention: {result: 30d}\n---\naction: other"},
	{"broken YAML", "title: Send a parcel", "title: [Send"},
	{"a tab for indentation", "  method: POST", "\tmethod: POST"},
	{"an invisible character", "title: Send a parcel", "title: Send a \u202eparcel"},
	{"an escaped invisible character", "title: Send a parcel", "title: \"Send a \\u202eparcel\""},
	{"an illegal action name", "action: send_parcel", "action: send parcel"},
	{"a reserved action name", "action: send_parcel", "action: execution_status"},
	{"an illegal credential name", "credential: parcels", "credential: ../parcels"},
	{"an approval that is nearly a word", "approval: session", "approval: per-use"},
	{"a condition that does not parse", "approval: session", "approval: {per_use_if: 'args.weight >'}"},
	{"a condition with the wrong type", "approval: session", "approval: {per_use_if: 'args.weight == \"heavy\"'}"},
	{"a condition about an unknown argument", "approval: session", "approval: args.wight > 1.0"},
	{"a condition that is no condition", "approval: session", "approval: {per_use_if: args.weight}"},
	{"a condition that never changes", "approval: session", "approval: {per_use_if: '1 < 2'}"},
	{"a fingerprint of an unknown argument", "  attach_window: 1h", "  attach_window: 1h\n  fingerprint: [to, wieght]"},
	{"a fingerprint of nothing", "  attach_window: 1h", "  attach_window: 1h\n  fingerprint: []"},
	{"a fingerprint that is no list", "  attach_window: 1h", "  attach_window: 1h\n  fingerprint: to"},
	{"class idempotent without its fields", "class: irreversible", "class: idempotent"},
	{"a key at a class that has none", "  attach_window: 1h", "  attach_window: 1h\n  idempotency_header: Idempotency-Key"},
	{"class status_query alone", "class: irreversible", "class: status_query"},
	{"a status block of another class", "  attach_window: 1h", "  attach_window: 1h\n  status: {http: {}}"},
	{"a status block without its conditions", replayOfPlain, asksWith("    done: status == 200 && body.state == \"sent\"\n", "")},
	{"a status request that is another method", replayOfPlain, asksWith("method: GET", "method: DELETE")},
	{"a status request with a body of a GET", replayOfPlain, asksWith("    not_done:", "    json: {}\n    not_done:")},
	{"a status request that redirects the credential", replayOfPlain, asksWith("    not_done:", "    credential: a b\n    not_done:")},
	{"a status request about nothing", replayOfPlain, asksWith("{execution_id}", "all")},
	{"accepted answers of another class", "  attach_window: 1h", "  attach_window: 1h\n  accepted: [202]"},
	{"accepted answers that are errors", replayOfPlain, asksWith("  status:\n", "  accepted: [202, 404]\n  status:\n")},
	{"accepted answers that are no list", replayOfPlain, asksWith("  status:\n", "  accepted: 202\n  status:\n")},
	{"accepted answers by a condition that does not parse", replayOfPlain, asksWith("  status:\n", "  accepted: status = 202\n  status:\n")},
	{"a field of an answer that is the outcome", replayOfPlain, asksWith("{execution_id}", "{answer:/id}")},
	{"a field of the answer in the action itself", "X-Trace: \"{execution_id}\"", "X-Trace: \"{answer:Location}\""},
	{"a field of the answer that is no pointer", replayOfPlain, awaits("{answer:/a~2b}")},
	{"a field of the answer that is a credential", replayOfPlain, awaits("{answer:set-cookie}")},
	{"a field of the answer of no name", replayOfPlain, awaits("{answer:}")},
	{"a field of the answer as a host", replayOfPlain, strings.Replace(awaits("x"), "parcels.example", "{answer:/host}", 1)},
	{"a URL that is a field and more", replayOfPlain, strings.Replace(awaits("x"), "https://parcels.example/v1/parcels/x", "\"{answer:Location}/x\"", 1)},
	{"a POST to where the target says", replayOfPlain, strings.Replace(located(), "method: GET", "method: POST", 1)},
	{"a place for a URL that the contract fixes", replayOfPlain, strings.Replace(awaits("{answer:/id}"), "    method: GET", "    method: GET\n    within: https://parcels.example/", 1)},
	{"a place that depends on the call", replayOfPlain, strings.Replace(located(), "    method: GET", "    method: GET\n    within: https://parcels.example/{to}", 1)},
	{"a place that the target chooses", replayOfPlain, strings.Replace(located(), "    method: GET", "    method: GET\n    within: \"{answer:Link}\"", 1)},
	{"not done, said by who took it", replayOfPlain, strings.Replace(awaits("{answer:/id}"), "    failed:", "    not_done: status == 404\n    failed:", 1)},
	{"a status request about an id that is never sent", fromHeaders, strings.Replace(fromHeaders[strings.Index(fromHeaders, "  query:"):], replayOfPlain, asks, 1)},
	{"a status request with an unknown argument", replayOfPlain, asksWith("{execution_id}", "{too}")},
	{"a status request with http's own field", replayOfPlain, asksWith("    not_done:", "    success: [200]\n    not_done:")},
	{"a condition about the answer that does not parse", replayOfPlain, asksWith("status == 404", "status = 404")},
	{"a condition about the answer of the wrong type", replayOfPlain, asksWith("status == 404", "status == \"404\"")},
	{"a condition about the answer that is no condition", replayOfPlain, asksWith("status == 404", "body.gone")},
	{"a condition about the answer with an unknown name", replayOfPlain, asksWith("status == 404", "code == 404")},
	{"a condition about the answer with an unknown argument", replayOfPlain, asksWith("status == 404", "body.to == args.too")},
	{"a condition that looks at nothing of the answer", replayOfPlain, asksWith("status == 404", "args.to == \"x\"")},
	{"not done without a time", replayOfPlain, asksWith("not_done_after: 30s, ", "")},
	{"no wait at all", replayOfPlain, asksWith("  wait: {poll: 2s, not_done_after: 30s, give_up_after: 10m}\n", "")},
	{"giving up before not done is believed", replayOfPlain, asksWith("give_up_after: 10m", "give_up_after: 30s")},
	{"an unknown field in wait", replayOfPlain, asksWith("poll: 2s", "pol: 2s")},
	{"an unknown field in status", replayOfPlain, asksWith("    running:", "    runing:")},
	{"a wait of another class", "  attach_window: 1h", "  attach_window: 1h\n  wait: {poll: 2s}"},
	{"a second attempt of an irreversible action", "  attach_window: 1h", "  attach_window: 1h\n  attempts: 2"},
	{"a duration without a unit", "attach_window: 1h", "attach_window: 60"},
	{"a duration in weeks", "attach_window: 1h", "attach_window: 1w"},
	{"a duration of nothing", "attach_window: 1h", "attach_window: 0s"},
	{"a duration of a century", "result: 30d", "result: 36500d"},
	{"timeouts that contradict", "{connect: 5s, total: 1m}", "{connect: 5m, total: 1m}"},
	{"a template of an unknown argument", "note: \"for {to}\"", "note: \"for {too}\""},
	{"a template without its end", "note: \"for {to}\"", "note: \"for {to\""},
	{"a template without its start", "note: \"for {to}\"", "note: \"for to}\""},
	{"a placeholder that is none", "note: \"for {to}\"", "note: \"for { to }\""},
	{"a placeholder in a JSON name", "{to: \"{to}\"", "{\"{to}\": 1"},
	{"a list within a text", "note: \"for {to}\"", "note: \"for {labels}\""},
	{"a list in the query", "query: {count: \"{count}\"}", "query: {labels: \"{labels}\"}"},
	{"an optional argument in the path", "v1/{to}/parcels", "v1/{weight}/parcels"},
	{"a secret argument in the query", "query: {count: \"{count}\"}", "query: {pin: \"{pin}\"}"},
	{"a placeholder in the host", "https://parcels.example/", "https://{to}.example/"},
	{"http without TLS", "https://parcels.example/", "http://parcels.example/"},
	{"another scheme", "https://parcels.example/", "file:///etc/passwd/"},
	{"a user in the URL", "https://parcels.example/", "https://me:pw@parcels.example/"},
	{"a query in the URL", "{to}/parcels", "{to}/parcels?x={to}"},
	{"dots in the URL", "/v1/{to}", "/v1/%2e%2e/{to}"},
	{"a blank in the URL", "/v1/{to}", "/v1/my parcels/{to}"},
	{"an impossible port", "parcels.example/", "parcels.example:99999/"},
	{"the Host header", "headers: {X-Trace:", "headers: {host: other.example, X-Trace:"},
	{"the Authorization header", "headers: {X-Trace:", "headers: {Authorization: Bearer x, X-Trace:"},
	{"an illegal header name", "headers: {X-Trace:", "headers: {\"X Trace\":"},
	{"a header twice", "headers: {X-Trace:", "headers: {x-trace: a, X-Trace:"},
	{"a line break in a header", "X-Trace: \"{execution_id}\"", "X-Trace: \"a\\nHost: b\""},
	{"two bodies", "  timeout:", "  form: {a: b}\n  timeout:"},
	{"a body of a GET", "method: POST", "method: GET"},
	{"an impossible status", "  timeout:", "  success: [200, 2x, 999]\n  timeout:"},
	{"the argument intent_key", "    to: {type: string, maxLength: 40}", "    to: {type: string, maxLength: 40}\n    intent_key: {type: string}"},
	{"a misspelt schema keyword", "maxLength: 40", "maxLenght: 40"},
	{"an unknown type", "weight: {type: number, minimum: 0}", "weight: {type: float, minimum: 0}"},
	{"a schema of the wrong type", "weight: {type: number, minimum: 0}", "weight: {type: number, minimum: zero}"},
	{"a default that does not fit", "count: {type: integer, default: 1}", "count: {type: integer, default: one}"},
	{"a default that is never filled in", "weight: {type: number, minimum: 0}", "weight: {anyOf: [{type: number, default: 1}]}"},
	{"a title of two lines", "title: Send a parcel", "title: \"Send\\na parcel\""},
	{"a default of a required argument", "maxLength: 40", "default: home"},
	{"a default of a secret argument", "secret: true", "secret: true, default: canary-not-a-secret"},
	{"a reference to elsewhere", "weight: {type: number, minimum: 0}", "weight: {$ref: \"https://schemas.example/weight\"}"},
	{"a reference to nowhere", "weight: {type: number, minimum: 0}", "weight: {$ref: \"#/$defs/weight\"}"},
	{"arguments of any name", "additionalProperties: false", "additionalProperties: true"},
	{"arguments that are no object", "input:\n  type: object", "input:\n  type: array"},
	{"a required argument that is none", "required: [to]", "required: [to, from]"},
	{"a pattern that is none", "maxLength: 40", "pattern: \"(\""},
	{"a nested secret", "items: {type: string}", "items: {type: string, secret: true}"},
}

func TestEveryWrongContractIsToldWhereWhatAndWhatInstead(t *testing.T) {
	var b strings.Builder
	for _, c := range wrong {
		src := edit(t, plain, c.old, c.new)
		_, err := policy.Parse("parcel.yaml", []byte(src))
		var problems *policy.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: Parse gave %v, want Problems", c.name, err)
			continue
		}
		lines := strings.Count(src, "\n") + 1
		for _, p := range problems.List {
			if p.File != "parcel.yaml" || p.Line < 1 || p.Line > lines || p.Column < 1 || p.Message == "" || p.Remedy == "" {
				t.Errorf("%s: incomplete problem %+v", c.name, p)
			}
		}
		fmt.Fprintf(&b, "# %s\n%v\n\n", c.name, err)
	}
	golden(t, "wrong.golden", b.String())
}

func TestAllProblemsAreToldAtOnceInTheFilesOrder(t *testing.T) {
	src := edit(t, plain, "title: Send a parcel", "title: 7", "method: POST", "method: FETCH", "attach_window: 1h", "attach_window: soon")
	_, err := policy.Parse("parcel.yaml", []byte(src))
	var problems *policy.Problems
	if !errors.As(err, &problems) || len(problems.List) != 3 {
		t.Fatalf("got %v, want three problems", err)
	}
	for i, line := range []int{2, 19, 27} {
		if problems.List[i].Line != line {
			t.Errorf("problem %d is in line %d, want %d: %v", i, problems.List[i].Line, line, problems.List[i])
		}
	}
}

func TestHostileFilesAreRefusedQuickly(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'z'; c++ {
		laughs += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	for name, src := range map[string]string{
		"nothing":            "",
		"white space":        " \n\n",
		"a comment":          "# only\n",
		"a list":             "- a\n",
		"a word":             "hello",
		"null":               "null",
		"billion laughs":     laughs,
		"deep flow":          strings.Repeat("[", 5000),
		"deep closed flow":   strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5000),
		"too long":           strings.Repeat("# x\n", policy.MaxContractBytes),
		"NUL":                "action: a\x00b",
		"invalid UTF-8":      "action: \xff",
		"an alias to itself": "a: &a [*a]",
		"many problems":      strings.Repeat("- [", 10) + strings.Repeat("]", 10) + "\n" + manyFields(),
	} {
		_, err := policy.Parse("hostile.yaml", []byte(src))
		var problems *policy.Problems
		if !errors.As(err, &problems) || len(problems.List) == 0 || len(problems.List) > 50 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func manyFields() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "f%d: 1\n", i)
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(strings.Replace(plain, replayOfPlain, asks, 1)))
	for _, c := range wrong {
		f.Add([]byte(strings.Replace(plain, c.old, c.new, 1)))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := policy.Parse("fuzz.yaml", src)
		if err != nil {
			var problems *policy.Problems
			if !errors.As(err, &problems) || len(problems.List) == 0 || problems.Error() == "" {
				t.Fatalf("an error that is not Problems: %v", err)
			}
			return
		}
		a, err := policy.Compile(c)
		if err != nil {
			t.Fatalf("parsed, but does not compile: %v", err)
		}
		if c.Digest != policy.Digest(src) {
			t.Fatal("the digest is not the file's")
		}
		if p, err := a.Prepare([]byte(`{}`)); err == nil {
			if _, err := a.Render(p, "act_00000000000000000000000000"); err != nil {
				argumentError(t, err)
			}
		}
	})
}
