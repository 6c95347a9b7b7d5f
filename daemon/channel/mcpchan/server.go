package mcpchan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/scrub"
	"singlepass.dev/daemon/upstream"
)

// Listing is what an upstream said that it has.
type Listing struct {
	At       time.Time
	Revision string
	Server   string // its own name and version
	Tools    []Listed
	// Resources and Prompts say that it has such things.
	Resources, Prompts bool
}

// Listed is one tool of a listing.
type Listed struct {
	Tool upstream.Tool
	Pin  string
	Err  error // why the tool cannot be used; nil if it can

	headers []paramHeader // arguments that go into headers of the request too
}

// link is a way to an upstream that was made: a process, or a session at a URL.
type link interface {
	// call makes one request and waits for its answer. It writes it at most once.
	call(ctx context.Context, q request, r *channel.Request) reply
	notify(ctx context.Context, method string, r *channel.Request) error
	revision() string
	set(h handshake)
	dead() bool
	describe(status, size int, scrubbed bool, asked []string) json.RawMessage
	scrubbers(r channel.Request) (all []*scrub.Scrubber, wipe func())
	// retire ends the link as soon as nothing is under way on it; kill ends it now. Both wait for that.
	retire()
	kill()
}

// handshake is what was agreed on.
type handshake struct {
	revision                  string
	server                    string
	tools, resources, prompts bool
}

// server is one upstream.
type server struct {
	c     *Channel
	def   upstream.Definition
	gate  chan struct{} // held by whoever makes the link ready
	stale atomic.Bool   // the upstream said that its tools changed, or somebody wants to know

	stalePrompts atomic.Bool // the same of its prompts

	mu      sync.Mutex
	link    link
	listing *Listing
	problem error
	legacy  bool // it does not take a request before initialize
	backoff time.Duration
	next    time.Time // not started again before
	retired bool

	reading      *listed     // the newest asking what it has to read
	promptsKnown *promptList // nil before it was asked
}

func newServer(c *Channel, d upstream.Definition) *server {
	return &server{c: c, def: d, gate: make(chan struct{}, 1)}
}

func (s *server) known() (*Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listing, s.problem
}

// ready returns a link whose tools are known. Nothing with an effect is asked for until then.
func (s *server) ready(ctx context.Context, r *channel.Request) (link, *Listing, error) {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return nil, nil, errors.New(why(ctx))
	}
	s.mu.Lock()
	l, listing, retired := s.link, s.listing, s.retired
	s.mu.Unlock()
	if retired {
		return nil, nil, errors.New("it was changed or suspended meanwhile")
	}
	fresh := listing != nil && s.c.cfg.Now().Sub(listing.At) < listingFresh
	if l != nil && !l.dead() && listing != nil && !s.stale.Load() && (fresh || !s.def.HTTP()) {
		return l, listing, nil
	}
	l, listing, err := s.prepare(ctx, l, r)
	s.mu.Lock()
	s.problem = err
	if err == nil {
		s.listing = listing
	}
	if s.retired && l != nil { // meanwhile
		go l.retire()
		err = errors.New("it was changed or suspended meanwhile")
	}
	s.mu.Unlock()
	s.c.cfg.Listed(s.def.Name)
	if err != nil {
		return nil, nil, err
	}
	return l, listing, nil
}

// prepare makes the link, if there is none that lives, and asks for the tools.
func (s *server) prepare(ctx context.Context, l link, r *channel.Request) (link, *Listing, error) {
	if l == nil || l.dead() {
		var err error
		if l, err = s.connect(ctx, r); err != nil {
			return nil, nil, err
		}
	}
	s.stale.Store(false)
	listing, err := s.list(ctx, l, r)
	err = scrubbed(err, l, r)
	if err != nil && s.def.HTTP() { // the session may be gone; the next try begins anew
		s.mu.Lock()
		s.link = nil
		s.mu.Unlock()
	}
	return l, listing, err
}

const (
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = time.Minute
	healthy      = time.Minute // a process that lived so long was no failed start
	probeTime    = 3 * time.Second
)

// connect makes a link and shakes hands: first as the stateless revision has it, and where the upstream does not know that, with initialize.
func (s *server) connect(ctx context.Context, r *channel.Request) (link, error) {
	for {
		l, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		legacy, retired := s.legacy, s.retired
		s.link, s.listing = l, nil // for kill; nobody else takes it while the gate is held
		s.mu.Unlock()
		if retired {
			l.kill()
			return nil, errors.New("it was changed or suspended meanwhile")
		}
		h, again, err := s.shake(ctx, l, r, legacy)
		if err == nil {
			l.set(h)
			return l, nil
		}
		err = scrubbed(err, l, r)
		l.kill()
		s.mu.Lock()
		s.link = nil
		s.mu.Unlock()
		if !again || legacy {
			return nil, err
		}
		s.mu.Lock()
		s.legacy, s.next = true, time.Time{} // it fell over the probe, which is no fault of its own
		s.mu.Unlock()
	}
}

// open starts the program, after the pause that follows a failed start, or makes a session at the URL.
func (s *server) open(ctx context.Context) (link, error) {
	if s.def.HTTP() {
		return &session{c: s.c, s: s}, nil
	}
	now := s.c.cfg.Now()
	s.mu.Lock()
	wait := s.next.Sub(now)
	s.mu.Unlock()
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("it ended before and is not started again for another %v (%s)", wait.Round(time.Millisecond), why(ctx))
		}
	}
	p, err := start(s)
	if err != nil {
		s.ended(0)
		return nil, err
	}
	return p, nil
}

// ended notes how long a process lived, which says when another is started.
func (s *server) ended(lived time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lived >= healthy {
		s.backoff = 0
	}
	s.backoff = min(max(2*s.backoff, firstBackoff), lastBackoff)
	s.next = s.c.cfg.Now().Add(s.backoff)
}

// shake agrees on a revision. again says that another link could do without the probe.
func (s *server) shake(ctx context.Context, l link, r *channel.Request, legacy bool) (h handshake, again bool, err error) {
	if !legacy {
		l.set(handshake{revision: statelessRevision})
		probe, stop := context.WithTimeout(ctx, probeTime)
		got := l.call(probe, request{method: "server/discover", params: params(statelessRevision, s.c.cfg.Version)}, r)
		stop()
		switch {
		case got.verdict == channel.NotSent:
			return h, false, errors.New(got.reason)
		case got.verdict != "" && ctx.Err() != nil:
			return h, false, errors.New(why(ctx))
		case got.verdict != "" && l.dead():
			return h, true, errors.New(got.reason) // it may have fallen over a request that it does not know
		}
		if got.err() == nil {
			var in struct {
				Supported    []string     `json:"supportedVersions"`
				Capabilities capabilities `json:"capabilities"`
				Meta         struct {
					Server implementation `json:"io.modelcontextprotocol/serverInfo"`
				} `json:"_meta"`
			}
			if json.Unmarshal(got.message.Result, &in) == nil && slices.Contains(in.Supported, statelessRevision) {
				return in.Capabilities.handshake(statelessRevision, in.Meta.Server), false, nil
			}
		}
		if got.verdict == "" && got.message == nil && got.status != 400 && got.status != 404 && got.status != 405 { // a server of an earlier revision says one of these
			return h, false, got.err()
		}
	}
	h, err = s.initialize(ctx, l, r)
	return h, false, err
}

func (s *server) initialize(ctx context.Context, l link, r *channel.Request) (handshake, error) {
	l.set(handshake{revision: initializeWith})
	got := l.call(ctx, request{method: "initialize", params: params("", "",
		`"protocolVersion":"`+initializeWith+`"`, `"capabilities":{}`, `"clientInfo":`+clientInfo(s.c.cfg.Version))}, r)
	if err := got.err(); err != nil {
		return handshake{}, fmt.Errorf("the handshake failed: %w", err)
	}
	var in struct {
		Revision     string         `json:"protocolVersion"`
		Capabilities capabilities   `json:"capabilities"`
		Server       implementation `json:"serverInfo"`
	}
	if err := json.Unmarshal(got.message.Result, &in); err != nil {
		return handshake{}, errors.New("the handshake failed: its answer cannot be read")
	}
	if !slices.Contains(revisions, in.Revision) {
		return handshake{}, fmt.Errorf("it speaks revision %q of the protocol, which this version does not", clip(in.Revision, 40))
	}
	h := in.Capabilities.handshake(in.Revision, in.Server)
	l.set(h)
	if err := l.notify(ctx, "notifications/initialized", r); err != nil {
		return handshake{}, fmt.Errorf("the handshake failed: %w", err)
	}
	return h, nil
}

type capabilities struct {
	Tools     *struct{} `json:"tools"`
	Resources *struct{} `json:"resources"`
	Prompts   *struct{} `json:"prompts"`
}

type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (c capabilities) handshake(revision string, i implementation) handshake {
	return handshake{revision: revision, server: printable(strings.TrimSpace(i.Name+" "+i.Version), 120), tools: c.Tools != nil, resources: c.Resources != nil, prompts: c.Prompts != nil}
}

const maxPages = 64

// list asks for the tools.
func (s *server) list(ctx context.Context, l link, r *channel.Request) (*Listing, error) {
	h := s.agreed(l)
	out := &Listing{At: s.c.cfg.Now(), Revision: h.revision, Server: h.server, Resources: h.resources, Prompts: h.prompts}
	if !h.tools && (h.resources || h.prompts) { // one that says nothing of any is asked all the same
		return out, nil
	}
	cursor := ""
	for range maxPages {
		var members []string
		if cursor != "" {
			members = append(members, `"cursor":`+string(quote(nil, cursor)))
		}
		got := l.call(ctx, request{method: "tools/list", params: params(l.revision(), s.c.cfg.Version, members...)}, r)
		if err := got.err(); err != nil {
			return nil, fmt.Errorf("its tools cannot be listed: %w", err)
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(got.message.Result, &page); err != nil {
			return nil, errors.New("its tools cannot be listed: the list cannot be read")
		}
		for _, raw := range page.Tools {
			if len(out.Tools) == upstream.MaxTools {
				return nil, fmt.Errorf("it has more than %d tools", upstream.MaxTools)
			}
			t, err := upstream.ParseTool(raw)
			one := Listed{Tool: t, Err: err}
			if err == nil {
				one.Pin, one.Err = t.Pin()
			}
			if one.Err == nil && s.def.HTTP() && h.revision >= statelessRevision {
				one.headers, one.Err = paramHeaders(t.InputSchema)
			}
			if slices.ContainsFunc(out.Tools, func(o Listed) bool { return o.Tool.Name == t.Name }) {
				one.Err, one.Pin = fmt.Errorf("the upstream lists %q twice", clip(t.Name, 80)), ""
			}
			if one.Err != nil {
				one.Pin = ""
			}
			out.Tools = append(out.Tools, one)
		}
		if page.Next == "" {
			return out, nil
		}
		cursor = page.Next
	}
	return nil, fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

func (s *server) agreed(l link) handshake {
	switch l := l.(type) {
	case *process:
		return l.agreed()
	case *session:
		return l.agreed()
	}
	return handshake{revision: l.revision()}
}

// changed is told by the upstream that it has others now than before. It reports whether the method says that.
func (s *server) changed(method string) bool {
	switch method {
	case "notifications/tools/list_changed":
		s.stale.Store(true)
		s.c.cfg.Listed(s.def.Name)
	case "notifications/prompts/list_changed":
		s.stalePrompts.Store(true)
	case "notifications/resources/list_changed":
		s.c.cfg.Readable(s.def.Name)
	default:
		return false
	}
	return true
}

// retire ends the link once nothing is under way on it.
func (s *server) retire() {
	s.mu.Lock()
	s.retired = true
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.retire()
	}
}

func (s *server) kill() {
	s.mu.Lock()
	s.retired = true
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.kill()
	}
}
