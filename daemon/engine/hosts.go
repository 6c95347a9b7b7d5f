package engine

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// pins are the keys that hosts have to show, by address. A contract names hosts; which keys they have is the operator's word, in the inventory.
type pins map[string][]string

func hostAddress(name string, port int) string { return net.JoinHostPort(name, strconv.Itoa(port)) }

// into puts the keys into a command.
func (p pins) into(c *effect.SSHCommand) {
	if c == nil {
		return
	}
	c.Host.Keys = p[hostAddress(c.Host.Name, c.Host.Port)]
	if c.Jump != nil {
		c.Jump.Keys = p[hostAddress(c.Jump.Name, c.Jump.Port)]
	}
}

// pinned finds the keys of the hosts that a call goes to. unknown is about one that is not in the inventory.
func (e *Engine) pinned(a *boundAction, p policy.Prepared, found *pins) (unknown, err error) {
	hosts := a.Hosts(p)
	if len(hosts) == 0 {
		return nil, nil
	}
	*found = pins{}
	for _, h := range hosts {
		known, err := e.cfg.Vault.Host(h.Name, uint16(h.Port))
		switch {
		case errors.Is(err, vault.ErrNotFound):
			address := hostAddress(h.Name, h.Port)
			unknown = fmt.Errorf("the host %s is not known: the person has to compare its key's fingerprint and add it with spctl host add %s", address, address)
		case err != nil:
			return nil, err
		default:
			(*found)[known.Address()] = known.Keys
		}
	}
	return unknown, nil
}

// stillPinned refuses a command whose hosts are known by other keys now than when it was accepted.
func (e *Engine) stillPinned(eff effect.Effect) error {
	if eff.SSH == nil {
		return nil
	}
	hosts := []effect.SSHHost{eff.SSH.Host}
	if eff.SSH.Jump != nil {
		hosts = append(hosts, *eff.SSH.Jump)
	}
	for _, h := range hosts {
		known, err := e.cfg.Vault.Host(h.Name, uint16(h.Port))
		if err != nil {
			return fmt.Errorf("the host %s cannot be used: %w", hostAddress(h.Name, h.Port), err)
		}
		if !slices.Equal(known.Keys, h.Keys) {
			return fmt.Errorf("the pinned keys of %s were changed after this was accepted", known.Address())
		}
	}
	return nil
}

// pinAgain puts the keys of today into a command that was recorded, for a question about it. What lies in the journal says nothing of whom to trust with a credential, and a key that was
// replaced since is no reason not to ask.
func (e *Engine) pinAgain(c *effect.SSHCommand) error {
	if c == nil {
		return nil
	}
	hosts := []*effect.SSHHost{&c.Host}
	if c.Jump != nil {
		hosts = append(hosts, c.Jump)
	}
	for _, h := range hosts {
		known, err := e.cfg.Vault.Host(h.Name, uint16(h.Port))
		if err != nil {
			return fmt.Errorf("the host %s cannot be asked: %w", hostAddress(h.Name, h.Port), err)
		}
		h.Keys = known.Keys
	}
	return nil
}

// HostChanged withdraws what waits for a host whose pinned keys were changed or removed.
func (e *Engine) HostChanged(address string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secrets.Add(1)
	for _, l := range e.liveOf(func(l *live) bool {
		c := l.effect.SSH
		return c != nil && (hostAddress(c.Host.Name, c.Host.Port) == address || c.Jump != nil && hostAddress(c.Jump.Name, c.Jump.Port) == address)
	}) {
		e.endLocked(l, execution.KindWithdrawn, api.CodeWithdrawn, "the host's pinned keys were changed before it was sent")
	}
}
