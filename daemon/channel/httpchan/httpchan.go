// Package httpchan carries an action out as one HTTP request.
//
// Promises, for a request with a side effect:
//   - One call of Do writes at most one request, onto a connection that was dialled for it and is closed after it. It is HTTP/1.1. No redirect is followed (a 3xx is an
//     answer), no proxy of the environment is used (one that the operator configured is: package egress), nothing is sent again. [net/http.Transport] is not involved: it replays what carries an Idempotency-Key on a
//     connection that breaks, and HTTP/2 sends again after REFUSED_STREAM and GOAWAY.
//   - not_sent is a proof. It is said if nothing was connected, if the TLS handshake did not end, if we refused ourselves, or if the socket accepted no byte after that point. The last is
//     counted beneath TLS, from what write(2) returned: a stream socket that fails after taking bytes reports the bytes and not the failure (POSIX send, "upon
//     successful completion"), so that 0 bytes and an error mean that the kernel took none. One byte of a TLS record, although no peer could decrypt it, is unknown.
//   - success and target_error are said only if a whole final status line and header came. A body that broke off leaves the verdict as the status has it, and says so.
//   - Everything else is unknown: an answer that cannot be read as HTTP/1, 101 that nobody asked for, a header past its limit, a limit or a cancellation after the first byte.
//   - What is sent is what the effect says, byte for byte: request target, field order and values, body. Added are Host, Connection, Content-Length, Accept-Encoding: identity, a User-Agent
//     if there is none, and the credential. What cannot be sent so (a control character, a second Host, a URL that would be rewritten) is refused.
//
// A read_only request goes over pooled connections and HTTP/2. There net/http may send it again when a pooled connection turns out to be dead, which is what its class
// allows; not_sent is then said only if the request never had a connection.
//
// Verify asks by the effect's status request. It goes the way of a request with a side effect, whatever its method: one request, on a connection of its own, no redirect. An answer that
// did not come, or not whole in its header, tells nothing.
//
// The credential's bytes are reached inside secret.Use alone. With a side effect they are copied once, into the request's buffer, which is wiped once it is written; crypto/tls and
// the kernel have copies of their own, and read_only leaves strings on the heap. Everything that the target answered is scrubbed of it (package scrub). A body that is packed
// (Content-Encoding, although none was asked for) is looked through where that is gzip, and withheld where the secret is in it or it cannot be looked through.
//
// Addresses: package egress resolves, checks and dials. A name leads into private networks only where the request says so.
//
// Non-promises: an answer without Content-Length or chunks over plain TCP ends where the connection ends, so that its loss cannot be seen. The package freezes no format, but the
// shape of Result is what agents read: fields may be added.
package httpchan

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/egress"
)

// The limits that apply where Request.Limits has none.
const (
	DefaultConnect = 10 * time.Second // resolving, dialling and the TLS handshake together
	DefaultTotal   = 60 * time.Second
	DefaultAnswer  = 1 << 20          // bytes of the body
	DefaultStatus  = 15 * time.Second // DefaultTotal of a status request
)

const (
	headerLimit        = 256 << 10 // bytes of the answer before its body, informational answers included
	informationalLimit = 16
)

// Config is what New needs. Every field is optional.
type Config struct {
	RootCAs *x509.CertPool // whom TLS trusts; nil means the system's roots
	// AllowAddress is asked about each address before it is dialled, after the package's own refusals; an error refuses it. Nil allows.
	AllowAddress func(netip.Addr) error
	Now          func() time.Time // for signatures; nil means time.Now
	UserAgent    string           // where an effect has none; "" means "singlepass"
	// Resolve finds a host's addresses; nil means the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial opens a connection to an address that was checked; nil means a net.Dialer. A Conn's Write must report exactly the bytes that it accepted.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy says for each connection through which proxy it goes, as in egress.Config; nil means none.
	Proxy func() (*egress.Proxy, error)
}

// Channel is the HTTP channel. It is safe for concurrent use.
type Channel struct {
	cfg    Config
	dialer *egress.Dialer
	tls    *tls.Config // for requests with a side effect
	pools  atomic.Pointer[pools]
}

// pools hold the connections of read_only requests. One that was made by leave for private networks is for those who have it.
type pools struct{ usual, private *http.Transport }

// New returns a channel.
func New(cfg Config) *Channel {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "singlepass"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Channel{cfg: cfg, dialer: egress.New(egress.Config{Resolve: cfg.Resolve, Dial: cfg.Dial, Allow: cfg.AllowAddress, Proxy: cfg.Proxy, RootCAs: cfg.RootCAs})}
	c.tls = &tls.Config{
		RootCAs:    cfg.RootCAs,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		// Resumption makes a fresh connection cheaper. It sends nothing early: crypto/tls has no 0-RTT outside QUIC.
		ClientSessionCache: tls.NewLRUClientSessionCache(64),
	}
	c.pools.Store(&pools{c.transport(false), c.transport(true)})
	return c
}

// Forget has every later request make a connection of its own: another proxy counts from now on.
func (c *Channel) Forget() {
	old := c.pools.Swap(&pools{c.transport(false), c.transport(true)})
	old.close()
}

func (p *pools) close() {
	p.usual.CloseIdleConnections()
	p.private.CloseIdleConnections()
}

// Close gives the pooled connections back. The channel can still be used.
func (c *Channel) Close() {
	c.pools.Load().close()
}

// Do carries one attempt out.
func (c *Channel) Do(ctx context.Context, r channel.Request) channel.Outcome {
	p, refused := c.prepare(&r)
	switch {
	case refused != nil:
		return *refused
	case r.SideEffect, p.auth != nil && (p.auth.Kind == "client-cert" || p.auth.Authorities != ""): // a pooled connection would belong to whoever's certificate or trust made it
		return c.once(ctx, r, p)
	}
	return c.pooled(ctx, r, p)
}

// prepare fills the limits in and checks what can be checked without a connection.
func (c *Channel) prepare(r *channel.Request) (request, *channel.Outcome) {
	refuse := func(reason string) (request, *channel.Outcome) {
		o := notSent(reason)
		return request{}, &o
	}
	if r.Effect.Channel != effect.HTTP || r.Effect.HTTP == nil {
		return refuse("the effect is not an HTTP request")
	}
	limit(&r.Limits, DefaultTotal)
	p, err := plan(*r)
	if err != nil {
		return refuse("the request cannot be sent as it is: " + err.Error())
	}
	return p, nil
}

func limit(l *channel.Limits, total time.Duration) {
	if l.Connect <= 0 {
		l.Connect = DefaultConnect
	}
	if l.Total <= 0 {
		l.Total = total
	}
	if l.Answer <= 0 {
		l.Answer = DefaultAnswer
	}
}

func notSent(reason string) channel.Outcome {
	return channel.Outcome{Verdict: channel.NotSent, Reason: reason}
}

func unknown(reason string) channel.Outcome {
	return channel.Outcome{Verdict: channel.Unknown, Reason: reason}
}

// permitted asks the caller's last check, and whether there is still time, right before the first byte.
func permitted(ctx context.Context, r channel.Request) error {
	if r.Permitted != nil {
		if err := r.Permitted(r.Effect.HTTP.URL); err != nil {
			return errors.New("not permitted: " + err.Error())
		}
	}
	if ctx.Err() != nil {
		return errors.New(why(ctx))
	}
	return nil
}
