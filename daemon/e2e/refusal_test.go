package e2e_test

import (
	"strings"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

// refusals are calls that must not reach the target. The codes are written out, because agents branch on them.
var refusals = []struct {
	name   string
	code   string
	config string
	run    func(t *testing.T, s *stand, kind clientKind, transport string) *result
}{
	{"the vault is locked", "vault_locked", "", func(t *testing.T, s *stand, kind clientKind, transport string) *result {
		s.agreeable()
		c := s.agent(kind, transport)
		s.spctl("lock")
		r := c.mustCall(request{tool: "charge_once", args: args("A-1")})
		s.spctl("unlock")
		return r
	}},
	{"the action is unknown", "action_unknown", "", func(t *testing.T, s *stand, kind clientKind, transport string) *result {
		s.agreeable()
		return s.agent(kind, transport).mustCall(request{tool: "no_such_action", args: args("A-1")})
	}},
	{"the contract lies in the folder and is not accepted", "contract_not_accepted", "", func(t *testing.T, s *stand, kind clientKind, transport string) *result {
		s.agreeable()
		c := s.agent(kind, transport)
		s.spctl("action", "remove", "charge_once")
		if r := c.mustCall(request{tool: "charge_once", args: args("A-1")}); !r.IsError {
			t.Errorf("an action that was taken back was carried out: %s", r.raw)
		}
		return c.mustCall(request{tool: "charge_new", args: args("A-1")})
	}},
	{"the arguments are bad", "arguments_invalid", "", func(t *testing.T, s *stand, kind clientKind, transport string) *result {
		s.agreeable()
		return s.agent(kind, transport).mustCall(request{tool: "charge_once", args: map[string]any{"order": 17, "amount": 100}})
	}},
	{"the target is not the credential's", "target_not_bound", "", func(t *testing.T, s *stand, kind clientKind, transport string) *result {
		s.agreeable()
		return s.agent(kind, transport).mustCall(request{tool: "charge_unbound", args: args("A-1")})
	}},
	{"the person says no", "denied", "", func(t *testing.T, s *stand, kind clientKind, transport string) *result {
		c := startClient(t, kind)
		c.connect(s.server(transport))
		first := c.call(request{tool: "charge_once", args: args("A-1")})
		card := s.nextCard()
		s.spctl("deny", card.Card, "--reason", "not before the invoice is checked")
		r := must(t, first())
		if !strings.Contains(string(r.raw), "not before the invoice is checked") {
			t.Errorf("the person's reason did not reach the agent: %s", r.raw)
		}
		again := c.mustCall(request{tool: "charge_once", args: args("A-1")})
		if a, b := r.meta(t), again.meta(t); a.ExecutionID != b.ExecutionID || !again.IsError {
			t.Errorf("the retry of a denied call is not the same rejection: %s, then %s", r.raw, again.raw)
		}
		if st := s.status(); st.Pending != 0 {
			t.Errorf("the retry of a denied call made a card")
		}
		return r
	}},
	{"nobody answers the card", "approval_expired", "", func(t *testing.T, s *stand, kind clientKind, transport string) *result {
		s.spctl("settings", "set", "card_ttl", "10s")
		c := startClient(t, kind)
		c.connect(s.server(transport))
		return c.mustCall(request{tool: "charge_once", args: args("A-1")})
	}},
}

func TestARefusedCallSendsNothingAndIsRecordedUnderItsOwnCode(t *testing.T) {
	codes := map[string]bool{}
	for _, c := range refusals {
		if codes[c.code] {
			t.Errorf("two refusals have the code %q", c.code)
		}
		codes[c.code] = true
		for _, way := range []struct {
			kind      clientKind
			transport string
		}{{clientKinds[0], "stdio"}, {clientKinds[len(clientKinds)-1], "http"}} {
			t.Run(c.name+"/"+way.kind.name+"/"+way.transport, func(t *testing.T) {
				t.Parallel()
				actions := map[string]string{"charge_unbound": charge("charge_unbound", "", "class: irreversible\n  attach_window: 1h")}
				other := startTarget(t) // the credential is not bound to it
				actions["charge_unbound"] = strings.ReplaceAll(actions["charge_unbound"], "{target}", other.url+"/ignores/charge")
				for name, text := range usualActions {
					actions[name] = text
				}
				s := newStand(t, option{config: c.config, actions: actions, extra: map[string]string{
					"charge_new": charge("charge_new", "/ignores/charge", "class: irreversible\n  attach_window: 1h"),
				}})
				r := c.run(t, s, way.kind, way.transport)
				if !r.IsError {
					t.Errorf("a refusal is not marked as an error: %s", r.raw)
				}
				if got := r.body(t); got.Code != c.code {
					t.Errorf("code is %q, want %q: %s", got.Code, c.code, r.raw)
				}
				if n := len(s.target.entries(ledger.Effect)); n > 0 {
					t.Errorf("the target acted %d times", n)
				}
				if n := len(other.entriesOf(t)); n > 0 {
					t.Errorf("the unbound target was asked %d times", n)
				}
				wantJournaled(t, s, c.code)
			})
		}
	}
}

// wantJournaled ends the daemon, verifies its journal without it, and looks for the refusal there.
func wantJournaled(t *testing.T, s *stand, code string) {
	t.Helper()
	dir := s.status().JournalDir
	if code != "denied" && code != "approval_expired" { // those were accepted, and have an execution
		if list := s.spctl("activity", "--refused", "--json"); !strings.Contains(list, `"code":"`+code+`"`) {
			t.Errorf("spctl activity --refused does not list it: %s", list)
		}
	}
	if status := s.spd.stop(); status != 0 {
		t.Errorf("spd ended with %d", status)
	}
	s.spctl("audit", "verify", dir)
	for _, data := range filesBelow(t, dir) {
		for l := range strings.Lines(string(data)) {
			if strings.Contains(l, `"code":"`+code+`"`) {
				return
			}
		}
	}
	t.Errorf("the journal has no entry with the code %s", code)
}

// entriesOf returns every line of the ledger; none if nothing was ever asked.
func (tg *target) entriesOf(t *testing.T) []ledger.Entry {
	t.Helper()
	all, err := ledger.ReadFile(tg.file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
