// Package sshchan carries an action out as one command on an SSH host.
//
// Promises:
//   - One call of Do makes one connection (through the jump host, where there is one), and asks once for one command. Nothing is asked for again, on no connection.
//   - not_sent is a proof. It is said if the connection, its handshake, the check of the host's key, or the authentication failed; if the host refused to open a session or to start
//     the command; if the socket accepted no byte of the request for it (counted beneath the encryption, from what write(2) returned); and if the marker on the host says that it
//     did not start it.
//   - success and target_error are said only if the host said how the command ended: an exit status, or the signal that killed it. What of the output is missing then is said.
//   - Everything else after that request is unknown: a connection that broke or went silent, a channel that was closed without a status, a limit, a cancellation.
//   - The host has to show one of the keys that are pinned in the effect, and proves it by an algorithm of one of them. The same holds for the jump host. Without a pinned key nothing
//     is connected. Host certificates are not looked at.
//   - What runs is the effect's command, byte for byte, after a cd into its directory and the export of its variables; its standard input is the effect's. Nothing of this machine's
//     environment goes with it, no terminal, no agent, nothing forwarded.
//
// A command with a marker (package doc of marker.go) goes on when the connection is lost, and Verify asks the host what became of it.
//
// The private key or password is reached inside secret.Use alone. The parsed key is overwritten after the handshake where Go lets us; what Go's cryptography copied is not. Everything
// that the command wrote is scrubbed of the secret (package scrub).
//
// Non-promises: the account's shell has to read a command line as POSIX sh does (sh, bash, dash, ksh, zsh); csh and fish do not. A host that lies about an exit status is
// believed. Frozen: the marker's script as it lies on hosts (version 1). The shape of Result is what agents read: fields may be added.
package sshchan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/secret"
)

// The limits that apply where Request.Limits has none.
const (
	DefaultConnect = 15 * time.Second // for each host: dialling, handshake and authentication
	DefaultTotal   = 10 * time.Minute
	DefaultAnswer  = 1 << 20 // bytes of standard output, and as many of standard error
)

const (
	defaultKeepAlive = 15 * time.Second
	keepAliveMisses  = 3
	drainAfterExit   = 5 * time.Second // for output that a process left behind holds open
	maxLine          = 96 << 10        // Linux takes no argument above 128 KiB, and the whole line becomes one
)

// Config is what New needs.
type Config struct {
	// Dial opens a connection to a host's port. Required. A Conn's Write must report exactly the bytes that it accepted.
	Dial      func(ctx context.Context, host, port string) (net.Conn, error)
	Now       func() time.Time // required
	KeepAlive time.Duration    // optional, 15 s: how often a silent host is asked whether it is there; after three questions without an answer the connection counts as lost
}

// Channel is the SSH channel. It is safe for concurrent use.
type Channel struct {
	cfg Config

	mu     sync.Mutex
	stores map[string]string // by attempt: the marker's store on the host that it was sent to
	order  []string          // of the attempts in stores, oldest first
}

// New returns a channel.
func New(cfg Config) (*Channel, error) {
	if cfg.Dial == nil || cfg.Now == nil {
		return nil, errors.New("sshchan: Dial and Now are required")
	}
	if cfg.KeepAlive <= 0 {
		cfg.KeepAlive = defaultKeepAlive
	}
	return &Channel{cfg: cfg, stores: map[string]string{}}, nil
}

// Do carries one attempt out.
func (c *Channel) Do(ctx context.Context, r channel.Request) channel.Outcome {
	p, err := newPlan(r.Effect, r.Secret, r.Limits, r.Permitted)
	if err != nil {
		return notSent("the command cannot be sent as it is: " + err.Error())
	}
	p.attempt = attemptName(r.ExecutionID, r.Attempt)
	ctx, cancel := context.WithTimeoutCause(ctx, p.limits.Total, fmt.Errorf("it took longer than the limit of %s", p.limits.Total))
	defer cancel()
	s := p.scrubber()
	defer s.Wipe()
	o := c.carryOut(ctx, p)
	o.Reason = quoted(s, o.Reason)
	return o
}

func (c *Channel) carryOut(ctx context.Context, p *plan) channel.Outcome {
	l, err := c.connect(ctx, p)
	if err != nil {
		return notSent(err.Error())
	}
	defer l.close()
	if p.command.Marker != nil {
		return c.doMarked(ctx, l, p)
	}
	out := l.run(ctx, p.line, p.command.Stdin, p.limits.Answer)
	switch {
	case !out.sent:
		return notSent(out.why)
	case !out.exited:
		return unknown(out.why)
	}
	return p.outcome(answer{
		status: out.status, signal: out.signal, stdout: out.stdout.bytes, stderr: out.stderr.bytes, stdoutBytes: out.stdout.total, stderrBytes: out.stderr.total, incomplete: out.incomplete,
	})
}

func notSent(reason string) channel.Outcome {
	return channel.Outcome{Verdict: channel.NotSent, Reason: reason}
}

func unknown(reason string) channel.Outcome {
	return channel.Outcome{Verdict: channel.Unknown, Reason: reason}
}

// plan is an effect that was found fit to be sent.
type plan struct {
	command   *effect.SSHCommand
	auth      *effect.Auth
	secret    *secret.Bytes
	limits    channel.Limits
	permitted func(string) error
	line      string // the whole command line
	attempt   string
}

func newPlan(e effect.Effect, s *secret.Bytes, limits channel.Limits, permitted func(string) error) (*plan, error) {
	p := &plan{command: e.SSH, auth: e.Auth, secret: s, limits: limits, permitted: permitted}
	if e.Channel != effect.SSH || e.SSH == nil {
		return nil, errors.New("the effect is no SSH command")
	}
	if p.auth == nil || s == nil {
		return nil, errors.New("an SSH command needs a credential of kind ssh-key or ssh-password")
	}
	if p.auth.Kind != "ssh-key" && p.auth.Kind != "ssh-password" {
		return nil, fmt.Errorf("credential %q is of kind %q, which opens no SSH connection", p.auth.Credential, p.auth.Kind)
	}
	var err error
	if p.line, err = commandLine(e.SSH); err != nil {
		return nil, err
	}
	if p.limits.Connect <= 0 {
		p.limits.Connect = DefaultConnect
	}
	if p.limits.Total <= 0 {
		p.limits.Total = DefaultTotal
	}
	if p.limits.Answer <= 0 {
		p.limits.Answer = DefaultAnswer
	}
	return p, nil
}

// commandLine is what the account's shell gets.
func commandLine(c *effect.SSHCommand) (string, error) {
	line := ""
	if c.Directory != "" {
		dir, err := effect.Quote(c.Directory)
		if err != nil {
			return "", fmt.Errorf("the directory: %w", err)
		}
		line = "cd -- " + dir + " || exit 125\n" // absolute, so that CDPATH means nothing
	}
	for _, f := range c.Env {
		value, err := effect.Quote(f.Value)
		if err != nil {
			return "", fmt.Errorf("variable %s: %w", f.Name, err)
		}
		line += "export " + f.Name + "=" + value + "\n"
	}
	line += c.Command
	if len(line) > maxLine {
		return "", fmt.Errorf("the command line has %d bytes, and hosts take %d: pass what is long on standard input", len(line), maxLine)
	}
	return line, nil
}

func attemptName(id string, attempt int) string { return fmt.Sprintf("%s.%d", id, attempt) }
