package mcpchan

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"sync"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/scrub"
)

const (
	refusalTime = 5 * time.Second
	bodyShown   = 4 << 10 // bytes of a server's refusal that are told
)

// session is an upstream at a URL, as a link. Every request has a connection of its own.
type session struct {
	c *Channel
	s *server

	mu   sync.Mutex
	hand handshake
	id   string // Mcp-Session-Id, up to 2025-11-25
	over bool
}

func (h *session) revision() string { return h.agreed().revision }

func (h *session) agreed() handshake {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hand
}

func (h *session) set(hand handshake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hand = hand
}

func (h *session) dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

func (h *session) retire() { h.kill() }

func (h *session) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over, h.id = true, ""
}

// post makes the HTTP request of a message. Whatever r has for its credential goes with it.
func (h *session) post(r *channel.Request, method, name string, body []byte) channel.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	header := []effect.Field{{Name: "Content-Type", Value: "application/json"}, {Name: "Accept", Value: "application/json, text/event-stream"}}
	if method != "initialize" && h.hand.revision != "" {
		header = append(header, effect.Field{Name: "Mcp-Protocol-Version", Value: h.hand.revision})
	}
	if h.id != "" && method != "initialize" {
		header = append(header, effect.Field{Name: "Mcp-Session-Id", Value: h.id})
	}
	if h.hand.revision >= statelessRevision && method != "" {
		header = append(header, effect.Field{Name: "Mcp-Method", Value: method})
		if name != "" {
			header = append(header, effect.Field{Name: "Mcp-Name", Value: headerText(name)})
		}
	}
	out := *r
	out.SideEffect = true
	out.Effect = effect.Effect{Channel: effect.HTTP, HTTP: &effect.HTTPRequest{Method: "POST", URL: h.s.def.URL, Header: header, Body: body}, Auth: r.Effect.Auth}
	return out
}

// headerText writes a text so that a header can carry it (2026-07-28, Streamable HTTP, standard headers).
func headerText(s string) string {
	plain := s != "" && strings.TrimSpace(s) == s && !strings.HasPrefix(s, "=?base64?")
	for _, c := range []byte(s) {
		plain = plain && c >= ' ' && c < 0x7f
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// call posts one request and takes its answer, as JSON or as a stream of events.
func (h *session) call(ctx context.Context, q request, r *channel.Request) reply {
	id := h.c.nextID()
	post := h.post(r, q.method, q.name, q.wire(id))
	post.Effect.HTTP.Header = append(post.Effect.HTTP.Header, q.header...)
	if deadline, ok := ctx.Deadline(); ok { // the channel beneath has a limit of its own
		post.Limits.Total = time.Until(deadline) + time.Second
	}
	var got reply
	stream := newEvents()
	o := h.c.cfg.HTTP.Exchange(ctx, post, func(a httpchan.Answer) channel.Outcome {
		got = h.take(ctx, a, id, q, r, stream)
		return channel.Outcome{Verdict: channel.Success}
	})
	if o.Verdict != channel.Success {
		got = reply{verdict: o.Verdict, reason: o.Reason}
		if o.Verdict == channel.Unknown && ctx.Err() != nil {
			got.reason = "the request was sent, and no answer came: " + why(ctx)
		}
	}
	if get, ok := resuming(post, q, stream); ok {
		got = h.resume(ctx, get, id, q, r, stream)
	}
	got.asked = q.pending.asked()
	return got
}

// resuming makes of a request the GET by which the stream of its answer can be taken up where it broke (2025-11-25, Streamable HTTP, resumability). It holds no message: it asks for what the server has to
// say, and nothing can be done by it a second time. Revisions from 2026-07-28 on have no such thing. ok is false where nothing broke, or no place was named.
func resuming(post channel.Request, q request, stream *events) (get channel.Request, ok bool) {
	if stream.broke == "" || stream.last == "" || len(stream.last) > longestEvent || q.method == "initialize" {
		return get, false
	}
	for _, c := range []byte(stream.last) {
		if c < ' ' || c >= 0x7f {
			return get, false
		}
	}
	header := []effect.Field{{Name: "Accept", Value: "text/event-stream"}}
	for _, f := range post.Effect.HTTP.Header {
		switch f.Name {
		case "Mcp-Protocol-Version":
			if f.Value >= statelessRevision {
				return get, false
			}
			header = append(header, f)
		case "Mcp-Session-Id": // as it was when the request was made, whatever became of it here
			header = append(header, f)
		}
	}
	get = post
	get.Effect.HTTP = &effect.HTTPRequest{Method: "GET", URL: post.Effect.HTTP.URL, Header: header}
	return get, strings.TrimSpace(stream.last) == stream.last
}

// resume takes a stream up again until the answer to the request came, it broke without having gone on, or the attempt's time is over. Only the answer to this very request counts; everything else leaves the
// outcome as unknown as the break made it.
func (h *session) resume(ctx context.Context, get channel.Request, id uint64, q request, r *channel.Request, stream *events) reply {
	header := get.Effect.HTTP.Header
	broke := stream.broke
	failed := func(format string, args ...any) reply {
		stream.broke = ""
		return lost("the request was sent, and the stream ended before its answer: %s; %s", broke, fmt.Sprintf(format, args...))
	}
	var got reply
	var again time.Duration // grows while the server cannot be asked
	unheard := 0
	for range maxResumes {
		from, busy := stream.last, false
		if !rest(ctx, max(stream.pause, again)) {
			return lost("the request was sent, and no answer came: %s", why(ctx))
		}
		again = max(2*again, firstPause)
		get.Effect.HTTP.Header = append(header[:len(header):len(header)], effect.Field{Name: "Last-Event-ID", Value: from})
		if deadline, ok := ctx.Deadline(); ok {
			get.Limits.Total = time.Until(deadline) + time.Second
		}
		o := h.c.cfg.HTTP.Exchange(ctx, get, func(a httpchan.Answer) channel.Outcome {
			media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
			if a.Status != 200 || media != "text/event-stream" {
				busy = a.Status == 409 // the server has not noticed yet that nobody listens any more
				got = failed("the upstream does not take it up again (HTTP %d)", a.Status)
			} else {
				got = h.follow(ctx, a, id, q, r, stream)
			}
			return channel.Outcome{Verdict: channel.Success}
		})
		switch {
		case ctx.Err() != nil && got.message == nil:
			return lost("the request was sent, and no answer came: %s", why(ctx))
		case o.Verdict != channel.Success:
			got = failed("it could not be taken up again: %s", o.Reason)
			if unheard++; unheard == maxUnheard {
				return got
			}
		case got.message != nil:
			got.resumed = true
			return got
		case busy:
		case stream.broke == "":
			return got
		case stream.last == from:
			return failed("taken up again, it ended once more: %s", stream.broke)
		default:
			again = 0
		}
	}
	if stream.broke == "" {
		return got
	}
	return failed("it broke more than %d times", maxResumes)
}

// rest waits, unless ctx ends before.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// take reads an answer.
func (h *session) take(ctx context.Context, a httpchan.Answer, id uint64, q request, r *channel.Request, stream *events) reply {
	media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch {
	case a.Status == 200 && media == "text/event-stream":
		return h.follow(ctx, a, id, q, r, stream)
	case a.Status == 202 || a.Status == 204:
		return lost("the upstream answered HTTP %d, which has no answer in it", a.Status)
	}
	body, err := io.ReadAll(io.LimitReader(a.Body, messageLimit+1))
	switch {
	case len(body) > messageLimit:
		return lost("the upstream's answer is longer than %d MiB", messageLimit>>20)
	case err != nil && ctx.Err() != nil:
		return lost("the request was sent, and no answer came: %s", why(ctx))
	case err != nil && a.Status < 300:
		return lost("the request was sent, and the answer is not whole: %s", ended(err))
	}
	if m, odd := readMessage(body); err == nil && odd == nil && m.answers(id) {
		if a.Status == 200 && q.method == "initialize" && m.Result != nil {
			h.keep(a.Header.Get("Mcp-Session-Id"))
		}
		return reply{message: &m, status: a.Status}
	}
	text := printable(strings.TrimSpace(string(body)), bodyShown)
	switch {
	case a.Status == 404: // 2025-11-25, session management: such a session is over, and no request in it was taken
		h.kill()
		return reply{status: a.Status, body: text}
	case a.Status >= 300 && a.Status < 500 && a.Status != 408:
		return reply{status: a.Status, body: text}
	}
	return lost("the request was sent, and the upstream answered HTTP %d, but with no answer to it: %s", a.Status, clip(text, 300))
}

// keep remembers the session, if its id is what the protocol says that it is: visible ASCII.
func (h *session) keep(id string) {
	for _, c := range []byte(id) {
		if c <= ' ' || c >= 0x7f {
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(id) <= 1<<10 {
		h.id = id
	}
}

// follow takes a stream of events up to the answer.
func (h *session) follow(ctx context.Context, a httpchan.Answer, id uint64, q request, r *channel.Request, events *events) reply {
	events.from(a.Body)
	for {
		data, err := events.next()
		if err != nil && ctx.Err() != nil {
			return lost("the request was sent, and no answer came: %s", why(ctx))
		}
		if err != nil {
			if !errors.Is(err, errStream) && !errors.Is(err, errEvent) {
				events.broke = ended(err)
			}
			return lost("the request was sent, and the stream ended before its answer: %s", ended(err))
		}
		m, err := readMessage(data)
		if err != nil {
			continue
		}
		switch {
		case m.answers(id):
			if q.method == "initialize" && m.Result != nil {
				h.keep(a.Header.Get("Mcp-Session-Id"))
			}
			return reply{message: &m, status: a.Status}
		case m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null":
			if events.asked++; events.asked > maxAsked {
				continue
			}
			if m.Method != "ping" {
				q.pending.refuse(m.Method)
				h.c.cfg.Logger.Warn("an upstream asked for something that is refused", "upstream", h.s.def.Name, "method", printable(m.Method, 80))
			}
			h.answer(ctx, r, replyTo(&m))
		case h.s.changed(m.Method):
		case m.Method == "notifications/progress", m.Method == "notifications/message":
			all, wipe := h.scrubbers(*r)
			for _, s := range all {
				m.Params, _ = s.Bytes(m.Params)
			}
			wipe()
			q.pending.take(&m)
		}
	}
}

// answer sends what a request of the upstream gets. If that fails, the upstream waits in vain, which is its own affair.
func (h *session) answer(ctx context.Context, r *channel.Request, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	h.c.cfg.HTTP.Exchange(ctx, h.post(r, "", "", body), func(httpchan.Answer) channel.Outcome { return channel.Outcome{} })
}

func (h *session) notify(ctx context.Context, method string, r *channel.Request) error {
	body := append(append([]byte(`{"jsonrpc":"2.0","method":`), quote(nil, method)...), '}')
	status := 0
	o := h.c.cfg.HTTP.Exchange(ctx, h.post(r, method, "", body), func(a httpchan.Answer) channel.Outcome {
		status = a.Status
		return channel.Outcome{Verdict: channel.Success}
	})
	switch {
	case o.Verdict != channel.Success:
		return errors.New(o.Reason)
	case status >= 300:
		return fmt.Errorf("it answered HTTP %d to a notification", status)
	}
	return nil
}

func (h *session) describe(status, size int, scrubbed bool, asked []string) json.RawMessage {
	hand := h.agreed()
	return described{Transport: "http", Revision: hand.revision, Server: hand.server, Status: status, Bytes: size, Scrubbed: scrubbed, Refused: asked}.encode()
}

func (h *session) scrubbers(r channel.Request) ([]*scrub.Scrubber, func()) {
	if r.Secret == nil {
		return nil, func() {}
	}
	var all []*scrub.Scrubber
	_ = r.Secret.Use(func(secret []byte) error {
		a := r.Effect.Auth
		if a == nil {
			a = &effect.Auth{}
		}
		if s := httpchan.Scrubber(a, secret); s != nil {
			all = append(all, s)
		}
		return nil
	})
	return all, func() { wipeAll(all) }
}

func ended(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed"
	}
	return err.Error()
}

// trimmed is a line without its end.
func trimmed(line []byte) []byte { return bytes.TrimRight(line, "\r\n") }
