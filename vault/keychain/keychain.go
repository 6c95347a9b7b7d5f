// Package keychain keeps the vault's device secret in the keyring of the operating system: the Secret Service on Linux,
// Keychain on macOS, Credential Manager on Windows, all by go-keyring.
//
// Promises: a call returns within its deadline, also when the keyring asks its user something; on Linux a locked
// keyring is reported and never prompted for; nothing is ever started (no dbus-launch); each failure is one
// of the package's errors and names its remedy. Different accounts never touch each other's entries.
//
// Non-promises: go-keyring and D-Bus hold the value in Go strings, which cannot be wiped. Any program of the same
// user can read an unlocked keyring: the device secret defends a vault file that was copied to another
// machine, not one that is attacked on its own.
//
// Frozen format: service "singlepass", account = the vault's id, value = "sp1:" and standard base64 of the bytes.
package keychain

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zalando/go-keyring"

	"singlepass.dev/vault/secret"
)

// The cases that callers tell apart. Each message carries its remedy.
var (
	// ErrNotFound means that the keyring works and has no entry for the account.
	ErrNotFound = errors.New("the keyring has no device secret for this vault: restore the keyring, or use the recovery kit")
	// ErrNoBus means that there is no D-Bus session bus.
	ErrNoBus = errors.New("there is no D-Bus session bus: run inside a desktop session or under `dbus-run-session`, or make a vault without a keyring (`spctl init --no-keyring`)")
	// ErrNoService means that nothing provides a Secret Service on the bus.
	ErrNoService = errors.New("no Secret Service is running: install and start one (`apt install gnome-keyring`, or enable it in KeePassXC), or make a vault without a keyring (`spctl init --no-keyring`)")
	// ErrNoCollection means that the Secret Service has no default keyring yet.
	ErrNoCollection = errors.New("the Secret Service has no default keyring: log in to the desktop once, or create one with `gnome-keyring-daemon --unlock` or Seahorse")
	// ErrCollectionLocked means that the default keyring is locked.
	ErrCollectionLocked = errors.New("the keyring is locked: unlock it in the desktop (Seahorse, KeePassXC) or log in again")
	// ErrTimeout means that the keyring did not answer in time.
	ErrTimeout = errors.New("the keyring did not answer in time: look for a prompt that it opened, answer it, and try again")
	// ErrMalformed means that the entry was not written by this program.
	ErrMalformed = errors.New("the keyring's entry for this vault is not one that singlepass wrote: delete it and use the recovery kit")
)

const (
	service = "singlepass"
	prefix  = "sp1:"
	// DefaultTimeout bounds a call whose context has no earlier deadline.
	DefaultTimeout = 10 * time.Second
)

// Keychain is the keyring of the user who runs the process. Its zero value is ready; it is safe for concurrent use.
type Keychain struct{}

// New returns the operating system's keyring.
func New() *Keychain { return &Keychain{} }

// Get returns the account's value, which the caller wipes, or ErrNotFound.
func (*Keychain) Get(ctx context.Context, account string) (*secret.Bytes, error) {
	text, err := call(ctx, account, func() (string, error) { return keyring.Get(service, account) })
	if err != nil {
		return nil, fmt.Errorf("reading from the keyring: %w", err)
	}
	encoded, ok := strings.CutPrefix(text, prefix)
	value, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(value) == 0 || strings.ContainsAny(encoded, "\r\n") { // err is not wrapped: it would quote the value
		return nil, fmt.Errorf("reading from the keyring: %w", ErrMalformed)
	}
	return secret.New(value), nil
}

// Set stores value for the account in place of what was there.
func (*Keychain) Set(ctx context.Context, account string, value *secret.Bytes) error {
	var text string
	if err := value.Use(func(b []byte) error {
		text = prefix + base64.StdEncoding.EncodeToString(b)
		return nil
	}); err != nil {
		return fmt.Errorf("writing to the keyring: %w", err)
	}
	if _, err := call(ctx, account, func() (string, error) { return "", keyring.Set(service, account, text) }); err != nil {
		return fmt.Errorf("writing to the keyring: %w", err)
	}
	return nil
}

// Delete removes the account's entry; without one it returns ErrNotFound.
func (*Keychain) Delete(ctx context.Context, account string) error {
	if _, err := call(ctx, account, func() (string, error) { return "", keyring.Delete(service, account) }); err != nil {
		return fmt.Errorf("deleting from the keyring: %w", err)
	}
	return nil
}

// running bounds the calls under way, those that were given up included.
var running = make(chan struct{}, 8)

// call runs f in a goroutine, because go-keyring takes no context and waits without limit for a prompt. A call that
// is given up stays behind until its prompt is answered; what it then returns is dropped.
func call(ctx context.Context, account string, f func() (string, error)) (string, error) {
	if account == "" {
		return "", errors.New("an account is required")
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	select {
	case running <- struct{}{}:
	case <-ctx.Done():
		return "", bounded(ctx, ctx.Err())
	}
	if err := ready(ctx); err != nil {
		<-running
		return "", bounded(ctx, err)
	}
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-running }()
		text, err := f()
		done <- answer{text, err}
	}()
	select {
	case a := <-done:
		if errors.Is(a.err, keyring.ErrNotFound) {
			return "", ErrNotFound
		}
		return a.text, a.err
	case <-ctx.Done():
		return "", bounded(ctx, ctx.Err())
	}
}

// bounded turns the end of the time into ErrTimeout and whatever a cancellation broke into the cancellation.
func bounded(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ErrTimeout
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}
