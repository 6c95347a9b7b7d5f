package vault

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"

	"singlepass.dev/vault/secret"
)

// ErrKitMistyped means that the text is not a recovery kit: a typing error, since the checksum does not fit. It says
// nothing about whether a kit belongs to this vault.
var ErrKitMistyped = errors.New("this is not a recovery kit: compare it with the printed one, group by group")

// A kit is "SP1", then 36 characters of Crockford's base32 in groups of four: 160 random bits and 20 bits of
// checksum, the first of SHA-256("singlepass.dev/recovery-kit/v1" ‖ secret).
const (
	kitPrefix       = "SP1"
	kitSecretSize   = 20
	kitChecksum     = 4
	kitCharacters   = kitSecretSize*8/5 + kitChecksum
	kitGroup        = 4
	kitAlphabet     = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	kitLongestInput = 256
)

var kitEncoding = base32.NewEncoding(kitAlphabet).WithPadding(base32.NoPadding)

// RecoveryKit is the text that replaces a lost keyring. It is shown to the operator once.
type RecoveryKit struct{ text *secret.Bytes }

// Text returns the readable form, for the one time it is shown; it is wiped with the kit. A nil kit gives nil.
func (k *RecoveryKit) Text() *secret.Bytes {
	if k == nil {
		return nil
	}
	return k.text
}

// Wipe wipes the text.
func (k *RecoveryKit) Wipe() { k.Text().Wipe() }

func newRecoveryKit(b []byte) *RecoveryKit {
	characters := kitText(b)
	defer clear(characters)
	text := []byte(kitPrefix)
	text = append(make([]byte, 0, 64), text...)
	for i := 0; i < len(characters); i += kitGroup {
		text = append(text, '-')
		text = append(text, characters[i:i+kitGroup]...)
	}
	return &RecoveryKit{text: secret.New(text)}
}

// kitText returns the characters without prefix and groups.
func kitText(b []byte) []byte {
	text := make([]byte, 0, kitCharacters+kitChecksum)
	text = kitEncoding.AppendEncode(text, b)
	sum := sha256.New()
	sum.Write([]byte("singlepass.dev/recovery-kit/v1"))
	sum.Write(b)
	text = kitEncoding.AppendEncode(text, sum.Sum(nil)[:5])
	return text[:kitCharacters]
}

// parseKit reads what a person typed: any case, spaces and dashes anywhere, O for 0, I and L for 1.
func parseKit(typed *secret.Bytes) (*secret.Bytes, error) {
	var kit *secret.Bytes
	err := typed.Use(func(b []byte) error {
		if len(b) > kitLongestInput {
			return ErrKitMistyped
		}
		text := make([]byte, 0, kitLongestInput)
		defer func() { clear(text[:cap(text)]) }()
		for _, c := range b {
			switch {
			case c == ' ' || c == '-' || c == '\n' || c == '\r' || c == '\t':
				continue
			case c >= 'a' && c <= 'z':
				c -= 'a' - 'A'
			}
			text = append(text, c)
		}
		rest, ok := bytes.CutPrefix(text, []byte(kitPrefix))
		if !ok || len(rest) != kitCharacters {
			return ErrKitMistyped
		}
		for i, c := range rest {
			switch c {
			case 'O':
				rest[i] = '0'
			case 'I', 'L':
				rest[i] = '1'
			}
		}
		decoded := make([]byte, kitSecretSize)
		defer clear(decoded)
		if _, err := kitEncoding.Decode(decoded, rest[:kitCharacters-kitChecksum]); err != nil {
			return ErrKitMistyped
		}
		expected := kitText(decoded)
		defer clear(expected)
		if subtle.ConstantTimeCompare(expected, rest) != 1 {
			return ErrKitMistyped
		}
		kit = secret.New(decoded)
		return nil
	})
	return kit, err
}
