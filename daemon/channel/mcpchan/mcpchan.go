// Package mcpchan carries an action out as one tools/call to an upstream MCP server: a program that the daemon starts (stdio), or a URL (Streamable HTTP). It also reads what an upstream has to read: resources
// and prompts.
//
// It speaks the protocol itself, on the wire, at revisions 2026-07-28 and 2025-11-25 and those before it that begin with initialize. No SDK lies beneath it, because what one does for
// its user's comfort (a retry, a second round trip with answers, a redirect followed, a result decoded and written anew) is a second action or another answer here.
//
// Promises:
//   - One call of Do writes at most one tools/call. What precedes it (the handshake, and tools/list, by which each process and session is held against the pin that was accepted) asks for nothing
//     that has an effect. Nothing is sent again, no redirect is followed, and a program that was started again is sent nothing that another process was sent before.
//   - not_sent is a proof: the program could not be started, the connection was not made, the handshake or the listing failed, the tool is not the one that was accepted, or the pipe or
//     socket took no byte of the tools/call.
//   - success and target_error are said only if the upstream's own answer to this very request came whole: a result (isError decides which), or a JSON-RPC error, or an HTTP status by which
//     the server itself refuses the POST. An error that another client made further up (-32005, a timeout or a closed connection passed on by a gateway) is not that: it is unknown.
//   - Everything else is unknown: a child that died, a stream that ended, 5xx without an answer, a limit that passed, an answer that cannot be read.
//   - A stream of events that broke before the answer is taken up again where the upstream named a place in it (Last-Event-ID, up to 2025-11-25): by a GET, which holds no message. Only the answer to this very
//     request counts then, and without it the outcome is as unknown as before. The numbers of requests begin at a place of chance, so that what an upstream kept for an earlier daemon is no answer.
//   - The upstream is never told that a call was cancelled: nothing is sent but the call.
//   - The result is the upstream's own bytes, scrubbed of the secrets that the upstream was given; numbers, unknown content types, _meta and structuredContent stay as they came.
//   - A resource or prompt that is read is one resources/read or prompts/get, and comes back as the upstream's bytes inside a result of ours; in a resource's contents each URI gets the upstream's address before
//     it (upstream.Address). A prompt is got only if the upstream still describes it as it was accepted. Nothing is subscribed to.
//   - What an upstream asks of us (sampling, elicitation, roots) is refused, and the answer's description says so. ping is answered.
//
// A program runs with a small environment, its credentials of kind env in it and nowhere else, in a process group of its own, and is killed with it (on Linux also when the daemon
// dies). Suspend stops all of them, each as soon as no call is under way. What it writes to standard error goes to the log, bounded and scrubbed.
//
// Non-promises: a program of the same user can read another's environment; the secrets that a child was given cannot be wiped in it, and Go keeps its own copies as strings. The package freezes no format.
package mcpchan

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/upstream"
)

// The limits that apply where Request.Limits has none.
const (
	DefaultConnect = time.Minute // starting or connecting, handshake, listing: a program may be fetched before it starts
	DefaultTotal   = 10 * time.Minute
	DefaultAnswer  = 4 << 20
)

const (
	messageLimit = 16 << 20 // bytes of one message that are read at all
	listingFresh = 5 * time.Minute
)

// Variable is one of a child's environment, with a secret as its value.
type Variable struct {
	Name  string
	Value []byte
}

// Config is what a Channel is made of.
type Config struct {
	// Upstream returns what stands accepted under a name. Required.
	Upstream func(name string) (upstream.Definition, error)
	// Environment lends the secrets of a command's environment, until release. Required.
	Environment func(d upstream.Definition) (variables []Variable, release func(), err error)
	// Ready prepares a request of our own to a URL, such as the listing: its credential in Effect.Auth and Secret, and Permitted, until release. Required.
	Ready   func(d upstream.Definition) (r channel.Request, release func(), err error)
	HTTP    *httpchan.Channel // required
	Logger  *slog.Logger      // required
	Version string            // required: ours, which upstreams are told
	Now     func() time.Time  // required
	// Listed is told that there is a newer listing of an upstream. It must not block. Optional.
	Listed func(name string)
	// Readable is told that an upstream may have other resources than when it was asked last. It must not block. Optional.
	Readable func(name string)
}

// Channel is the MCP channel. It is safe for concurrent use.
type Channel struct {
	cfg  Config
	base context.Context // what nobody waits for runs on it
	stop context.CancelFunc

	mu        sync.Mutex
	servers   map[string]*server
	suspended string // why nothing is started now; "" if it is
	ids       uint64
	ending    sync.WaitGroup
}

// New returns a channel. It is suspended until Resume.
func New(cfg Config) (*Channel, error) {
	if cfg.Upstream == nil || cfg.Environment == nil || cfg.Ready == nil || cfg.HTTP == nil || cfg.Logger == nil || cfg.Version == "" || cfg.Now == nil {
		return nil, errors.New("making the MCP channel: Upstream, Environment, Ready, HTTP, Logger, Version and Now are required")
	}
	if cfg.Listed == nil {
		cfg.Listed = func(string) {}
	}
	if cfg.Readable == nil {
		cfg.Readable = func(string) {}
	}
	c := &Channel{cfg: cfg, servers: map[string]*server{}, suspended: "the vault is locked"}
	// Some servers take no number of more than 32 bits.
	var some [4]byte
	_, _ = rand.Read(some[:]) // does not fail
	c.ids = uint64(binary.BigEndian.Uint32(some[:]) >> 2)
	c.base, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Do carries one attempt out.
func (c *Channel) Do(ctx context.Context, r channel.Request) channel.Outcome {
	m := r.Effect.MCP
	if r.Effect.Channel != effect.MCP || m == nil {
		return notSent("the effect is not a call of an MCP tool")
	}
	if r.Limits.Connect <= 0 {
		r.Limits.Connect = DefaultConnect
	}
	if r.Limits.Total <= 0 {
		r.Limits.Total = DefaultTotal
	}
	if r.Limits.Answer <= 0 {
		r.Limits.Answer = DefaultAnswer
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.Limits.Total, fmt.Errorf("the limit of %v passed", r.Limits.Total))
	defer cancel()
	d, err := c.cfg.Upstream(m.Upstream)
	if err != nil {
		return notSent(err.Error())
	}
	if d.Identity() != m.Identity {
		return notSent(fmt.Sprintf("the upstream %q is another one than when this was accepted", m.Upstream))
	}
	s, err := c.server(d)
	if err != nil {
		return notSent(err.Error())
	}
	connecting, stop := context.WithTimeoutCause(ctx, r.Limits.Connect, fmt.Errorf("the upstream was not ready within %v", r.Limits.Connect))
	defer stop()
	l, listing, err := s.ready(connecting, &r)
	if err != nil {
		return notSent("the upstream " + m.Upstream + " cannot be used: " + err.Error())
	}
	p := &pending{progress: r.Progress}
	q := request{method: m.Method, name: about(*m), pending: p}
	if m.Method == "" {
		var tool Listed
		if tool, err = listing.holds(*m); err == nil {
			q.header, err = paramFields(tool.headers, m.Arguments)
		}
		q.method, q.params = "tools/call", callParams(l.revision(), c.cfg.Version, r, p)
	} else {
		err = s.mayRead(connecting, l, &r)
		q.params = readParams(l.revision(), c.cfg.Version, r, p)
	}
	if err != nil {
		return notSent(err.Error())
	}
	return l.call(ctx, q, &r).outcome(r, l)
}

// holds checks that the tool is still the one that was accepted.
func (l *Listing) holds(m effect.MCPCall) (Listed, error) {
	for _, t := range l.Tools {
		if t.Tool.Name != m.Tool {
			continue
		}
		if t.Pin != m.Pin {
			return t, fmt.Errorf("the upstream %s describes its tool %q otherwise than when it was accepted: look at spctl upstream tools %s", m.Upstream, m.Tool, m.Upstream)
		}
		return t, nil
	}
	return Listed{}, fmt.Errorf("the upstream %s no longer has the tool %q", m.Upstream, m.Tool)
}

// List asks an upstream what it has.
func (c *Channel) List(ctx context.Context, name string) (*Listing, error) {
	d, err := c.cfg.Upstream(name)
	if err != nil {
		return nil, err
	}
	s, err := c.server(d)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, DefaultConnect, fmt.Errorf("the upstream did not answer within %v", DefaultConnect))
	defer cancel()
	s.stale.Store(true)
	var listing *Listing
	err = c.own(d, func(r *channel.Request) error {
		_, listing, err = s.ready(ctx, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking the upstream %s: %w", name, err)
	}
	return listing, nil
}

// own lends a request of ours for a time.
func (c *Channel) own(d upstream.Definition, use func(*channel.Request) error) error {
	if !d.HTTP() {
		return use(&channel.Request{})
	}
	r, release, err := c.cfg.Ready(d)
	if err != nil {
		return err
	}
	defer release()
	return use(&r)
}

// Listing returns the newest listing that is known, or nil, and why there is none newer.
func (c *Channel) Listing(name string) (*Listing, error) {
	c.mu.Lock()
	s := c.servers[name]
	c.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	return s.known()
}

// Resume lets upstreams be used.
func (c *Channel) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended = ""
}

// Suspend stops every program as soon as no call is under way in it, and forgets every session. Nothing is started until Resume. It does not wait.
func (c *Channel) Suspend(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended = why
	for name := range c.servers {
		c.dropLocked(name)
	}
}

// Forget stops what stands under a name, as soon as no call is under way in it. It does not wait.
func (c *Channel) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(name)
}

func (c *Channel) dropLocked(name string) {
	s := c.servers[name]
	if s == nil {
		return
	}
	delete(c.servers, name)
	c.ending.Add(1)
	go func() {
		defer c.ending.Done()
		s.retire()
	}()
}

// Close ends every program, whatever is under way in it, and waits until they are gone.
func (c *Channel) Close() {
	c.mu.Lock()
	all := make([]*server, 0, len(c.servers))
	for _, s := range c.servers {
		all = append(all, s)
	}
	c.mu.Unlock()
	c.Suspend("the daemon is ending")
	c.stop()
	for _, s := range all {
		s.kill()
	}
	c.ending.Wait()
}

// server returns what is known of an upstream, which is new if the operator made it another one.
func (c *Channel) server(d upstream.Definition) (*server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended != "" {
		return nil, errors.New(c.suspended + ", so no upstream is used")
	}
	s := c.servers[d.Name]
	if s != nil && s.def.Identity() != d.Identity() {
		c.dropLocked(d.Name)
		s = nil
	}
	if s == nil {
		s = newServer(c, d)
		c.servers[d.Name] = s
	}
	return s, nil
}

func (c *Channel) nextID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids++
	return c.ids
}

func notSent(reason string) channel.Outcome {
	return channel.Outcome{Verdict: channel.NotSent, Reason: reason}
}

// why says which end a context came to.
func why(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return "the attempt ended"
	case errors.Is(cause, context.DeadlineExceeded):
		return "the time limit passed"
	case errors.Is(cause, context.Canceled):
		return "the attempt was cancelled"
	default:
		return cause.Error()
	}
}
