package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
)

// PayloadState says what a line holds of its entry's payload.
type PayloadState string

// The states of a payload. A payload that is there is checked against its digest by Payload.
const (
	PayloadNone     PayloadState = "none"     // the entry never had one
	PayloadPresent  PayloadState = "present"  // its bytes are in the line
	PayloadErased   PayloadState = "erased"   // overwritten with "-"
	PayloadWithheld PayloadState = "withheld" // "sealed" was left out
)

// PayloadState says what the line holds of the entry's payload.
func (l *Line) PayloadState() PayloadState {
	switch {
	case l.digest == nil:
		return PayloadNone
	case l.sealed == nil:
		return PayloadWithheld
	case bytes.IndexByte(l.sealed, '-') >= 0:
		return PayloadErased
	}
	return PayloadPresent
}

// Errors of Payload.
var (
	ErrNoPayload     = errors.New("entry has no payload in this line")
	ErrPayloadDigest = errors.New("payload does not match the digest in its entry")
)

// Payload appends the payload's bytes to dst. They match the digest in the entry.
func (l *Line) Payload(dst []byte) ([]byte, error) {
	if l.PayloadState() != PayloadPresent {
		return dst, ErrNoPayload
	}
	from := len(dst)
	out, err := strictBase64.AppendDecode(dst, l.sealed)
	if err != nil {
		return dst, ErrPayloadDigest
	}
	// Base64 has several spellings for the same bytes in its last group; Strict refuses all but one.
	if !l.digestIs(sha256.Sum256(out[from:])) {
		return dst, ErrPayloadDigest
	}
	return out, nil
}

var strictBase64 = base64.StdEncoding.Strict()

func (l *Line) digestIs(sum [sha256.Size]byte) bool {
	var text [hashText]byte
	hex.Encode(text[:], sum[:])
	return bytes.Equal(text[:], l.digest)
}

// SealedRange returns where the text of the payload begins in the line, and its length: the bytes that
// an erasure overwrites with "-". The length is 0 when there is none.
func (l *Line) SealedRange() (offset, length int) {
	if l.sealed == nil {
		return 0, 0
	}
	return l.size - len("\n") - len(lineTail) - len(l.sealed), len(l.sealed)
}
