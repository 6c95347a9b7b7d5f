package control

import (
	"context"
	"errors"
	"syscall"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault"
	"singlepass.dev/vault/secret"
	"singlepass.dev/vault/sshkey"
)

// VaultParts fits the real vault to this package's Vault and Credentials, and tells the rest of the daemon what happened.
type VaultParts struct {
	Vault   *vault.Vault                    // required
	Opened  func(ctx context.Context) error // optional: after init and unlock; an error locks the vault again and is what the operator gets
	Closing func()                          // optional: before a lock on command
	Changed func(credential string)         // optional: after a credential was rotated or removed
}

// Init makes the vault, which is then unlocked.
func (p VaultParts) Init(ctx context.Context, passphrase *secret.Bytes, noKeyring bool) (string, error) {
	kit, err := p.Vault.Init(ctx, passphrase, vault.InitOptions{NoKeyring: noKeyring})
	if err != nil {
		return "", err
	}
	defer kit.Wipe()
	var text string
	if kit != nil {
		// The kit goes to the person this once, so this copy has to be a string.
		if err := kit.Text().Use(func(b []byte) error { text = string(b); return nil }); err != nil {
			return "", err
		}
	}
	// The vault is made, so the kit must reach the person whatever happens now; what the daemon cannot do after it shows in its status and at the next unlock.
	if err := p.opened(ctx); err != nil && text == "" {
		return "", err
	}
	return text, nil
}

// Unlock opens the vault.
func (p VaultParts) Unlock(ctx context.Context, passphrase, kit *secret.Bytes) error {
	var err error
	if kit != nil {
		err = p.Vault.UnlockWithKit(ctx, passphrase, kit)
	} else {
		err = p.Vault.Unlock(ctx, passphrase)
	}
	if err != nil {
		return err
	}
	return p.opened(ctx)
}

func (p VaultParts) opened(ctx context.Context) error {
	if p.Opened == nil {
		return nil
	}
	if err := p.Opened(ctx); err != nil {
		p.Vault.Lock()
		return err
	}
	return nil
}

// Lock shuts the vault.
func (p VaultParts) Lock() {
	if p.Closing != nil {
		p.Closing()
	}
	p.Vault.Lock()
}

// ChangePassphrase changes the passphrase.
func (p VaultParts) ChangePassphrase(ctx context.Context, old, new *secret.Bytes) error {
	return p.Vault.ChangePassphrase(ctx, old, new)
}

// Credentials lists the credentials without their secrets.
func (p VaultParts) Credentials(context.Context) ([]api.Credential, error) {
	all, err := p.Vault.Credentials()
	if err != nil {
		return nil, err
	}
	list := make([]api.Credential, 0, len(all))
	for _, c := range all {
		list = append(list, Credential(c))
	}
	return list, nil
}

// AddCredential adds a credential; what is wrong with its description is the operator's to mend.
func (p VaultParts) AddCredential(_ context.Context, in api.Credential, plaintext bool, value *secret.Bytes) error {
	c, err := CredentialOf(in, plaintext)
	if err != nil {
		return err
	}
	return refused(p.Vault.AddCredential(c, value))
}

// ChangeCredential changes what a credential allows.
func (p VaultParts) ChangeCredential(_ context.Context, name string, in api.CredentialChange) error {
	return p.changed(name, ChangeCredential(p.Vault, name, in))
}

// RotateCredential replaces the secret and keeps the name.
func (p VaultParts) RotateCredential(_ context.Context, name string, value *secret.Bytes) error {
	return p.changed(name, p.Vault.RotateCredential(name, value))
}

// RemoveCredential removes a credential.
func (p VaultParts) RemoveCredential(_ context.Context, name string) error {
	return p.changed(name, p.Vault.RemoveCredential(name))
}

func (p VaultParts) changed(name string, err error) error {
	if err != nil {
		return refused(err)
	}
	if p.Changed != nil {
		p.Changed(name)
	}
	return nil
}

// refused marks what is left after the vault's own errors: the value was not one that this kind takes.
func refused(err error) error {
	for _, known := range []error{
		nil, sshkey.ErrPassphraseNeeded, vault.ErrLocked, vault.ErrUninitialized, vault.ErrNotFound, vault.ErrExists, vault.ErrTampered, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	var system syscall.Errno
	if errors.As(err, &system) {
		return err
	}
	return api.Errorf(api.CodeUsage, "%v", err)
}
