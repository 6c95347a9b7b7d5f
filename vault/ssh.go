package vault

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"singlepass.dev/vault/sshkey"
)

const schemeSSH = "ssh"

// What an SSH credential takes. The key is kept without a passphrase of its own: the vault seals it, and the daemon signs without asking.
var (
	sshKey = kindRules{
		params: []string{"certificate"},
		check: func(c Credential) error {
			if c.Params.Certificate == "" {
				return nil
			}
			short, err := sshkey.Certificate(c.Params.Certificate)
			if err == nil && short != c.Params.Certificate {
				err = errors.New("the SSH certificate needs to be without its comment and line break")
			}
			return err
		},
		target: Target.isSSH,
		value: func(p CredentialParams, b []byte) ([]byte, error) {
			kept, err := sshkey.Import(b, nil)
			if err != nil || p.Certificate == "" {
				return kept, err
			}
			if err := sshkey.CertifiesKey(p.Certificate, kept); err != nil {
				clear(kept)
				return nil, err
			}
			return kept, nil
		},
	}
	sshPassword = kindRules{target: Target.isSSH}
)

// sshUser is what an account's name may be: what useradd takes, and the dots and @ of directory services.
var sshUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+$-]{0,63}$`)

func (t Target) isSSH() bool { return t.Scheme == schemeSSH }

// parseSSHTarget reads ssh://user@host:port. The port may be left out.
func parseSSHTarget(u *url.URL) (Target, error) {
	if u.User != nil {
		if _, secret := u.User.Password(); secret {
			return Target{}, errors.New("a target takes no password: add it as a credential of kind ssh-password") // not quoted back
		}
	}
	host, port, err := endpoint(u)
	if err == nil && (u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "") {
		err = errors.New("an ssh target is an account on a host, and nothing follows the port")
	}
	if err != nil {
		return Target{}, fmt.Errorf("target ssh://%s: %w", u.Host, err)
	}
	t := Target{Scheme: schemeSSH, Host: host, Port: port, User: u.User.Username()}
	return t, t.Validate()
}

func (t Target) validateSSH() error {
	refuse := func(why string) error { return fmt.Errorf("target %q: %s", t.String(), why) }
	switch canonical, err := canonicalHost(t.Host); {
	case err != nil:
		return refuse(err.Error())
	case canonical != t.Host:
		return refuse("the host is not in canonical form: write " + canonical)
	case !sshUser.MatchString(t.User):
		return refuse("write ssh://USER@HOST:PORT with the account's name")
	case t.Port == 0:
		return refuse("the port is missing")
	case t.PathPrefix != "" || t.AllowPlaintext:
		return refuse("an ssh target has neither a path nor plaintext")
	}
	return nil
}

func (t Target) matchesSSH(u *url.URL) bool {
	if u.User == nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return false
	}
	if _, secret := u.User.Password(); secret || u.User.Username() != t.User {
		return false
	}
	host, port, err := endpoint(u)
	return err == nil && host == t.Host && port == t.Port
}

// Host is an SSH host in the inventory: the keys of which it has to show one.
type Host struct {
	Name  string    `json:"name"` // canonical, as in a target
	Port  uint16    `json:"port"`
	Keys  []string  `json:"keys"`  // as in authorized_keys without comment, sorted
	Added time.Time `json:"added"` // set by AddHost
}

// ParseHost reads HOST, HOST:PORT or [ADDRESS]:PORT. Port 22 may be left out.
func ParseHost(text string) (name string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		host, digits = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), "22"
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("host %q: the port needs to be a number from 1 to 65535", text)
	}
	if name, err = canonicalHost(host); err != nil {
		return "", 0, fmt.Errorf("host %q: %w", text, err)
	}
	return name, uint16(n), nil
}

// Address is the host as ParseHost reads it.
func (h Host) Address() string { return hostAddress(h.Name, h.Port) }

func hostAddress(name string, port uint16) string {
	return net.JoinHostPort(name, strconv.Itoa(int(port)))
}

// knownHost is the key under which a host that was read is remembered until the next commit.
type knownHost string

// Hosts returns the inventory, sorted by name.
func (v *Vault) Hosts() ([]Host, error) {
	all, err := listRecords[Host](v, kindHost)
	if err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	slices.SortFunc(all, func(a, b Host) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port)) })
	return all, nil
}

// Host returns a host of the inventory, or ErrNotFound.
func (v *Vault) Host(name string, port uint16) (Host, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	h, err := v.hostLocked(name, port)
	if err != nil {
		return Host{}, fmt.Errorf("reading host %s: %w", hostAddress(name, port), err)
	}
	return h, nil
}

func (v *Vault) hostLocked(name string, port uint16) (Host, error) {
	if err := v.unlockedLocked(); err != nil {
		return Host{}, err
	}
	key := knownHost(hostAddress(name, port))
	if h, ok := v.session.described.Load(key); ok {
		return h.(Host).clone(), nil
	}
	h, err := getRecord[Host](v, kindHost, string(key))
	if err == nil {
		v.session.described.Store(key, h.clone())
	}
	return h, err
}

func (h Host) clone() Host {
	h.Keys = slices.Clone(h.Keys)
	return h
}

// AddHost pins the keys of a host. One that is there already is ErrExists: its keys are replaced only by removing it first, so that nobody replaces them by the way.
func (v *Vault) AddHost(h Host) error {
	fail := func(err error) error { return fmt.Errorf("adding host %s: %w", h.Address(), err) }
	if canonical, err := canonicalHost(h.Name); err != nil || canonical != h.Name || h.Port == 0 {
		return fail(errors.New("the name is not in canonical form, or the port is missing"))
	}
	keys, err := sshkey.Pin(h.Keys)
	if err != nil {
		return fail(err)
	}
	h.Keys, h.Added = keys, v.now().UTC()
	plaintext, err := json.Marshal(h)
	if err != nil {
		return fail(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err = v.hostLocked(h.Name, h.Port)
	if err == nil {
		err = ErrExists
	}
	if errors.Is(err, ErrNotFound) {
		err = v.commitLocked(v.session, v.header, change{kindHost, h.Address(), plaintext})
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// RemoveHost takes a host out of the inventory; without one it returns ErrNotFound.
func (v *Vault) RemoveHost(name string, port uint16) error {
	if err := v.removeRecord(kindHost, hostAddress(name, port)); err != nil {
		return fmt.Errorf("removing host %s: %w", hostAddress(name, port), err)
	}
	return nil
}
