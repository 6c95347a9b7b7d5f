package sshchan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/sshkey"
)

// counted is a connection that knows how many bytes its socket accepted, and whether it can still be read. SSH lies above it.
type counted struct {
	net.Conn
	accepted atomic.Int64
	broken   atomic.Bool
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.accepted.Add(int64(n))
	return n, err
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.broken.Store(true)
	}
	return n, err
}

// link is an authenticated connection.
type link struct {
	raw       *counted
	client    *ssh.Client
	jump      *ssh.Client // nil without one
	keepAlive time.Duration
}

func (l *link) close() {
	_ = l.client.Close()
	if l.jump != nil {
		_ = l.jump.Close()
	}
	_ = l.raw.Close()
}

// connect opens the connection that one attempt uses. Every error means that nothing of the command was sent.
func (c *Channel) connect(ctx context.Context, p *plan) (*link, error) {
	first := p.command.Host
	hosts := []effect.SSHHost{first}
	if p.command.Jump != nil {
		first = *p.command.Jump
		hosts = append(hosts, first)
	}
	for _, h := range hosts { // before anything of the credential leaves
		if len(h.Keys) == 0 {
			return nil, fmt.Errorf("%s is not known: no host key of it is pinned. Compare its fingerprint and add it: spctl host add %s", address(h), address(h))
		}
		if p.permitted != nil {
			if err := p.permitted(h.Address()); err != nil {
				return nil, fmt.Errorf("not permitted: %w", err)
			}
		}
	}
	conn, err := c.dial(ctx, p, first)
	if err != nil {
		return nil, err
	}
	l := &link{raw: &counted{Conn: conn}, keepAlive: c.cfg.KeepAlive}
	l.client, err = c.handshake(ctx, p, first, l.raw)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if p.command.Jump == nil {
		return l, nil
	}
	l.jump = l.client
	through, err := l.throughJump(ctx, p)
	if err != nil {
		l.close()
		return nil, fmt.Errorf("connecting to %s through %s: %w", address(p.command.Host), address(first), cause(ctx, err))
	}
	l.client, err = c.handshake(ctx, p, p.command.Host, through)
	if err != nil {
		_ = l.jump.Close()
		_ = l.raw.Close()
		return nil, err
	}
	return l, nil
}

func (c *Channel) dial(ctx context.Context, p *plan, h effect.SSHHost) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limits.Connect, fmt.Errorf("it took longer than the limit of %s", p.limits.Connect))
	defer cancel()
	conn, err := c.cfg.Dial(ctx, h.Name, strconv.Itoa(h.Port))
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address(h), context.Cause(ctx))
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return nil, fmt.Errorf("connecting to %s: %w", address(h), err)
}

// throughJump opens a connection from the jump host on.
func (l *link) throughJump(ctx context.Context, p *plan) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limits.Connect, fmt.Errorf("it took longer than the limit of %s", p.limits.Connect))
	defer cancel()
	return l.jump.DialContext(ctx, "tcp", address(p.command.Host))
}

// handshake makes an SSH connection of conn: the key that the host shows is one of the pinned ones, and the credential is accepted.
func (c *Channel) handshake(ctx context.Context, p *plan, h effect.SSHHost, conn net.Conn) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limits.Connect, fmt.Errorf("it took longer than the limit of %s", p.limits.Connect))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	pinned := make([]ssh.PublicKey, len(h.Keys))
	for i, text := range h.Keys {
		var err error
		if pinned[i], err = sshkey.HostKey(text); err != nil {
			return nil, fmt.Errorf("the pinned key of %s: %w", address(h), err)
		}
	}
	auth, wipe, err := c.authentication(p)
	if err != nil {
		return nil, err
	}
	defer wipe()
	var other error
	config := &ssh.ClientConfig{
		User: h.User, Auth: auth, HostKeyAlgorithms: sshkey.Algorithms(pinned), ClientVersion: "SSH-2.0-singlepass",
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			for _, k := range pinned {
				if bytes.Equal(k.Marshal(), key.Marshal()) {
					return nil
				}
			}
			other = changed(h, pinned, ssh.FingerprintSHA256(key)+" ("+key.Type()+")")
			return other
		},
	}
	established, channels, requests, err := ssh.NewClientConn(conn, address(h), config)
	switch {
	case err == nil && !stop():
		_ = established.Close()
		return nil, fmt.Errorf("connecting to %s: %w", address(h), context.Cause(ctx))
	case err == nil:
		return ssh.NewClient(established, channels, requests), nil
	case other != nil:
		return nil, other
	case ctx.Err() != nil:
		return nil, fmt.Errorf("handshake with %s: %w", address(h), context.Cause(ctx))
	}
	if isLost(err) {
		return nil, fmt.Errorf("handshake with %s: the connection was lost", address(h))
	}
	text := strings.TrimPrefix(err.Error(), "ssh: handshake failed: ")
	switch {
	case strings.Contains(text, "unable to authenticate"):
		return nil, fmt.Errorf("%s does not let %s in with the credential %q", address(h), h.User, p.auth.Credential)
	case strings.Contains(text, "no common algorithm for host key"):
		return nil, changed(h, pinned, "of another type only")
	}
	return nil, fmt.Errorf("handshake with %s: %s", address(h), text)
}

// changed is the error about a host that shows another key than the pinned ones.
func changed(h effect.SSHHost, pinned []ssh.PublicKey, shown string) error {
	known := make([]string, len(pinned))
	for i, k := range pinned {
		known[i] = ssh.FingerprintSHA256(k) + " (" + k.Type() + ")"
	}
	return fmt.Errorf("%s shows another host key than the pinned one: it shows %s, pinned is %s. Somebody may stand in between, or the host was set up anew. Nothing was sent. If the new key was "+
		"checked with the host's owner: spctl host remove %s, then spctl host add %s", address(h), shown, strings.Join(known, ", "), address(h), address(h))
}

// authentication makes the ways in which the credential proves itself. wipe overwrites what was made of the secret.
func (c *Channel) authentication(p *plan) (methods []ssh.AuthMethod, wipe func(), err error) {
	wipe = func() {}
	err = p.secret.Use(func(b []byte) error {
		if p.auth.Kind == "ssh-key" {
			signer, overwrite, err := sshkey.Open(b, p.auth.Certificate, c.cfg.Now())
			if err != nil {
				return err
			}
			methods, wipe = []ssh.AuthMethod{ssh.PublicKeys(signer)}, overwrite
			return nil
		}
		// x/crypto takes a password as a string, which cannot be overwritten.
		password := string(b)
		asked := false
		methods = []ssh.AuthMethod{
			ssh.Password(password),
			ssh.KeyboardInteractive(func(_, _ string, questions []string, echo []bool) ([]string, error) {
				answers := make([]string, len(questions))
				for i := range questions { // one hidden question is the password; anything else is not for us to answer
					if asked || len(questions) != 1 || echo[i] {
						return nil, errors.New("the host asks something else than the password")
					}
					answers[i] = password
				}
				asked = asked || len(questions) > 0
				return answers, nil
			}),
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("the credential %q cannot be used: %w", p.auth.Credential, err)
	}
	return methods, wipe, nil
}

func address(h effect.SSHHost) string { return net.JoinHostPort(h.Name, strconv.Itoa(h.Port)) }

// cause is the context's reason where it has ended, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
