package conformance_test

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/conformance"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/channel/mcpchan"
	"singlepass.dev/daemon/channel/sshchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/records"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
	"singlepass.dev/vault/secret"
)

// home is what outlives a daemon: its folder, and what an unlocked vault would have. It goes to a daemon of another process as JSON.
type home struct {
	Dir              string
	MAC, Index, Seal []byte
	Contracts        []string
	Secret           []byte // of every credential
	Targets          []string
	HostKey          string // of the SSH host; empty if there is none
	Upstreams        []upstream.Definition
	Boundary         conformance.Boundary // at which this daemon's attempts stop, where that is its own part
	Earlier          int                  // connections to each address before the one of the attempt
	Calls            []string             // the tools that are called, each once, all at the same time

	sealing hpke.PrivateKey
}

// unlock makes the keys of what was written down.
func (h *home) unlock() error {
	scalar, err := ecdh.X25519().NewPrivateKey(h.Seal)
	if err != nil {
		return err
	}
	h.sealing, err = hpke.NewDHKEMPrivateKey(scalar)
	return err
}

func (h *home) PublicSealingKey() []byte                          { return h.sealing.PublicKey().Bytes() }
func (h *home) UseSealingKey(f func(hpke.PrivateKey) error) error { return f(h.sealing) }
func (h *home) UseIndexKey(f func([]byte) error) error            { return f(h.Index) }
func (h *home) CredentialRefused(string, *secret.Bytes)           {}

func (h *home) FingerprintMAC(msg []byte) ([32]byte, error) {
	m := hmac.New(sha256.New, h.MAC)
	m.Write(msg)
	return [32]byte(m.Sum(nil)), nil
}

func (h *home) Credential(name string) (vault.Credential, error) {
	c := vault.Credential{Name: name, Kind: vault.Bearer}
	if h.HostKey != "" {
		c.Kind = vault.SSHKey
	}
	for _, t := range h.Targets {
		target, err := vault.ParseTarget(t)
		if err != nil {
			return vault.Credential{}, err
		}
		c.Targets = append(c.Targets, target)
	}
	return c, nil
}

func (h *home) UseCredential(_ context.Context, name string) (vault.Credential, *secret.Bytes, error) {
	c, err := h.Credential(name)
	return c, secret.New(slices.Clone(h.Secret)), err
}

func (h *home) Host(name string, port uint16) (vault.Host, error) {
	return vault.Host{Name: name, Port: port, Keys: []string{h.HostKey}}, nil
}

func (h *home) upstream(name string) (upstream.Definition, error) {
	i := slices.IndexFunc(h.Upstreams, func(d upstream.Definition) bool { return d.Name == name })
	if i < 0 {
		return upstream.Definition{}, fmt.Errorf("there is no upstream %q", name)
	}
	return h.Upstreams[i], nil
}

// daemon is the engine with its journal, its index and its channels. Whatever it asks is approved.
type daemon struct {
	*engine.Engine
	records *records.Records
	home    *home
	close   []func()
	watch   context.CancelFunc
}

// stopping is a channel whose answers are told to nobody.
type stopping struct {
	channel.Channel
	answered func()
}

func (s stopping) Do(ctx context.Context, r channel.Request) channel.Outcome {
	o := s.Channel.Do(ctx, r)
	s.answered()
	return o
}

// open makes a daemon on a home, and settles what an earlier one left. It is locked. Answered is called with each answer that a channel has; it may be nil.
func open(h *home, dial dialer, answered func()) (*daemon, error) {
	d := &daemon{home: h}
	var ahead atomic.Int64 // the pauses between questions pass at once, and the clock goes on by them
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	var err error
	d.records, err = records.Open(records.Config{Dir: h.Dir, Now: now, Random: rand.Reader, Logger: slog.New(slog.DiscardHandler), Folded: func(seq uint64) {
		if d.Engine != nil {
			d.Folded(seq)
		}
	}})
	if err != nil {
		return nil, err
	}
	channels, err := d.channels(dial)
	if err != nil {
		return nil, err
	}
	if answered != nil {
		for name, c := range channels {
			channels[name] = stopping{c, answered}
		}
	}
	d.Engine, err = engine.New(engine.Config{
		Journal: d.records, Records: d.records, Vault: h, Channels: channels, Now: now, NewID: func() string { return ulid.Make().String() },
		AnswerWithin: time.Hour, RetryDelay: time.Millisecond,
		After: func(pause time.Duration, f func()) func() bool {
			var stopped atomic.Bool
			go func() {
				if !stopped.Load() {
					ahead.Add(int64(pause))
					f()
				}
			}()
			return func() bool { return !stopped.Swap(true) }
		},
	})
	if err != nil {
		return nil, err
	}
	return d, d.Recover()
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d *daemon) channels(dial dialer) (map[effect.Channel]channel.Channel, error) {
	web := httpchan.New(httpchan.Config{Dial: dial})
	shell, err := sshchan.New(sshchan.Config{Now: time.Now, Dial: func(ctx context.Context, host, port string) (net.Conn, error) {
		return dial(ctx, "tcp", net.JoinHostPort(host, port))
	}})
	if err != nil {
		return nil, err
	}
	tools, err := mcpchan.New(mcpchan.Config{
		Upstream:    d.home.upstream,
		Environment: func(upstream.Definition) ([]mcpchan.Variable, func(), error) { return nil, func() {}, nil },
		Ready: func(u upstream.Definition) (channel.Request, func(), error) {
			if u.Credential == "" {
				return channel.Request{}, func() {}, nil
			}
			return d.Lend(u.Credential)
		},
		HTTP: web, Logger: slog.New(slog.DiscardHandler), Version: "test", Now: time.Now,
	})
	if err != nil {
		return nil, err
	}
	tools.Resume()
	d.close = append(d.close, tools.Close, web.Close)
	return map[effect.Channel]channel.Channel{effect.HTTP: web, effect.SSH: shell, effect.MCP: tools}, nil
}

// unlock lets calls in, and approves whatever is asked for.
func (d *daemon) unlock() error {
	if err := d.home.unlock(); err != nil {
		return err
	}
	if _, err := d.records.Unlocked(d.home); err != nil {
		return err
	}
	var actions []*policy.Action
	for i, text := range d.home.Contracts {
		c, err := policy.Parse(fmt.Sprintf("%d.yaml", i), []byte(text))
		if err != nil {
			return err
		}
		a, err := policy.Compile(c)
		if err != nil {
			return err
		}
		if c.MCP != nil {
			u, err := d.home.upstream(c.MCP.Upstream)
			if err != nil {
				return err
			}
			a = a.On(u, false)
		}
		actions = append(actions, a)
	}
	d.SetActions(actions, nil)
	if err := d.Unlocked(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.watch = cancel
	waiting, changes := d.Watch(ctx)
	agree := func(c engine.CardView) {
		for _, a := range []approval.Answer{approval.ForRun, approval.Once} {
			if d.Answer(ctx, c.Card.ID, approval.Decision{Answer: a, By: "operator"}) == nil {
				return
			}
		}
	}
	go func() {
		for _, c := range waiting {
			agree(c)
		}
		for c := range changes {
			if c.Kind == "card_added" {
				agree(*c.Card)
			}
		}
	}()
	return nil
}

// call is the agent's. Its process outlives every daemon here.
func (d *daemon) call(tool string) call.Answer {
	return d.Call(context.Background(), call.Call{
		Peer: &peer.Identity{
			Run: "run_1", Actor: "exe:/usr/bin/agent", Agent: peer.Process{PID: 4242, Start: 1, Exe: "/usr/bin/agent", Digest: "sha256:00"}, Assurance: peer.CannotTell, Via: "socket",
			Ended: make(chan struct{}), Check: func() error { return nil },
		},
		Tool: tool, Arguments: json.RawMessage(`{"order":"7"}`), Correlation: execution.Caller{Transport: "stdio", RequestID: "1"},
	})
}

// end stops in order, and holds the index against the journal.
func (d *daemon) end() error {
	if d.watch != nil {
		d.watch()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := d.Close(ctx)
	for _, f := range d.close {
		f()
	}
	d.records.Settle()
	return errors.Join(err, d.records.Index().Check(), d.records.Close())
}

// killable is the daemon that will be killed: this test binary, started again. It says "reached" on its standard output for each of its calls that has come to the boundary.
func killable(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	h := &home{}
	if err := json.Unmarshal(text, h); err != nil {
		return err
	}
	reached := func() {
		fmt.Println("reached")
		select {}
	}
	var answered func()
	if h.Boundary == conformance.AfterAnswer {
		answered = reached
	}
	var mu sync.Mutex
	dialled := map[string]int{}
	d, err := open(h, func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		dialled[address]++
		n := dialled[address]
		mu.Unlock()
		if h.Boundary == conformance.BeforeConnect && h.Earlier >= 0 && n > h.Earlier {
			reached()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}, answered)
	if err != nil {
		return err
	}
	if err := d.unlock(); err != nil {
		return err
	}
	for _, tool := range h.Calls {
		go func() {
			a := d.call(tool)
			if h.Boundary == afterRecord {
				reached()
			}
			fmt.Fprintf(os.Stderr, "%s was answered: %s %s %s\n", tool, a.State, a.Code, a.Result)
			os.Exit(1)
		}()
	}
	select {}
}

// wire is the program that a daemon starts for an upstream over stdio: its pipes, and a connection to where the upstream really is.
func wire(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(c, bufio.NewReader(os.Stdin))
		os.Exit(0)
	}()
	_, err = io.Copy(os.Stdout, c)
	return err
}
