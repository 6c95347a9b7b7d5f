package httpchan

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
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
func (c *Channel) connect(ctx context.Context, p *request, private bool) (raw *counted, conn net.Conn, err error) {
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
