package fingerprint

import (
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"
)

// Version is the version of the record below. It is digested with it.
const Version = 1

// Prefix starts every fingerprint and names how it was made.
const Prefix = "hmac-sha256:"

// domain keeps a fingerprint apart from every other use of an HMAC, even under the same key.
const domain = "singlepass fingerprint v1\x00"

// Input is everything that makes an intent this intent and no other.
type Input struct {
	Actor         string // required; canonical, without a digest, so that an upgrade of the agent keeps its fingerprints
	Tool          string // required
	Channel       string // required
	Target        string // required; what is acted on. For SSH with the host key's identity, account and working directory
	CredentialRef string // the credential's name; never anything of its value
	Method        string // the HTTP method, the SSH command's template
	// Arguments is the canonical form of the arguments that count, defaults materialized, secret ones replaced by SecretReference. Only Canonical or Append make it.
	Arguments   json.RawMessage
	IntentScope string // required; "run:…" or "key:…"
}

// Compute returns the fingerprint, "hmac-sha256:" and 64 hexadecimal digits. mac is HMAC-SHA-256 under the vault's fingerprint key.
func Compute(mac func([]byte) [32]byte, in Input) string {
	sum := mac(in.record())
	var text [len(Prefix) + 64]byte
	hex.Encode(text[copy(text[:], Prefix):], sum[:])
	return string(text[:])
}

// record is the canonical form of the record, names in their order, behind the domain. Whatever a field holds, it stays within its own JSON value.
func (in Input) record() []byte {
	b := make([]byte, 0, 320+len(in.Arguments))
	b = append(b, domain...)
	b = append(b, `{"actor":`...)
	b = appendText(b, in.Actor)
	b = append(b, `,"arguments":`...)
	if len(in.Arguments) == 0 {
		b = append(b, "null"...)
	} else {
		b = append(b, in.Arguments...)
	}
	b = append(b, `,"channel":`...)
	b = appendText(b, in.Channel)
	b = append(b, `,"credential_ref":`...)
	b = appendText(b, in.CredentialRef)
	b = append(b, `,"intent_scope":`...)
	b = appendText(b, in.IntentScope)
	b = append(b, `,"method":`...)
	b = appendText(b, in.Method)
	b = append(b, `,"target":`...)
	b = appendText(b, in.Target)
	b = append(b, `,"tool":`...)
	b = appendText(b, in.Tool)
	return append(b, `,"v":1}`...)
}

// appendText writes a string, or, where it is no UTF-8 (a path on Linux need not be), an object that no string can equal. Replacing the bytes instead, as JSON
// encoders do, would let two actors share a record.
func appendText(b []byte, s string) []byte {
	if utf8.ValidString(s) {
		return appendString(b, s)
	}
	b = append(b, `{"hex":"`...)
	b = hex.AppendEncode(b, []byte(s))
	return append(b, `"}`...)
}

// SecretReference stands in a fingerprint for an argument that is marked secret: equal for equal values under one key, and nothing can be read from it. It is an
// object, so that no argument of type string can imitate it.
func SecretReference(mac func([]byte) [32]byte, name string, value any) map[string]any {
	b := append([]byte("singlepass secret argument v1\x00"), appendString(nil, name)...)
	sum := mac(Append(append(b, 0), value))
	return map[string]any{"secret": Prefix + hex.EncodeToString(sum[:])}
}
