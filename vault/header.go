package vault

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/chacha20poly1305"

	"singlepass.dev/vault/internal/floor"
	"singlepass.dev/vault/secret"
)

// KDF is the cost of Argon2id (RFC 9106).
type KDF struct {
	MemoryKiB   uint32 `json:"memory_kib"`
	Time        uint32 `json:"time"`
	Parallelism uint8  `json:"parallelism"`
}

// DefaultKDF is the second recommended option of RFC 9106, section 4, and the least that Init takes.
var DefaultKDF = KDF{MemoryKiB: 64 * 1024, Time: 3, Parallelism: 4}

// The most that is taken from a file. A hostile header must not make the daemon allocate without limit.
const (
	maxMemoryKiB   = 4 * 1024 * 1024
	maxTime        = 16
	maxParallelism = 64
)

// leastKDF is DefaultKDF, except in tests.
func leastKDF() KDF { return KDF(floor.Least) }

func (k KDF) checkNew() error {
	least := leastKDF()
	if k.MemoryKiB < least.MemoryKiB || k.Time < least.Time || k.Parallelism < least.Parallelism {
		return fmt.Errorf("argon2id with memory %d KiB, time %d, parallelism %d is too weak: at least %d, %d, %d",
			k.MemoryKiB, k.Time, k.Parallelism, least.MemoryKiB, least.Time, least.Parallelism)
	}
	return k.checkRead()
}

func (k KDF) checkRead() error {
	if k.MemoryKiB > maxMemoryKiB || k.Time > maxTime || k.Parallelism > maxParallelism {
		return fmt.Errorf("argon2id with memory %d KiB, time %d, parallelism %d is beyond the limits %d, %d, %d",
			k.MemoryKiB, k.Time, k.Parallelism, maxMemoryKiB, maxTime, maxParallelism)
	}
	if k.Time == 0 || k.Parallelism == 0 || k.MemoryKiB < 8*uint32(k.Parallelism) { // RFC 9106, section 3.1
		return errors.New("argon2id parameters are below what the algorithm allows")
	}
	return nil
}

const (
	formatVersion = 1
	keySize       = 32
	saltSize      = 16
	maxHeaderSize = 16 << 10
	wrappedSize   = chacha20poly1305.NonceSizeX + keySize + chacha20poly1305.Overhead
)

// slotKind says what, besides the passphrase, opens a slot.
type slotKind string

const (
	slotPassphrase slotKind = "passphrase"   // with the device secret, if the vault has one
	slotKit        slotKind = "recovery-kit" // with the recovery kit in the device secret's place
)

// header is the part of the file that is readable while locked. raw are its bytes as stored, which the manifest
// authenticates; the fields that a derivation depends on are also the associated data of each wrap.
type header struct {
	Format       int       `json:"format"`
	VaultID      string    `json:"vault_id"` // hex of 16 random bytes
	KDF          headerKDF `json:"kdf"`
	DeviceSecret bool      `json:"device_secret"`
	SealingKey   []byte    `json:"sealing_key"`
	Slots        []slot    `json:"slots"`

	raw []byte
}

type headerKDF struct {
	Name string `json:"name"`
	KDF
	Salt []byte `json:"salt"`
}

type slot struct {
	Kind    slotKind `json:"kind"`
	Wrapped []byte   `json:"wrapped"` // nonce, sealed root key
}

func parseHeader(raw []byte) (*header, error) {
	damaged := func(what string) error { return fmt.Errorf("%w (header: %s)", ErrTampered, what) }
	if len(raw) > maxHeaderSize {
		return nil, damaged("too long")
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &version); err != nil {
		return nil, damaged("not JSON")
	}
	if version.Format > formatVersion {
		return nil, fmt.Errorf("vault.db has format %d, this program knows %d: use a newer singlepass", version.Format, formatVersion)
	}
	h := &header{raw: raw}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(h); err != nil {
		return nil, damaged("unknown or malformed field")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, damaged("trailing data")
	}
	id, err := hex.DecodeString(h.VaultID)
	switch {
	case h.Format != formatVersion:
		return nil, damaged("format")
	case err != nil || len(id) != 16 || hex.EncodeToString(id) != h.VaultID:
		return nil, damaged("vault_id")
	case h.KDF.Name != "argon2id":
		return nil, damaged("kdf name")
	case len(h.KDF.Salt) != saltSize:
		return nil, damaged("kdf salt")
	case len(h.SealingKey) != keySize:
		return nil, damaged("sealing_key")
	}
	if err := h.KDF.checkRead(); err != nil {
		return nil, fmt.Errorf("%w (header: %w)", ErrTampered, err)
	}
	expected := []slotKind{slotPassphrase}
	if h.DeviceSecret {
		expected = append(expected, slotKit)
	}
	if len(h.Slots) != len(expected) {
		return nil, damaged("slots")
	}
	for i, s := range h.Slots {
		if s.Kind != expected[i] || len(s.Wrapped) != wrappedSize {
			return nil, damaged("slots")
		}
	}
	return h, nil
}

// encoded returns a copy of h with raw filled in.
func (h header) encoded() (*header, error) {
	raw, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return parseHeader(raw)
}

func (h *header) wrapped(kind slotKind) []byte {
	for _, s := range h.Slots {
		if s.Kind == kind {
			return s.Wrapped
		}
	}
	return nil
}

// identity is the associated data of a slot: everything that the derivation of its key depends on.
func (h *header) identity(kind slotKind) []byte {
	b := []byte("singlepass.dev/vault/v1 wrap")
	b = appendField(b, []byte(h.VaultID))
	b = appendField(b, []byte(kind))
	b = appendField(b, []byte(h.KDF.Name))
	b = binary.BigEndian.AppendUint32(b, h.KDF.MemoryKiB)
	b = binary.BigEndian.AppendUint32(b, h.KDF.Time)
	b = append(b, h.KDF.Parallelism)
	b = appendField(b, h.KDF.Salt)
	if h.DeviceSecret {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendField(b, field []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(field)))
	return append(b, field...)
}

// stretch runs Argon2id. The caller holds the deriving token and not mu.
func (v *Vault) stretch(passphrase *secret.Bytes, k headerKDF) (*secret.Bytes, error) {
	v.derived = true
	var out *secret.Bytes
	err := passphrase.Use(func(p []byte) error {
		normal, done := normalize(p)
		defer done()
		out = secret.New(argon2.IDKey(normal, k.Salt, k.Time, k.MemoryKiB, k.Parallelism, keySize))
		return nil
	})
	return out, err
}

// wrapKey derives the key of a slot: HKDF-SHA-256(Argon2id(passphrase) ‖ second), salted with the vault's id. second
// is nil for a vault without a device secret. The stretched part has a fixed length, so the split is unambiguous.
func (h *header) wrapKey(kind slotKind, stretched, second *secret.Bytes) (*secret.Bytes, error) {
	material := make([]byte, 0, 2*keySize)
	defer func() { clear(material[:cap(material)]) }()
	for _, part := range []*secret.Bytes{stretched, second} {
		if part == nil {
			continue
		}
		if err := part.Use(func(b []byte) error { material = append(material, b...); return nil }); err != nil {
			return nil, err
		}
	}
	key, err := hkdf.Key(sha256.New, material, []byte(h.VaultID), "singlepass.dev/vault/v1 slot "+string(kind), keySize)
	if err != nil {
		return nil, err
	}
	return secret.New(key), nil
}

func (h *header) wrap(kind slotKind, stretched, second, root *secret.Bytes, random io.Reader) (slot, error) {
	key, err := h.wrapKey(kind, stretched, second)
	if err != nil {
		return slot{}, err
	}
	defer key.Wipe()
	var wrapped []byte
	err = root.Use(func(b []byte) error {
		wrapped, err = seal(key, b, h.identity(kind), random)
		return err
	})
	return slot{Kind: kind, Wrapped: wrapped}, err
}

// unwrap returns the root key, or ErrWrongPassphrase whatever is wrong.
func (h *header) unwrap(kind slotKind, stretched, second *secret.Bytes) (*secret.Bytes, error) {
	key, err := h.wrapKey(kind, stretched, second)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	root, err := open(key, h.wrapped(kind), h.identity(kind))
	if err != nil {
		return nil, ErrWrongPassphrase
	}
	return secret.New(root), nil
}

// seal returns a random nonce and the XChaCha20-Poly1305 box.
func seal(key *secret.Bytes, plaintext, associated []byte, random io.Reader) ([]byte, error) {
	out := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(plaintext)+chacha20poly1305.Overhead)
	if _, err := io.ReadFull(random, out); err != nil {
		return nil, err
	}
	err := key.Use(func(k []byte) error {
		aead, err := chacha20poly1305.NewX(k)
		if err != nil {
			return err
		}
		out = aead.Seal(out, out, plaintext, associated)
		return nil
	})
	return out, err
}

var errBox = errors.New("the box does not open")

func open(key *secret.Bytes, box, associated []byte) ([]byte, error) {
	if len(box) < chacha20poly1305.NonceSizeX+chacha20poly1305.Overhead {
		return nil, errBox
	}
	var plaintext []byte
	err := key.Use(func(k []byte) error {
		aead, err := chacha20poly1305.NewX(k)
		if err != nil {
			return err
		}
		plaintext, err = aead.Open(nil, box[:chacha20poly1305.NonceSizeX], box[chacha20poly1305.NonceSizeX:], associated)
		if err != nil {
			return errBox
		}
		return nil
	})
	return plaintext, err
}
