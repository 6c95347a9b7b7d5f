package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"singlepass.dev/vault/material"
)

// CredentialKind says how a credential goes into a request.
type CredentialKind string

// The kinds of this version.
const (
	Bearer CredentialKind = "bearer"      // Authorization: Bearer VALUE (RFC 6750)
	Basic  CredentialKind = "basic"       // Authorization: Basic, the value is the password (RFC 7617)
	Header CredentialKind = "header"      // a header of its own
	Query  CredentialKind = "query"       // a query parameter
	OAuth2 CredentialKind = "oauth2"      // Authorization: Bearer, with an access token that the daemon gets by the value (RFC 6749)
	AWS    CredentialKind = "aws-sigv4"   // the request is signed (AWS Signature Version 4)
	Cert   CredentialKind = "client-cert" // TLS client certificate; the key signs in the handshake and never leaves
	Env    CredentialKind = "env"         // variables in the environment of an upstream server that the daemon starts

	SSHKey      CredentialKind = "ssh-key"      // a private key, with or without a certificate
	SSHPassword CredentialKind = "ssh-password" // an account's password
)

// CredentialParams are what a kind needs besides the value; none of it is secret. Only fields that the kind takes are set, see kinds. All are strings, so that two can be
// compared, and so that they travel as names and values.
type CredentialParams struct {
	Username   string `json:"username,omitempty"`    // basic
	Header     string `json:"header,omitempty"`      // header
	Query      string `json:"query,omitempty"`       // query
	Region     string `json:"region,omitempty"`      // aws-sigv4
	Service    string `json:"service,omitempty"`     // aws-sigv4
	TokenURL   string `json:"token_url,omitempty"`   // oauth2: where access tokens are got; part of the binding
	ClientID   string `json:"client_id,omitempty"`   // oauth2
	Grant      string `json:"grant,omitempty"`       // oauth2: client_credentials or refresh_token
	Scope      string `json:"scope,omitempty"`       // oauth2, optional
	Audience   string `json:"audience,omitempty"`    // oauth2, optional
	Resource   string `json:"resource,omitempty"`    // oauth2, optional (RFC 8707)
	ClientAuth string `json:"client_auth,omitempty"` // oauth2, optional: basic (the default) or post (RFC 6749, section 2.3.1)
	Variable   string `json:"variable,omitempty"`    // env: the one variable whose value this is; "" for a set

	// Authorities are the only ones that TLS trusts at the targets and at the token endpoint, as PEM (material.Authorities); "" means the system's. Kinds for https take it.
	Authorities string `json:"authorities,omitempty"`

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
	OAuth2: {
		params: []string{"token_url", "client_id", "grant", "scope", "audience", "resource", "client_auth"},
		check:  func(c Credential) error { return c.Params.checkOAuth() },
		value: func(p CredentialParams, b []byte) ([]byte, error) {
			return material.OAuth(material.OAuthGrant(p.Grant), b)
		},
	},
	AWS: {
		params: []string{"region", "service"},
		check: func(c Credential) error {
			if !awsWord.MatchString(c.Params.Region) || !awsWord.MatchString(c.Params.Service) {
				return errors.New("kind aws-sigv4 needs a region and a service, such as eu-west-1 and s3")
			}
			return nil
		},
		value: func(_ CredentialParams, b []byte) ([]byte, error) { return material.AWSKeys(b) },
	},
	Cert: {
		target: func(t Target) bool { return t.Scheme == "https" },
		value:  func(_ CredentialParams, b []byte) ([]byte, error) { return material.ClientCertificate(b) },
	},
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

var awsWord = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// TokenEndpoint is where an access token is got: a target as any other, without a path beneath it.
func (p CredentialParams) TokenEndpoint() (Target, error) {
	t, err := ParseTarget(p.TokenURL)
	if err == nil && !t.isHTTP() {
		err = errors.New("it needs to be https")
	}
	if err != nil {
		return Target{}, fmt.Errorf("the token URL: %w", err)
	}
	return t, nil
}

func (p CredentialParams) checkOAuth() error {
	switch {
	case p.Grant != string(material.ClientCredentials) && p.Grant != string(material.RefreshToken):
		return errors.New("kind oauth2 needs a grant: client_credentials or refresh_token")
	case p.ClientID == "":
		return errors.New("kind oauth2 needs a client id")
	case p.TokenURL == "":
		return errors.New("kind oauth2 needs a token URL")
	case p.ClientAuth != "" && p.ClientAuth != "basic" && p.ClientAuth != "post":
		return errors.New("the client proves itself by basic or by post")
	}
	for _, s := range []string{p.ClientID, p.Scope, p.Audience, p.Resource} {
		if len(s) > 2048 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			return errors.New("client id, scope, audience and resource are printable ASCII (RFC 6749, appendix A)")
		}
	}
	_, err := p.TokenEndpoint()
	return err
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
		return fmt.Errorf("unknown kind %q: use one of %s", c.Kind, strings.Join(KindNames(), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Params.Map())) {
		if name == "authorities" && (rules.target == nil || c.Kind == Cert) {
			continue
		}
		if !slices.Contains(rules.params, name) {
			return fmt.Errorf("kind %s takes no parameter %s", c.Kind, name)
		}
	}
	if err := c.checkAuthorities(); err != nil {
		return err
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
	if c.Generic && !slices.ContainsFunc(c.Targets, func(t Target) bool { return t.isHTTP() || t.isSSH() }) {
		return fmt.Errorf("kind %s has no generic use: that is for requests over https and commands over SSH", c.Kind)
	}
	if c.GenericReads && !slices.ContainsFunc(c.Targets, Target.isHTTP) {
		return fmt.Errorf("kind %s has no generic reads: nobody knows of a command that it changes nothing", c.Kind)
	}
	for _, t := range c.Targets {
		if !fits(t) {
			return fmt.Errorf("kind %s cannot be used for target %s", c.Kind, t)
		}
	}
	return nil
}

func (c Credential) checkAuthorities() error {
	if c.Params.Authorities == "" {
		return nil
	}
	kept, err := material.Authorities([]byte(c.Params.Authorities))
	switch {
	case err != nil:
		return err
	case string(kept) != c.Params.Authorities:
		return errors.New("the certificate authorities are not in their shortest form")
	case !strings.HasPrefix(c.Params.TokenURL, "https://") && !slices.ContainsFunc(c.Targets, func(t Target) bool { return t.Scheme == "https" }):
		return errors.New("certificate authorities are for https, and no target has that")
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
