package policy

import (
	"net/url"
	"slices"
	"strings"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/fingerprint"
)

// Render makes the exact effect of a prepared call: what the card shows, the journal seals and the channel sends. Its error is *ArgumentError.
//
// Where the contract names a credential, Auth holds its name only; the caller adds kind and place from the vault.
//
// An optional argument that is absent leaves out the JSON member, list item, query parameter, form or header field that names it.
func (a *Action) Render(p Prepared, id string) (effect.Effect, error) {
	c := a.contract
	if c.MCP != nil {
		return a.renderMCP(p, id)
	}
	if c.Asks {
		ask, wrong := question(p.values)
		if wrong != nil {
			return effect.Effect{}, wrong
		}
		return effect.Effect{Channel: effect.Person, Ask: &ask}, nil
	}
	if c.Generic {
		e, wrong := c.genericEffect(p.values)
		if wrong != nil {
			return effect.Effect{}, wrong
		}
		e.Auth = &effect.Auth{Credential: c.Credential}
		return e, nil
	}
	if c.SSH != nil {
		return a.renderSSH(p, id)
	}
	r := renderer{values: p.values, id: id, in: c.input}
	request := r.request(c.HTTP, a.ownContentType)
	request.Success = slices.Clone(a.success)
	if c.Replay.Class == execution.Idempotent {
		request.Header = append(request.Header, effect.Field{Name: c.Replay.IdempotencyHeader, Value: id})
	}
	if r.err != nil {
		return effect.Effect{}, r.err
	}
	e := effect.Effect{Channel: effect.HTTP, HTTP: request}
	if c.Credential != "" {
		e.Auth = &effect.Auth{Credential: c.Credential}
	}
	if s := c.Replay.Status; s != nil {
		e.Status = &effect.StatusRequest{
			HTTP: *r.request(&s.HTTP, s.ownContentType), Fields: slices.Clone(s.Fields), Within: s.Within,
			Done: s.Done, Failed: s.Failed, NotDone: s.NotDone, Running: s.Running,
		}
		if c.Replay.Accepted != nil {
			e.Status.Accepted = c.Replay.Accepted.Text
		}
		if s.Credential != "" {
			e.Status.Auth = &effect.Auth{Credential: s.Credential}
		}
		if r.err != nil {
			return effect.Effect{}, r.err
		}
	}
	return e, nil
}

// request fills a request's templates; what cannot go where it should is in r.err.
func (r *renderer) request(h *HTTP, ownContentType bool) *effect.HTTPRequest {
	request := &effect.HTTPRequest{Method: h.Method, URL: r.url(h)}
	for _, pair := range h.Headers {
		if value, ok := r.text(pair.template); ok {
			if !headerValue(value) || strings.TrimSpace(value) != value {
				r.refuse(pair.template, "it has a character that a header field cannot carry", "send visible ASCII characters and spaces between them")
			}
			request.Header = append(request.Header, effect.Field{Name: pair.Name, Value: value})
		}
	}
	contentType := ""
	switch {
	case h.json != nil:
		contentType = "application/json"
		request.Body, _ = r.json(nil, h.json)
	case h.form != nil:
		contentType = "application/x-www-form-urlencoded"
		request.Body = []byte(r.encode(h.form))
	case h.body != nil:
		contentType = "text/plain; charset=utf-8"
		body, _ := r.text(*h.body)
		request.Body = []byte(body)
	}
	if contentType != "" && !ownContentType {
		request.Header = append(request.Header, effect.Field{Name: "Content-Type", Value: contentType})
	}
	return request
}

// renderer fills templates. The first argument that cannot go where it should is kept in err.
type renderer struct {
	values map[string]any
	id     string
	in     *input
	answer Learned // of the action's own request; nil leaves its placeholders as they are
	base   string  // the URL of that request
	within string  // where a URL of the target's own has to lie
	err    error
}

func (r *renderer) refuse(t template, problem, remedy string) {
	pointer := ""
	for _, p := range t {
		if p.name != "" && p.name != executionID {
			pointer = sub("", p.name)
			break
		}
	}
	if pointer != "" && strings.HasPrefix(pointer[1:], answerPrefix) {
		r.refuseAnswer(t, problem)
		return
	}
	if r.err == nil {
		r.err = &ArgumentError{pointer, problem, remedy}
	}
}

// argument is a scalar argument as text. Numbers are in their canonical form.
func (r *renderer) argument(name string) (string, bool) {
	if name == executionID {
		return r.id, true
	}
	if field, ok := answerField(name); ok {
		return r.answerText(field)
	}
	switch v := r.values[name].(type) {
	case string:
		return v, true
	case float64, bool:
		return string(fingerprint.Append(nil, v)), true
	}
	return "", false
}

// text fills a template. It reports false when an argument is absent.
func (r *renderer) text(t template) (string, bool) {
	if len(t) == 1 && t[0].name == "" {
		return t[0].literal, true
	}
	var b strings.Builder
	for _, p := range t {
		if p.name == "" {
			b.WriteString(p.literal)
			continue
		}
		value, ok := r.argument(p.name)
		if !ok {
			return "", false
		}
		b.WriteString(value)
	}
	return b.String(), true
}

// url fills path and query. An argument stays within its path segment, for readers that decode %2F before they resolve dots too: those of the credential's path prefix
// among them.
func (r *renderer) url(h *HTTP) string {
	if h.answer != "" {
		return r.answerURL(h)
	}
	var b strings.Builder
	b.WriteString(h.origin)
	for i, segment := range h.path {
		b.WriteByte('/')
		start := b.Len()
		for _, p := range segment {
			if p.name == "" {
				b.WriteString(p.literal)
				continue
			}
			value, ok := r.argument(p.name)
			if !ok {
				r.refuse(segment, "it is missing", "send it; the URL cannot do without it")
			}
			if _, isAnswer := answerField(p.name); isAnswer && r.answer == nil {
				b.WriteString(value) // not filled yet: shown, and never sent
				continue
			}
			b.WriteString(strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
		}
		if segment.isLiteral() || r.answer == nil && segment.needsAnswer() {
			continue
		}
		written := b.String()[start:]
		decoded, err := url.PathUnescape(written)
		switch {
		case written == "" && i < len(h.path):
			r.refuse(segment, "it is empty, but stands in the URL's path", "send a value")
		case err != nil || dots(decoded):
			r.refuse(segment, "it has a part that moves to another folder of the URL (. or ..)", "send a plain name")
		case strings.ContainsFunc(decoded, func(c rune) bool { return c < ' ' || c == 0x7f }):
			r.refuse(segment, "it has a control character, but stands in the URL's path", "send a plain name")
		}
	}
	if query := r.encode(h.Query); query != "" {
		b.WriteString("?" + query)
	}
	return b.String()
}

// dots says whether a path segment, decoded, has a part that means this folder or the one above.
func dots(decoded string) bool {
	for part := range strings.FieldsFuncSeq(decoded, func(c rune) bool { return c == '/' || c == '\\' }) {
		// "..;x" is ".." to servers that know path parameters.
		if name, _, _ := strings.Cut(part, ";"); name == "." || name == ".." {
			return true
		}
	}
	return false
}

// encode writes pairs in the contract's order, as the URL standard's application/x-www-form-urlencoded.
func (r *renderer) encode(pairs []Pair) string {
	var b strings.Builder
	for _, pair := range pairs {
		value, ok := r.text(pair.template)
		if !ok {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(pair.Name) + "=" + url.QueryEscape(value))
	}
	return b.String()
}

// json fills a JSON template. It reports false when an argument is absent.
func (r *renderer) json(dst []byte, t *jsonTemplate) ([]byte, bool) {
	switch t.kind {
	case text:
		if field, ok := answerField(t.text.whole()); ok && r.answer != nil {
			return append(dst, r.answer[field]...), true
		} else if name := t.text.whole(); name != "" && name != executionID && !ok {
			v, ok := r.values[name]
			if !ok {
				return dst, false
			}
			return fingerprint.Append(dst, v), true
		}
		s, ok := r.text(t.text)
		if !ok {
			return dst, false
		}
		return fingerprint.Append(dst, s), true
	case object:
		dst = append(dst, '{')
		first := true
		for _, m := range t.members {
			mark := len(dst)
			if !first {
				dst = append(dst, ',')
			}
			dst = append(fingerprint.Append(dst, m.name), ':')
			var ok bool
			if dst, ok = r.json(dst, m.value); !ok {
				dst = dst[:mark]
				continue
			}
			first = false
		}
		return append(dst, '}'), true
	case list:
		dst = append(dst, '[')
		first := true
		for _, item := range t.items {
			mark := len(dst)
			if !first {
				dst = append(dst, ',')
			}
			var ok bool
			if dst, ok = r.json(dst, item); !ok {
				dst = dst[:mark]
				continue
			}
			first = false
		}
		return append(dst, ']'), true
	}
	return append(dst, t.literal...), true
}

// headerValue says whether a field can carry the text: visible ASCII, space and tab (RFC 9110, section 5.5, without obs-text).
func headerValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}
