package httpchan

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// counted is a connection that knows how many bytes its socket accepted. TLS lies above it.
type counted struct {
	net.Conn
	accepted atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.accepted.Add(int64(n))
	return n, err
}

// connect opens a connection for one request: raw is the socket, conn what the request is written to.
func (c *Channel) connect(ctx context.Context, p *request) (raw *counted, conn net.Conn, err error) {
	socket, err := c.dial(ctx, p.host, p.port)
	if err != nil {
		return nil, nil, err
	}
	raw = &counted{Conn: socket}
	if p.url.Scheme == "http" {
		return raw, raw, nil
	}
	cfg := c.tls.Clone()
	cfg.ServerName = p.host
	t := tls.Client(raw, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = socket.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, nil, fmt.Errorf("TLS handshake with %s: %w", net.JoinHostPort(p.host, p.port), err)
	}
	return raw, t, nil
}

// dial resolves host once and connects to one of its addresses, in the resolver's order.
func (c *Channel) dial(ctx context.Context, host, port string) (net.Conn, error) {
	addrs, err := c.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	deadline, limited := ctx.Deadline()
	for i, a := range addrs {
		try, cancel := ctx, context.CancelFunc(func() {})
		if limited && i < len(addrs)-1 { // a share of the time, so that one dead address leaves some for the next
			try, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addrs)-i))
		}
		var conn net.Conn
		conn, err = c.cfg.Dial(try, "tcp", net.JoinHostPort(a.String(), port))
		cancel()
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connecting to %s: %w", net.JoinHostPort(host, port), ctx.Err())
		}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // the address is named already
	}
	return nil, fmt.Errorf("connecting to %s: %w", net.JoinHostPort(host, port), err)
}

// addresses returns those of host's addresses that may be dialled, at least one.
func (c *Channel) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	var found []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		found = []netip.Addr{a}
	} else if found, err = c.cfg.Resolve(ctx, host); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("resolving %s: %w", host, err)
	}
	var allowed []netip.Addr
	refused := errors.New("it has no address")
	for _, a := range found {
		a = a.Unmap()
		if err := c.allow(a); err != nil {
			refused = err
			continue
		}
		allowed = append(allowed, a)
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("connecting to %s: %w", host, refused)
	}
	return allowed, nil
}

// metadata are the addresses at which clouds hand out a machine's own credentials and which are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052: the last four bytes are an IPv4 address

func (c *Channel) allow(a netip.Addr) error {
	if nat64.Contains(a) {
		b := a.As16()
		if err := c.allow(netip.AddrFrom4([4]byte(b[12:]))); err != nil {
			return err
		}
	}
	switch {
	case a.Zone() != "" || a.IsLinkLocalUnicast():
		return fmt.Errorf("address %s is link-local, where clouds hand out credentials", a)
	case a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("address %s is not one host", a)
	}
	for _, m := range metadata {
		if a == m {
			return fmt.Errorf("address %s hands out a cloud machine's credentials", a)
		}
	}
	if c.cfg.AllowAddress != nil {
		if err := c.cfg.AllowAddress(a); err != nil {
			return fmt.Errorf("address %s is not allowed: %w", a, err)
		}
	}
	return nil
}
