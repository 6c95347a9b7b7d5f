package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/e2e/ledger"
)

// scenario loses an answer once the target has acted, tries again, and returns what the agent got in the end. The
// target acts once.
type scenario struct {
	name      string
	transport string // stdio or http; empty: both
	tool      string
	run       func(t *testing.T, s *stand, c *client, again server, order string) *result
	state     string // what our _meta says in the end; empty: completed, with the receipt
}

var scenarios = []scenario{
	{
		name: "times out, cancels, and tries again while the target works", tool: "charge_once",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.plan(ledger.Hold)
			timesOut(t, s, c, order)
			second := c.call(request{tool: "charge_once", args: args(order)})
			s.record("the second caller attached", callers(2))
			s.target.release()
			return must(t, second())
		},
	},
	{
		name: "times out, cancels, and tries again after the target has answered", tool: "charge_once",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.plan(ledger.Hold)
			timesOut(t, s, c, order)
			s.target.release()
			s.record("completed, not delivered", state("completed_result_not_delivered"))
			r := must(t, c.call(request{tool: "charge_once", args: args(order)})())
			if !r.meta(t).Recorded {
				t.Errorf("the result is not marked as recorded: %s", r.raw)
			}
			return r
		},
	},
	{
		name: "the bridge is killed, and the call tried again while the target works", transport: "stdio", tool: "charge_once",
		run: func(t *testing.T, s *stand, c *client, again server, order string) *result {
			s.target.plan(ledger.Hold)
			bridgeKilled(t, s, c, again, order)
			second := c.call(request{tool: "charge_once", args: args(order)})
			s.record("the second caller attached", callers(2))
			s.target.release()
			return must(t, second())
		},
	},
	{
		name: "the bridge is killed, and the call tried again after the target has answered", transport: "stdio", tool: "charge_once",
		run: func(t *testing.T, s *stand, c *client, again server, order string) *result {
			s.target.plan(ledger.Hold)
			bridgeKilled(t, s, c, again, order)
			s.target.release()
			s.record("completed, not delivered", state("completed_result_not_delivered"))
			return must(t, c.call(request{tool: "charge_once", args: args(order)})())
		},
	},
	{
		name: "the daemon is killed; the target honours keys", tool: "charge_keyed",
		run: func(t *testing.T, s *stand, c *client, again server, order string) *result {
			daemonKilled(t, s, c, "charge_keyed", again, order)
			r := must(t, c.call(request{tool: "charge_keyed", args: args(order)})())
			first, replayed := s.target.effects(order), s.target.about(order, ledger.Replayed)
			if len(first) != 1 || len(replayed) != 1 || first[0].Key != replayed[0].Key || !strings.HasPrefix(first[0].Key, "act_") {
				t.Errorf("the second attempt did not carry the execution's key: %+v, %+v", first, replayed)
			}
			return r
		},
	},
	{
		name: "the daemon is killed; the action is irreversible", tool: "charge_once", state: "unknown",
		run: func(t *testing.T, s *stand, c *client, again server, order string) *result {
			daemonKilled(t, s, c, "charge_once", again, order)
			first := must(t, c.call(request{tool: "charge_once", args: args(order)})())
			second := must(t, c.call(request{tool: "charge_once", args: args(order)})())
			if a, b := first.meta(t), second.meta(t); a.ExecutionID != b.ExecutionID || a.State != b.State {
				t.Errorf("asking again gives another answer: %s, then %s", first.raw, second.raw)
			}
			return second
		},
	},
	{
		name: "the daemon and the bridge are killed; the target honours keys", transport: "stdio", tool: "charge_keyed",
		run: func(t *testing.T, s *stand, c *client, again server, order string) *result {
			s.target.plan(ledger.Hold)
			first := c.call(request{tool: "charge_keyed", args: args(order)})
			s.target.nextEffect()
			s.killDaemon()
			c.killServer()
			first()
			s.restart()
			s.agreeable()
			c.connect(again)
			return must(t, c.call(request{tool: "charge_keyed", args: args(order)})())
		},
	},
	{
		name: "the target cuts the connection; it honours keys", tool: "charge_keyed",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.plan(ledger.Cut)
			return must(t, c.call(request{tool: "charge_keyed", args: args(order)})())
		},
	},
	{
		name: "the target cuts the connection; the action is irreversible", tool: "charge_once", state: "unknown",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.plan(ledger.Cut)
			must(t, c.call(request{tool: "charge_once", args: args(order)})())
			return must(t, c.call(request{tool: "charge_once", args: args(order)})())
		},
	},
	{
		name: "two identical calls in flight", tool: "charge_once",
		run: func(t *testing.T, s *stand, c *client, _ server, order string) *result {
			s.target.plan(ledger.Hold)
			first := c.call(request{tool: "charge_once", args: args(order)})
			s.target.nextEffect()
			second := c.call(request{tool: "charge_once", args: args(order)})
			s.record("the second caller attached", callers(2))
			s.target.release()
			a, b := must(t, first()), must(t, second())
			if a.receipt() != b.receipt() || a.meta(t).ExecutionID != b.meta(t).ExecutionID {
				t.Errorf("two callers of one execution got different answers: %s, %s", a.raw, b.raw)
			}
			return b
		},
	},
	{
		name: "the connection is torn and made again in the same process", tool: "charge_once",
		run: func(t *testing.T, s *stand, c *client, again server, order string) *result {
			s.target.plan(ledger.Hold)
			first := c.call(request{tool: "charge_once", args: args(order)})
			s.target.nextEffect()
			c.order("tear", nil)()
			if r := first(); r.OK {
				t.Fatalf("the torn call was answered: %+v", r)
			}
			c.connect(again)
			second := c.call(request{tool: "charge_once", args: args(order)})
			s.record("the second caller attached", callers(2))
			s.target.release()
			return must(t, second())
		},
	},
}

func TestALostAnswerNeverBecomesASecondEffect(t *testing.T) {
	for _, kind := range clientKinds {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(kind.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, option{})
				s.agreeable()
				for i, sc := range scenarios {
					if sc.transport != "" && sc.transport != transport {
						continue
					}
					t.Run(sc.name, func(t *testing.T) {
						s.about(t)
						sc.test(t, s, kind, transport, fmt.Sprintf("A-%d", i))
					})
				}
				s.about(t)
				if got := s.spctl("audit", "verify"); got == "" {
					t.Error("audit verify says nothing")
				}
			})
		}
	}
}

func (sc scenario) test(t *testing.T, s *stand, kind clientKind, transport, order string) {
	c := s.agent(kind, transport)
	r := sc.run(t, s, c, s.server(transport), order)
	s.target.wantEffects(t, order, 1)
	said := r.meta(t)
	if r.IsError {
		t.Errorf("the agent was told of a failure: %s", r.raw)
	}
	if sc.state == "" {
		s.wantReceipt(r)
		if !strings.HasPrefix(said.State, "completed_") {
			t.Errorf("state is %q, want it completed", said.State)
		}
		return
	}
	if said.State != sc.state || r.receipt() != "" {
		t.Errorf("state is %q, want %q without a receipt: %s", said.State, sc.state, r.raw)
	}
	if b := r.body(t); b.State != sc.state || b.ExecutionID != said.ExecutionID {
		t.Errorf("the answer and its _meta differ: %s", r.raw)
	}
}

func TestLangGraphsDefaultRetryWithAnIntentKeyIsOneEffect(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, option{})
			s.agreeable()
			server := map[string]any{"transport": "stdio", "command": s.stdio().Command, "args": s.stdio().Args}
			if transport == "http" {
				server = map[string]any{"transport": "http", "url": s.mcpURL, "headers": map[string]any{"Authorization": "Bearer " + s.token()}}
			}
			answers := runGraph(t, server, "charge_once", map[string]any{"order": "A-1", "amount": 100, "intent_key": "node-act-1"})
			s.target.wantEffects(t, "A-1", 1)
			for _, a := range answers {
				if got := receiptPattern.FindString(a); got == "" || got != s.target.entries(ledger.Effect)[0].Receipt {
					t.Errorf("an attempt got another receipt than the ledger's: %s", a)
				}
			}
			if len(answers) != 3 {
				t.Errorf("LangGraph tried %d times, want 3", len(answers))
			}
		})
	}
}

// timesOut calls and lets the client give up once the target has acted.
func timesOut(t *testing.T, s *stand, c *client, order string) {
	t.Helper()
	first := c.call(request{tool: "charge_once", args: args(order), timeoutMS: 3000})
	s.target.nextEffect()
	if r := first(); r.OK || r.Code != -32001 {
		t.Fatalf("the first attempt did not time out: %+v", r)
	}
}

// bridgeKilled calls, kills the bridge once the target has acted, and connects again from the same process.
func bridgeKilled(t *testing.T, s *stand, c *client, again server, order string) {
	t.Helper()
	first := c.call(request{tool: "charge_once", args: args(order)})
	s.target.nextEffect()
	c.killServer()
	if r := first(); r.OK || r.Code != -32000 {
		t.Fatalf("the first attempt did not lose its connection: %+v", r)
	}
	c.connect(again)
}

// daemonKilled calls, kills the daemon once the target has acted, and starts it again. A bridge outlives the daemon and says the truth about
// the call at once; a client over HTTP loses its connection, and the new daemon is elsewhere.
func daemonKilled(t *testing.T, s *stand, c *client, tool string, again server, order string) {
	t.Helper()
	s.target.plan(ledger.Hold)
	first := c.call(request{tool: tool, args: args(order)})
	s.target.nextEffect()
	s.killDaemon()
	if r := first(); again.URL != "" {
		if r.OK {
			t.Errorf("a call without a daemon was answered: %+v", r)
		}
	} else if lost := must(t, r); lost.IsError || lost.body(t).State != "unknown" {
		t.Errorf("the bridge did not say that the outcome is unknown: %s", lost.raw)
	}
	s.restart()
	s.agreeable()
	if again.URL != "" {
		c.order("tear", nil)()
		c.connect(s.http())
	}
}

func must(t *testing.T, r reply) *result {
	t.Helper()
	if !r.OK || r.Result == nil {
		t.Fatalf("the call failed: %d %s", r.Code, r.Message)
	}
	return r.Result
}

// callers and state are about the charges: the balance that an agent reads first has a record too.
func callers(n int) func(api.Record) bool {
	return func(r api.Record) bool { return r.Class != "read_only" && len(r.Callers) >= n }
}

func state(want string) func(api.Record) bool {
	return func(r api.Record) bool { return r.Class != "read_only" && r.State == want }
}
