package control

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

// SchemeTicket is the Authorization scheme of a ticket: "Ticket BASE64".
const SchemeTicket = "Ticket"

const (
	ticketSize = 32
	// maxTickets bounds how many are in force; the oldest goes. A person has one tray and a few terminals.
	maxTickets = 32
)

// Held is one live process that something is bound to. It is safe for concurrent use.
type Held interface {
	// Check proves that the process lives, runs the same program as when it was held, and is not traced.
	Check() error
	Close()
}

// TicketsConfig is what Tickets are made of. Everything is required.
type TicketsConfig struct {
	Prover   Prover // takes the passphrase
	Hold     func(p Peer) (Held, error)
	Now      func() time.Time
	Random   io.Reader
	Lifetime func() time.Duration // of a ticket that is earned now
}

// Tickets is the Prover that takes a passphrase, and the ticket that a passphrase earned.
//
// A ticket belongs to the process that earned it: its pid, its start time and its executable, by the kernel's word at every use. A child, an exec, a process that was handed the
// ticket or the connection, and one that got the same pid later cannot use it. It ends with its lifetime, with that process, with a lock, and with the daemon; it lies nowhere
// but in the memory of the two.
type Tickets struct {
	cfg TicketsConfig

	mu   sync.Mutex
	held map[[sha256.Size]byte]*ticket // owner: mu; by the hash, so that a comparison leaks nothing by its time
}

type ticket struct {
	peer    Peer
	process Held
	earned  time.Time
	expires time.Time
}

// NewTickets returns a Prover without tickets yet.
func NewTickets(cfg TicketsConfig) (*Tickets, error) {
	if cfg.Prover == nil || cfg.Hold == nil || cfg.Now == nil || cfg.Random == nil || cfg.Lifetime == nil {
		return nil, errors.New("control: Prover, Hold, Now, Random and Lifetime are required for tickets")
	}
	return &Tickets{cfg: cfg, held: map[[sha256.Size]byte]*ticket{}}, nil
}

// Prove implements Prover.
func (t *Tickets) Prove(ctx context.Context, scheme string, value *secret.Bytes, p Peer) (string, error) {
	if scheme != SchemeTicket {
		return t.cfg.Prover.Prove(ctx, scheme, value, p)
	}
	sum, err := hashed(value)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	k, known := t.held[sum]
	t.mu.Unlock()
	switch {
	case !known:
		return "", over("it is not in force: the vault was locked, the daemon was restarted, or it was given back")
	case !t.cfg.Now().Before(k.expires):
		t.drop(sum)
		return "", over("its time is over")
	case p.PID != k.peer.PID || p.Start != k.peer.Start || p.Start == 0:
		// The ticket stays: whoever took it to another process must not be able to end it for its owner.
		return "", api.Errorf(api.CodeProofWrong, "this ticket belongs to another process").WithHint("give the passphrase")
	}
	if err := k.process.Check(); err != nil {
		t.drop(sum)
		return "", over(err.Error())
	}
	return Operator, nil
}

func over(why string) *api.Error {
	return api.Errorf(api.CodeTicketOver, "the ticket does not count: %s", why).WithHint("give the passphrase again")
}

// Earn gives the process a new ticket. Whoever calls it has just seen the passphrase proven by that process. The caller wipes the value.
func (t *Tickets) Earn(p Peer) (value *secret.Bytes, expires time.Time, err error) {
	if p.Start == 0 {
		return nil, time.Time{}, api.Errorf(api.CodeProofNeeded, "which process asks cannot be told, so no ticket can be bound to it").WithHint("give the passphrase each time")
	}
	process, err := t.cfg.Hold(p)
	if err != nil {
		return nil, time.Time{}, api.Errorf(api.CodeProofNeeded, "no ticket can be bound to the process that asks: %v", err).WithHint("give the passphrase each time")
	}
	raw := make([]byte, ticketSize)
	if _, err := io.ReadFull(t.cfg.Random, raw); err != nil {
		process.Close()
		return nil, time.Time{}, fmt.Errorf("making a ticket: %w", err)
	}
	value = secret.New(raw)
	sum, err := hashed(value)
	if err != nil {
		process.Close()
		return nil, time.Time{}, err
	}
	now := t.cfg.Now()
	k := &ticket{peer: p, process: process, earned: now, expires: now.Add(t.cfg.Lifetime())}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(now)
	t.held[sum] = k
	return value, k.expires, nil
}

// sweepLocked makes room: what is over goes, and the oldest where there are too many.
func (t *Tickets) sweepLocked(now time.Time) {
	type known struct {
		sum [sha256.Size]byte
		at  time.Time
	}
	var left []known
	for sum, k := range t.held {
		if !now.Before(k.expires) || k.process.Check() != nil {
			k.process.Close()
			delete(t.held, sum)
			continue
		}
		left = append(left, known{sum, k.earned})
	}
	slices.SortFunc(left, func(a, b known) int { return a.at.Compare(b.at) })
	for len(left) >= maxTickets {
		t.held[left[0].sum].process.Close()
		delete(t.held, left[0].sum)
		left = left[1:]
	}
}

// GiveBack ends one ticket, if this process has it.
func (t *Tickets) GiveBack(value *secret.Bytes, p Peer) {
	sum, err := hashed(value)
	if err != nil {
		return
	}
	t.mu.Lock()
	k := t.held[sum]
	t.mu.Unlock()
	if k != nil && k.peer.PID == p.PID && k.peer.Start == p.Start {
		t.drop(sum)
	}
}

// Drop ends all tickets; a lock does.
func (t *Tickets) Drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.held {
		k.process.Close()
	}
	clear(t.held)
}

func (t *Tickets) drop(sum [sha256.Size]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.held[sum]; k != nil {
		k.process.Close()
		delete(t.held, sum)
	}
}

func hashed(value *secret.Bytes) (sum [sha256.Size]byte, err error) {
	err = value.Use(func(b []byte) error { sum = sha256.Sum256(b); return nil })
	return sum, err
}
