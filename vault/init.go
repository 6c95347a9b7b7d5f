package vault

import (
	"context"
	"errors"
	"fmt"
	"io"

	"singlepass.dev/vault/secret"
)

// InitOptions are the operator's choices for a new vault.
type InitOptions struct {
	NoKeyring bool // no device secret: the passphrase alone opens the vault, which is weaker
	KDF       KDF  // zero means DefaultKDF; anything weaker is refused
}

// Init makes the vault and leaves it unlocked. It stores a new device secret in the keyring unless NoKeyring is set. The
// returned kit is shown to the operator once and kept nowhere in readable form; with NoKeyring there is no device secret to
// replace and the kit is nil.
func (v *Vault) Init(ctx context.Context, passphrase *secret.Bytes, o InitOptions) (*RecoveryKit, error) {
	if o.KDF == (KDF{}) {
		o.KDF = leastKDF()
	}
	if err := o.KDF.checkNew(); err != nil {
		return nil, fmt.Errorf("initializing vault: %w", err)
	}
	if err := checkPassphrase(passphrase); err != nil {
		return nil, fmt.Errorf("initializing vault: %w", err)
	}
	if err := v.acquire(ctx); err != nil {
		return nil, fmt.Errorf("initializing vault: %w", err)
	}
	defer v.release()
	if v.currentHeader() != nil {
		return nil, fmt.Errorf("initializing vault: %w", ErrInitialized)
	}
	kit, err := v.initialize(ctx, passphrase, o)
	if err != nil {
		return nil, fmt.Errorf("initializing vault: %w", err)
	}
	return kit, nil
}

func (v *Vault) initialize(ctx context.Context, passphrase *secret.Bytes, o InitOptions) (kit *RecoveryKit, err error) {
	id, err := v.randomBytes(16)
	if err != nil {
		return nil, err
	}
	salt, err := v.randomBytes(saltSize)
	if err != nil {
		return nil, err
	}
	h := header{
		Format:       formatVersion,
		VaultID:      fmt.Sprintf("%x", id),
		KDF:          headerKDF{Name: "argon2id", KDF: o.KDF, Salt: salt},
		DeviceSecret: !o.NoKeyring,
	}
	root, err := v.randomSecret(keySize)
	if err != nil {
		return nil, err
	}
	s, err := newSession(h.VaultID, root)
	if err != nil {
		return nil, err
	}
	var device, kitSecret *secret.Bytes
	defer func() {
		device.Wipe()
		kitSecret.Wipe()
		if err != nil {
			s.wipe()
			kit.Wipe()
		}
	}()

	random, err := v.randomBytes(keyMaterialSize)
	if err != nil {
		return nil, err
	}
	material, err := newKeyMaterial(random)
	if err != nil {
		return nil, err
	}
	defer clear(material)
	changes := []change{{kindKeys, "keys", append([]byte(nil), material...)}}
	defer clear(changes[0].plaintext)
	if s.keys, err = newKeys(material); err != nil {
		return nil, err
	}
	h.SealingKey = s.keys.PublicSealingKey()

	if h.DeviceSecret {
		if device, err = v.randomSecret(keySize); err != nil {
			return nil, err
		}
		if kitSecret, err = v.randomSecret(kitSecretSize); err != nil {
			return nil, err
		}
		// The vault keeps the kit's secret sealed under the root key, so that a new passphrase can be wrapped for the kit
		// without the paper at hand.
		var plaintext []byte
		if err = kitSecret.Use(func(b []byte) error {
			plaintext = append(plaintext, b...)
			kit = newRecoveryKit(b)
			return nil
		}); err != nil {
			return nil, err
		}
		defer clear(plaintext)
		changes = append(changes, change{kindKit, "secret", plaintext})
		// Before the derivation, so that a person without a keyring need not wait to hear about it.
		if err = v.keychain.Set(ctx, h.VaultID, device); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil && !errors.Is(err, errUnknownOutcome) { // the entry may be needed then
				_ = v.keychain.Delete(context.WithoutCancel(ctx), h.VaultID)
			}
		}()
	}
	stretched, err := v.stretch(passphrase, h.KDF)
	if err != nil {
		return nil, err
	}
	defer stretched.Wipe()
	encoded, err := v.rewrap(h, stretched, device, kitSecret, root)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, errClosed
	}
	if err = v.commitLocked(s, encoded, changes...); err != nil {
		return nil, err
	}
	v.session = s
	return kit, nil
}

// rewrap returns h with its slots made anew. device and kit are nil for a vault without a device secret.
func (v *Vault) rewrap(h header, stretched, device, kit, root *secret.Bytes) (*header, error) {
	h.Slots = nil
	seconds := []struct {
		kind   slotKind
		secret *secret.Bytes
	}{{slotPassphrase, device}, {slotKit, kit}}
	for _, second := range seconds {
		if second.kind == slotKit && !h.DeviceSecret {
			continue
		}
		wrapped, err := h.wrap(second.kind, stretched, second.secret, root, v.random)
		if err != nil {
			return nil, err
		}
		h.Slots = append(h.Slots, wrapped)
	}
	return h.encoded()
}

func (v *Vault) randomBytes(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(v.random, b); err != nil {
		return nil, fmt.Errorf("reading randomness: %w", err)
	}
	return b, nil
}

func (v *Vault) randomSecret(n int) (*secret.Bytes, error) {
	b, err := v.randomBytes(n)
	if err != nil {
		return nil, err
	}
	return secret.New(b), nil
}
