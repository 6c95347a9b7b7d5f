package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxAnswerLimit = 64 << 20

func (p *parser) http(n *node, path string, in *input) *HTTP {
	h := &HTTP{Success: []StatusRange{{200, 299}}}
	p.request(n, path, in, h, []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, maxAnswerLimit,
		field{"success", "", func(n *node, path string) { h.Success = p.success(n, path) }})
	return h
}

// request reads what every request has, and the fields that this one has beside them.
func (p *parser) request(n *node, path string, in *input, h *HTTP, methods []string, maxAnswer int64, more ...field) {
	var bodies []string
	body := func(name string) { bodies = append(bodies, name) }
	p.object(n, path, append([]field{
		{"method", "write `method: GET`, POST, …", func(n *node, path string) { h.Method, _ = enum(p, n, path, methods...) }},
		{"url", "write `url: https://…`", func(n *node, path string) { p.url(n, path, h, in) }},
		{"headers", "", func(n *node, path string) { h.Headers = p.headers(n, path, in) }},
		{"query", "", func(n *node, path string) { h.Query = p.pairs(n, path, in, inQuery) }},
		{"json", "", func(n *node, path string) { body("json"); h.json = p.jsonTemplate(n, path, in, asRoot) }},
		{"form", "", func(n *node, path string) { body("form"); h.form = append([]Pair{}, p.pairs(n, path, in, inForm)...) }},
		{"body", "", func(n *node, path string) {
			body("body")
			t := p.template(n, path, in, inBody)
			h.body = &t
		}},
		{"timeout", "", func(n *node, path string) {
			p.object(n, path, []field{
				{"connect", "", func(n *node, path string) { h.Connect, _ = p.duration(n, path, time.Second, 5*time.Minute) }},
				{"total", "", func(n *node, path string) { h.Total, _ = p.duration(n, path, time.Second, 24*time.Hour) }},
			})
			if h.Connect > 0 && h.Total > 0 && h.Connect > h.Total {
				p.problem(n, path, "write a total that is at least as long as connect", "connecting may take %s, but the whole attempt only %s", plainDuration(h.Connect), plainDuration(h.Total))
			}
		}},
		{"max_answer", "", func(n *node, path string) { h.MaxAnswer, _ = p.integer(n, path, 1, maxAnswer) }},
		{"allow_private", "", func(n *node, path string) {
			h.Private = p.is(n, path, boolean, "write true or false") && n.text == "true"
		}},
	}, more...))
	if len(bodies) > 1 {
		p.problemAt(sub(path, bodies[1]), "keep one of json, form and body", "a request has one body, but %s are written", strings.Join(bodies, " and "))
	}
	if len(bodies) > 0 && (h.Method == "GET" || h.Method == "HEAD") {
		p.problemAt(sub(path, bodies[0]), "move it to query, or use another method", "a %s request has no body", h.Method)
	}
}

var (
	urlForm     = lazily(`^(https?)://([^/?#]*)([^?#]*)$`)
	hostForm    = lazily(`^(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)
	pathLiteral = lazily(`^(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*$`)
)

// url fixes scheme, host and port, and takes placeholders in path segments only: where a request goes is the contract's word, never an argument's.
func (p *parser) url(n *node, path string, h *HTTP, in *input) {
	const remedy = "write https://HOST/PATH"
	if !p.is(n, path, text, remedy) {
		return
	}
	h.URL = n.text
	if p.answers != nil && strings.HasPrefix(n.text, "{"+answerPrefix) {
		p.answerURL(n, path, h, in)
		return
	}
	m := urlForm().FindStringSubmatch(n.text)
	switch {
	case strings.Contains(n.text, "?"):
		p.problem(n, path, "write the parameters under query, where each value is encoded", "a query in the URL")
		return
	case strings.Contains(n.text, "#"):
		p.problem(n, path, "remove it", "a fragment is never sent")
		return
	case m == nil:
		p.problem(n, path, remedy, "%q is not an absolute https URL", clip(n.text, 80))
		return
	case strings.ContainsAny(m[2], "{}"):
		p.problem(n, path, "write the host out; make one action for each host", "a placeholder in the host: where a request goes is fixed by the contract")
		return
	case strings.Contains(m[2], "@"):
		p.problem(n, path, "remove it and name a credential instead", "a user or password in the URL")
		return
	}
	u, err := url.Parse(m[1] + "://" + m[2])
	if err != nil || u.Host != m[2] || !hostname(u.Hostname()) || strings.HasSuffix(m[2], ":") || !port(u.Port()) {
		p.problem(n, path, remedy, "%q is no host", clip(m[2], 80))
		return
	}
	if m[1] == "http" && !loopback(u.Hostname()) {
		p.problem(n, path, "write https://", "http sends the credential readably; it is possible only to this machine (127.0.0.1, ::1, localhost)")
		return
	}
	h.origin = m[1] + "://" + strings.ToLower(m[2])
	segments := splitPath(strings.TrimPrefix(m[3], "/"))
	for i, segment := range segments {
		last := i == len(segments)-1
		t := p.templateOf(n, segment, path, in, inPath)
		if t == nil && segment == "" && !last {
			p.problem(n, path, "remove one slash", "an empty path segment")
		}
		if literal := t.literalText(); !pathLiteral().MatchString(literal) {
			p.problem(n, path, "percent-encode what is not a letter, digit or one of -._~!$&'()*+,;=:@", "the path segment %q cannot be sent as it is", clip(segment, 80))
		} else if decoded, err := url.PathUnescape(literal); err == nil && t.isLiteral() && dots(decoded) {
			p.problem(n, path, "write the path that is meant", "a path segment that moves to another folder: %q", clip(segment, 80))
		}
		h.path = append(h.path, t)
	}
}

// splitPath splits at slashes, but not within braces: the name of an answer's field can have some.
func splitPath(s string) []string {
	depth := 0
	return splitFunc(s, func(c rune) bool {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		}
		return c == '/' && depth <= 0
	})
}

// splitFunc is strings.Split by a function: strings.FieldsFunc would drop what is empty.
func splitFunc(s string, at func(rune) bool) []string {
	var parts []string
	from := 0
	for i, c := range s {
		if at(c) {
			parts, from = append(parts, s[from:i]), i+1
		}
	}
	return append(parts, s[from:])
}

func hostname(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return !strings.Contains(host, "%")
	}
	return len(host) <= 253 && hostForm().MatchString(host)
}

func port(s string) bool {
	n, err := strconv.Atoi(s)
	return s == "" || err == nil && n > 0 && n < 65536
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

func (t template) isLiteral() bool {
	return !slices.ContainsFunc(t, func(p part) bool { return p.name != "" })
}

func (t template) literalText() string {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.literal)
	}
	return b.String()
}

// Header names that are the transport's or the credential's own place.
var ownHeaders = map[string]string{
	"Host": "the URL says it", "Content-Length": "it follows from the body", "Transfer-Encoding": "it belongs to the connection", "Connection": "it belongs to the connection",
	"Keep-Alive": "it belongs to the connection", "Te": "it belongs to the connection", "Trailer": "it belongs to the connection", "Upgrade": "it belongs to the connection",
	"Expect": "it belongs to the connection", "Proxy-Connection": "it belongs to the connection", "Proxy-Authorization": "it belongs to a proxy", "Authorization": "the credential goes there",
}

var headerToken = lazily("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$") // RFC 9110, section 5.6.2

// canonicalHeader writes a name as net/http sends it.
func canonicalHeader(name string) string {
	b := []byte(name)
	upper := true
	for i, c := range b {
		switch {
		case upper && 'a' <= c && c <= 'z':
			b[i] = c - 'a' + 'A'
		case !upper && 'A' <= c && c <= 'Z':
			b[i] = c - 'A' + 'a'
		}
		upper = c == '-'
	}
	return string(b)
}

func (p *parser) headerName(name string, line, column int, path string) (string, bool) {
	if !headerToken().MatchString(name) {
		p.add(line, column, path, "write letters, digits and -", "%q is no header name", clip(name, 80))
		return "", false
	}
	canonical := canonicalHeader(name)
	if why := ownHeaders[canonical]; why != "" {
		p.add(line, column, path, "remove it", "the header %s cannot be set by a contract: %s", canonical, why)
		return "", false
	}
	return canonical, true
}

func (p *parser) headers(n *node, path string, in *input) []Pair {
	pairs := p.pairs(n, path, in, inHeader)
	kept := pairs[:0]
	for _, pair := range pairs {
		m := n.members[slices.IndexFunc(n.members, func(m member) bool { return m.name == pair.Name })]
		at := sub(path, m.name)
		name, ok := p.headerName(m.name, m.line, m.column, at)
		if !ok {
			continue
		}
		if slices.ContainsFunc(kept, func(o Pair) bool { return o.Name == name }) {
			p.add(m.line, m.column, at, "keep one of them", "the header %s is written twice", name)
			continue
		}
		if literal := pair.template.literalText(); !headerValue(literal) || pair.template.isLiteral() && strings.TrimSpace(literal) != literal {
			p.problem(m.value, at, "write visible ASCII characters and spaces between them", "the value of header %s cannot be sent", name)
			continue
		}
		pair.Name = name
		kept = append(kept, pair)
	}
	return kept
}

func (p *parser) idempotencyHeader(n *node, path string, h *HTTP) string {
	if !p.is(n, path, text, "write a header name, such as Idempotency-Key") {
		return ""
	}
	name, ok := p.headerName(n.text, n.line, n.column, path)
	if ok && h != nil && slices.ContainsFunc(h.Headers, func(o Pair) bool { return o.Name == name }) {
		p.problem(n, path, "remove it from http.headers; its value is the execution's id", "the header %s is written under http.headers too", name)
	}
	if name == "Content-Type" {
		p.problem(n, path, "write the header that the target reads its key from", "Content-Type cannot carry a key")
	}
	return name
}

func (p *parser) pairs(n *node, path string, in *input, u use) []Pair {
	if !p.is(n, path, object, "write names and values, such as `page: \"{page}\"`") {
		return nil
	}
	var pairs []Pair
	for _, m := range n.members {
		at := sub(path, m.name)
		if m.name == "" || strings.ContainsAny(m.name, "{}") && u != inHeader {
			p.add(m.line, m.column, at, "write the name out; only values take placeholders", "%q cannot be a name here", clip(m.name, 80))
			continue
		}
		before := len(p.problems.List)
		t := p.template(m.value, at, in, u)
		if len(p.problems.List) > before || m.value.kind != text {
			continue
		}
		pairs = append(pairs, Pair{Name: m.name, Value: m.value.text, template: t})
	}
	return pairs
}

var statusClass = lazily(`^[2-5]xx$`)

func (p *parser) success(n *node, path string) []StatusRange {
	const remedy = "write a list such as [200, 201] or [2xx, 404]"
	if !p.is(n, path, list, remedy) {
		return nil
	}
	var ranges []StatusRange
	for i, item := range n.items {
		at := fmt.Sprintf("%s/%d", path, i)
		if item.kind == text && statusClass().MatchString(item.text) {
			first := int(item.text[0]-'0') * 100
			ranges = append(ranges, StatusRange{first, first + 99})
		} else if item.kind == text {
			p.problem(item, at, remedy, "%q is no status", clip(item.text, 80))
		} else if status, ok := p.integer(item, at, 100, 599); ok {
			ranges = append(ranges, StatusRange{int(status), int(status)})
		}
	}
	if len(n.items) == 0 {
		p.problem(n, path, remedy, "no status would mean success")
	}
	return ranges
}
