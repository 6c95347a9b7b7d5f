package vault

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"singlepass.dev/vault/keychain"
	"singlepass.dev/vault/secret"
)

// Unlock opens the vault with the passphrase and, if it has one, the device secret from the keyring. It takes as long as
// Argon2id does. On an unlocked vault it is CheckPassphrase.
func (v *Vault) Unlock(ctx context.Context, passphrase *secret.Bytes) error {
	err := v.withRoot(ctx, passphrase, nil, func(p proof) error { return v.install(p) })
	if err != nil {
		return fmt.Errorf("unlocking vault: %w", err)
	}
	return nil
}

// UnlockWithKit opens the vault with the passphrase and the recovery kit's text, stores a new device secret in the keyring
// and replaces the old one's wrap: the old device secret opens nothing from then on. The kit stands in for the
// device secret only, so a found kit is worth nothing without the passphrase. It stays valid.
func (v *Vault) UnlockWithKit(ctx context.Context, passphrase, kit *secret.Bytes) error {
	kitSecret, err := parseKit(kit)
	if err != nil {
		return fmt.Errorf("unlocking vault with the recovery kit: %w", err)
	}
	defer kitSecret.Wipe()
	err = v.withRoot(ctx, passphrase, kitSecret, func(p proof) error {
		if err := v.enroll(ctx, p, kitSecret); err != nil {
			return err
		}
		p.header = v.currentHeader()
		return v.install(p)
	})
	if err != nil {
		return fmt.Errorf("unlocking vault with the recovery kit: %w", err)
	}
	return nil
}

// CheckPassphrase proves that the operator knows the passphrase, whatever the state. It costs, and counts, what Unlock
// does.
func (v *Vault) CheckPassphrase(ctx context.Context, passphrase *secret.Bytes) error {
	if err := v.withRoot(ctx, passphrase, nil, func(proof) error { return nil }); err != nil {
		return fmt.Errorf("checking the passphrase: %w", err)
	}
	return nil
}

// ChangePassphrase wraps the root key anew, with a new salt, for the new passphrase, and overwrites the old wrap in the file. It
// works in either state and keeps it. Copies of the file made earlier still open with the old passphrase.
func (v *Vault) ChangePassphrase(ctx context.Context, old, new *secret.Bytes) error {
	err := checkPassphrase(new)
	if err == nil {
		err = v.withRoot(ctx, old, nil, func(p proof) error { return v.change(p, new) })
	}
	if err != nil {
		return fmt.Errorf("changing the passphrase: %w", err)
	}
	return nil
}

func (v *Vault) change(p proof, new *secret.Bytes) error {
	h := *p.header
	salt, err := v.randomBytes(saltSize)
	if err != nil {
		return err
	}
	h.KDF.Salt = salt
	stretched, err := v.stretch(new, h.KDF)
	if err != nil {
		return err
	}
	defer stretched.Wipe()
	return v.replaceHeader(p, func(s *session) (*header, error) {
		var kit *secret.Bytes
		if h.DeviceSecret {
			plaintext, err := s.get(v, kindKit, "secret")
			if err != nil {
				return nil, err
			}
			kit = secret.New(plaintext)
			defer kit.Wipe()
		}
		return v.rewrap(h, stretched, p.second, kit, p.root)
	})
}

// enroll makes a new device secret and stores it in the keyring and in the header. If the header cannot be written after
// the keyring was, the kit still opens the vault. The keyring is written without mu, since it may take seconds.
func (v *Vault) enroll(ctx context.Context, p proof, kit *secret.Bytes) error {
	if err := v.verify(p); err != nil { // first: a vault that does not verify keeps its device secret
		return err
	}
	device, err := v.randomSecret(keySize)
	if err != nil {
		return err
	}
	defer device.Wipe()
	if err := v.keychain.Set(ctx, p.header.VaultID, device); err != nil {
		return err
	}
	return v.replaceHeader(p, func(*session) (*header, error) {
		return v.rewrap(*p.header, p.stretched, device, kit, p.root)
	})
}

// replaceHeader writes the header that f makes. It works on the open session or, while locked, on one for this call.
func (v *Vault) replaceHeader(p proof, f func(*session) (*header, error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return errClosed
	}
	s := v.session
	if s == nil {
		var err error
		if s, err = v.verifiedSession(p); err != nil {
			return err
		}
		defer s.wipe()
	}
	h, err := f(s)
	if err != nil {
		return err
	}
	if err := v.commitLocked(s, h); err != nil {
		return err
	}
	return v.scrubLocked()
}

// verifiedSession returns a session of its own copy of the root key, checked against the file.
func (v *Vault) verifiedSession(p proof) (*session, error) {
	root, err := p.root.Clone()
	if err != nil {
		return nil, err
	}
	s, err := newSession(p.header.VaultID, root)
	if err != nil {
		return nil, err
	}
	if err := s.load(v, p.header); err != nil {
		s.wipe()
		return nil, err
	}
	return s, nil
}

// verify checks the file under the proven root key.
func (v *Vault) verify(p proof) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.closed {
		return errClosed
	}
	s, err := v.verifiedSession(p)
	if err != nil {
		return err
	}
	s.wipe()
	return nil
}

// install makes the vault unlocked, unless it was locked or closed since the proof began.
func (v *Vault) install(p proof) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return errClosed
	}
	if v.locks != p.locks {
		return fmt.Errorf("%w (it was locked meanwhile)", ErrLocked)
	}
	if v.session != nil {
		return nil
	}
	s, err := v.verifiedSession(p)
	if err != nil {
		return err
	}
	v.session = s
	return nil
}

// proof is what a right passphrase gives for the duration of one call.
type proof struct {
	header    *header
	locks     uint64
	stretched *secret.Bytes
	second    *secret.Bytes // device secret or kit; nil for a vault without
	root      *secret.Bytes
}

// withRoot proves the passphrase, together with the kit or, if that is nil, the keyring's device secret, and calls f with
// the root key. It holds the deriving token throughout, so headers change one at a time.
func (v *Vault) withRoot(ctx context.Context, passphrase, kit *secret.Bytes, f func(proof) error) error {
	locks := v.lockCount() // before the wait: a lock command given after this call counts
	if err := v.acquire(ctx); err != nil {
		return err
	}
	defer v.release()
	h := v.currentHeader()
	if h == nil {
		return ErrUninitialized
	}
	p := proof{header: h, locks: locks, second: kit}
	kind := slotKit
	if kit == nil {
		kind = slotPassphrase
	}
	if kit != nil && !h.DeviceSecret {
		return errors.New("this vault was made without a keyring and has no recovery kit: unlock it with the passphrase")
	}
	if err := v.mayTry(); err != nil {
		return err
	}
	if h.DeviceSecret {
		// An absent entry is no secret: whoever may ask the keyring sees it. Said before anything is counted or derived. With
		// the kit an absent entry is expected, any other failure would come back when the new one is stored.
		device, err := v.keychain.Get(ctx, h.VaultID)
		switch {
		case kit != nil && (err == nil || errors.Is(err, keychain.ErrNotFound) || errors.Is(err, keychain.ErrMalformed)):
			device.Wipe()
		case err != nil:
			return err
		default:
			p.second = device
			defer device.Wipe()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Counted, durably, before the derivation ends and taken back after it: killing the daemon in between does not give
	// a free try. The two run side by side because the count's syncs would otherwise lengthen each unlock.
	counted := make(chan error, 1)
	go func() { counted <- v.countTry() }()
	var err error
	p.stretched, err = v.stretch(passphrase, h.KDF)
	defer p.stretched.Wipe()
	if err := errors.Join(<-counted, err); err != nil {
		return err
	}
	if p.root, err = h.unwrap(kind, p.stretched, p.second); err != nil {
		return err
	}
	defer p.root.Wipe()
	if err := v.clearTries(); err != nil {
		return err
	}
	return f(p)
}

var errClosed = errors.New("the vault is closed")

// acquire takes the deriving token.
func (v *Vault) acquire(ctx context.Context) error {
	select {
	case v.deriving <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.closed {
		v.release()
		return errClosed
	}
	return nil
}

// release gives the token back, after a derivation only once its memory went back to the system: nobody waits for that
// but the next derivation.
func (v *Vault) release() {
	if !v.derived {
		<-v.deriving
		return
	}
	v.derived = false
	go func() {
		debug.FreeOSMemory()
		<-v.deriving
	}()
}

func (v *Vault) currentHeader() *header {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.header
}

func (v *Vault) lockCount() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.locks
}
