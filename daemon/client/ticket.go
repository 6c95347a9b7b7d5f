package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

// ticketHolder keeps the one ticket of a client. Its zero value has none.
type ticketHolder struct {
	mu      sync.Mutex
	value   *secret.Bytes // owner: mu; nil for none
	earning chan struct{} // owner: mu; closed when the one who earns is done, nil while nobody does
	failed  error         // owner: mu; why earning failed last, for those who waited for it
}

// errNoTicket says that there is none.
func errNoTicket() *api.Error {
	return api.Errorf(api.CodeProofNeeded, "the operator's proof is needed").WithHint("give the passphrase")
}

// HasTicket says whether there is a ticket to use; the daemon may have ended it meanwhile.
func (o *Operator) HasTicket() bool {
	o.ticket.mu.Lock()
	defer o.ticket.mu.Unlock()
	return o.ticket.value != nil
}

// EarnTicket proves the passphrase and keeps the ticket that the daemon gives for it to this process. The ticket ends with its lifetime, a lock of the vault, the daemon, and this
// process; no other process can use it. The caller wipes the passphrase.
func (o *Operator) EarnTicket(ctx context.Context, passphrase *secret.Bytes) error {
	in, err := o.send(ctx, http.MethodPost, "/v1/ticket", func(_ context.Context, r *http.Request) error { return setProof(r, "Passphrase", passphrase) }, nil)
	if err != nil {
		return err
	}
	t, err := decoded[api.Ticket](in)
	if err != nil {
		return err
	}
	if len(t.Ticket) == 0 {
		return api.Errorf(api.CodeInternal, "the daemon answered without a ticket")
	}
	o.ticket.set(secret.New(t.Ticket))
	return nil
}

// ForgetTicket gives the ticket back, so that the next request needs the passphrase again.
func (o *Operator) ForgetTicket(ctx context.Context) error {
	value := o.ticket.set(nil)
	if value == nil {
		return nil
	}
	defer value.Wipe()
	return value.Use(func(b []byte) error {
		_, err := call[none](ctx, o, http.MethodDelete, "/v1/ticket", false, map[string][]byte{"ticket": b})
		return err
	})
}

// earnBy earns a ticket by the passphrase that just opened the vault. Without one, the next request asks.
func (o *Operator) earnBy(ctx context.Context, passphrase []byte, failed error) {
	if !o.Tickets || failed != nil {
		return
	}
	value := secret.New(bytes.Clone(passphrase))
	defer value.Wipe()
	_ = o.EarnTicket(ctx, value)
}

// useTicket puts the ticket into the request, and earns one first where there is none. Of several requests one asks the person, and the others wait for it.
func (o *Operator) useTicket(ctx context.Context, r *http.Request) error {
	h := &o.ticket
	for waited := false; ; waited = true {
		h.mu.Lock()
		switch {
		case h.value != nil:
			err := setProof(r, "Ticket", h.value)
			h.mu.Unlock()
			return err
		case o.Proof == nil:
			h.mu.Unlock()
			return errNoTicket()
		case h.earning != nil:
			done := h.earning
			h.mu.Unlock()
			select {
			case <-done:
			case <-ctx.Done():
				return ctx.Err()
			}
		case waited && h.failed != nil:
			err := h.failed
			h.mu.Unlock()
			return err
		default:
			done := make(chan struct{})
			h.earning = done
			h.mu.Unlock()
			err := o.askAndEarn(ctx)
			h.mu.Lock()
			h.earning, h.failed = nil, err
			close(done)
			h.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
}

func (o *Operator) askAndEarn(ctx context.Context) error {
	// Who answers is looked at before the person is asked, so that nobody types a passphrase in vain.
	c, err := o.dial(ctx)
	if err != nil {
		return err
	}
	_ = c.Close()
	scheme, value, err := o.Proof(ctx)
	if err != nil {
		return err
	}
	defer value.Wipe()
	if scheme != "Passphrase" {
		return errors.New("earning a ticket: only a passphrase earns one")
	}
	return o.EarnTicket(ctx, value)
}

// set exchanges the ticket. What was there is wiped, or returned where nothing takes its place.
func (h *ticketHolder) set(value *secret.Bytes) (before *secret.Bytes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, h.value = h.value, value
	if value != nil {
		before.Wipe()
		return nil
	}
	return before
}

// over forgets the ticket that a request used, unless there is another one by now.
func (h *ticketHolder) over(r *http.Request) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	b, err := base64.StdEncoding.DecodeString(text)
	if scheme != "Ticket" || err != nil {
		return
	}
	used := secret.New(b)
	defer used.Wipe()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.value.Equal(used) {
		h.value.Wipe()
		h.value = nil
	}
}
