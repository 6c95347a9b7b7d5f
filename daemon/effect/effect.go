// Package effect holds the exact thing that an execution will do, as a value: what the card shows, what the journal seals and what a channel sends are one
// and the same Effect, so that what was approved is what is executed.
//
// An Effect never contains a secret. Where a credential goes is described by Auth; the channel puts it in place at the last moment.
//
// The JSON form is frozen as version 1: it is sealed into the journal with every accepted execution. Fields may be added, never renamed or reused.
package effect

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
)

// Channel names how an action reaches its target.
type Channel string

// The channels.
const (
	HTTP Channel = "http"
	SSH  Channel = "ssh"
	MCP  Channel = "mcp"
)

// Effect is what will be sent. Exactly one of the channel fields is set, the one that Channel names.
type Effect struct {
	Channel Channel      `json:"channel"`
	HTTP    *HTTPRequest `json:"http,omitempty"`
	Auth    *Auth        `json:"auth,omitempty"`
}

// HTTPRequest is one HTTP request, complete but for the credential.
type HTTPRequest struct {
	Method string  `json:"method"`
	URL    string  `json:"url"`
	Header []Field `json:"header,omitempty"` // in the order in which they are sent; names in canonical form
	Body   []byte  `json:"body,omitempty"`
}

// Field is one header field. Its value has no control characters: whoever makes one checks that.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Auth says which credential is used and where it goes; it holds no secret.
type Auth struct {
	Credential string `json:"credential"`         // the credential's name in the vault
	Kind       string `json:"kind"`               // as in the vault: bearer, basic, header, query, …
	Place      string `json:"place,omitempty"`    // the header or query parameter that carries it
	Username   string `json:"username,omitempty"` // for basic
}

// Target names what is acted on, as people read it: scheme, host and path, without query, fragment or user info.
func (e Effect) Target() string {
	if e.HTTP == nil {
		return string(e.Channel)
	}
	u, err := url.Parse(e.HTTP.URL)
	if err != nil {
		return "unreadable URL"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// Encode returns the frozen JSON form.
func (e Effect) Encode() ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding effect: %w", err)
	}
	return b, nil
}

// Decode reads the frozen JSON form and refuses a field that this version does not know, since an effect that is only partly understood must not be sent.
func Decode(b []byte) (Effect, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var e Effect
	if err := d.Decode(&e); err != nil {
		return Effect{}, fmt.Errorf("decoding effect: %w", err)
	}
	if e.Channel == HTTP && e.HTTP == nil {
		return Effect{}, fmt.Errorf("decoding effect: channel %q without its request", e.Channel)
	}
	return e, nil
}

// Digest is the SHA-256 of the JSON form; an approval is bound to it.
func (e Effect) Digest() ([32]byte, error) {
	b, err := e.Encode()
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(b), nil
}
