package payload

import (
	"errors"
	"fmt"
	"sync"
)

// Derive returns the key of the epoch that enc began, as DeriveKey does from the vault's private key. It fails while the vault is locked and when the vault does not
// hold the recipient's key. The Opener takes the slice over and wipes it.
type Derive func(recipient Recipient, enc []byte) ([]byte, error)

// maxEpochs bounds the keys that an Opener remembers. The journal of a year of daily unlocking has about a thousand epochs; a view shows a few of them.
const maxEpochs = 64

// Opener opens payloads while the vault is unlocked and remembers the keys of the epochs that it has met.
type Opener struct {
	derive Derive

	mu    sync.RWMutex // owns keys; held for reading while a payload is opened
	keys  map[[headerSize]byte]*[keySize]byte
	wipes uint64 // how often Wipe was called: a key derived before must not be kept after
}

// NewOpener returns an Opener that asks derive for the key of an epoch that it does not know.
func NewOpener(derive Derive) (*Opener, error) {
	if derive == nil {
		return nil, errors.New("making payload opener: derive is missing")
	}
	return &Opener{derive: derive, keys: make(map[[headerSize]byte]*[keySize]byte)}, nil
}

// Open returns the plaintext of what Seal made for this execution and kind. Its error wraps ErrNotOpened when the payload is to blame, and otherwise the error of Derive.
func (o *Opener) Open(executionID string, kind Kind, sealed []byte) ([]byte, error) {
	if err := check(executionID, kind); err != nil {
		return nil, fmt.Errorf("opening payload: %w", err)
	}
	fail := func(why string) ([]byte, error) {
		return nil, fmt.Errorf("opening payload %s of %s: %w: %s", kind, executionID, ErrNotOpened, why)
	}
	if len(sealed) < overhead+smallest {
		return fail("it is too short")
	}
	if sealed[0] != version {
		return fail(fmt.Sprintf("its version is %d and this program knows version %d", sealed[0], version))
	}
	header := [headerSize]byte(sealed)
	nonce, ciphertext := sealed[headerSize:headerSize+nonceSize], sealed[headerSize+nonceSize:]

	var plain []byte
	err := o.use(header, func(key []byte) error {
		aead, inner, err := single(key, nonce)
		if err != nil {
			return err
		}
		if plain, err = aead.Open(nil, inner, ciphertext, associated(header[:], kind, executionID)); err != nil {
			return fmt.Errorf("%w: it was changed, or belongs to another execution or kind", ErrNotOpened)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening payload %s of %s: %w", kind, executionID, err)
	}
	content, ok := unpad(plain)
	if !ok {
		return fail("its padding is not what a sealer writes")
	}
	return content, nil
}

// use calls f with the key of the epoch, deriving it where it is not known. A key is remembered once it has opened something, so that made-up headers push nothing out.
func (o *Opener) use(header [headerSize]byte, f func(key []byte) error) error {
	o.mu.RLock()
	if key := o.keys[header]; key != nil {
		defer o.mu.RUnlock()
		return f(key[:])
	}
	wipes := o.wipes
	o.mu.RUnlock()

	derived, err := o.derive(Recipient(header[1:]), header[1+recipientSize:])
	if err != nil {
		return err
	}
	defer clear(derived)
	if len(derived) != keySize {
		return fmt.Errorf("derived key has %d bytes instead of %d", len(derived), keySize)
	}
	if err := f(derived); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wipes != wipes || o.keys[header] != nil {
		return nil
	}
	if len(o.keys) >= maxEpochs {
		o.clearLocked()
	}
	o.keys[header] = (*[keySize]byte)(append([]byte(nil), derived...))
	return nil
}

// Wipe forgets every key. The Opener can be used again once derive answers again.
func (o *Opener) Wipe() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wipes++
	o.clearLocked()
}

func (o *Opener) clearLocked() {
	for _, key := range o.keys {
		clear(key[:])
	}
	clear(o.keys)
}
