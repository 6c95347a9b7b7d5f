package control

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

// SchemePassphrase is the Authorization scheme of a passphrase: "Passphrase BASE64".
const SchemePassphrase = "Passphrase"

// PassphraseChecker is the vault's word on a passphrase, which takes its time, counts wrong ones and says when the next is taken. It is safe for concurrent use.
type PassphraseChecker interface {
	CheckPassphrase(ctx context.Context, passphrase *secret.Bytes) error
}

// Passphrases returns the Prover that takes the passphrase and nothing else.
func Passphrases(c PassphraseChecker) Prover { return passphrases{c} }

type passphrases struct{ check PassphraseChecker }

func (p passphrases) Prove(ctx context.Context, scheme string, value *secret.Bytes, _ Peer) (string, error) {
	if scheme != SchemePassphrase {
		return "", api.Errorf(api.CodeProofNeeded, "the proof %q is not known here", scheme).WithHint("give the vault's passphrase")
	}
	if err := p.check.CheckPassphrase(ctx, value); err != nil {
		return "", err
	}
	return Operator, nil
}

// admit refuses whoever may not use the socket at all.
func (s *Server) admit(r *http.Request) (Peer, error) {
	p, ok := r.Context().Value(peerKey{}).(Peer)
	if !ok || p.UID != s.cfg.UID() {
		return Peer{}, api.Errorf(api.CodeAgentCaller, "this socket serves its owner only")
	}
	// Browsers cannot speak to a unix socket, but whatever forwards one to TCP would let them: nothing of ours sends these.
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return Peer{}, api.Errorf(api.CodeAgentCaller, "this socket does not serve web pages")
	}
	run, found, err := s.cfg.Ancestry.AgentAmong(p)
	if err != nil {
		s.cfg.Logger.Warn("refusing a caller at the operator socket whose ancestors cannot be told", "pid", p.PID, "error", err)
		return Peer{}, api.Errorf(api.CodeAgentCaller, "which program asks cannot be told, so it could be an agent's").WithHint("run it in a terminal of your own")
	}
	if found {
		s.cfg.Logger.Warn("an agent's process asked at the operator socket", "run", run, "pid", p.PID)
		return Peer{}, api.Errorf(api.CodeAgentCaller, "this was started by an agent (%s), and an agent may not decide or look on the person's behalf", run).
			WithHint("run it in a terminal of your own")
	}
	return p, nil
}

// attended refuses a caller at which nobody can be sitting, and returns what speaks against it short of that.
func (s *Server) attended(p Peer) (doubt string, err error) {
	o := s.cfg.Origin(p)
	if o.Refused == "" {
		return o.Doubt, nil
	}
	s.cfg.Logger.Warn("a caller at the operator socket has nobody sitting at it", "pid", p.PID, "why", o.Refused)
	return "", api.Errorf(api.CodeAgentCaller, "you cannot be sitting at this: %s", o.Refused).WithHint("run it in a terminal that you opened yourself, on this machine's screen or from another machine")
}

// byTicket says whether a request shows a ticket. It belongs to one process, of which the question was asked when it earned it.
func byTicket(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return scheme == SchemeTicket
}

// prove checks the request's proof.
func (s *Server) prove(r *http.Request, p Peer) (by, scheme string, err error) {
	header := r.Header.Get("Authorization")
	r.Header.Del("Authorization")
	scheme, text, ok := strings.Cut(header, " ")
	if !ok {
		return "", "", api.Errorf(api.CodeProofNeeded, "the operator's proof is needed").WithHint("give the passphrase at the terminal, or with --passphrase-file FILE")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 {
		return "", "", api.Errorf(api.CodeProofNeeded, "the operator's proof is not readable")
	}
	value := secret.New(raw)
	defer value.Wipe()
	by, err = s.cfg.Prover.Prove(r.Context(), scheme, value, p)
	return by, scheme, err
}

func (s *Server) earnTicket(r request) (any, error) {
	switch {
	case s.cfg.Tickets == nil:
		return nil, api.Errorf(api.CodeMissing, "this daemon gives no tickets").WithHint("give the passphrase each time")
	case r.scheme != SchemePassphrase:
		return nil, api.Errorf(api.CodeProofNeeded, "a ticket is earned by the passphrase, and not by another ticket").WithHint("give the vault's passphrase")
	case s.cfg.Daemon.Status().Vault != "unlocked":
		return nil, api.Errorf(api.CodeVaultLocked, "a ticket lasts until the vault is locked, and it is locked").WithHint("unlock it first")
	}
	value, expires, err := s.cfg.Tickets.Earn(r.peer)
	if err != nil {
		return nil, err
	}
	defer value.Wipe()
	// A lock between the look and the ticket would have dropped it before it was there.
	if s.cfg.Daemon.Status().Vault != "unlocked" {
		s.cfg.Tickets.GiveBack(value, r.peer)
		return nil, api.Errorf(api.CodeVaultLocked, "the vault was locked meanwhile").WithHint("unlock it first")
	}
	out := api.Ticket{Expires: expires.UTC()}
	// It goes out as JSON this once, so this copy has to lie on the heap.
	return &out, value.Use(func(b []byte) error { out.Ticket = bytes.Clone(b); return nil })
}

func (s *Server) giveBackTicket(r request) (any, error) {
	var in struct {
		Ticket []byte `json:"ticket"`
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if s.cfg.Tickets != nil && len(in.Ticket) > 0 {
		value := secret.New(in.Ticket)
		defer value.Wipe()
		s.cfg.Tickets.GiveBack(value, r.peer)
	}
	return nil, nil
}
