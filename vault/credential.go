package vault

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"time"

	"singlepass.dev/vault/secret"
)

// Credential describes a credential. The value is stored in a record of its own, so that listing never decrypts it.
type Credential struct {
	Name    string           `json:"name"`
	Kind    CredentialKind   `json:"kind"`
	Params  CredentialParams `json:"params"`
	Targets []Target         `json:"targets"`
	PerUse  bool             `json:"per_use"`
	// AllowPrivate is the operator's leave for a target's name that leads into a private network or to this machine.
	AllowPrivate bool `json:"allow_private,omitempty"`
	// Generic allows requests and commands that no contract describes, within the targets. GenericReads says that GET and HEAD change nothing at those targets.
	Generic      bool      `json:"generic,omitempty"`
	GenericReads bool      `json:"generic_reads,omitempty"`
	Created      time.Time `json:"created"` // set by AddCredential
	Rotated      time.Time `json:"rotated"` // set by AddCredential and RotateCredential
	Version      int       `json:"version"` // 1, then one more with each rotation; set by the vault
}

// AllowsUpstream reports whether one of the targets is the upstream server of that name.
func (c Credential) AllowsUpstream(name string) bool {
	return slices.ContainsFunc(c.Targets, func(t Target) bool { return t.Scheme == schemeUpstream && t.Host == name })
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
	if len(c.Targets) == 0 || len(c.Targets) > maxTargets {
		return refuse("name 1 to %d targets that it may be sent to", maxTargets)
	}
	for _, t := range c.Targets {
		if err := t.Validate(); err != nil {
			return refuse("%v", err)
		}
	}
	if err := c.validateKind(); err != nil {
		return refuse("%v", err)
	}
	return nil
}

// kept returns the value as the vault keeps it, which the caller wipes; it refuses one that could not be used as what it is. It says nothing of the value itself.
func (c Credential) kept(value *secret.Bytes) (*secret.Bytes, error) {
	var out *secret.Bytes
	err := value.Use(func(b []byte) error {
		if len(b) == 0 {
			return errors.New("the value is empty")
		}
		if len(b) > maxValueBytes {
			return fmt.Errorf("the value is longer than %d bytes", maxValueBytes)
		}
		form := kinds[c.Kind].value
		if form == nil {
			form = func(_ CredentialParams, b []byte) ([]byte, error) { return b, oneLine(b) }
		}
		made, err := form(c.Params, b)
		if err != nil {
			return err
		}
		if len(made) > 0 && &made[0] == &b[0] { // secret.New wipes what it is given
			made = bytes.Clone(made)
		}
		out = secret.New(made)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("credential %q: %w", c.Name, err)
	}
	return out, nil
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
	value, err := c.kept(value)
	if err != nil {
		return fmt.Errorf("adding %w", err)
	}
	defer value.Wipe()
	c.Created = v.now().UTC()
	c.Rotated, c.Version = c.Created, 1
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err = v.credentialLocked(c.Name); err == nil {
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

// ChangeCredential changes what a credential allows; name, kind, parameters, value and history stay. It returns the new description.
func (v *Vault) ChangeCredential(name string, edit func(*Credential)) (Credential, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, err := v.credentialLocked(name)
	if err != nil {
		return Credential{}, fmt.Errorf("changing credential %q: %w", name, err)
	}
	c := old.clone()
	edit(&c)
	authorities := c.Params.Authorities
	c.Name, c.Kind, c.Params, c.Created, c.Rotated, c.Version = old.Name, old.Kind, old.Params, old.Created, old.Rotated, old.Version
	c.Params.Authorities = authorities
	if err := c.Validate(); err != nil {
		return Credential{}, fmt.Errorf("changing %w", err)
	}
	description, err := json.Marshal(c)
	if err == nil {
		err = v.commitLocked(v.session, v.header, change{kindCredential, c.Name, description})
	}
	if err != nil {
		return Credential{}, fmt.Errorf("changing credential %q: %w", name, err)
	}
	return c, nil
}

// RotateCredential replaces the value and keeps everything else. The old value is overwritten in the file.
func (v *Vault) RotateCredential(name string, value *secret.Bytes) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, err := v.credentialLocked(name)
	if err != nil {
		return fmt.Errorf("rotating credential %q: %w", name, err)
	}
	if value, err = c.kept(value); err != nil {
		return fmt.Errorf("rotating %w", err)
	}
	defer value.Wipe()
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

// RenewCredential replaces the value of an oauth2 credential by one that its token endpoint made of it, in the kept form of package material. It is durable on return. Name and version stay, since
// the operator changed nothing; a version that is not the present one is ErrSuperseded. The old value is overwritten in the file.
func (v *Vault) RenewCredential(name string, version int, value *secret.Bytes) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, err := v.credentialLocked(name)
	if err == nil && (c.Version != version || c.Kind != OAuth2) {
		err = ErrSuperseded
	}
	if err == nil {
		err = value.Use(func(b []byte) error {
			if len(b) > maxValueBytes {
				return fmt.Errorf("the value is longer than %d bytes", maxValueBytes)
			}
			return v.commitLocked(v.session, v.header, change{kindCredentialSecret, name, b})
		})
	}
	if err == nil {
		err = v.scrubLocked()
	}
	if err != nil {
		return fmt.Errorf("renewing credential %q: %w", name, err)
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
