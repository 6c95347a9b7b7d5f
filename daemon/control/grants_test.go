package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control/controltest"
)

func TestAStandingGrantIsAskedForWholeListedAndEnded(t *testing.T) {
	s := started(t)
	now := time.Now()
	s.Ask(controltest.Card("card_1", approval.AskSession, controltest.Accepted(1, now), now))
	p := proofOf(passphrase)
	if status, body := s.do("GET", "/v1/grants", p, ""); status != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("none: %d %s", status, body)
	}
	most := int(approval.MaxStanding / time.Minute)
	for _, c := range []struct {
		body string
		want int
	}{
		{`{"answer":"once","standing":true,"minutes":60}`, 400},
		{`{"answer":"deny","standing":true}`, 400},
		{`{"answer":"session","standing":true}`, 400}, // without an end
		{fmt.Sprintf(`{"answer":"session","standing":true,"minutes":%d}`, most+1), 400},
		{fmt.Sprintf(`{"answer":"session","minutes":%d}`, most), 400}, // only a standing grant lasts so long
		{`{"answer":"session","standing":true,"minutes":60,"scope":"run"}`, 409},
		{`{"answer":"session","standing":"yes","minutes":60}`, 400},
		{fmt.Sprintf(`{"answer":"session","standing":true,"minutes":%d,"scope":"arguments"}`, most), 204},
	} {
		if status, body := s.do("POST", "/v1/approvals/card_1", p, c.body); status != c.want {
			t.Errorf("%s: %d %s, want %d", c.body, status, body, c.want)
		}
	}
	status, body := s.do("GET", "/v1/grants", p, "")
	for _, want := range []string{`"grant":"grant_1"`, `"actor":"exe:/usr/bin/agent"`, `"exe":"/usr/bin/agent"`, `"via":"bridge"`, `"chain":["/usr/bin/bash"]`, `"scope":"arguments"`, `"tool":"transfer"`, `"runs":["run_1"]`, `"until":"`} {
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("listed: %d %s, want %s", status, body, want)
		}
	}
	if status, body := s.do("GET", "/v1/sessions", p, ""); status != 200 || !strings.Contains(body, `"grant":"grant_1"`) {
		t.Errorf("sessions: %d %s", status, body)
	}
	if status, body := s.do("DELETE", "/v1/grants/grant_2", p, ""); status != 404 || code(body) != api.CodeMissing {
		t.Errorf("another one: %d %s", status, body)
	}
	if status, body := s.do("DELETE", "/v1/grants/grant_1", p, ""); status != 204 {
		t.Errorf("ended: %d %s", status, body)
	}
	if status, body := s.do("GET", "/v1/sessions", p, ""); status != 200 || strings.Contains(body, "grant_1") {
		t.Errorf("sessions after it: %d %s", status, body)
	}
	s.do("POST", "/v1/vault/lock", "", "")
	if status, body := s.do("GET", "/v1/grants", p, ""); code(body) != api.CodeVaultLocked {
		t.Errorf("while locked: %d %s", status, body)
	}
}
