package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/oauth"
	"singlepass.dev/vault"
	"singlepass.dev/vault/secret"
)

// vaultOf gives the engine the vault.
type vaultOf struct {
	*vault.Vault
	tokens *oauth.Source
}

// UseCredential gives what a channel uses: the secret, or an access token.
func (v vaultOf) UseCredential(ctx context.Context, name string) (vault.Credential, *secret.Bytes, error) {
	return v.tokens.UseCredential(ctx, name)
}

// CredentialRefused drops an access token that a target did not take.
func (v vaultOf) CredentialRefused(name string, used *secret.Bytes) {
	v.tokens.CredentialRefused(name, used)
}

// FingerprintMAC uses the fingerprint key, while there is one.
func (v vaultOf) FingerprintMAC(msg []byte) ([32]byte, error) {
	keys, err := v.Keys()
	if err != nil {
		return [32]byte{}, err
	}
	return keys.FingerprintMAC(msg)
}

// touched notes every call, so that a vault in use does not lock.
type touched struct {
	call.Engine
	touch func()
	load  *load
}

// Call notes the use and passes the call on.
func (t touched) Call(ctx context.Context, c call.Call) call.Answer {
	t.touch()
	t.load.begin()
	defer t.load.end()
	return t.Engine.Call(ctx, c)
}

// opened does what follows an unlock: the records are authenticated, the accepted contracts become tools, calls are judged. If any of it fails, the vault is locked again.
func (s *Server) opened() error {
	err := func() error {
		keys, err := s.vault.Keys()
		if err != nil {
			return err
		}
		if _, err := s.records.Unlocked(keys); err != nil {
			return fmt.Errorf("authenticating the records: %w", err)
		}
		if err := errors.Join(s.loadSettings(), s.loadHTTPClients()); err != nil {
			return err
		}
		if err := s.engine.Recover(); err != nil {
			return err
		}
		if err := errors.Join(s.loadUpstreams(), s.loadActions()); err != nil {
			return err
		}
		s.loadStanding()
		return s.engine.Unlocked()
	}()
	if err != nil {
		s.records.Locked()
		s.vault.Lock()
		return err
	}
	s.tokens.Unlocked()
	s.touch()
	s.upstreams.channel.Resume()
	s.askUpstreams()
	select {
	case s.opens <- struct{}{}:
	default:
	}
	return nil
}

// lock ends what waits, drops the records' keys and then wipes the vault's.
func (s *Server) lock(reason string) {
	if s.vault.Status() != vault.Unlocked {
		s.vault.Lock() // an unlock under way comes to nothing, and is not waited for: the machine may be about to sleep
	}
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	s.lockNow(reason)
}

func (s *Server) lockNow(reason string) {
	if s.vault.Status() != vault.Unlocked {
		return
	}
	s.locked.forget() // those of the last time; none comes while it is open
	s.engine.Locked(reason)
	s.records.Locked()
	s.vault.Lock()
	s.why.Store(&reason)
	s.log.Info("the vault is locked", "reason", reason)
}

// Init makes the vault and opens it.
func (o *operatorSide) Init(ctx context.Context, passphrase *secret.Bytes, noKeyring bool) (string, error) {
	s := o.s
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	parts := control.VaultParts{Vault: s.vault, Opened: func(context.Context) error {
		err := s.opened()
		if err != nil {
			s.log.Error("opening the new vault", "error", err)
		}
		return err
	}}
	return parts.Init(ctx, passphrase, noKeyring)
}

// Unlock opens the vault, with the recovery kit in place of the keyring's device secret where kit is not nil.
func (o *operatorSide) Unlock(ctx context.Context, passphrase, kit *secret.Bytes) error {
	s := o.s
	if s.vault.Status() == vault.Unlocked {
		// Still a proof: whoever sends a wrong passphrase is told so. It may wait for the keyring, and a lock must not wait for it.
		return s.vault.CheckPassphrase(ctx, passphrase)
	}
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	if s.vault.Status() == vault.Unlocked { // by another request, since
		return s.vault.CheckPassphrase(ctx, passphrase)
	}
	var err error
	if kit != nil {
		err = s.vault.UnlockWithKit(ctx, passphrase, kit)
	} else {
		err = s.vault.Unlock(ctx, passphrase)
	}
	if err != nil {
		return err
	}
	return s.opened()
}

// Lock locks on the operator's command.
func (o *operatorSide) Lock() { o.s.lock("by the operator's command") }

// ChangePassphrase changes the passphrase.
func (o *operatorSide) ChangePassphrase(ctx context.Context, old, new *secret.Bytes) error {
	return o.s.vault.ChangePassphrase(ctx, old, new)
}

// Credentials lists them.
func (o *operatorSide) Credentials(context.Context) ([]api.Credential, error) {
	list, err := o.s.vault.Credentials()
	if err != nil {
		return nil, err
	}
	usedBy := o.s.credentialUse()
	out := make([]api.Credential, 0, len(list))
	for _, c := range list {
		a := control.Credential(c)
		a.UsedBy = usedBy[c.Name]
		out = append(out, a)
	}
	return out, nil
}

// AddCredential adds one.
func (o *operatorSide) AddCredential(_ context.Context, a api.Credential, plaintext bool, value *secret.Bytes) error {
	c, err := control.CredentialOf(a, plaintext)
	if err != nil {
		return err
	}
	return o.s.changeCredential("credential_added", c.Name, func() error { return o.s.vault.AddCredential(c, value) })
}

// ChangeCredential changes what one allows.
func (o *operatorSide) ChangeCredential(_ context.Context, name string, in api.CredentialChange) error {
	return o.s.changeCredential("credential_changed", name, func() error { return control.ChangeCredential(o.s.vault, name, in) })
}

// RotateCredential gives one a new value.
func (o *operatorSide) RotateCredential(_ context.Context, name string, value *secret.Bytes) error {
	return o.s.changeCredential("credential_rotated", name, func() error { return o.s.vault.RotateCredential(name, value) })
}

// RemoveCredential removes one.
func (o *operatorSide) RemoveCredential(_ context.Context, name string) error {
	return o.s.changeCredential("credential_removed", name, func() error { return o.s.vault.RemoveCredential(name) })
}

func (s *Server) changeCredential(kind, name string, change func() error) error {
	s.touch()
	if err := change(); err != nil {
		return err
	}
	s.tokens.Forget(name)
	s.engine.CredentialChanged(name)
	if err := s.tellCredentials(); err != nil {
		s.log.Error("telling which credentials there are; the next unlock does it", "error", err)
	}
	for _, u := range s.upstreams.all() { // a program keeps what it was started with
		if slices.Contains(u.Definition.Credentials(), name) {
			s.upstreams.channel.Forget(u.Definition.Name)
		}
	}
	return s.engine.Note(engineNote{Kind: kind, Credential: name, By: "operator"})
}

// tellCredentials tells the engine which credentials there are.
func (s *Server) tellCredentials() error {
	all, err := s.vault.Credentials()
	if err == nil {
		s.engine.SetCredentials(all)
	}
	return err
}

// renewed records that a token endpoint gave a new refresh token for a credential.
func (s *Server) renewed(name string) {
	if err := s.engine.Note(engineNote{Kind: "credential_renewed", Credential: name, By: "token endpoint"}); err != nil {
		s.log.Error("recording a renewed credential", "credential", name, "error", err)
	}
}

// engineNote is an operator's change, as it stands in the journal.
type engineNote struct {
	Kind       string `json:"kind"`
	Credential string `json:"credential,omitempty"`
	Host       string `json:"host,omitempty"`
	Action     string `json:"action,omitempty"`
	Upstream   string `json:"upstream,omitempty"`
	Client     string `json:"client,omitempty"` // of MCP over HTTP
	Digest     string `json:"digest,omitempty"`
	By         string `json:"by,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Setting    string `json:"setting,omitempty"`
	Value      string `json:"value,omitempty"` // of the setting; empty is its default
}
