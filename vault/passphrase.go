package vault

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/sethvargo/go-diceware/diceware"
	"golang.org/x/text/unicode/norm"

	"singlepass.dev/vault/secret"
)

const (
	leastCharacters    = 12
	maxPassphraseBytes = 1024
	generatedWords     = 6
)

// normalize returns Unicode's form C, so that the same passphrase typed on another system opens the vault (RFC 8265,
// section 4.2), and a function that wipes what it allocated.
func normalize(passphrase []byte) ([]byte, func()) {
	if norm.NFC.IsNormal(passphrase) {
		return passphrase, func() {}
	}
	normal := norm.NFC.Bytes(passphrase)
	return normal, func() { clear(normal) }
}

// checkPassphrase is the policy for a new passphrase.
func checkPassphrase(passphrase *secret.Bytes) error {
	return passphrase.Use(func(p []byte) error {
		normal, done := normalize(p)
		defer done()
		switch {
		case !utf8.Valid(p):
			return unfit("it is not valid UTF-8")
		case len(p) > maxPassphraseBytes:
			return unfit("it is longer than %d bytes", maxPassphraseBytes)
		case utf8.RuneCount(normal) < leastCharacters:
			return unfit("it is too short: use at least %d characters, or generated words", leastCharacters)
		}
		for _, c := range p {
			if c < ' ' || c == 0x7f {
				return unfit("it holds a control character, perhaps a line break at its end: remove it")
			}
		}
		return nil
	})
}

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrPassphraseUnfit, fmt.Sprintf(format, args...))
}

// GeneratePassphrase returns six words of the EFF's long list, separated by spaces: 77.5 bits.
func GeneratePassphrase(random io.Reader) (*secret.Bytes, error) {
	if random == nil {
		return nil, errors.New("generating a passphrase: randomness is required")
	}
	list := diceware.WordListEffLarge()
	text := make([]byte, 0, 128)
	for i := range generatedWords {
		roll := 0
		for range list.Digits() {
			die, err := throw(random)
			if err != nil {
				return nil, fmt.Errorf("generating a passphrase: %w", err)
			}
			roll = roll*10 + die
		}
		if i > 0 {
			text = append(text, ' ')
		}
		text = append(text, list.WordAt(roll)...)
	}
	return secret.New(text), nil
}

// throw returns 1 to 6, each as likely: bytes from 252 on are thrown again.
func throw(random io.Reader) (int, error) {
	var b [1]byte
	for {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, err
		}
		if b[0] < 252 {
			return int(b[0])%6 + 1, nil
		}
	}
}
