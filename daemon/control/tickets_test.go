package control_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/vault/secret"
)

// earn proves the passphrase and returns the Authorization of the ticket.
func (s *stand) earn() string {
	s.t.Helper()
	status, body := s.do("POST", "/v1/ticket", proofOf(passphrase), "")
	var t api.Ticket
	if err := json.Unmarshal([]byte(body), &t); err != nil || status != 200 || len(t.Ticket) != 32 {
		s.t.Fatalf("earning a ticket: %d %s", status, body)
	}
	return "Ticket " + base64.StdEncoding.EncodeToString(t.Ticket)
}

func (s *stand) wantTicket(ticket string, want int, what api.Code) {
	s.t.Helper()
	status, body := s.do("GET", "/v1/approvals", ticket, "")
	if status != want || want != 200 && code(body) != what {
		s.t.Errorf("got %d %s, want %d", status, body, want)
	}
}

func TestATicketStandsForThePassphraseUntilItsTimeIsOver(t *testing.T) {
	var later atomic.Int64
	began := time.Now()
	s := startedAt(t, func() time.Time { return began.Add(time.Duration(later.Load())) })
	ticket := s.earn()
	s.wantTicket(ticket, 200, "")
	s.wantTicket(ticket, 200, "")
	later.Store(int64(time.Hour))
	s.wantTicket(ticket, 401, api.CodeTicketOver)
}

func TestALockEndsEveryTicket(t *testing.T) {
	s := started(t)
	ticket := s.earn()
	if status, body := s.do("POST", "/v1/vault/lock", "", ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	s.wantTicket(ticket, 401, api.CodeTicketOver)
	if status, body := s.do("POST", "/v1/ticket", proofOf(passphrase), ""); status != 423 || code(body) != api.CodeVaultLocked {
		t.Errorf("a locked vault gave a ticket: %d %s", status, body)
	}
	if status, body := s.do("POST", "/v1/vault/unlock", "", `{"passphrase":"`+base64.StdEncoding.EncodeToString([]byte(passphrase))+`"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	s.wantTicket(ticket, 401, api.CodeTicketOver)
	s.wantTicket(s.earn(), 200, "")
}

func TestOnlyAPassphraseEarnsATicket(t *testing.T) {
	s := started(t)
	ticket := s.earn()
	for _, proof := range []string{"", ticket, proofOf("canary-not-a-secret-but-wrong"), "Ticket AAAA"} {
		if status, body := s.do("POST", "/v1/ticket", proof, ""); status != 401 {
			t.Errorf("%q earned %d %s", proof, status, body)
		}
	}
}

func TestATicketThatIsGivenBackIsOver(t *testing.T) {
	s := started(t)
	ticket, other := s.earn(), s.earn()
	if status, body := s.do("DELETE", "/v1/ticket", "", `{"ticket":"`+ticket[len("Ticket "):]+`"}`); status != 204 {
		t.Fatalf("%d %s", status, body)
	}
	s.wantTicket(ticket, 401, api.CodeTicketOver)
	s.wantTicket(other, 200, "")
}

func TestTheOldestTicketMakesRoom(t *testing.T) {
	var ticks atomic.Int64
	began := time.Now()
	s := startedAt(t, func() time.Time { return began.Add(time.Duration(ticks.Add(1)) * time.Millisecond) })
	first := s.earn()
	second := s.earn()
	for range 31 {
		s.earn()
	}
	s.wantTicket(first, 401, api.CodeTicketOver)
	s.wantTicket(second, 200, "")
}

// fakeHeld is a process whose fate the test says.
type fakeHeld struct{ err error }

func (h *fakeHeld) Check() error { return h.err }
func (h *fakeHeld) Close()       {}

type yes struct{}

func (yes) CheckPassphrase(_ context.Context, _ *secret.Bytes) error { return nil }

func TestATicketBelongsToOneProcess(t *testing.T) {
	process := &fakeHeld{}
	tickets, err := control.NewTickets(control.TicketsConfig{
		Prover: control.Passphrases(yes{}), Hold: func(control.Peer) (control.Held, error) { return process, nil }, Now: time.Now, Random: rand.Reader,
		Lifetime: func() time.Duration { return time.Hour },
	})
	if err != nil {
		t.Fatal(err)
	}
	owner := control.Peer{UID: 1, PID: 10, Start: 100}
	value, _, err := tickets.Earn(owner)
	if err != nil {
		t.Fatal(err)
	}
	over := &api.Error{Code: api.CodeTicketOver}
	for name, other := range map[string]control.Peer{"a child": {UID: 1, PID: 11, Start: 101}, "the same pid, later": {UID: 1, PID: 10, Start: 101}, "one that cannot be told": {UID: 1, PID: 10}} {
		if _, err := tickets.Prove(t.Context(), control.SchemeTicket, value, other); !errors.Is(err, &api.Error{Code: api.CodeProofWrong}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if by, err := tickets.Prove(t.Context(), control.SchemeTicket, value, owner); err != nil || by != control.Operator {
		t.Errorf("its owner, after others tried: %q, %v", by, err)
	}
	process.err = errors.New("it has become another program")
	if _, err := tickets.Prove(t.Context(), control.SchemeTicket, value, owner); !errors.Is(err, over) {
		t.Errorf("after an exec: %v", err)
	}
	process.err = nil
	if _, err := tickets.Prove(t.Context(), control.SchemeTicket, value, owner); !errors.Is(err, over) {
		t.Errorf("once it was found out, it counts again: %v", err)
	}
	if _, _, err := tickets.Earn(control.Peer{UID: 1, PID: 10}); !errors.Is(err, &api.Error{Code: api.CodeProofNeeded}) {
		t.Errorf("a ticket for nobody: %v", err)
	}
	if other, _, err := tickets.Earn(owner); err != nil || other.Equal(value) {
		t.Errorf("a second ticket: %v", err)
	}
	if err := value.Use(func(b []byte) error {
		if bytes.Equal(b, make([]byte, len(b))) {
			return errors.New("a ticket of zeros")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
