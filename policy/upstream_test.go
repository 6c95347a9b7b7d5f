package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/policy"
)

const chargeSchema = `{"type":"object","properties":{"amount":{"type":"number"},"note":{"type":"string","default":"none"}},"required":["amount"],"$schema":"http://json-schema.org/draft-07/schema#"}`

func charge() policy.UpstreamTool {
	return policy.UpstreamTool{
		Action: "bank.charge", Upstream: "bank", Class: execution.Irreversible, PerUse: true,
		Tool: upstream.Tool{Name: "charge", Title: "Charge", Description: "Charges a card.", InputSchema: json.RawMessage(chargeSchema), Annotations: json.RawMessage(`{"readOnlyHint":true}`)},
	}
}

func bank() upstream.Definition {
	return upstream.Definition{Name: "bank", Command: []string{"/usr/bin/node", "/srv/bank.mjs"}}
}

func compileTool(t testing.TB, u policy.UpstreamTool) *policy.Action {
	t.Helper()
	src, err := u.Source()
	if err != nil {
		t.Fatal(err)
	}
	if !policy.IsUpstreamTool(src) {
		t.Fatalf("its source is not told from a file: %s", src)
	}
	c, err := policy.ParseUpstreamTool(src)
	if err != nil {
		t.Fatal(err)
	}
	a, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnAcceptedToolOfAnUpstreamIsAnAction(t *testing.T) {
	a := compileTool(t, charge()).On(bank(), false)
	tool := a.Tool()
	if tool.Name != "bank.charge" || !strings.HasPrefix(tool.Description, "Charges a card.") || !strings.Contains(tool.Description, "never sent a second time") {
		t.Errorf("%+v", tool)
	}
	const want = `{"type":"object","properties":{"amount":{"type":"number"},"note":{"type":"string","default":"none"},"intent_key":`
	if !strings.HasPrefix(string(tool.InputSchema), want) || !json.Valid(tool.InputSchema) {
		t.Errorf("published %s", tool.InputSchema)
	}
	if ask, _, err := a.PerUse(prepare(t, a, `{"amount":1}`)); err != nil || !ask {
		t.Error("the operator chose that it asks at every use")
	}
	e, err := a.Render(prepare(t, a, `{"note":"<é>", "amount":1e2, "intent_key":"k"}`), "act_1")
	if err != nil {
		t.Fatal(err)
	}
	pin, err := charge().Tool.Pin()
	if err != nil {
		t.Fatal(err)
	}
	m := e.MCP
	if e.Channel != effect.MCP || m.Upstream != "bank" || m.Identity != bank().Identity() || m.Tool != "charge" || m.Pin != pin || string(m.Arguments) != `{"amount":100,"note":"<é>"}` {
		t.Errorf("%+v", m)
	}
}

func TestWhatAnUpstreamClaimsOfItsToolDecidesNothing(t *testing.T) {
	if got := string(compileTool(t, charge()).Tool().Annotations); !strings.Contains(got, `"readOnlyHint":false,"destructiveHint":true`) {
		t.Error(got)
	}
}

func TestAnUpstreamsDefaultsAreNotFilledIn(t *testing.T) {
	a := compileTool(t, charge())
	if got := string(prepare(t, a, `{"amount":1}`).Arguments); got != `{"amount":1}` {
		t.Error(got)
	}
}

func TestArgumentsThatAnUpstreamsSchemaRefusesAreRefused(t *testing.T) {
	a := compileTool(t, charge())
	if _, err := a.Prepare([]byte(`{"amount":"much"}`)); argumentError(t, err).Pointer != "/amount" {
		t.Error(err)
	}
	if _, err := a.Prepare([]byte(`{"amount":9007199254740993}`)); err == nil {
		t.Error("an integer that would be rounded was taken")
	}
}

func TestArgumentsThatAnUpstreamsSchemaDoesNotNameCountInTheFingerprint(t *testing.T) {
	a := compileTool(t, charge())
	one := a.Fingerprint(mac, prepare(t, a, `{"amount":1,"extra":1}`), "exe:/a", "run:1")
	if two := a.Fingerprint(mac, prepare(t, a, `{"amount":1,"extra":2}`), "exe:/a", "run:1"); one == two {
		t.Error("two intents share a fingerprint")
	}
	// What the upstream is by now does not change which call it is.
	if again := a.On(bank(), true).Fingerprint(mac, prepare(t, a, `{"extra":1,"amount":1,"intent_key":"k"}`), "exe:/a", "run:1"); one != again {
		t.Error("a repeat is not recognized")
	}
}

func TestASchemaThatOnlyItsUpstreamUnderstandsIsLeftToIt(t *testing.T) {
	u := charge()
	u.Tool.InputSchema = json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","pattern":"^(?!x)"}}}`)
	a := compileTool(t, u)
	if got := string(prepare(t, a, `{"code":"xyz"}`).Arguments); got != `{"code":"xyz"}` {
		t.Error(got)
	}
}

func TestAToolThatCannotBeUsedIsRefusedWithWhatIsWrong(t *testing.T) {
	for name, change := range map[string]func(*policy.UpstreamTool){
		"no object": func(u *policy.UpstreamTool) { u.Tool.InputSchema = json.RawMessage(`{"type":"string"}`) },
		"no schema": func(u *policy.UpstreamTool) { u.Tool.InputSchema = nil },
		"reserved argument": func(u *policy.UpstreamTool) {
			u.Tool.InputSchema = json.RawMessage(`{"type":"object","properties":{"intent_key":{}}}`)
		},
		"duplicate names": func(u *policy.UpstreamTool) {
			u.Tool.InputSchema = json.RawMessage(`{"type":"object","type":"object"}`)
		},
		"class": func(u *policy.UpstreamTool) { u.Class = execution.Idempotent },
		"name":  func(u *policy.UpstreamTool) { u.Action = "a b" },
		"time":  func(u *policy.UpstreamTool) { u.Total = "forever" },
	} {
		u := charge()
		change(&u)
		if src, err := u.Source(); err == nil {
			t.Errorf("%s: accepted as %s", name, src)
		}
	}
}

// Written once, never regenerated: vaults hold such sources, and records their digests.
func TestTheSourceOfAnAcceptedToolIsFrozen(t *testing.T) {
	src, err := charge().Source()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "upstream_tool.v1.json", string(src)+"\n"+policy.Digest(src)+"\n")
	back, err := policy.DecodeUpstreamTool(src)
	if err != nil || back.Action != "bank.charge" {
		t.Errorf("%+v, %v", back, err)
	}
}
