package payload

import (
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/chacha20poly1305"
)

// ErrWiped is returned by Seal after Wipe: the daemon has begun another epoch.
var ErrWiped = errors.New("sealer was wiped")

// Config is what a Sealer needs.
type Config struct {
	PublicKey []byte    // required: the vault's X25519 public key, from its authenticated header
	Random    io.Reader // required: nonces; crypto/rand.Reader outside tests
}

// Sealer seals the payloads of one epoch.
type Sealer struct {
	random io.Reader

	mu     sync.RWMutex // owns what follows; held for reading while a payload is sealed
	key    [keySize]byte
	header [headerSize]byte
	wiped  bool
}

// NewSealer begins an epoch. It costs about 0.1 ms.
func NewSealer(c Config) (*Sealer, error) {
	if c.Random == nil {
		return nil, errors.New("beginning sealing epoch: Config.Random is missing")
	}
	point, err := ecdh.X25519().NewPublicKey(c.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("beginning sealing epoch: reading public key: %w", err)
	}
	public, err := hpke.NewDHKEMPublicKey(point)
	if err != nil {
		return nil, fmt.Errorf("beginning sealing epoch: reading public key: %w", err)
	}
	enc, sender, err := hpke.NewSender(public, hpke.HKDFSHA256(), hpke.ExportOnly(), []byte(epochInfo))
	if err != nil {
		return nil, fmt.Errorf("beginning sealing epoch: %w", err)
	}
	key, err := sender.Export(keyContext, keySize)
	if err != nil {
		return nil, fmt.Errorf("beginning sealing epoch: %w", err)
	}
	s := &Sealer{random: c.Random}
	recipient := RecipientOf(c.PublicKey)
	s.header[0] = version
	copy(s.header[1:], recipient[:])
	copy(s.header[1+recipientSize:], enc)
	copy(s.key[:], key)
	clear(key)
	return s, nil
}

// Recipient names the key that this epoch is sealed to.
func (s *Sealer) Recipient() Recipient { return Recipient(s.header[1:]) }

// Seal returns the sealed payload as bytes; the journal writes them in base64.
func (s *Sealer) Seal(executionID string, kind Kind, plaintext []byte) ([]byte, error) {
	if err := check(executionID, kind); err != nil {
		return nil, fmt.Errorf("sealing payload: %w", err)
	}
	if len(plaintext) > MaxSize {
		return nil, fmt.Errorf("sealing payload %s of %s: %d bytes are more than %d", kind, executionID, len(plaintext), MaxSize)
	}
	padded := paddedSize(len(plaintext))
	out := make([]byte, headerSize+nonceSize+padded, padded+overhead)
	nonce := out[headerSize : headerSize+nonceSize]
	if _, err := io.ReadFull(s.random, nonce); err != nil {
		return nil, fmt.Errorf("sealing payload %s of %s: reading nonce: %w", kind, executionID, err)
	}
	body := out[headerSize+nonceSize:]
	body[copy(body, plaintext)] = 0x80

	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.wiped {
		clear(body)
		return nil, fmt.Errorf("sealing payload %s of %s: %w", kind, executionID, ErrWiped)
	}
	copy(out, s.header[:])
	aead, inner, err := single(s.key[:], nonce)
	if err != nil {
		return nil, fmt.Errorf("sealing payload %s of %s: %w", kind, executionID, err)
	}
	aead.Seal(body[:0], inner, body, associated(s.header[:], kind, executionID))
	return out[:cap(out)], nil
}

// Wipe ends the epoch: from now on this Sealer seals nothing, and its key is gone.
func (s *Sealer) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wiped = true
	clear(s.key[:])
}

// single returns the AEAD that XChaCha20-Poly1305 makes of a key and the first 16 bytes of a nonce (draft-irtf-cfrg-xchacha-03, section 2.3), with the nonce that is
// left. It is spelt out here, instead of keeping chacha20poly1305.NewX, because that keeps a copy of the epoch's key that nobody can wipe; this one
// holds a key that opens a single payload.
func single(key, nonce []byte) (cipher.AEAD, []byte, error) {
	sub, err := chacha20.HChaCha20(key, nonce[:16])
	if err != nil {
		return nil, nil, err
	}
	defer clear(sub)
	aead, err := chacha20poly1305.New(sub)
	if err != nil {
		return nil, nil, err
	}
	inner := make([]byte, chacha20poly1305.NonceSize)
	copy(inner[4:], nonce[16:])
	return aead, inner, nil
}
