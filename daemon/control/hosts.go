package control

import (
	"context"
	"errors"
	"net"
	"strconv"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault"
	"singlepass.dev/vault/secret"
	"singlepass.dev/vault/sshkey"
)

// Hosts keeps the inventory of SSH hosts. All methods are safe for concurrent use and fail while the vault is locked; what they changed is durable when they return, and what waited
// for a host whose keys were changed is withdrawn.
type Hosts interface {
	Hosts(ctx context.Context) ([]api.Host, error)
	// ScanHost asks a host for its keys. That they are its own is for the operator to say.
	ScanHost(ctx context.Context, address string) (api.Host, error)
	AddHost(ctx context.Context, h api.Host) error
	RemoveHost(ctx context.Context, address string) error
}

func (s *Server) hosts(r request) (any, error) {
	list, err := s.cfg.Hosts.Hosts(r.Context())
	if list == nil {
		list = []api.Host{}
	}
	return list, err
}

// lookHost shows the keys that a host shows, or that a file has for it. It pins nothing.
func (s *Server) lookHost(r request) (any, error) {
	var in api.HostLook
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if len(in.File) == 0 {
		return s.cfg.Hosts.ScanHost(r.Context(), in.Address)
	}
	name, port, err := vault.ParseHost(in.Address)
	if err != nil {
		return nil, api.Errorf(api.CodeUsage, "%v", err)
	}
	keys, err := sshkey.ReadHostKeys(in.File, name, int(port))
	if err != nil {
		return nil, api.Errorf(api.CodeUsage, "%v", err)
	}
	return Host(vault.Host{Name: name, Port: port, Keys: keys}), nil
}

func (s *Server) addHost(r request) (any, error) {
	var in api.Host
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return nil, s.cfg.Hosts.AddHost(r.Context(), in)
}

func (s *Server) removeHost(r request) (any, error) {
	return nil, s.cfg.Hosts.RemoveHost(r.Context(), r.PathValue("address"))
}

// Host is how a host is shown.
func Host(h vault.Host) api.Host {
	out := api.Host{Address: net.JoinHostPort(h.Name, strconv.Itoa(int(h.Port))), Added: utc(h.Added)}
	for _, k := range h.Keys {
		fingerprint, err := sshkey.Fingerprint(k)
		if err != nil { // pinned by a version that took what this one does not
			fingerprint = "unreadable"
		}
		out.Keys = append(out.Keys, api.HostKey{Key: k, Fingerprint: fingerprint})
	}
	return out
}

// HostOf reads a host as it travels. What is wrong with it is the operator's to mend.
func HostOf(in api.Host) (vault.Host, error) {
	name, port, err := vault.ParseHost(in.Address)
	if err != nil {
		return vault.Host{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	h := vault.Host{Name: name, Port: port}
	for _, k := range in.Keys {
		h.Keys = append(h.Keys, k.Key)
	}
	if h.Keys, err = sshkey.Pin(h.Keys); err != nil {
		return vault.Host{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	return h, nil
}

// Hosts lists the inventory.
func (p VaultParts) Hosts(context.Context) ([]api.Host, error) {
	all, err := p.Vault.Hosts()
	if err != nil {
		return nil, err
	}
	list := make([]api.Host, 0, len(all))
	for _, h := range all {
		list = append(list, Host(h))
	}
	return list, nil
}

// ScanHost is not for a vault alone.
func (p VaultParts) ScanHost(context.Context, string) (api.Host, error) {
	return api.Host{}, api.Errorf(api.CodeUsage, "this daemon reaches no hosts")
}

// AddHost pins a host's keys.
func (p VaultParts) AddHost(_ context.Context, in api.Host) error {
	h, err := HostOf(in)
	if err != nil {
		return err
	}
	return refused(p.Vault.AddHost(h))
}

// RemoveHost lets go of them.
func (p VaultParts) RemoveHost(_ context.Context, address string) error {
	name, port, err := vault.ParseHost(address)
	if err != nil {
		return api.Errorf(api.CodeUsage, "%v", err)
	}
	return refused(p.Vault.RemoveHost(name, port))
}

// keyValue takes a credential's value over; a private key that comes with its passphrase is decrypted on the way.
func keyValue(value, passphrase []byte) (*secret.Bytes, error) {
	defer clear(passphrase)
	if len(passphrase) == 0 {
		return secret.New(value), nil
	}
	defer clear(value)
	kept, err := sshkey.Import(value, passphrase)
	if err != nil {
		return nil, api.Errorf(api.CodeUsage, "%v", err)
	}
	return secret.New(kept), nil
}

// encrypted tells the operator's client that a key's passphrase is all that is missing.
func encrypted(err error) error {
	if errors.Is(err, sshkey.ErrPassphraseNeeded) {
		return api.Errorf(api.CodeKeyEncrypted, "%v", sshkey.ErrPassphraseNeeded).WithHint("--key-passphrase-file FILE, or answer at the terminal; the vault keeps the key without it")
	}
	return err
}
