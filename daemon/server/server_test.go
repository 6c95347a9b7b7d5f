package server_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
)

func wantCode(t *testing.T, err error, want api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got %v, want the code %s", err, want)
	}
	return e
}

func (s *stage) wantActed(n int64) {
	s.t.Helper()
	if got := s.target.acted.Load(); got != n {
		s.t.Fatalf("the target acted %d times, want %d", got, n)
	}
}

func TestALockEndsWhatWaitsAndAnUnlockBringsTheSessionBack(t *testing.T) {
	s := begin(t)
	a := s.agent()
	waiting := a.send("pay", "1")
	card := s.nextCard()
	if _, err := s.operator.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := a.outcome(waiting); !out.IsError || out.State != "expired" {
		t.Errorf("what waited for a card ended as %s", out.raw)
	}
	if out := a.call("pay", "2"); out.Code != api.CodeVaultLocked {
		t.Errorf("a call of a locked vault: %s", out.raw)
	}
	if out := a.call("look", "2"); out.Code != api.CodeVaultLocked {
		t.Errorf("a read of a locked vault: %s", out.raw)
	}
	if st := s.status(); st.LockedCalls == nil || st.LockedCalls.Calls != 2 || st.LockedCalls.Last.IsZero() {
		t.Errorf("the status of a vault that refused two calls has %+v", st.LockedCalls)
	}
	s.unlock()
	if st := s.status(); st.LockedCalls != nil {
		t.Errorf("the status of an open vault has %+v", st.LockedCalls)
	}
	if _, err := s.operator.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := s.status(); st.LockedCalls != nil {
		t.Errorf("the status of a vault that was locked just now has %+v", st.LockedCalls)
	}
	s.unlock()
	err := s.operator.Answer(t.Context(), card.Card, api.CardAnswer{Answer: "once"})
	if err == nil {
		t.Error("a card of before the lock was answered after it")
	}
	s.wantActed(0)

	again := a.send("pay", "1")
	s.approve()
	if out := a.outcome(again); out.IsError {
		t.Fatalf("the approved call: %s", out.raw)
	}
	if _, err := s.operator.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := s.operator.Sessions(t.Context()); err == nil && (len(list) != 1 || !list[0].Suspended) {
		t.Errorf("while locked the sessions are %+v", list)
	}
	s.unlock()
	if out := a.call("pay", "3"); out.IsError {
		t.Errorf("the session did not come back: %s", out.raw)
	}
	s.wantActed(2)
}

func TestAChangedOrRemovedContractDoesNotHideWhatWasSentUnderIt(t *testing.T) {
	s := begin(t)
	a := s.agent()
	s.target.silent.Store(true)
	first := a.send("pay", "1")
	s.approve()
	lost := a.outcome(first)
	if lost.State != "unknown" {
		t.Fatalf("a lost answer is %s", lost.raw)
	}
	s.target.silent.Store(false)

	s.accept("pay", "POST", "/v2/pay", "irreversible")
	if out := a.call("pay", "1"); out.ID != lost.ID || out.State != "unknown" {
		t.Errorf("under another contract the retry is %s", out.raw)
	}
	if err := s.operator.RemoveAction(t.Context(), "pay"); err != nil {
		t.Fatal(err)
	}
	if out := a.call("pay", "1"); out.ID != lost.ID || out.State != "unknown" {
		t.Errorf("without a contract the retry is %s", out.raw)
	}
	s.restart()
	s.unlock()
	a.write("connect " + s.daemon.AgentSocket())
	a.answer(a.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}}))
	if out := a.call("pay", "1"); out.ID != lost.ID || out.State != "unknown" {
		t.Errorf("without a contract, after a restart, the retry is %s", out.raw)
	}
	s.wantActed(1)
	if out := a.call("pay", "2"); out.Code != api.CodeNotAccepted {
		t.Errorf("a new call of a removed action: %s", out.raw)
	}

	if _, err := s.operator.Settle(t.Context(), lost.ID, api.Verdict{Done: true, Note: "it is in the ledger"}); err != nil {
		t.Fatal(err)
	}
	s.accept("pay", "POST", "/v2/pay", "irreversible")
	second := a.send("pay", "3")
	s.approve()
	if out := a.outcome(second); out.IsError || !strings.Contains(out.raw, "/v2/pay") {
		t.Errorf("the contract in force sends %s", out.raw)
	}
	s.wantActed(2)

	newest, err := s.operator.Activity(t.Context(), client.Query{Limit: 1})
	if err != nil || len(newest) != 1 {
		t.Fatalf("the newest execution: %v, %v", newest, err)
	}
	older, err := s.operator.Activity(t.Context(), client.Query{Limit: 1, Before: newest[0].ExecutionID, Credential: newest[0].Credential, Text: "pay"})
	if err != nil || len(older) != 1 || older[0].ExecutionID != lost.ID {
		t.Errorf("the page after the newest is %v, %v", older, err)
	}
	p, err := s.operator.Payload(t.Context(), newest[0].ExecutionID)
	if err != nil || p.Place == nil || !p.Place.Verified || p.Place.Accepted == 0 || p.Place.Last <= p.Place.Accepted {
		t.Errorf("the journal has it at %+v, %v", p.Place, err)
	}
}

// tamper changes one byte of an entry that is neither first nor last.
func (s *stage) tamper() {
	s.t.Helper()
	segments, err := filepath.Glob(filepath.Join(s.home.Journal(), "*.jsonl"))
	if err != nil || len(segments) == 0 {
		s.t.Fatalf("the segments are %v, %v", segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		s.t.Fatal(err)
	}
	at := bytes.Index(b, []byte("credential_added"))
	if at < 0 {
		s.t.Fatal("the journal does not say that a credential was added")
	}
	b[at] = 'k'
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func TestATamperedJournalStopsSideEffectsUntilTheOperatorAcceptsIt(t *testing.T) {
	s := begin(t)
	a := s.agent()
	first := a.send("pay", "1")
	s.approve()
	if out := a.outcome(first); out.IsError {
		t.Fatal(out.raw)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.tamper()
	s.open()
	s.unlock()
	for until := time.Now().Add(patience); s.status().Journal != "quarantine"; {
		if time.Now().After(until) {
			t.Fatalf("the journal is %s", s.status().Journal)
		}
	}
	b := s.agent()
	look := b.send("look", "1")
	s.approve()
	if out := b.outcome(look); out.IsError {
		t.Errorf("a read in quarantine: %s", out.raw)
	}
	if out := b.call("pay", "2"); out.Code != api.CodeQuarantine {
		t.Errorf("a payment in quarantine: %s", out.raw)
	}
	s.wantActed(2)

	if err := s.operator.AcceptQuarantine(t.Context(), "a test changed a byte"); err != nil {
		t.Fatal(err)
	}
	if err := s.operator.AcceptQuarantine(t.Context(), "again"); err == nil {
		t.Error("a quarantine that had ended was accepted")
	}
	if st := s.status(); st.Journal != "ok" {
		t.Errorf("after accepting, the journal is %s: %s", st.Journal, st.Problem)
	}
	paid := b.call("pay", "2")
	if paid.IsError {
		t.Errorf("a payment after accepting: %s", paid.raw)
	}
	s.wantActed(3)

	s.restart()
	s.unlock()
	if st := s.status(); st.Journal != "ok" {
		t.Errorf("after a restart, the journal is %s: %s", st.Journal, st.Problem)
	}
	if x, err := s.operator.Execution(t.Context(), paid.ID); err != nil || !strings.HasPrefix(x.State, "completed") {
		t.Errorf("after a restart, the payment is %+v, %v", x, err)
	}
	c := s.agent()
	id := c.send("pay", "3")
	s.approve()
	if out := c.outcome(id); out.IsError {
		t.Errorf("a payment after a restart: %s", out.raw)
	}
	s.wantActed(4)
}

func TestAGuesserIsSlowedDownAndDelaysNoAgent(t *testing.T) {
	t.Parallel() // it waits out delays
	s := begin(t)
	a := s.agent()
	id := a.send("pay", "1")
	s.approve()
	a.outcome(id)
	guess := func() error {
		_, err := s.operator.Unlock(t.Context(), api.UnlockRequest{Passphrase: []byte("wrong horse battery staple")})
		return err
	}
	for i := range 5 {
		if e := wantCode(t, guess(), api.CodeProofWrong); e.RetryAfter != 0 {
			t.Errorf("after wrong passphrase %d the next is taken in %d s", i+1, e.RetryAfter)
		}
	}
	// From here on each wrong one doubles the delay. On a slow machine the first delays pass while a passphrase is checked.
	slowed := 0
	for slowed < 3 {
		err := guess()
		if e := (*api.Error)(nil); errors.As(err, &e) && e.Code == api.CodeTooManyTries {
			if slowed = e.RetryAfter; slowed < 3 {
				<-time.After(time.Duration(slowed) * time.Second)
			}
			continue
		}
		wantCode(t, err, api.CodeProofWrong)
	}
	// The delay holds for the right one, too, and for every request.
	wantCode(t, s.operator.Prove(t.Context()), api.CodeTooManyTries)
	if out := a.call("pay", "2"); out.IsError {
		t.Errorf("a call beside a guesser: %s", out.raw)
	}
	for until := time.Now().Add(patience); ; {
		err := s.operator.Prove(t.Context())
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the right passphrase is never taken again")
		}
		<-time.After(time.Duration(wantCode(t, err, api.CodeTooManyTries).RetryAfter) * time.Second)
	}
	// It has cleared the count.
	wantCode(t, guess(), api.CodeProofWrong)
	if err := s.operator.Prove(t.Context()); err != nil {
		t.Errorf("after one wrong passphrase: %v", err)
	}
}

func TestAnAgentDecidesNothingEvenWithTheRightPassphrase(t *testing.T) {
	s := begin(t)
	a := s.agent()
	a.send("pay", "1")
	card := s.nextCard()
	proof := base64.StdEncoding.EncodeToString([]byte(rightPassphrase))
	for _, request := range []string{"GET /v1/approvals", "POST /v1/approvals/" + card.Card, "POST /v1/vault/lock", "GET /v1/status"} {
		a.write("connect " + s.daemon.OperatorSocket()) // anew: an agent is not kept on the line
		body := `{"answer":"session"}`                  // and the line break that write adds
		a.write(fmt.Sprintf("%s HTTP/1.1\nHost: spd\nAuthorization: Passphrase %s\nContent-Length: %d\n\n%s", request, proof, len(body)+1, body))
		a.line(func(l string) bool { return strings.Contains(l, string(api.CodeAgentCaller)) })
	}
	s.wantActed(0)
	// The person, from whom the agent descends, is not taken for it.
	if err := s.operator.Answer(t.Context(), card.Card, api.CardAnswer{Answer: "deny"}); err != nil {
		t.Error(err)
	}
}

func TestAPipeAmongTheContractsStopsNothing(t *testing.T) {
	s := begin(t)
	if err := syscall.Mkfifo(filepath.Join(s.home.Actions(), "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st := s.status(); st.Vault != "unlocked" {
		t.Errorf("the vault is %s", st.Vault)
	}
	list, err := s.operator.Actions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if x.Name == "pipe" && x.State == "invalid" && len(x.Problems) == 1 && strings.Contains(x.Problems[0], "not a regular file") {
			return
		}
	}
	t.Errorf("the pipe is not among the contracts as what it is: %+v", list)
}
