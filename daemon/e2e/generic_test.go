package e2e_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

func TestARequestThatNoContractDescribesIsShownWholeAndSentOnce(t *testing.T) {
	for _, kind := range []clientKind{clientKinds[0], clientKinds[len(clientKinds)-1]} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, option{})
			offered := func(c *client) bool {
				return slices.ContainsFunc(c.order("tools", nil)().Tools, func(t tool) bool { return t.Name == "http_request" })
			}
			first := startClient(t, kind)
			first.connect(s.stdio())
			if offered(first) {
				t.Error("the tool is listed although nobody allowed it")
			}
			s.spctl("credential", "change", "ledger", "--generic")
			if show := s.spctl("credential", "show", "ledger"); !strings.Contains(show, "asked for each time") {
				t.Errorf("the leave is not shown: %s", show)
			}
			c := startClient(t, kind)
			c.connect(s.stdio())
			if !offered(c) {
				t.Fatal("the tool is not listed")
			}
			charge := request{tool: "http_request", args: map[string]any{
				"method": "POST", "url": s.target.url + "/ignores/charge", "json": map[string]any{"order": "G-1", "amount": 7},
			}}
			done := c.call(charge)
			card := s.nextCard()
			if card.Effect.Method != "POST" || card.Effect.URL != s.target.url+"/ignores/charge" || !strings.Contains(card.Effect.Body, `"order":"G-1"`) || card.Class != "irreversible" {
				t.Errorf("the card does not show the request: %+v", card.Effect)
			}
			s.target.plan(ledger.Cut)
			s.spctl("approve", card.Card, "--session")
			lost := done().Result
			if said := lost.meta(t); said.State != "unknown" {
				t.Fatalf("a lost answer is told as %+v: %s", said, lost.raw)
			}
			again := c.mustCall(charge)
			s.target.wantEffects(t, "G-1", 1)
			if again.meta(t).ExecutionID != lost.meta(t).ExecutionID {
				t.Errorf("the repeat is another execution: %s", again.raw)
			}
			outside := c.mustCall(request{tool: "http_request", args: map[string]any{"method": "GET", "url": "https://elsewhere.example/"}})
			if !outside.IsError || outside.meta(t).Code != "arguments_invalid" {
				t.Errorf("a request outside of the targets is told %s", outside.raw)
			}
			s.spctl("credential", "change", "ledger", "--generic-reads")
			read := c.mustCall(request{tool: "http_request", args: map[string]any{"method": "GET", "url": s.target.url + "/balance"}}) // no card
			if read.IsError || !strings.Contains(string(read.raw), "250") {
				t.Errorf("a read got %s", read.raw)
			}
			wantClean(t, map[string][]byte{"the agent's answers": append(append(lost.raw, again.raw...), read.raw...)})
		})
	}
}

func TestACommandThatNoContractDescribesIsShownWholeAndRunOnce(t *testing.T) {
	t.Parallel()
	m := newHost(t)
	offered := func(c *client) bool {
		return slices.ContainsFunc(c.order("tools", nil)().Tools, func(t tool) bool { return t.Name == "ssh_run" })
	}
	first := startClient(t, clientKinds[4])
	first.connect(m.stdio())
	if offered(first) {
		t.Error("the tool is listed although nobody allowed it")
	}
	m.spctl("credential", "change", "db", "--generic")
	if show := m.spctl("credential", "show", "db"); !strings.Contains(show, "asked for each time") {
		t.Errorf("the leave is not shown: %s", show)
	}
	c := startClient(t, clientKinds[4])
	c.connect(m.stdio())
	if !offered(c) {
		t.Fatal("the tool is not listed")
	}
	account, folder := "ssh://"+m.sshd.User+"@"+m.sshd.Address(), filepath.Dir(m.ledger)
	run := func(version string) request {
		return request{tool: "ssh_run", args: map[string]any{
			"host": account, "directory": folder, "stdin": "from the agent\n",
			"command": []string{"sh", "-c", `pwd; cat; echo "$1" >>ledger; read -r word <gate; echo "$word"; exit "$2"`, "sh", version, "3"},
		}}
	}

	done := c.call(run("v1; rm -rf '$HOME'"))
	card := m.nextCard()
	if s := card.Effect.SSH; card.Class != "irreversible" || s == nil || s.Host != account || !slices.Equal(s.Keys, []string{m.sshd.HostKey}) || s.Directory != folder ||
		!strings.HasPrefix(s.Command, `'sh' '-c' 'pwd; cat; `) || !strings.HasSuffix(s.Command, ` 'sh' 'v1; rm -rf '\''$HOME'\''' '3'`) || card.Effect.Body != "from the agent\n" {
		t.Errorf("the card does not show the command: %+v, %+v", card.Effect, s)
	}
	shown := m.spctl("approvals")
	for _, part := range []string{`| 'sh' '-c' 'pwd; cat; echo "$1" >>ledger;`, ` 'sh' 'v1; rm -rf '\''$HOME'\''' '3'`, folder, "| from the agent"} {
		if !strings.Contains(shown, part) {
			t.Errorf("spctl does not show %s: %s", part, shown)
		}
	}
	m.spctl("approve", card.Card, "--session")
	m.begun()("well")
	answer := must(t, done())
	var told struct {
		ExitStatus int    `json:"exit_status"`
		Stdout     string `json:"stdout"`
	}
	if err := json.Unmarshal(answer.Structured, &told); err != nil || told.ExitStatus != 3 || told.Stdout != folder+"\nfrom the agent\nwell\n" {
		t.Errorf("the agent is told %s (%v)", answer.raw, err)
	}
	m.wantRuns("v1; rm -rf '$HOME'", 1)

	done = c.call(run("v2")) // the session does not cover it
	m.spctl("approve", m.nextCard().Card, "--once")
	proceed := m.begun()
	m.sshd.Kill()
	lost := must(t, done())
	if said := lost.meta(t); said.State != "unknown" {
		t.Errorf("a lost answer is told as %+v: %s", said, lost.raw)
	}
	proceed("who knows")
	if again := c.mustCall(run("v2")); again.meta(t).ExecutionID != lost.meta(t).ExecutionID {
		t.Errorf("the repeat is another execution: %s", again.raw)
	}
	m.wantRuns("v2", 1)

	before := m.sshd.Connections()
	outside := c.mustCall(request{tool: "ssh_run", args: map[string]any{"host": "ssh://somebody@" + m.sshd.Address(), "command": []string{"id"}}})
	if !outside.IsError || outside.meta(t).Code != "arguments_invalid" || m.sshd.Connections() != before {
		t.Errorf("a command outside of the targets is told %s", outside.raw)
	}
}

func TestAnAgentThatLacksACredentialAsksForIt(t *testing.T) {
	s := newStand(t, option{actions: map[string]string{
		"balance": usualActions["balance"],
		"charge":  strings.Replace(charge("charge", "/ignores/charge", "class: irreversible\n  attach_window: 1h"), "credential: ledger", "credential: shop", 1),
	}})
	c := startClient(t, clientKinds[0])
	c.connect(s.stdio())
	done := c.call(request{tool: "request_credential", args: map[string]any{"target": s.target.url + "/ignores/charge", "purpose": "to charge the order B-1"}})
	card := s.nextCard()
	if !strings.Contains(card.Sentence, "asks you to add a credential for "+s.target.url) || card.Effect.Body != "to charge the order B-1" || card.Effect.Channel != "person" {
		t.Errorf("the card says %q and %+v", card.Sentence, card.Effect)
	}
	if shown := s.spctl("approvals"); !strings.Contains(shown, "to charge the order B-1") {
		t.Errorf("spctl shows %s", shown)
	}
	s.spctl("credential", "add", "shop", "--kind", "bearer", "--target", s.target.url, "--value-file", s.write("value", canary))
	s.spctl("approve", card.Card, "--session")
	if yes := done().Result; yes.IsError || !strings.Contains(string(yes.raw), `"answer":"yes"`) {
		t.Errorf("after a yes the agent is told %s", yes.raw)
	}
	s.wantReceipt(c.mustCall(request{tool: "charge", args: args("B-1")}))

	done = c.call(request{tool: "request_credential", args: map[string]any{"target": "https://other.example/", "purpose": "just in case"}})
	s.spctl("deny", s.nextCard().Card)
	if no := done().Result; !no.IsError || no.meta(t).Code != "denied" {
		t.Errorf("after a no the agent is told %s", no.raw)
	}
}
