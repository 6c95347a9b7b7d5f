package control_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
)

func TestWhereNobodySitsThereIsOnlyStatusAndLock(t *testing.T) {
	s := started(t)
	ticket := s.earn()
	s.From(control.Origin{Refused: "it was started by atd"})
	right := `"` + base64.StdEncoding.EncodeToString([]byte(passphrase)) + `"`
	for _, c := range [][4]string{
		{"GET", "/v1/approvals", proofOf(passphrase), ""},
		{"GET", "/v1/approvals/stream", proofOf(passphrase), ""},
		{"GET", "/v1/approvals", "", ""},
		{"POST", "/v1/ticket", proofOf(passphrase), ""},
		{"POST", "/v1/vault/unlock", "", `{"passphrase":` + right + `}`},
		{"POST", "/v1/vault/unlock", ticket, `{"passphrase":` + right + `}`},
		{"POST", "/v1/vault/passphrase", ticket, `{"old":` + right + `,"new":` + right + `}`},
		{"POST", "/v1/vault/init", "Ticket eA==", initBody(passphrase)},
	} {
		if status, body := s.do(c[0], c[1], c[2], c[3]); status != 403 || code(body) != api.CodeAgentCaller || !strings.Contains(body, "started by atd") {
			t.Errorf("%s %s with %.10s…: %d %s", c[0], c[1], c[2], status, body)
		}
	}
	s.wantTicket(ticket, 200, "") // its holder was asked about before
	for _, c := range [][2]string{{"GET", "/v1/status"}, {"POST", "/v1/vault/lock"}} {
		if status, body := s.do(c[0], c[1], "", ""); status != 200 {
			t.Errorf("%s %s: %d %s", c[0], c[1], status, body)
		}
	}
	if got := s.Doubts(); got != nil {
		t.Errorf("doubts were told of: %q", got)
	}
}

func TestADoubtIsToldOnlyWhereTheRightPassphraseCame(t *testing.T) {
	s := started(t)
	s.From(control.Origin{Doubt: "nobody is attached to its tmux"})
	s.do("GET", "/v1/approvals", proofOf("canary-not-a-secret-another"), "")
	s.do("GET", "/v1/status", "", "")
	if got := s.Doubts(); got != nil {
		t.Errorf("doubts were told of: %q", got)
	}
	for _, c := range [][2]string{{"GET", "/v1/approvals"}, {"POST", "/v1/proof"}} {
		if status, body := s.do(c[0], c[1], proofOf(passphrase), ""); status >= 300 {
			t.Errorf("%s %s: %d %s", c[0], c[1], status, body)
		}
	}
	if status, body := s.do("POST", "/v1/vault/unlock", "", `{"passphrase":"`+base64.StdEncoding.EncodeToString([]byte(passphrase))+`"}`); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if got := s.Doubts(); len(got) != 3 || got[0] != "nobody is attached to its tmux" {
		t.Errorf("doubts were told of: %q", got)
	}
}
