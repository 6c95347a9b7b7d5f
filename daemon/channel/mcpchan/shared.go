package mcpchan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/upstream"
)

// listingShared is how long a list of what an upstream has to read is given again, a failure too: whoever asks in a loop makes one request to it in that time. Otherwise it is asked each time, so that a change needs no notice.
const listingShared = 2 * time.Second

// ListedPrompt is one prompt of an upstream.
type ListedPrompt struct {
	Prompt upstream.Prompt
	Err    error // why it cannot be used; nil if it can
}

// listed is one asking what an upstream has to read. Its results are there once done is closed.
type listed struct {
	done chan struct{}
	at   time.Time
	got  upstream.Readable
	err  error
	late bool // somebody gave up waiting for it; owned by server.mu
}

// Readable asks an upstream what it has to read. It may be asked by many at a time, and makes one request of that. When ctx ends before the upstream has answered, Config.Readable is called once it has.
func (c *Channel) Readable(ctx context.Context, name string) (upstream.Readable, error) {
	d, err := c.cfg.Upstream(name)
	if err != nil {
		return upstream.Readable{}, err
	}
	s, err := c.server(d)
	if err != nil {
		return upstream.Readable{}, err
	}
	s.mu.Lock()
	q := s.reading
	if q == nil || q.over() && c.cfg.Now().Sub(q.at) >= listingShared {
		q = &listed{done: make(chan struct{})}
		s.reading = q
		c.ending.Go(func() { s.read(q) })
	}
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.got, q.err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.over() {
			return q.got, q.err
		}
		q.late = true
		return upstream.Readable{}, errors.New("it has not answered in time")
	}
}

func (q *listed) over() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// read asks for resources and templates.
func (s *server) read(q *listed) {
	ctx, cancel := context.WithTimeoutCause(s.c.base, DefaultConnect, fmt.Errorf("it did not answer within %v", DefaultConnect))
	defer cancel()
	err := s.c.own(s.def, func(r *channel.Request) error {
		l, _, err := s.ready(ctx, r)
		if err != nil {
			return err
		}
		if !s.agreed(l).resources {
			return errors.New("it has no resources")
		}
		q.got, err = s.resources(ctx, l, r)
		return scrubbed(err, l, r)
	})
	s.mu.Lock()
	q.err, q.at = err, s.c.cfg.Now()
	late := q.late
	close(q.done)
	s.mu.Unlock()
	if late && err == nil {
		s.c.cfg.Readable(s.def.Name)
	}
}

func (s *server) resources(ctx context.Context, l link, r *channel.Request) (upstream.Readable, error) {
	var out upstream.Readable
	cut := func(why string) {
		if out.Cut == "" {
			out.Cut = why
		}
	}
	for _, kind := range []struct {
		method, member string
		template       bool
		into           *[]upstream.Resource
	}{
		{"resources/list", "resources", false, &out.Resources},
		{"resources/templates/list", "resourceTemplates", true, &out.Templates},
	} {
		whole, got, err := s.pages(ctx, l, r, kind.method, kind.member, upstream.MaxResources, func(raw json.RawMessage) {
			one, err := upstream.ParseResource(raw, kind.template)
			if err != nil {
				cut("some entries cannot be passed on: " + err.Error())
				return
			}
			*kind.into = append(*kind.into, one)
		})
		if e, failed := got.rpcError(); kind.template && failed && e.Code == -32601 {
			continue // resources without templates
		}
		if err != nil {
			return out, fmt.Errorf("its resources cannot be listed: %w", err)
		}
		if !whole {
			cut(fmt.Sprintf("it has more than the %d entries or %d KiB that are passed on", upstream.MaxResources, upstream.MaxSharedBytes>>10))
		}
	}
	return out, nil
}

// pages asks for a list page by page, without the upstream's secrets, up to a bound. whole says that the bound was not reached.
func (s *server) pages(ctx context.Context, l link, r *channel.Request, method, member string, most int, each func(json.RawMessage)) (whole bool, last reply, err error) {
	scrubs, wipe := l.scrubbers(*r)
	defer wipe()
	cursor, n, size := "", 0, 0
	for range maxPages {
		var members []string
		if cursor != "" {
			members = append(members, `"cursor":`+string(quote(nil, cursor)))
		}
		last = l.call(ctx, request{method: method, params: params(l.revision(), s.c.cfg.Version, members...)}, r)
		if err := last.err(); err != nil {
			return false, last, err
		}
		raw := []byte(last.message.Result)
		for _, one := range scrubs {
			raw, _ = one.Bytes(raw)
		}
		if depth(raw) > maxDepth {
			return false, last, errors.New("the list nests too deep")
		}
		var page map[string]json.RawMessage
		var entries []json.RawMessage
		next := ""
		if json.Unmarshal(raw, &page) != nil || json.Unmarshal(page[member], &entries) != nil {
			return false, last, errors.New("the list cannot be read")
		}
		if page["nextCursor"] != nil {
			_ = json.Unmarshal(page["nextCursor"], &next)
		}
		for _, raw := range entries {
			if size += len(raw); n == most || size > upstream.MaxSharedBytes {
				return false, last, nil
			}
			n++
			each(raw)
		}
		if next == "" {
			return true, last, nil
		}
		cursor = next
	}
	return false, last, nil
}

// Prompts asks an upstream for its prompts.
func (c *Channel) Prompts(ctx context.Context, name string) ([]ListedPrompt, error) {
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
	var out []ListedPrompt
	err = c.own(d, func(r *channel.Request) error {
		l, _, err := s.ready(ctx, r)
		if err != nil {
			return err
		}
		s.stalePrompts.Store(true)
		out, err = s.prompts(ctx, l, r)
		return scrubbed(err, l, r)
	})
	if err != nil {
		return nil, fmt.Errorf("asking the upstream %s for its prompts: %w", name, err)
	}
	return out, nil
}

// promptList is what one link said of its prompts.
type promptList struct {
	link link
	at   time.Time
	all  []ListedPrompt
}

// prompts returns the prompts of a link: those that are known, unless there may be others by now.
func (s *server) prompts(ctx context.Context, l link, r *channel.Request) ([]ListedPrompt, error) {
	if !s.agreed(l).prompts {
		return nil, errors.New("it has no prompts")
	}
	s.mu.Lock()
	known := s.promptsKnown
	s.mu.Unlock()
	if known != nil && known.link == l && !s.stalePrompts.Load() && s.c.cfg.Now().Sub(known.at) < listingFresh {
		return known.all, nil
	}
	s.stalePrompts.Store(false)
	list := &promptList{link: l, at: s.c.cfg.Now()}
	whole, _, err := s.pages(ctx, l, r, "prompts/list", "prompts", upstream.MaxPrompts, func(raw json.RawMessage) {
		p, err := upstream.ParsePrompt(raw)
		if i := slices.IndexFunc(list.all, func(o ListedPrompt) bool { return o.Prompt.Name == p.Name }); i >= 0 {
			err = fmt.Errorf("the upstream lists %q twice", clip(p.Name, 80))
			list.all[i].Err = err
		}
		list.all = append(list.all, ListedPrompt{p, err})
	})
	if err == nil && !whole {
		err = fmt.Errorf("it has more than the %d prompts or %d KiB that are looked at", upstream.MaxPrompts, upstream.MaxSharedBytes>>10)
	}
	if err != nil {
		s.stalePrompts.Store(true)
		return nil, fmt.Errorf("its prompts cannot be listed: %w", err)
	}
	s.mu.Lock()
	s.promptsKnown = list
	s.mu.Unlock()
	return list.all, nil
}

// mayRead checks that what is to be read is still what was accepted.
func (s *server) mayRead(ctx context.Context, l link, r *channel.Request) error {
	m := r.Effect.MCP
	if m.Method == upstream.ReadResource {
		if !s.agreed(l).resources {
			return fmt.Errorf("the upstream %s has no resources", m.Upstream)
		}
		return nil
	}
	all, err := s.prompts(ctx, l, r)
	if err != nil {
		return fmt.Errorf("the upstream %s cannot be used: %w", m.Upstream, scrubbed(err, l, r))
	}
	name := about(*m)
	i := slices.IndexFunc(all, func(p ListedPrompt) bool { return p.Prompt.Name == name })
	switch {
	case i < 0:
		return fmt.Errorf("the upstream %s no longer has the prompt %q", m.Upstream, clip(name, 80))
	case all[i].Err != nil || all[i].Prompt.Pin() != m.Pin:
		return fmt.Errorf("the upstream %s describes its prompt %q otherwise than when it was accepted: look at spctl upstream prompts %s", m.Upstream, clip(name, 80), m.Upstream)
	}
	return nil
}

// about is what a request names: its tool, prompt or resource.
func about(m effect.MCPCall) string {
	if m.Method == "" {
		return m.Tool
	}
	var in struct{ URI, Name string }
	_ = json.Unmarshal(m.Arguments, &in) // the effect was checked
	return in.URI + in.Name
}

// readParams writes the parameters of something that is read: the arguments are exactly the effect's bytes, and _meta follows them.
func readParams(revision, version string, r channel.Request, p *pending) []byte {
	b := append([]byte(nil), r.Effect.MCP.Arguments[:len(r.Effect.MCP.Arguments)-1]...)
	b = append(b, `,"_meta":{"dev.singlepass/execution_id":`...)
	b = quote(b, r.ExecutionID)
	if revision >= statelessRevision {
		b = append(append(b, ','), meta(version)...)
	}
	if p.progress != nil {
		b = append(b, `,"progressToken":`...)
		b = quote(b, progressToken(r))
	}
	return append(b, `}}`...)
}

// readAnswer makes of an answer what an agent gets: its own bytes as a member of ours, so that what we say and what the upstream says cannot be taken for each other. In what is read of a resource, each URI has
// the upstream's name before it; nothing else is changed.
func readAnswer(m effect.MCPCall, raw []byte) (result json.RawMessage, failed bool, note string) {
	refuse := func(why string) (json.RawMessage, bool, string) {
		return ownResult("The upstream answered, but its answer is withheld: "+why+".", "", true), true, why
	}
	what, reason := readResult(raw)
	switch {
	case reason != "":
		return refuse(reason)
	case what.note != "":
		return refuse(what.note)
	}
	got, err := raw, error(nil)
	if m.Method == upstream.ReadResource {
		got, err = addressed(raw, upstream.Address(m.Upstream, ""))
	} else {
		err = hasList(raw, "messages")
	}
	if err != nil {
		return refuse("what the upstream answered is not the answer to " + m.Method + ": " + err.Error())
	}
	return ownResult("What was read is in structuredContent.result ("+strconv.Itoa(len(raw))+" bytes).", `{"result":`+string(got)+`}`, false), false, ""
}
