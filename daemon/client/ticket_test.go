package client_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/vault/secret"
)

// resident is a program that stays, as the tray does; it counts how often the person is asked.
func resident(o *client.Operator, asked *atomic.Int64) *client.Operator {
	return &client.Operator{Socket: o.Socket, Daemon: self, Tickets: true, Proof: func(context.Context) (string, *secret.Bytes, error) {
		asked.Add(1)
		return "Passphrase", secret.New([]byte(passphrase)), nil
	}}
}

func TestAProgramThatStaysAsksOnceAndAgainAfterALock(t *testing.T) {
	_, o, _ := start(t)
	var asked atomic.Int64
	tray := resident(o, &asked)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := tray.Cards(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 || !tray.HasTicket() {
		t.Errorf("the person was asked %d times", n)
	}
	if _, err := o.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tray.Cards(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeVaultLocked}) {
		t.Errorf("while it is locked: %v", err)
	}
	before := asked.Load()
	if _, err := tray.Unlock(t.Context(), api.UnlockRequest{Passphrase: []byte(passphrase)}); err != nil {
		t.Fatal(err)
	}
	if _, err := tray.Cards(t.Context()); err != nil || asked.Load() != before {
		t.Errorf("after an unlock by this program the person was asked again: %v", err)
	}
	if _, err := o.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Unlock(t.Context(), api.UnlockRequest{Passphrase: []byte(passphrase)}); err != nil {
		t.Fatal(err)
	}
	if _, err := tray.Cards(t.Context()); err != nil || asked.Load() != before+1 {
		t.Errorf("after a lock the ticket was earned %d times: %v", asked.Load()-before, err)
	}
	if err := tray.ForgetTicket(t.Context()); err != nil || tray.HasTicket() {
		t.Errorf("forgetting: %v", err)
	}
	if _, err := tray.Cards(t.Context()); err != nil || asked.Load() != before+2 {
		t.Errorf("after it was given back: %v", err)
	}
}

func TestWithoutAPersonToAskATicketIsEarnedByHand(t *testing.T) {
	_, o, _ := start(t)
	tray := &client.Operator{Socket: o.Socket, Daemon: self, Tickets: true}
	if _, err := tray.Cards(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeProofNeeded}) {
		t.Errorf("without a ticket: %v", err)
	}
	wrong := secret.New([]byte("canary-not-a-secret-but-wrong"))
	if err := tray.EarnTicket(t.Context(), wrong); !errors.Is(err, &api.Error{Code: api.CodeProofWrong}) || tray.HasTicket() {
		t.Errorf("by the wrong passphrase: %v", err)
	}
	right := secret.New([]byte(passphrase))
	if err := tray.EarnTicket(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	if _, err := tray.Cards(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestARefusalToAnswerReachesEverybodyWhoWaited(t *testing.T) {
	_, o, _ := start(t)
	cancelled := errors.New("the person closed the window")
	tray := &client.Operator{Socket: o.Socket, Daemon: self, Tickets: true, Proof: func(context.Context) (string, *secret.Bytes, error) { return "", nil, cancelled }}
	if _, err := tray.Cards(t.Context()); !errors.Is(err, cancelled) {
		t.Errorf("got %v", err)
	}
}
