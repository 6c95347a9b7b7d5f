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
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"unicode/utf8"
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
	MCP     *MCPCall     `json:"mcp,omitempty"`
	SSH     *SSHCommand  `json:"ssh,omitempty"`
	Ask     *Ask         `json:"ask,omitempty"`
	Auth    *Auth        `json:"auth,omitempty"`
	// Status is what is asked should the answer be lost, where that is a request of its own. It changes nothing at the target.
	Status *StatusRequest `json:"status,omitempty"`
}

// StatusRequest asks what became of an execution. It may use another credential than the action does.
type StatusRequest struct {
	HTTP HTTPRequest `json:"http"`
	Auth *Auth       `json:"auth,omitempty"`
	// Fields are the fields of the action's own answer that the request needs, as they stand in it: {answer:FIELD}. Where there are some the request is not complete, and it is never sent as
	// it stands here.
	Fields []string `json:"fields,omitempty"`
	// Within is the only place that the request may go to where its URL is a field of that answer: scheme, host, port and the beginning of the path.
	Within string `json:"within,omitempty"`
	// The contract's conditions, as they are written: by which answer the target says that it took the call and is not done, and what the answers to the request mean.
	Accepted string `json:"accepted,omitempty"`
	Done     string `json:"done,omitempty"`
	Failed   string `json:"failed,omitempty"`
	NotDone  string `json:"not_done,omitempty"`
	Running  string `json:"running,omitempty"`
}

// HTTPRequest is one HTTP request, complete but for the credential.
type HTTPRequest struct {
	Method string  `json:"method"`
	URL    string  `json:"url"`
	Header []Field `json:"header,omitempty"` // in the order in which they are sent; names in canonical form
	Body   []byte  `json:"body,omitempty"`
	// Success lists the statuses by which the target says that it did it, as the contract gives them. Empty means 200 to 299. Every other status is a target_error.
	Success []int `json:"success,omitempty"`
}

// Succeeded reports whether the target says by this status that it did what was asked.
func (r HTTPRequest) Succeeded(status int) bool {
	if len(r.Success) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.Contains(r.Success, status)
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
	Region     string `json:"region,omitempty"`   // for aws-sigv4
	Service    string `json:"service,omitempty"`  // for aws-sigv4
	// Certificate is the OpenSSH certificate that goes with an ssh-key, as in a -cert.pub file without comment.
	Certificate string `json:"certificate,omitempty"`
	// Authorities are the certificate authorities that TLS trusts for this request in place of the system's, as PEM.
	Authorities string `json:"authorities,omitempty"`
}

// Target names what is acted on, as people read it: scheme, host and path, without query, fragment or user info; of SSH the account, host and port.
func (e Effect) Target() string {
	if e.MCP != nil {
		return e.MCP.Target()
	}
	if e.SSH != nil {
		return e.SSH.Host.Address()
	}
	if e.Ask != nil {
		return "credential for " + e.Ask.Target
	}
	if e.HTTP == nil {
		return string(e.Channel)
	}
	u, err := url.Parse(e.HTTP.URL)
	if err != nil {
		return "unreadable URL"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// Encode returns the frozen JSON form. It refuses text that is not UTF-8: JSON would replace the bytes, and what was approved would not be what is executed.
func (e Effect) Encode() ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("encoding effect: %w", err)
	}
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
	if _, err := d.Token(); err != io.EOF {
		return Effect{}, errors.New("decoding effect: something follows the JSON value")
	}
	if err := e.check(); err != nil {
		return Effect{}, fmt.Errorf("decoding effect: %w", err)
	}
	return e, nil
}

// check holds what is true of every effect, whoever made it. A channel checks more of what it sends.
func (e Effect) check() error {
	switch e.Channel {
	case HTTP, SSH, MCP, Person:
	default:
		return fmt.Errorf("channel %q is not http, ssh or mcp", e.Channel)
	}
	if (e.Channel == HTTP) != (e.HTTP != nil) || (e.Channel == MCP) != (e.MCP != nil) {
		return fmt.Errorf("channel %q and its request do not belong together", e.Channel)
	}
	if (e.Channel == SSH) != (e.SSH != nil) {
		return fmt.Errorf("channel %q and its command do not belong together", e.Channel)
	}
	if (e.Channel == Person) != (e.Ask != nil) {
		return fmt.Errorf("channel %q and its question do not belong together", e.Channel)
	}
	requests, auths := []*HTTPRequest{e.HTTP}, []*Auth{e.Auth}
	if e.Status != nil {
		if e.Status.HTTP.Method == "" || e.Status.HTTP.URL == "" {
			return errors.New("the status request has no method or no URL")
		}
		requests, auths = append(requests, &e.Status.HTTP), append(auths, e.Status.Auth)
	}
	var texts []string
	if s := e.Status; s != nil {
		texts = append(append(texts, s.Fields...), s.Within, s.Accepted, s.Done, s.Failed, s.NotDone, s.Running)
	}
	if e.SSH != nil {
		if err := e.SSH.check(); err != nil {
			return err
		}
		texts = append(texts, e.SSH.texts()...)
	}
	for _, h := range requests {
		if h == nil {
			continue
		}
		texts = append(texts, h.Method, h.URL)
		for _, f := range h.Header {
			texts = append(texts, f.Name, f.Value)
		}
		for _, status := range h.Success {
			if status < 200 || status > 599 {
				return fmt.Errorf("success status %d is not between 200 and 599", status)
			}
		}
	}
	for _, a := range auths {
		if a != nil {
			texts = append(texts, a.Credential, a.Kind, a.Place, a.Username, a.Certificate, a.Authorities, a.Region, a.Service)
		}
	}
	if a := e.Ask; a != nil {
		if err := a.check(); err != nil {
			return err
		}
		texts = append(texts, a.Target, a.Purpose)
	}
	if m := e.MCP; m != nil {
		if err := m.check(); err != nil {
			return err
		}
		texts = append(texts, m.texts()...)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%+q is not UTF-8", text)
		}
	}
	return nil
}

// Digest is the SHA-256 of the JSON form; an approval is bound to it.
func (e Effect) Digest() ([32]byte, error) {
	b, err := e.Encode()
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(b), nil
}
