package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Proxy is an HTTP proxy that the operator has configured. Every connection that goes through it is a tunnel (CONNECT, RFC 9110, section 9.3.6), plain HTTP too.
//
// What is asked for is an address and never a name: the target's name was resolved here, all its addresses were checked, and the proxy is told which of them to connect to. So everything that
// this package promises of addresses holds as it does without a proxy, and TLS goes from us to the target, by the target's name. What the proxy does with the address is its own.
type Proxy struct {
	URL *url.URL // ReadProxy made it
	// Authorize returns the value of Proxy-Authorization, which Dial wipes. Nil: there is none.
	Authorize func(ctx context.Context) ([]byte, error)
}

// ReadProxy reads the URL of a proxy: http or https, a host and a port, and nothing else.
func ReadProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("it is not the URL of a proxy; write for instance http://proxy.example:3128")
	case u.User != nil:
		return nil, errors.New("it has a user; keep user name and password in a credential of kind basic")
	case u.Port() == "":
		return nil, errors.New("it has no port; write for instance http://proxy.example:3128")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("it has a path; a proxy is a scheme, a host and a port")
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return nil, fmt.Errorf("port %q is not between 1 and 65535", u.Port())
	}
	for _, c := range []byte(u.Host) {
		if c <= ' ' || c >= 0x7f {
			return nil, errors.New("its host has a character that is not printable ASCII; write it in punycode")
		}
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

// Bounds of a proxy's answer to CONNECT.
const (
	proxyHeaderLimit   = 64 << 10
	proxyInformational = 16
)

// through opens a tunnel to an address that was checked. Until it returns without an error nothing of ours but the CONNECT itself was sent, so that a failure here proves that the target got nothing.
func (d *Dialer) through(ctx context.Context, p *Proxy, address string) (net.Conn, error) {
	fail := func(err error) error {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("through the proxy %s: %w", p.URL, err)
	}
	// The proxy's name is the operator's word, so that it may lead into a private network; it is checked like any other.
	socket, err := d.direct(ctx, p.URL.Hostname(), p.URL.Port(), true)
	if err != nil {
		return nil, fail(err)
	}
	conn, err := d.tunnel(ctx, p, socket, address)
	if err != nil {
		_ = socket.Close()
		return nil, fail(err)
	}
	return conn, nil
}

func (d *Dialer) tunnel(ctx context.Context, p *Proxy, socket net.Conn, address string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = socket.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := socket
	if p.URL.Scheme == "https" {
		counted := &countedSocket{Conn: socket}
		t := tls.Client(counted, &tls.Config{RootCAs: d.cfg.RootCAs, ServerName: p.URL.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		conn = &secured{Conn: t, socket: counted}
	}
	message := []byte("CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n")
	if p.Authorize != nil {
		field, err := p.Authorize(ctx)
		if err != nil {
			return nil, err
		}
		size := len(message) + len(field) + 32
		whole := append(make([]byte, 0, size), message...) // its room is known, so that growing leaves no copy of the secret behind
		message = append(append(append(whole, "Proxy-Authorization: "...), field...), "\r\n"...)
		clear(field)
		defer func() { clear(message) }()
	}
	message = append(message, "\r\n"...)
	if _, err := conn.Write(message); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, context.DeadlineExceeded
	} else if err != nil {
		return nil, errors.New("the connection broke before the proxy answered")
	}
	if err := connected(conn); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, ctx.Err()
	}
	return conn, socket.SetDeadline(time.Time{})
}

// connected reads a proxy's answer to CONNECT. Of what a proxy says only the status is told.
func connected(conn io.Reader) error {
	head := &io.LimitedReader{R: conn, N: proxyHeaderLimit}
	b := bufio.NewReader(head)
	for range proxyInformational + 1 {
		resp, err := http.ReadResponse(b, &http.Request{Method: http.MethodConnect})
		var n net.Error
		switch {
		case errors.As(err, &n) && n.Timeout(): // only the context's end sets a limit, though the socket may be the first to say so
			return context.DeadlineExceeded
		case err != nil:
			return errors.New("it closed the connection, or what it answered is not HTTP")
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return errors.New("it answered 101 without being asked to")
		case resp.StatusCode < 200:
			continue
		case resp.StatusCode == http.StatusProxyAuthRequired:
			return errors.New("it answered 407: it wants other credentials; see the setting proxy_credential")
		case resp.StatusCode > 299:
			return fmt.Errorf("it answered %d and did not connect", resp.StatusCode)
		case b.Buffered() > 0: // nobody has spoken to the target yet
			return errors.New("it sent more than its answer")
		}
		return nil
	}
	return errors.New("it answered and answered, and never in the end")
}

// countedSocket knows how many bytes a socket took.
type countedSocket struct {
	net.Conn
	taken atomic.Int64
}

func (c *countedSocket) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.taken.Add(int64(n))
	return n, err
}

// secured is a TLS connection to a proxy. Its Write never reports 0 bytes of which the socket took any: whoever proves by that number that nothing was sent is right.
type secured struct {
	*tls.Conn
	socket *countedSocket
}

func (s *secured) Write(b []byte) (int, error) {
	before := s.socket.taken.Load()
	n, err := s.Conn.Write(b)
	if err != nil && n == 0 && s.socket.taken.Load() != before {
		n = 1
	}
	return n, err
}

// Close closes the socket: a TLS farewell can block.
func (s *secured) Close() error { return s.socket.Close() }
