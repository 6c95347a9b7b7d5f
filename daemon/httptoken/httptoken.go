// Package httptoken makes and checks the bearer tokens that clients of the loopback MCP listener send.
//
// A token is one more thing that a client has to have, and never says who asks: that is the process behind the connection, by the kernel's word. Whoever holds somebody else's token is still only itself.
//
// Promises: a token has 256 random bits. What is kept of it, the Verifier, holds a keyed digest: neither the token nor anything that helps to find it. The comparison takes the same time wherever the two differ.
//
// Frozen: the form of a token ("spt_", the client's name, "_", 43 characters of base64url), the Verifier's JSON, and what is digested. Fields may be added.
package httptoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

const (
	prefix     = "spt_"
	secretSize = 32
	domain     = "singlepass.dev/http-token/v1\x00"
)

// MaxToken bounds a token's bytes: what is longer is none.
const MaxToken = len(prefix) + maxName + 1 + 43

const maxName = 32

var name = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// ErrName is returned for a client's name that no token can carry.
var ErrName = errors.New("a client's name is 1 to 32 lower-case letters, digits and hyphens, and begins with a letter or a digit")

// Verifier is what is kept of a token.
type Verifier struct {
	Client string    `json:"client"`
	Key    []byte    `json:"key"` // of this digest alone
	Sum    []byte    `json:"sum"` // HMAC-SHA-256 of the whole token
	Issued time.Time `json:"issued"`
	File   string    `json:"file,omitempty"` // where it was said to be written; only shown
}

// New makes a token for a client, and what is to be kept of it. The token is in no other place: the caller hands it out once.
func New(client, file string, random io.Reader, now time.Time) (token string, v Verifier, err error) {
	if !name.MatchString(client) {
		return "", Verifier{}, ErrName
	}
	b := make([]byte, 2*secretSize)
	defer clear(b)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", Verifier{}, fmt.Errorf("making a token: %w", err)
	}
	token = prefix + client + "_" + base64.RawURLEncoding.EncodeToString(b[:secretSize])
	v = Verifier{Client: client, Key: append([]byte(nil), b[secretSize:]...), Issued: now.UTC(), File: file}
	v.Sum = v.sum(token)
	return token, v, nil
}

func (v Verifier) sum(token string) []byte {
	mac := hmac.New(sha256.New, v.Key)
	mac.Write([]byte(domain))
	mac.Write([]byte(token))
	return mac.Sum(nil)
}

// Valid reports what is wrong with a verifier that was stored.
func (v Verifier) Valid() error {
	if !name.MatchString(v.Client) || len(v.Key) != secretSize || len(v.Sum) != sha256.Size {
		return errors.New("a stored token has a form that this version does not know")
	}
	return nil
}

// Matches says whether this is the token.
func (v Verifier) Matches(token string) bool {
	return len(token) <= MaxToken && v.Valid() == nil && hmac.Equal(v.Sum, v.sum(token))
}

// Client returns the name that a token carries; anybody can write one. ok is false for what has not the form of a token.
func Client(token string) (client string, ok bool) {
	rest, ok := strings.CutPrefix(token, prefix)
	if !ok || len(token) > MaxToken {
		return "", false
	}
	client, secret, ok := strings.Cut(rest, "_")
	if !ok || !name.MatchString(client) {
		return "", false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	return client, err == nil && len(b) == secretSize
}

var anywhere = regexp.MustCompile(prefix + `[a-z0-9][a-z0-9-]{0,31}_[A-Za-z0-9_-]{43}`)

// Redact hides the secret part of every token in a text.
func Redact(text []byte) []byte {
	return anywhere.ReplaceAllFunc(text, func(token []byte) []byte { return append(token[:len(token)-43:len(token)-43], "…"...) })
}
