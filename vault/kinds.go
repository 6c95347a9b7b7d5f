package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"singlepass.dev/vault/material"
)

// CredentialKind says how a credential goes into a request.
type CredentialKind string

// The kinds of this version.
const (
	Bearer CredentialKind = "bearer" // Authorization: Bearer VALUE (RFC 6750)
	Basic  CredentialKind = "basic"  // Authorization: Basic, the value is the password (RFC 7617)
	Header CredentialKind = "header" // a header of its own
	Query  CredentialKind = "query"  // a query parameter
	Env    CredentialKind = "env"    // variables in the environment of an upstream server that the daemon starts

	SSHKey      CredentialKind = "ssh-key"      // a private key, with or without a certificate
	SSHPassword CredentialKind = "ssh-password" // an account's password
)

// reservedKinds are names of interface.md that have no implementation yet.
var reservedKinds = []CredentialKind{"oauth2", "aws-sigv4", "client-cert"}

// CredentialParams are what a kind needs besides the value; none of it is secret. Only fields that the kind takes are set, see kinds. All are strings, so that two can be
// compared, and so that they travel as names and values.
type CredentialParams struct {
	Username string `json:"username,omitempty"` // basic
	Header   string `json:"header,omitempty"`   // header
	Query    string `json:"query,omitempty"`    // query
	Variable string `json:"variable,omitempty"` // env: the one variable whose value this is; "" for a set

	Certificate string `json:"certificate,omitempty"` // ssh-key: an OpenSSH certificate of the key, as in a -cert.pub file without comment
}

// ParseParams reads names and values, as they travel. It knows no kind; Credential.Validate does.
func ParseParams(set map[string]string) (CredentialParams, error) {
	b, err := json.Marshal(set)
	if err != nil {
		return CredentialParams{}, err
	}
	var p CredentialParams
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return CredentialParams{}, fmt.Errorf("a credential has no such parameter: %w", err)
	}
	for name := range p.Map() { // encoding/json takes "USERNAME" for "username"
		if _, ok := set[name]; !ok {
			return CredentialParams{}, errors.New("parameters are written in lower case")
		}
	}
	return p, nil
}

// Map returns the parameters that are set, by name.
func (p CredentialParams) Map() map[string]string {
	b, err := json.Marshal(p)
	if err != nil {
		return nil // cannot happen: strings
	}
	var set map[string]string
	_ = json.Unmarshal(b, &set)
	return set
}

// kindRules is what one kind takes.
type kindRules struct {
	params []string                                               // by their JSON names
	check  func(Credential) error                                 // of the parameters; may be nil
	target func(Target) bool                                      // which targets; nil means http and https
	value  func(p CredentialParams, value []byte) ([]byte, error) // checks what was handed in and returns what is kept, which may be the same; nil means one line of text
}

var kinds = map[CredentialKind]kindRules{
	Bearer: {value: func(_ CredentialParams, b []byte) ([]byte, error) {
		if err := oneLine(b); err != nil {
			return nil, err
		}
		if bytes.ContainsFunc(b, func(r rune) bool { return r == ' ' || r > 0x7f }) {
			return nil, errors.New("a bearer token has no spaces and only ASCII (RFC 6750)")
		}
		return b, nil
	}},
	Basic: {params: []string{"username"}, check: func(c Credential) error {
		if strings.Contains(c.Params.Username, ":") || hasControl(c.Params.Username) {
			return errors.New("a user name has no colon and no control characters (RFC 7617)")
		}
		return nil
	}},
	Header: {params: []string{"header"}, check: func(c Credential) error {
		if !headerToken.MatchString(c.Params.Header) {
			return errors.New("kind header needs the header's name")
		}
		if slices.Contains(framing, strings.ToLower(c.Params.Header)) {
			return fmt.Errorf("header %s belongs to the request itself: choose another", c.Params.Header)
		}
		return nil
	}},
	Query: {params: []string{"query"}, check: func(c Credential) error {
		if !queryName.MatchString(c.Params.Query) {
			return errors.New("kind query needs the parameter's name")
		}
		return nil
	}},
	Env: {
		params: []string{"variable"},
		check: func(c Credential) error {
			if c.Params.Variable == "" {
				return nil
			}
			return material.CheckVariable(c.Params.Variable)
		},
		target: func(t Target) bool { return t.Scheme == schemeUpstream },
		value:  func(p CredentialParams, b []byte) ([]byte, error) { return material.Environment(p.Variable, b) },
	},
	SSHKey:      sshKey,
	SSHPassword: sshPassword,
}

// KindNames returns the names of the kinds, sorted.
func KindNames() []string {
	var names []string
	for k := range kinds {
		names = append(names, string(k))
	}
	slices.Sort(names)
	return names
}

// validateKind reports what is wrong with the parameters and with the kinds of targets.
func (c Credential) validateKind() error {
	rules, ok := kinds[c.Kind]
	if !ok {
		if slices.Contains(reservedKinds, c.Kind) {
			return fmt.Errorf("kind %s is not available in this version", c.Kind)
		}
		return fmt.Errorf("unknown kind %q: use one of %s", c.Kind, strings.Join(KindNames(), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Params.Map())) {
		if !slices.Contains(rules.params, name) {
			return fmt.Errorf("kind %s takes no parameter %s", c.Kind, name)
		}
	}
	if rules.check != nil {
		if err := rules.check(c); err != nil {
			return err
		}
	}
	fits := rules.target
	if fits == nil {
		fits = Target.isHTTP
	}
	if c.GenericReads && !c.Generic {
		return errors.New("that reads change nothing is said of generic use: allow that too")
	}
	if c.Generic && c.Kind == Env {
		return errors.New("kind env has no generic use: it goes into a server's environment and into no request")
	}
	for _, t := range c.Targets {
		if !fits(t) {
			return fmt.Errorf("kind %s cannot be used for target %s", c.Kind, t)
		}
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// oneLine refuses what could end its line and begin another.
func oneLine(b []byte) error {
	for _, x := range b {
		if x < ' ' || x == 0x7f {
			return errors.New("the value holds a control character, perhaps a line break at its end: remove it")
		}
	}
	return nil
}
