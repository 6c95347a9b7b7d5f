// Package egress opens connections to targets, and to no address that a target's name must not lead to.
//
// Promises: a host is resolved once; every address that it has is checked; the connection goes to an address that was checked, so that a name that changes its mind between check and
// use gains nothing (DNS rebinding). Never reached are addresses that are not one host (unspecified, multicast, broadcast, reserved), link-local ones and those at which clouds
// hand out a machine's own credentials, also where they hide in IPv4-mapped, IPv4-compatible, NAT64, 6to4, Teredo or ISATAP forms. Private networks and this machine are reached where
// the host is written as such an address or as localhost, since whoever wrote the target meant it; where a name leads there, only by leave. No proxy of the environment is used. One that is configured
// is told the checked address and not the name, and this machine and private networks are reached without it.
//
// Non-promises: a public address may be routed anywhere. The package freezes no format.
package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Config is what New needs. Every field is optional.
type Config struct {
	// Resolve finds a host's addresses; nil means the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial opens a connection to an address that was checked; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Allow is asked about each address before it is dialled, after the package's own refusals; an error refuses it. Nil allows.
	Allow func(netip.Addr) error
	// Proxy says for each connection through which proxy it goes; a nil Proxy means none, and an error that nothing is connected. Nil: there is none.
	Proxy   func() (*Proxy, error)
	RootCAs *x509.CertPool // whom TLS to an https proxy trusts; nil means the system's roots
}

// Dialer opens connections. It is safe for concurrent use.
type Dialer struct{ cfg Config }

// New returns a dialer.
func New(cfg Config) *Dialer {
	if cfg.Resolve == nil {
		cfg.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{KeepAlive: -1}).DialContext // an attempt is bounded by its limits, which are shorter
	}
	if cfg.Allow == nil {
		cfg.Allow = func(netip.Addr) error { return nil }
	}
	return &Dialer{cfg}
}

// ErrPrivate is wrapped by the refusal of an address that needs the operator's leave.
var ErrPrivate = errors.New("the name leads into a private network or to this machine, which needs the operator's leave: allow_private in the contract, or --allow-private for the credential")

// Dial resolves host once and connects to one of its addresses, in the resolver's order. private is the operator's leave for names that lead into private networks. A failure proves that the target
// got nothing, also through a proxy.
func (d *Dialer) Dial(ctx context.Context, host, port string, private bool) (net.Conn, error) {
	if d.cfg.Proxy == nil {
		return d.direct(ctx, host, port, private)
	}
	p, err := d.cfg.Proxy()
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", net.JoinHostPort(host, port), err)
	}
	return d.dial(ctx, host, port, private, p)
}

func (d *Dialer) direct(ctx context.Context, host, port string, private bool) (net.Conn, error) {
	return d.dial(ctx, host, port, private, nil)
}

func (d *Dialer) dial(ctx context.Context, host, port string, private bool, p *Proxy) (net.Conn, error) {
	addrs, err := d.addresses(ctx, host, private)
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
		if p != nil && !IsPrivate(a) {
			conn, err = d.through(try, p, net.JoinHostPort(a.String(), port))
		} else {
			conn, err = d.cfg.Dial(try, "tcp", net.JoinHostPort(a.String(), port))
		}
		cancel()
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connecting to %s: %w", net.JoinHostPort(host, port), ctx.Err())
		}
	}
	var op *net.OpError
	if p == nil && errors.As(err, &op) {
		err = op.Err // the address is named already
	}
	return nil, fmt.Errorf("connecting to %s: %w", net.JoinHostPort(host, port), err)
}

// addresses returns those of host's addresses that may be dialled, at least one.
func (d *Dialer) addresses(ctx context.Context, host string, private bool) ([]netip.Addr, error) {
	var found []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		found, private = []netip.Addr{a}, true
	} else {
		if found, err = d.cfg.Resolve(ctx, host); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return nil, fmt.Errorf("resolving %s: %w", host, err)
		}
		local := strings.ToLower(strings.TrimSuffix(host, "."))
		private = private || local == "localhost" || strings.HasSuffix(local, ".localhost") // RFC 6761, section 6.3
	}
	var allowed []netip.Addr
	refused := errors.New("it has no address")
	for _, a := range found {
		a = a.Unmap()
		err := Check(a)
		if err == nil && !private && IsPrivate(a) {
			err = fmt.Errorf("address %s: %w", a, ErrPrivate)
		}
		if err == nil {
			if err = d.cfg.Allow(a); err != nil {
				err = fmt.Errorf("address %s is not allowed: %w", a, err)
			}
		}
		if err != nil {
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
	netip.MustParseAddr("168.63.129.16"),   // Azure's wire server
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")   // RFC 1122, section 3.2.1.3
	reserved    = netip.MustParsePrefix("240.0.0.0/4") // RFC 1112, section 4; broadcast too
	siteLocal   = netip.MustParsePrefix("fec0::/10")   // RFC 3879
	shared      = netip.MustParsePrefix("100.64.0.0/10")
)

// Check refuses the addresses that are never a target.
func Check(a netip.Addr) error {
	a = a.Unmap()
	for _, inner := range hidden(a) {
		if err := Check(inner); err != nil {
			return fmt.Errorf("address %s leads to another: %w", a, err)
		}
	}
	switch {
	case !a.IsValid():
		return errors.New("it is no address")
	case a.Zone() != "" || a.IsLinkLocalUnicast():
		return fmt.Errorf("address %s is link-local, where clouds hand out credentials", a)
	case a.IsUnspecified() || a.IsMulticast() || thisNetwork.Contains(a) || reserved.Contains(a):
		return fmt.Errorf("address %s is not one host", a)
	}
	for _, m := range metadata {
		if a == m {
			return fmt.Errorf("address %s hands out a cloud machine's credentials", a)
		}
	}
	return nil
}

// IsPrivate reports whether an address is this machine's or of a private network (RFC 1918, 4193, 6598), also behind a translation.
func IsPrivate(a netip.Addr) bool {
	a = a.Unmap()
	for _, inner := range hidden(a) {
		if IsPrivate(inner) {
			return true
		}
	}
	return a.IsLoopback() || a.IsPrivate() || shared.Contains(a) || siteLocal.Contains(a) || localNAT64.Contains(a)
}

var (
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291, section 2.5.5.1
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380
)

// hidden returns the IPv4 addresses that an IPv6 address leads to.
func hidden(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	var all []netip.Addr
	switch {
	case nat64.Contains(a), localNAT64.Contains(a):
		all = append(all, at(12))
	case compatible.Contains(a) && !a.IsLoopback() && !a.IsUnspecified():
		all = append(all, at(12))
	case sixToFour.Contains(a):
		all = append(all, at(2))
	case teredo.Contains(a):
		client := [4]byte{^b[12], ^b[13], ^b[14], ^b[15]}
		all = append(all, at(4), netip.AddrFrom4(client))
	}
	if (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214, section 6.1
		all = append(all, at(12))
	}
	return all
}
