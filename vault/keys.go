package vault

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/sha256"
	"errors"

	"singlepass.dev/vault/secret"
)

// Keys are the vault's keys for the rest of the daemon. Every method returns ErrLocked once the vault was locked, never a
// result under a wiped key. It is safe for concurrent use; locking waits for a running method.
type Keys struct {
	fingerprint *secret.Bytes
	index       *secret.Bytes
	signing     *secret.Bytes // Ed25519 seed
	sealing     *secret.Bytes // X25519 private key, RFC 9180 SerializePrivateKey
	public      ed25519.PublicKey
	publicHPKE  []byte
}

// sealingKEM is fixed by the header's format.
func sealingKEM() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// keyMaterialSize is the length of the record: fingerprint, index, Ed25519 seed, X25519 private key.
const keyMaterialSize = 4 * keySize

// newKeyMaterial returns the plaintext of the key record from keyMaterialSize random bytes, which it overwrites.
func newKeyMaterial(random []byte) ([]byte, error) {
	private, err := sealingKEM().DeriveKeyPair(random[3*keySize:])
	if err != nil {
		return nil, err
	}
	serialized, err := private.Bytes()
	if err != nil {
		return nil, err
	}
	copy(random[3*keySize:], serialized)
	clear(serialized)
	return random, nil
}

// newKeys takes the material over and wipes it.
func newKeys(material []byte) (*Keys, error) {
	defer clear(material)
	if len(material) != keyMaterialSize {
		return nil, ErrTampered
	}
	private, err := sealingKEM().NewPrivateKey(material[3*keySize:])
	if err != nil {
		return nil, ErrTampered
	}
	signing := ed25519.NewKeyFromSeed(material[2*keySize : 3*keySize])
	defer clear(signing)
	public := append(ed25519.PublicKey(nil), signing[ed25519.SeedSize:]...)
	return &Keys{
		fingerprint: secret.New(material[:keySize]),
		index:       secret.New(material[keySize : 2*keySize]),
		signing:     secret.New(material[2*keySize : 3*keySize]),
		sealing:     secret.New(material[3*keySize:]),
		public:      public,
		publicHPKE:  private.PublicKey().Bytes(),
	}, nil
}

func (k *Keys) wipe() {
	for _, s := range []*secret.Bytes{k.fingerprint, k.index, k.signing, k.sealing} {
		s.Wipe()
	}
}

// use is secret.Bytes.Use with the vault's own word for a wiped key.
func use(s *secret.Bytes, f func([]byte) error) error {
	err := s.Use(f)
	if errors.Is(err, secret.ErrWiped) {
		return ErrLocked
	}
	return err
}

// FingerprintMAC returns HMAC-SHA-256 of message under the fingerprint key. The caller separates domains.
func (k *Keys) FingerprintMAC(message []byte) ([32]byte, error) {
	var sum [32]byte
	err := use(k.fingerprint, func(key []byte) error {
		mac := hmac.New(sha256.New, key)
		mac.Write(message)
		mac.Sum(sum[:0])
		return nil
	})
	return sum, err
}

// UseIndexKey calls f with the 32-byte key for the journal index's MAC; f must not keep it.
func (k *Keys) UseIndexKey(f func(key []byte) error) error { return use(k.index, f) }

// Sign returns the Ed25519 signature (RFC 8032, pure) of message. The caller separates domains.
func (k *Keys) Sign(message []byte) ([]byte, error) {
	var signature []byte
	err := use(k.signing, func(seed []byte) error {
		private := ed25519.NewKeyFromSeed(seed)
		defer clear(private)
		signature = ed25519.Sign(private, message)
		return nil
	})
	return signature, err
}

// SigningKey returns the public half of Sign's key.
func (k *Keys) SigningKey() ed25519.PublicKey { return append(ed25519.PublicKey(nil), k.public...) }

// PublicSealingKey returns the public half of the sealing key.
func (k *Keys) PublicSealingKey() []byte { return append([]byte(nil), k.publicHPKE...) }

// UseSealingKey calls f with the HPKE private key that opens what was sealed to PublicSealingKey; f must not keep it.
func (k *Keys) UseSealingKey(f func(hpke.PrivateKey) error) error {
	return use(k.sealing, func(b []byte) error {
		private, err := sealingKEM().NewPrivateKey(b)
		if err != nil {
			return err
		}
		return f(private)
	})
}
