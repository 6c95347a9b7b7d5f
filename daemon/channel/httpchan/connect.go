package httpchan

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/vault/material"
)

// counted is a connection that knows how many bytes its socket accepted. TLS lies above it.
type counted struct {
	net.Conn
	accepted  atomic.Int64
	firstRead atomic.Bool // the next bytes that come are the last that are waited for
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.firstRead.Swap(false) {
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.accepted.Add(int64(n))
	return n, err
}

// connect opens a connection for one request: raw is the socket, conn what the request is written to. client is a certificate for the handshake, or nil.
func (c *Channel) connect(ctx context.Context, p *request, private bool, client *tls.Certificate) (raw *counted, conn net.Conn, err error) {
	socket, err := c.dialer.Dial(ctx, p.host, p.port, private)
	if err != nil {
		return nil, nil, err
	}
	raw = &counted{Conn: socket}
	if p.url.Scheme == "http" {
		return raw, raw, nil
	}
	cfg := c.tls.Clone()
	cfg.ServerName = p.host
	if p.auth != nil && p.auth.Authorities != "" {
		if cfg.RootCAs, err = material.Roots(p.auth.Authorities); err != nil {
			_ = socket.Close()
			return nil, nil, err
		}
		cfg.ClientSessionCache = nil // a session that is resumed was verified by other authorities
	}
	if client != nil {
		cfg.Certificates = []tls.Certificate{*client}
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1) // a session that is resumed would be another certificate's
	}
	t := tls.Client(raw, cfg)
	if err = t.HandshakeContext(ctx); err == nil && client != nil && t.ConnectionState().Version == tls.VersionTLS13 {
		err = raw.confirm(ctx, t)
	}
	if err != nil {
		_ = socket.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, nil, fmt.Errorf("TLS handshake with %s: %w", net.JoinHostPort(p.host, p.port), err)
	}
	return raw, t, nil
}

// confirmation is how long a target is given to refuse a certificate before the request is sent.
const confirmation = 300 * time.Millisecond

// confirm waits for the target's first word after its handshake. In TLS 1.3 the client is done before the target has looked at its certificate (RFC 8446, section 2): a request that is
// written at once is on the wire when the refusal comes, and then nobody can prove that it was not read. Targets send a session ticket or an alert next; one that sends neither is given the
// benefit after a moment.
func (c *counted) confirm(ctx context.Context, t *tls.Conn) error {
	limit := time.Now().Add(confirmation)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	if err := c.SetReadDeadline(limit); err != nil {
		return err
	}
	c.firstRead.Store(true)
	var none [1]byte
	n, err := t.Read(none[:])
	c.firstRead.Store(false)
	switch {
	case n > 0:
		return errors.New("the target answered before it was asked")
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return c.SetReadDeadline(time.Time{})
}

// certificate reads the client certificate of a request.
func certificate(r channel.Request) (*tls.Certificate, error) {
	var c tls.Certificate
	err := useSecret(r, func(b []byte) (err error) {
		c, err = material.TLSCertificate(b)
		return err
	})
	return &c, err
}
