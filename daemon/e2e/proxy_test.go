package e2e_test

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
	"singlepass.dev/daemon/egress/proxytest"
)

// passwordOfProxy is what the proxy is given, and nobody else.
const passwordOfProxy = "canary-not-a-secret-of-the-proxy"

func TestThroughAConfiguredProxyALostAnswerIsOneEffectAndARefusalIsNone(t *testing.T) {
	t.Parallel()
	s := newStand(t, option{})
	const far = "http://203.0.113.7:8080" // leads nowhere but through the proxy (RFC 5737)
	p := proxytest.Start(t, proxytest.Config{Target: strings.TrimPrefix(s.target.url, "http://")})
	s.write("far", canary)
	s.write("office", passwordOfProxy)
	s.spctl("credential", "add", "far", "--kind", "bearer", "--target", far+"/", "--allow-plaintext", "--generic", "--value-file", s.dir+"/far")
	s.spctl("credential", "add", "office", "--kind", "basic", "--username", "anna", "--target", "http://"+p.Address+"/", "--value-file", s.dir+"/office")
	s.wipe("far")
	s.wipe("office")
	s.spctl("settings", "set", "proxy", "http://"+p.Address)
	s.spctl("settings", "set", "proxy_credential", "office")
	if list := s.spctl("settings"); !strings.Contains(list, p.Address) || strings.Contains(list, passwordOfProxy) {
		t.Errorf("the settings are shown as %s", list)
	}
	c := startClient(t, clientKinds[0])
	c.connect(s.stdio())
	charge := func(order string) request {
		return request{tool: "http_request", args: map[string]any{"method": "POST", "url": far + "/ignores/charge", "json": map[string]any{"order": order, "amount": 7}}}
	}
	allowed := func(order string) *result {
		t.Helper()
		call := c.call(charge(order))
		card, how := s.nextCard(), "--once"
		if slices.Contains(card.Answers, "session") {
			how = "--session"
		}
		s.spctl("approve", card.Card, how)
		return must(t, call())
	}
	done := allowed("P-1")
	s.wantReceipt(done)
	s.target.wantEffects(t, "P-1", 1)
	if asked := p.Asked(); len(asked) != 1 || asked[0].Method != "CONNECT" || asked[0].Address != "203.0.113.7:8080" ||
		asked[0].Authorization != "Basic "+base64.StdEncoding.EncodeToString([]byte("anna:"+passwordOfProxy)) || asked[0].Fields != 1 {
		t.Errorf("the proxy was asked %+v", asked)
	}

	s.target.plan(ledger.Cut)
	lost := allowed("P-2")
	again := c.mustCall(charge("P-2"))
	if lost.meta(t).State != "unknown" || again.meta(t).ExecutionID != lost.meta(t).ExecutionID {
		t.Errorf("a lost answer is told as %s, then %s", lost.raw, again.raw)
	}
	s.target.wantEffects(t, "P-2", 1)

	p.Close()
	refused := allowed("P-3")
	if refused.meta(t).Code != "not_sent" || !strings.Contains(string(refused.raw), "through the proxy") {
		t.Errorf("without the proxy the agent is told %s", refused.raw)
	}
	s.target.wantEffects(t, "P-3", 0)

	// What is on this machine needs no proxy.
	near := c.call(request{tool: "balance", args: map[string]any{}})
	if got := must(t, near()); got.IsError {
		t.Errorf("a target on this machine: %s", got.raw)
	}
	s.target.wantEffects(t, "P-1", 1)
	encoded := base64.StdEncoding.EncodeToString([]byte("anna:" + passwordOfProxy))
	for name, data := range filesBelow(t, s.home) {
		if bytes.Contains(data, []byte(passwordOfProxy)) || bytes.Contains(data, []byte(encoded)) {
			t.Errorf("the proxy's password is in %s", name)
		}
	}
	wantClean(t, map[string][]byte{"the agent's answers": append(append(done.raw, lost.raw...), refused.raw...)})
}
