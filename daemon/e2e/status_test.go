package e2e_test

import (
	"encoding/json"
	"maps"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/e2e/ledger"
)

// askedActions are the usual ones and one whose target can be asked afterwards what became of it. What was done shows after 2 s at the latest, says its contract, unless it is
// charge_slow.
var askedActions = func() map[string]string {
	all := maps.Clone(usualActions)
	for name, after := range map[string]string{"charge_asked": "2s", "charge_slow": "60s"} {
		all[name] = `action: ` + name + `
title: Charge an account
description: Charges one order to the account.
channel: http
input:
  type: object
  properties:
    order: {type: string}
    amount: {type: integer, minimum: 1}
  required: [order, amount]
  additionalProperties: false
credential: ledger
approval: session
http:
  method: POST
  url: "{target}/ignores/charge"
  headers: {Idempotency-Key: "{execution_id}"}
  json: {order: "{order}", amount: "{amount}"}
replay:
  class: status_query
  attach_window: 1h
  status:
    method: GET
    url: "{target}/status/{execution_id}"
    done: status == 200 && body.state == "done"
    not_done: status == 200 && body.state == "not_done"
  wait: {poll: 1s, not_done_after: ` + after + `, give_up_after: 90s}
`
	}
	return all
}()

var askedScenarios = []scenario{
	{
		name: "the target cuts the connection after it has acted", tool: "charge_asked",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.plan(ledger.Cut)
			first := must(t, c.call(request{tool: "charge_asked", args: args(order)})())
			if s.wantReceipt(first); first.meta(t).Recorded {
				t.Errorf("the first caller is told of a recorded result: %s", first.raw)
			}
			id := first.meta(t).ExecutionID
			if r := s.recordOf(id); r.OutcomeSource != "status_query" || len(r.Checks) == 0 || r.Checks[len(r.Checks)-1].Finding != "done" {
				t.Errorf("the record says that the outcome is by %q: %+v", r.OutcomeSource, r.Checks)
			}
			return first
		},
	},
	{
		name: "the target cuts the connection before it acts", tool: "charge_asked",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.plan(ledger.Drop)
			r := must(t, c.call(request{tool: "charge_asked", args: args(order)})())
			dropped, acted := s.target.about(order, ledger.Dropped), s.target.effects(order)
			if len(dropped) != 1 || len(acted) != 1 || dropped[0].Key != acted[0].Key || acted[0].Key != r.meta(t).ExecutionID {
				t.Errorf("it was not sent once more as the same execution: %+v, %+v", dropped, acted)
			}
			return r
		},
	},
	{
		name: "what was done does not show at first", transport: "stdio", tool: "charge_slow",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.status(ledger.Late)
			s.target.plan(ledger.Cut)
			call := c.call(request{tool: "charge_slow", args: args(order)})
			for range 3 {
				s.target.nextQuestion()
			}
			s.target.wantEffects(t, order, 1)
			s.target.status("")
			return must(t, call())
		},
	},
	{
		name: "the agent gives up and tries again while the target is asked", transport: "stdio", tool: "charge_slow",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.status(ledger.Down)
			s.target.plan(ledger.Cut)
			first := c.call(request{tool: "charge_slow", args: args(order), timeoutMS: 3000})
			s.target.nextQuestion()
			first()
			second := c.call(request{tool: "charge_slow", args: args(order)})
			s.record("the second caller attached", callers(2))
			s.target.status("")
			return must(t, second())
		},
	},
	{
		name: "the daemon is killed after the target has acted", tool: "charge_asked",
		run: func(t *testing.T, s *stand, c *client, again server, order string) *result {
			daemonKilled(t, s, c, "charge_asked", again, order)
			return must(t, c.call(request{tool: "charge_asked", args: args(order)})())
		},
	},
	{
		name: "the daemon is killed while the target is asked about what it did not do", transport: "stdio", tool: "charge_asked",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.status(ledger.Down)
			s.target.plan(ledger.Drop)
			first := c.call(request{tool: "charge_asked", args: args(order)})
			s.target.nextQuestion()
			s.killDaemon()
			first()
			s.restart()
			s.agreeable()
			second := c.call(request{tool: "charge_asked", args: args(order)})
			s.target.nextQuestion()
			s.record("the second caller attached", callers(2))
			s.target.status("")
			return must(t, second())
		},
	},
}

func TestATargetThatCanBeAskedTellsWhatALostAnswerWas(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, option{actions: askedActions})
			s.agreeable()
			for i, sc := range askedScenarios {
				if sc.transport != "" && sc.transport != transport {
					continue
				}
				t.Run(sc.name, func(t *testing.T) {
					s.about(t)
					s.target.status("")
					sc.test(t, s, clientKinds[0], transport, "A-"+string(rune('a'+i)))
				})
			}
			s.about(t)
			if got := s.spctl("audit", "verify"); got == "" {
				t.Error("audit verify says nothing")
			}
		})
	}
}

func TestAStatusEndpointThatIsDownLeavesTheOutcomeUnknownUntilItIsBack(t *testing.T) {
	t.Parallel()
	s := newStand(t, option{actions: askedActions, config: "answer_within: 3s\n"})
	s.agreeable()
	c := s.agent(clientKinds[0], "stdio")
	s.target.status(ledger.Down)
	s.target.plan(ledger.Cut)
	call := request{tool: "charge_asked", args: args("A-1")}
	first := c.mustCall(call)
	id := first.meta(t).ExecutionID
	if first.IsError || first.meta(t).State != "unknown" || first.receipt() != "" {
		t.Errorf("the agent is told %s", first.raw)
	}
	if got := c.mustCall(request{tool: "execution_status", args: map[string]any{"execution_id": id}}); got.body(t).State != "unknown" {
		t.Errorf("execution_status says %s", got.raw)
	}
	var checked api.Checked
	check := func() {
		t.Helper()
		if err := json.Unmarshal([]byte(s.spctl("check", id, "--json")), &checked); err != nil {
			t.Fatal(err)
		}
	}
	check()
	if checked.Finding != "cannot_tell" || checked.Settled || checked.Record.State != "unknown" || checked.Evidence == "" {
		t.Errorf("check says %+v", checked)
	}
	s.target.wantEffects(t, "A-1", 1)

	s.target.status("")
	s.target.nextQuestion() // asked by itself or by us, it tells now
	if r := s.recordOf(id); r.State == "unknown" {
		check()
		if checked.Finding != "done" || !checked.Settled {
			t.Errorf("check says %+v", checked)
		}
	}
	again := c.mustCall(call)
	s.target.wantEffects(t, "A-1", 1)
	s.wantReceipt(again)
	if r := s.recordOf(id); r.OutcomeSource != "status_query" || len(r.Checks) < 2 {
		t.Errorf("the record is %+v", r)
	}
}

// recordOf returns the record of an execution as it is now.
func (s *stand) recordOf(id string) (r api.Record) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.spctl("activity", "show", id, "--json")), &r); err != nil {
		s.t.Fatal(err)
	}
	return r
}
