// Package payload seals what a journal entry must not show in clear: the arguments and the effect at acceptance, the result at the outcome. It is sealed to the vault's
// public key, so that a locked vault can still be written about but not read.
//
// # Epochs
//
// One HPKE encapsulation (RFC 9180) costs about as much as everything else a call costs together. A Sealer therefore encapsulates once, derives a symmetric key with the
// HPKE exporter (section 5.3) and seals every payload of its epoch under that key with XChaCha20-Poly1305 and a random nonce (192 bits: no counter that a crash could set
// back). The daemon makes a new Sealer at its start, at every unlock and at every lock, and wipes the old one. The encapsulated key travels in every payload: 32 bytes that
// make each payload whole by itself, with no other line of the journal to be lost, reordered or written too late.
//
// # The format (version 1, frozen; testdata/vectors.json holds it to this)
//
//		version (1 byte, 0x01) || recipient (8) || enc (32) || nonce (24) || ciphertext with tag
//
//	  - recipient is the start of SHA-256("singlepass payload recipient v1" || public key).
//	  - enc is the encapsulated key of DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, export-only AEAD, mode base, info "singlepass payload epoch v1".
//	  - The key is Export("singlepass payload key v1", 32).
//	  - The associated data are "singlepass payload v1" || the header up to the nonce || uint16 length of the kind || kind || execution id. A payload therefore opens only
//	    as what it was sealed as.
//	  - The plaintext is padded with 0x80 and then zeros (ISO/IEC 7816-4) to at least 256 bytes, and past that to a Padmé length (PURBs, Nikitin et al. 2019), which costs
//	    at most 12 % and shows O(log log n) bits of the length. Up to 255 bytes nothing is shown, so that "yes" and "no" look the same.
//
// # Promises
//
// A payload that was changed, or moved to another execution or kind, does not open. After Wipe a Sealer and an Opener hold no key. Nothing in the memory of a Sealer
// opens what an earlier Sealer sealed. Both are safe for concurrent use.
//
// # Non-promises
//
// That a payload is the newest of its kind and was written by the daemon: anybody can seal to a public key; the journal's chain and signed heads vouch for that. What
// Go's cryptography leaves in freed memory (the exporter's secret until the collector reuses it, keys that open one single payload) is not overwritten. The padded length shows.
package payload

import (
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Kind is the kind of the journal event that carries a payload. The zero value is invalid.
type Kind string

// The kinds that executions have.
const (
	Arguments Kind = "accepted"         // the arguments as they came and the effect
	Result    Kind = "outcome_observed" // the answer as the agent gets it
	Awaited   Kind = "outcome_awaited"  // what the target answered when it took something and was not done
)

// MaxSize is the longest plaintext that is sealed: padded and in base64 it still fits into a journal line.
const MaxSize = 16 << 20

const (
	version = 1

	recipientSize = 8
	encSize       = 32
	keySize       = 32
	nonceSize     = 24
	tagSize       = 16
	headerSize    = 1 + recipientSize + encSize
	overhead      = headerSize + nonceSize + tagSize

	smallest = 256

	recipientDomain = "singlepass payload recipient v1"
	epochInfo       = "singlepass payload epoch v1"
	keyContext      = "singlepass payload key v1"
	payloadDomain   = "singlepass payload v1"
)

// Recipient names a public key in a payload.
type Recipient [recipientSize]byte

// RecipientOf returns the name of an X25519 public key.
func RecipientOf(publicKey []byte) Recipient {
	h := sha256.New()
	h.Write([]byte(recipientDomain))
	h.Write(publicKey)
	return Recipient(h.Sum(nil))
}

// ErrNotOpened is wrapped by every error of Opener.Open that the payload itself is to blame for.
var ErrNotOpened = errors.New("payload does not open")

// DeriveKey returns the key of an epoch from the vault's private key, of DHKEM(X25519), and the encapsulated key. The caller wipes it.
func DeriveKey(private hpke.PrivateKey, enc []byte) ([]byte, error) {
	r, err := hpke.NewRecipient(enc, private, hpke.HKDFSHA256(), hpke.ExportOnly(), []byte(epochInfo))
	if err != nil {
		return nil, fmt.Errorf("decapsulating payload key: %w", err)
	}
	key, err := r.Export(keyContext, keySize)
	if err != nil {
		return nil, fmt.Errorf("deriving payload key: %w", err)
	}
	return key, nil
}

func associated(header []byte, kind Kind, executionID string) []byte {
	ad := make([]byte, 0, len(payloadDomain)+len(header)+2+len(kind)+len(executionID))
	ad = append(ad, payloadDomain...)
	ad = append(ad, header...)
	ad = binary.BigEndian.AppendUint16(ad, uint16(len(kind)))
	ad = append(ad, kind...)
	return append(ad, executionID...)
}

func check(executionID string, kind Kind) error {
	if executionID == "" {
		return errors.New("execution id is missing")
	}
	if kind == "" || len(kind) > 255 {
		return fmt.Errorf("kind %.80q is empty or longer than 255 bytes", kind)
	}
	return nil
}

// paddedSize returns the length to which n bytes and the mark after them are padded.
func paddedSize(n int) int {
	n = max(n+1, smallest)
	e := bits.Len(uint(n)) - 1 // floor(log2 n)
	s := bits.Len(uint(e))     // floor(log2 e) + 1
	mask := 1<<(e-s) - 1
	return (n + mask) &^ mask
}

func unpad(b []byte) ([]byte, bool) {
	i := len(b) - 1
	for i >= 0 && b[i] == 0 {
		i--
	}
	if i < 0 || b[i] != 0x80 || len(b) != paddedSize(i) {
		return nil, false
	}
	return b[:i:i], true
}
