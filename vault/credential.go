package vault

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"singlepass.dev/vault/secret"
)

// CredentialKind says how a credential goes into a request.
type CredentialKind string

// The kinds of this version.
const (
	Bearer CredentialKind = "bearer" // Authorization: Bearer VALUE (RFC 6750)
	Basic  CredentialKind = "basic"  // Authorization: Basic, the value is the password (RFC 7617)
	Header CredentialKind = "header" // a header of its own
	Query  CredentialKind = "query"  // a query parameter
)

// reservedKinds are names of interface.md that have no implementation yet.
var reservedKinds = []CredentialKind{"oauth2", "aws-sigv4", "client-cert", "ssh-key", "ssh-password", "env"}

// CredentialParams are what a kind needs besides the value. Exactly the field of the kind is set; bearer has none.
type CredentialParams struct {
	Username string `json:"username,omitempty"` // basic
	Header   string `json:"header,omitempty"`   // header
	Query    string `json:"query,omitempty"`    // query
}

// Credential describes a credential. The value is stored in a record of its own, so that listing never decrypts it.
type Credential struct {
	Name    string           `json:"name"`
	Kind    CredentialKind   `json:"kind"`
	Params  CredentialParams `json:"params"`
	Targets []Target         `json:"targets"`
	PerUse  bool             `json:"per_use"`
	Created time.Time        `json:"created"` // set by AddCredential
	Rotated time.Time        `json:"rotated"` // set by AddCredential and RotateCredential
	Version int              `json:"version"` // 1, then one more with each rotation; set by the vault
}

// Allows reports whether one of the targets covers u.
func (c Credential) Allows(u *url.URL) bool {
	return slices.ContainsFunc(c.Targets, func(t Target) bool { return t.Matches(u) })
}

const (
	maxTargets    = 64
	maxValueBytes = 64 << 10
)

var (
	credentialName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	headerToken    = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$") // RFC 9110, section 5.6.2
	queryName      = regexp.MustCompile(`^[A-Za-z0-9._~\[\]-]{1,64}$`)
)

// framing are headers by which a value could change what request is sent, or to whom.
var framing = []string{"connection", "content-length", "content-type", "expect", "host", "idempotency-key", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}

// Validate reports what is wrong with the description.
func (c Credential) Validate() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("credential %q: %s", c.Name, fmt.Sprintf(format, args...))
	}
	if !credentialName.MatchString(c.Name) {
		return refuse("a name has 1 to 64 lower-case letters, digits, dots, dashes and underscores, the first a letter or digit")
	}
	var expected CredentialParams
	switch c.Kind {
	case Bearer:
	case Basic:
		expected.Username = c.Params.Username
		if strings.Contains(c.Params.Username, ":") || hasControl(c.Params.Username) {
			return refuse("a user name has no colon and no control characters (RFC 7617)")
		}
	case Header:
		expected.Header = c.Params.Header
		if !headerToken.MatchString(c.Params.Header) {
			return refuse("kind header needs the header's name")
		}
		if slices.Contains(framing, strings.ToLower(c.Params.Header)) {
			return refuse("header %s belongs to the request itself: choose another", c.Params.Header)
		}
	case Query:
		expected.Query = c.Params.Query
		if !queryName.MatchString(c.Params.Query) {
			return refuse("kind query needs the parameter's name")
		}
	default:
		if slices.Contains(reservedKinds, c.Kind) {
			return refuse("kind %s is not available in this version", c.Kind)
		}
		return refuse("unknown kind %q: use bearer, basic, header or query", c.Kind)
	}
	if c.Params != expected {
		return refuse("kind %s takes no other parameter than its own", c.Kind)
	}
	if len(c.Targets) == 0 || len(c.Targets) > maxTargets {
		return refuse("name 1 to %d targets that it may be sent to", maxTargets)
	}
	for _, t := range c.Targets {
		if err := t.Validate(); err != nil {
			return refuse("%v", err)
		}
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// checkValue refuses a value that could not be sent as what it is. It says nothing of the value itself.
func (c Credential) checkValue(value *secret.Bytes) error {
	return value.Use(func(b []byte) error {
		if len(b) == 0 {
			return fmt.Errorf("credential %q: the value is empty", c.Name)
		}
		if len(b) > maxValueBytes {
			return fmt.Errorf("credential %q: the value is longer than %d bytes", c.Name, maxValueBytes)
		}
		for _, x := range b {
			if x < ' ' || x == 0x7f {
				return fmt.Errorf("credential %q: the value holds a control character, perhaps a line break at its end: remove it", c.Name)
			}
			if c.Kind == Bearer && (x == ' ' || x > 0x7f) {
				return fmt.Errorf("credential %q: a bearer token has no spaces and only ASCII (RFC 6750)", c.Name)
			}
		}
		return nil
	})
}

// Credentials returns the descriptions, sorted by name.
func (v *Vault) Credentials() ([]Credential, error) {
	all, err := listRecords[Credential](v, kindCredential)
	if err != nil {
		return nil, fmt.Errorf("listing credentials: %w", err)
	}
	slices.SortFunc(all, func(a, b Credential) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Credential returns one description, or ErrNotFound.
func (v *Vault) Credential(name string) (Credential, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	c, err := v.credentialLocked(name)
	if err != nil {
		return Credential{}, fmt.Errorf("reading credential %q: %w", name, err)
	}
	return c, nil
}

// credentialLocked needs mu at least for reading: a commit, which forgets what is kept here, needs it for writing.
func (v *Vault) credentialLocked(name string) (Credential, error) {
	if err := v.unlockedLocked(); err != nil {
		return Credential{}, err
	}
	if c, ok := v.session.described.Load(name); ok {
		return c.(Credential).clone(), nil
	}
	c, err := getRecord[Credential](v, kindCredential, name)
	if err == nil {
		v.session.described.Store(name, c.clone())
	}
	return c, err
}

func (c Credential) clone() Credential {
	c.Targets = slices.Clone(c.Targets)
	return c
}

// AddCredential stores a new credential; the value stays the caller's. A name that is taken is ErrExists.
func (v *Vault) AddCredential(c Credential, value *secret.Bytes) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("adding %w", err)
	}
	if err := c.checkValue(value); err != nil {
		return fmt.Errorf("adding %w", err)
	}
	c.Created = v.now().UTC()
	c.Rotated, c.Version = c.Created, 1
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err := v.credentialLocked(c.Name)
	if err == nil {
		err = ErrExists
	}
	if errors.Is(err, ErrNotFound) {
		err = v.putCredentialLocked(c, value)
	}
	if err != nil {
		return fmt.Errorf("adding credential %q: %w", c.Name, err)
	}
	return nil
}

// RotateCredential replaces the value and keeps everything else. The old value is overwritten in the file.
func (v *Vault) RotateCredential(name string, value *secret.Bytes) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, err := v.credentialLocked(name)
	if err != nil {
		return fmt.Errorf("rotating credential %q: %w", name, err)
	}
	if err := c.checkValue(value); err != nil {
		return fmt.Errorf("rotating %w", err)
	}
	c.Rotated = v.now().UTC()
	c.Version++
	if err = v.putCredentialLocked(c, value); err == nil {
		err = v.scrubLocked()
	}
	if err != nil {
		return fmt.Errorf("rotating credential %q: %w", name, err)
	}
	return nil
}

func (v *Vault) putCredentialLocked(c Credential, value *secret.Bytes) error {
	description, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return value.Use(func(b []byte) error {
		return v.commitLocked(v.session, v.header,
			change{kindCredential, c.Name, description}, change{kindCredentialSecret, c.Name, b})
	})
}

// RemoveCredential removes description and value and overwrites them in the file.
func (v *Vault) RemoveCredential(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err := v.credentialLocked(name)
	if err == nil {
		err = v.commitLocked(v.session, v.header, change{kind: kindCredential, name: name}, change{kind: kindCredentialSecret, name: name})
	}
	if err == nil {
		err = v.scrubLocked()
	}
	if err != nil {
		return fmt.Errorf("removing credential %q: %w", name, err)
	}
	return nil
}

// UseCredential returns a description and a copy of the value, which the caller wipes. The copy outlives a lock: what
// is dispatched finishes.
func (v *Vault) UseCredential(name string) (Credential, *secret.Bytes, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	c, err := v.credentialLocked(name)
	if err != nil {
		return Credential{}, nil, fmt.Errorf("using credential %q: %w", name, err)
	}
	value, err := v.session.get(v, kindCredentialSecret, name)
	if errors.Is(err, ErrNotFound) {
		err = ErrTampered
	}
	if err != nil {
		return Credential{}, nil, fmt.Errorf("using credential %q: %w", name, err)
	}
	return c, secret.New(value), nil
}
