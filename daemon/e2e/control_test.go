package e2e_test

import (
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

// Without Singlepass the same clients, target and losses give two, two, two and three effects. If these ever pass with
// one, the scenarios have stopped losing what they mean to lose, and the tests beside this file prove nothing.

func chargeServer(t *testing.T, tg *target) server {
	t.Helper()
	cmd := node(t, "charge-server.mjs", tg.url)
	return server{Command: "node", Args: cmd.Args[1:]}
}

func chargeServerHTTP(t *testing.T, tg *target) server {
	t.Helper()
	p := start(t, "charge-server", node(t, "charge-server.mjs", tg.url, "http"), false)
	var ready struct{ URL string }
	p.next("ready", event("ready")).into(t, &ready)
	return server{URL: ready.URL}
}

func TestWithoutSinglepassATimedOutCallIsTwoEffects(t *testing.T) {
	for _, transport := range []struct {
		name  string
		start func(*testing.T, *target) server
	}{{"stdio", chargeServer}, {"http", chargeServerHTTP}} {
		t.Run(transport.name, func(t *testing.T) {
			tg := startTarget(t)
			c := startClient(t, clientKinds[0])
			c.connect(transport.start(t, tg))
			tg.plan(ledger.Hold)
			first := c.call(request{tool: "charge", args: args("A-1"), timeoutMS: 1000})
			tg.nextEffect()
			if r := first(); r.OK || r.Code != -32001 {
				t.Fatalf("the first attempt did not time out: %+v", r)
			}
			second := c.mustCall(request{tool: "charge", args: args("A-1")})
			if second.receipt() == "" {
				t.Errorf("the second attempt got no receipt: %s", second.raw)
			}
			tg.wantEffects(t, "A-1", 2)
		})
	}
}

func TestWithoutSinglepassAKilledServerIsTwoEffects(t *testing.T) {
	tg := startTarget(t)
	c := startClient(t, clientKinds[0])
	s := chargeServer(t, tg)
	c.connect(s)
	tg.plan(ledger.Hold)
	first := c.call(request{tool: "charge", args: args("A-1")})
	tg.nextEffect()
	c.killServer()
	if r := first(); r.OK || r.Code != -32000 {
		t.Fatalf("the first attempt did not lose its connection: %+v", r)
	}
	c.connect(s)
	if second := c.mustCall(request{tool: "charge", args: args("A-1")}); second.receipt() == "" {
		t.Errorf("the second attempt got no receipt: %s", second.raw)
	}
	tg.wantEffects(t, "A-1", 2)
}

func TestWithoutSinglepassLangGraphsDefaultRetryIsThreeEffects(t *testing.T) {
	tg := startTarget(t)
	s := chargeServer(t, tg)
	answers := runGraph(t, map[string]any{"transport": "stdio", "command": s.Command, "args": s.Args}, "charge",
		map[string]any{"order": "A-1", "amount": 100, "intent_key": "k-1"})
	if len(answers) != 3 {
		t.Errorf("LangGraph tried %d times, want 3", len(answers))
	}
	tg.wantEffects(t, "A-1", 3)
}

// runGraph lets LangGraph call a tool in a node that loses its connection twice after the tool has answered.
func runGraph(t *testing.T, server map[string]any, tool string, args map[string]any) (answers []string) {
	t.Helper()
	c := &client{process: start(t, "langgraph", node(t, "graph.mjs"), false)}
	done := c.order("run", map[string]any{"server": server, "tool": tool, "arguments": args, "failures": 2})
	if r := done(); !r.OK {
		t.Fatalf("the graph did not finish: %s", r.Message)
	}
	from := 0
	for range 3 {
		l, err := c.scan("attempt", &from, event("attempt"))
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, l.raw)
	}
	return answers
}
