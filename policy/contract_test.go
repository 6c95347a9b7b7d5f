package policy_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

func examples(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../assets/actions/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d example contracts, %v", len(files), err)
	}
	return files
}

func TestEveryExampleIsAccepted(t *testing.T) {
	for _, file := range examples(t) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		a := compile(t, string(src))
		if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); a.Tool().Name != name {
			t.Errorf("%s holds the action %s", file, a.Tool().Name)
		}
		var schema jsonschema.Schema
		if err := json.Unmarshal(a.Tool().InputSchema, &schema); err != nil {
			t.Errorf("%s: its tool's schema: %v", file, err)
		}
		if schema.Type != "object" || schema.Properties["intent_key"] == nil {
			t.Errorf("%s: its tool's schema is %s", file, a.Tool().InputSchema)
		}
	}
}

func TestAContractMeansWhatItSays(t *testing.T) {
	src, err := os.ReadFile("../assets/actions/deploy_release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := compile(t, string(src)).Contract()
	if c.Action != "deploy_release" || c.Channel != effect.HTTP || c.Credential != "deploy-service" || c.Approval != (policy.Approval{}) {
		t.Errorf("read as %+v", c)
	}
	r := c.Replay
	if r.Class != execution.Idempotent || r.IdempotencyHeader != "Idempotency-Key" || r.KeyLifetime != 24*time.Hour || r.AttachWindow != time.Hour ||
		r.AfterDelivery != execution.Ask || r.IntentScope != policy.ScopeRun || r.Attempts != 2 || !slices.Equal(r.Fingerprint, []string{"service", "version", "region"}) {
		t.Errorf("replay read as %+v", r)
	}
	if c.Retention.Result != 30*24*time.Hour || c.HTTP.Connect != 10*time.Second || c.HTTP.Total != 2*time.Minute {
		t.Errorf("times read as %v, %v, %v", c.Retention.Result, c.HTTP.Connect, c.HTTP.Total)
	}
	if c.Digest != policy.Digest(src) || c.Digest == policy.Digest(append(src, '\n')) || !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(c.Digest) {
		t.Errorf("digest %s", c.Digest)
	}
}

func TestWhatAContractLeavesOutHasItsDefault(t *testing.T) {
	c := compile(t, edit(t, plain, "  class: irreversible\n", "", "retention: {result: 30d}\n", "", "approval: session\n", "")).Contract()
	r := c.Replay
	if r.Class != execution.Irreversible || r.AfterDelivery != execution.Ask || r.IntentScope != policy.ScopeRun || r.Attempts != 1 ||
		!slices.Equal(r.Fingerprint, []string{"to", "weight", "count", "express", "labels", "pin"}) || c.Retention.Result != policy.DefaultRetention || c.Approval.PerUse {
		t.Errorf("irreversible by default, read as %+v, %+v", r, c.Retention)
	}
	c = compile(t, edit(t, plain, "class: irreversible\n  attach_window: 1h", "class: read_only")).Contract()
	if r := c.Replay; r.AfterDelivery != execution.New || r.Attempts != 2 || r.AttachWindow != policy.DefaultAttachWindow {
		t.Errorf("read_only, read as %+v", r)
	}
	if h := c.HTTP; !h.Succeeded(200) || !h.Succeeded(299) || h.Succeeded(300) || h.Succeeded(199) || h.Succeeded(404) {
		t.Error("success is 2xx unless the contract says otherwise")
	}
	c = compile(t, edit(t, plain, "  timeout:", "  success: [2xx, 404]\n  timeout:")).Contract()
	if h := c.HTTP; !h.Succeeded(204) || !h.Succeeded(404) || h.Succeeded(403) {
		t.Errorf("success read as %+v", h.Success)
	}
}

func TestToolsSayWhatALostAnswerMeans(t *testing.T) {
	var b strings.Builder
	for _, file := range examples(t) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tool := compile(t, string(src)).Tool()
		b.WriteString("# " + tool.Name + " (" + tool.Title + ")\n" + tool.Description + "\n" + string(tool.Annotations) + "\n" + string(tool.InputSchema) + "\n\n")
	}
	golden(t, "tools.golden", b.String())
}

func TestASecretMarkIsNotPublished(t *testing.T) {
	if schema := string(compile(t, plain).Tool().InputSchema); strings.Contains(schema, "secret") {
		t.Errorf("published %s", schema)
	}
}

func publishedSchema(t testing.TB) *jsonschema.Resolved {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

func TestThePublishedSchemaTakesWhatTheParserTakes(t *testing.T) {
	schema := publishedSchema(t)
	sources := map[string]string{
		"plain":     plain,
		"bare":      edit(t, plain, "approval: session", "approval: args.weight > 1.5"),
		"read only": edit(t, plain, "class: irreversible\n  attach_window: 1h", "class: read_only\n  attempts: 5"),
		"durable":   edit(t, plain, "attach_window: 1h", "attach_window: 1d2h3m4s\n  intent_scope: durable\n  after_delivery: return"),
	}
	for _, file := range examples(t) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources[file] = string(src)
	}
	for name, src := range sources {
		compile(t, src)
		if err := schema.Validate(loose(t, src)); err != nil {
			t.Errorf("%s: the schema refuses what the parser takes: %v", name, err)
		}
	}
}

// loose reads YAML without any of our rules.
func loose(t testing.TB, src string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(src), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Two lists of fields, the parser's and the schema's, must be one: for each object of the format, the parser is asked which fields it knows.
func TestTheParserAndThePublishedSchemaKnowTheSameFields(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			Properties map[string]struct {
				Properties map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	approval := []string{"per_use_if"} // stands in a oneOf
	for at, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"":               {"title: Send a parcel", "zzzz: 1", names(schema.Properties)},
		"/http":          {"  method: POST", "  method: POST\n  zzzz: 1", names(schema.Properties["http"].Properties)},
		"/http/timeout":  {"{connect: 5s,", "{zzzz: 1,", names(schema.Properties["http"].Properties["timeout"].Properties)},
		"/replay":        {"  class: irreversible", "  zzzz: 1", names(schema.Properties["replay"].Properties)},
		"/replay/status": {replayOfPlain, asksWith("    method:", "    zzzz: 1\n    method:"), names(schema.Properties["replay"].Properties["status"].Properties)},
		"/replay/wait":   {replayOfPlain, asksWith("{poll:", "{zzzz: 1, poll:"), names(schema.Properties["replay"].Properties["wait"].Properties)},
		"/retention":     {"{result: 30d}", "{zzzz: 1}", names(schema.Properties["retention"].Properties)},
		"/approval":      {"approval: session", "approval: {zzzz: 1}", approval},
	} {
		_, err := policy.Parse("x.yaml", []byte(edit(t, plain, c.old, c.new)))
		var problems *policy.Problems
		if !errors.As(err, &problems) {
			t.Fatal(err)
		}
		i := slices.IndexFunc(problems.List, func(p policy.Problem) bool { return p.Path == at+"/zzzz" })
		if i < 0 {
			t.Errorf("%s: no problem about the unknown field: %v", at, err)
			continue
		}
		known := strings.Split(strings.TrimPrefix(problems.List[i].Remedy, "known here: "), ", ")
		slices.Sort(known)
		if !slices.Equal(known, c.want) {
			t.Errorf("%s: the parser knows %q, the schema %q", at, known, c.want)
		}
	}
}

func names[T any](m map[string]T) []string {
	var list []string
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// What a schema can say, it says: most of the wrong contracts are refused by it too.
func TestThePublishedSchemaFindsWrongFields(t *testing.T) {
	schema := publishedSchema(t)
	for _, name := range []string{
		"an unknown field", "an unknown field in http", "an unknown field in replay", "a missing field", "a missing url", "a missing attach window", "a number for a text",
		"a list for an object", "an unknown class", "an unknown method", "the channel ssh", "an illegal action name", "a reserved action name", "class status_query alone",
		"class idempotent without its fields", "a key at a class that has none", "a second attempt of an irreversible action", "a duration without a unit", "a duration in weeks",
		"two bodies", "an impossible status", "the argument intent_key", "a status block of another class", "a status block without its conditions",
		"a status request that is another method", "a status request with http's own field", "not done without a time", "no wait at all", "an unknown field in wait",
		"an unknown field in status", "a wait of another class", "arguments of any name", "a query in the URL", "a placeholder in the host",
	} {
		i := slices.IndexFunc(wrong, func(c struct{ name, old, new string }) bool { return c.name == name })
		if i < 0 {
			t.Fatalf("no case %q", name)
		}
		if err := schema.Validate(loose(t, edit(t, plain, wrong[i].old, wrong[i].new))); err == nil {
			t.Errorf("%s: the published schema takes it", name)
		}
	}
}

func TestADiffShowsWhatChangedAndWhatHides(t *testing.T) {
	changed := edit(t, plain, "parcels.example", "parcels.\u202eexample", "class: irreversible", "class: read_only")
	got := policy.Diff("accepted", []byte(plain), "send_parcel.yaml", []byte(changed))
	for _, want := range []string{"-  class: irreversible\n", "+  class: read_only\n", "+  url: https://parcels.<U+202E>example/v1/{to}/parcels\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the diff has no %q:\n%s", want, got)
		}
	}
	if strings.ContainsRune(got, '\u202e') || strings.ContainsRune(policy.Diff("a", nil, "b", []byte("\x1b[2Jx\n")), '\x1b') {
		t.Error("a character that hides something reached the diff")
	}
	if got := policy.Diff("a", []byte(plain), "b", []byte(plain)); got != "" {
		t.Errorf("no change is shown as %q", got)
	}
}

func TestOnlyAParsedContractCompiles(t *testing.T) {
	for _, c := range []*policy.Contract{nil, {}, {Action: "x", Channel: effect.HTTP, HTTP: &policy.HTTP{}}} {
		if _, err := policy.Compile(c); err == nil {
			t.Errorf("compiled %+v", c)
		}
	}
}
