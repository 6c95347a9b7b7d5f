package policy_test

import (
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// tooled is a correct contract about a tool of an upstream.
const tooled = `action: pay
description: Pays an order.
channel: mcp
input:
  type: object
  properties:
    order: {type: string}
    amount: {type: integer}
    note: {type: string}
  required: [order, amount]
  additionalProperties: false
approval: {per_use_if: "args.amount > 100"}
mcp:
  upstream: bank
  tool: charge
  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  arguments: {reference: "{order}", cents: "{amount}", memo: "{note}", key: "{execution_id}", live: true}
  timeout: {total: 5m}
replay:
  class: idempotent
  key_lifetime: 24h
  attach_window: 1h
`

func TestAContractCanCallAToolOfAnUpstream(t *testing.T) {
	a := compile(t, tooled).On(bank(), false)
	c := a.Contract()
	if c.Channel != effect.MCP || c.MCP.Total.Minutes() != 5 || c.Replay.Class != execution.Idempotent {
		t.Errorf("%+v %+v", c, c.MCP)
	}
	e, err := a.Render(prepare(t, a, `{"order":"A-1","amount":100}`), "act_1")
	if err != nil {
		t.Fatal(err)
	}
	m := e.MCP
	if m.Upstream != "bank" || m.Tool != "charge" || m.Pin != c.MCP.Pin || string(m.Arguments) != `{"reference":"A-1","cents":100,"key":"act_1","live":true}` {
		t.Errorf("%+v %s", m, m.Arguments)
	}
	if _, err := e.Encode(); err != nil {
		t.Error(err)
	}
	if ask, _, _ := a.PerUse(prepare(t, a, `{"order":"A-1","amount":101}`)); !ask {
		t.Error("its condition is not asked")
	}
	if err := publishedSchema(t).Validate(loose(t, tooled)); err != nil {
		t.Errorf("the published schema refuses it: %v", err)
	}
}

func TestWithoutArgumentsAToolIsSentTheActionsOwn(t *testing.T) {
	src := edit(t, tooled, "  arguments: {reference: \"{order}\", cents: \"{amount}\", memo: \"{note}\", key: \"{execution_id}\", live: true}\n", "", "class: idempotent\n  key_lifetime: 24h", "class: irreversible")
	a := compile(t, src).On(bank(), true)
	e, err := a.Render(prepare(t, a, `{"amount":1,"order":"A-1","intent_key":"k"}`), "act_1")
	if err != nil || string(e.MCP.Arguments) != `{"amount":1,"order":"A-1"}` {
		t.Errorf("%+v, %v", e.MCP, err)
	}
}

func TestAWrongContractAboutAToolIsToldWhatInstead(t *testing.T) {
	for name, c := range map[string]struct{ old, new, says string }{
		"no block":           {tooled[strings.Index(tooled, "mcp:\n"):strings.Index(tooled, "replay:")], "", "the field \"mcp\" is missing"},
		"no digest":          {"  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", "", "as spctl upstream tools has it"},
		"a credential":       {"channel: mcp\n", "channel: mcp\ncredential: bank\n", "the upstream was given its credentials"},
		"no key":             {"key: \"{execution_id}\", ", "", "needs {execution_id} among mcp.arguments"},
		"a header":           {"  key_lifetime: 24h\n", "  key_lifetime: 24h\n  idempotency_header: Idempotency-Key\n", "has no headers"},
		"a status query":     {"class: idempotent\n  key_lifetime: 24h", "class: status_query", "cannot be asked"},
		"an http block":      {"mcp:\n", "http: {method: GET, url: \"https://a.example/\"}\nmcp:\n", "belongs to channel http"},
		"a foreign argument": {"{order}", "{ordre}", "did you mean {order}"},
		"an unknown field":   {"  tool: charge\n", "  tool: charge\n  zzzz: 1\n", "known here: upstream, tool, digest, arguments, timeout, max_answer"},
	} {
		_, err := policy.Parse("x.yaml", []byte(edit(t, tooled, c.old, c.new)))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "no key" && name != "a foreign argument" && publishedSchema(t).Validate(loose(t, edit(t, tooled, c.old, c.new))) == nil {
			t.Errorf("%s: the published schema takes it", name)
		}
	}
}
