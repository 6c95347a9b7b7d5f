package server

import (
	"context"
	"net"
	"strconv"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/channel/sshchan"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/egress"
	"singlepass.dev/vault"
	"singlepass.dev/vault/sshkey"
)

// newSSH makes the channel to SSH hosts. A host is known by its pinned key, whatever its name resolves to, so that names may lead into private networks.
func newSSH() (*sshchan.Channel, error) {
	return sshchan.New(sshchan.Config{Dial: dialHost, Now: time.Now})
}

var toHosts = egress.New(egress.Config{})

func dialHost(ctx context.Context, host, port string) (net.Conn, error) {
	return toHosts.Dial(ctx, host, port, true)
}

// Hosts lists the inventory of SSH hosts.
func (o *operatorSide) Hosts(context.Context) ([]api.Host, error) {
	list, err := o.s.vault.Hosts()
	if err != nil {
		return nil, err
	}
	out := make([]api.Host, 0, len(list))
	for _, h := range list {
		out = append(out, control.Host(h))
	}
	return out, nil
}

// scanTime bounds the question for a host's keys: three connections.
const scanTime = 20 * time.Second

// ScanHost asks a host for its keys.
func (o *operatorSide) ScanHost(ctx context.Context, address string) (api.Host, error) {
	name, port, err := vault.ParseHost(address)
	if err != nil {
		return api.Host{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	keys, err := sshkey.Scan(func() (net.Conn, error) {
		conn, err := dialHost(ctx, name, strconv.Itoa(int(port)))
		if err == nil {
			deadline, _ := ctx.Deadline()
			err = conn.SetDeadline(deadline)
		}
		return conn, err
	})
	if err != nil {
		return api.Host{}, api.Errorf(api.CodeNotSent, "%v", err).WithHint("a host behind a jump host is added with --key-file, from its /etc/ssh/ssh_host_ed25519_key.pub")
	}
	return control.Host(vault.Host{Name: name, Port: port, Keys: keys}), nil
}

// AddHost pins a host's keys.
func (o *operatorSide) AddHost(_ context.Context, in api.Host) error {
	h, err := control.HostOf(in)
	if err != nil {
		return err
	}
	return o.s.changeHost("host_added", h.Address(), func() error { return o.s.vault.AddHost(h) })
}

// RemoveHost takes a host out of the inventory.
func (o *operatorSide) RemoveHost(_ context.Context, address string) error {
	name, port, err := vault.ParseHost(address)
	if err != nil {
		return api.Errorf(api.CodeUsage, "%v", err)
	}
	return o.s.changeHost("host_removed", vault.Host{Name: name, Port: port}.Address(), func() error { return o.s.vault.RemoveHost(name, port) })
}

func (s *Server) changeHost(kind, address string, change func() error) error {
	s.touch()
	if err := change(); err != nil {
		return err
	}
	s.engine.HostChanged(address)
	return s.engine.Note(engineNote{Kind: kind, Host: address, By: "operator"})
}
