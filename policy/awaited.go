package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
)

// A target can answer that it took a call and is not done ("202 Accepted", RFC 9110, section 15.3.3), and say where it is asked how that ends. What it says there is text of a stranger: it
// fills the places that the contract made for it, and where it is a whole URL it leads nowhere but into Within.

// answerPrefix begins the placeholder of a field of the action's own answer: {answer:Location} is a header field, {answer:/job/id} a place in the JSON body (RFC 6901).
const answerPrefix = "answer:"

// What a field of an answer may be, and how many a contract can name.
const (
	maxAnswerField  = 2048 // bytes
	maxAnswerFields = 16
)

var answerPlaceholder = lazily("^" + answerPrefix + "(?:/[ -z|~]{0,200}|[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100})$")

// answerField returns the field that a placeholder names. Header fields are in canonical form.
func answerField(name string) (string, bool) {
	field, ok := strings.CutPrefix(name, answerPrefix)
	if ok && !strings.HasPrefix(field, "/") {
		field = canonicalHeader(field)
	}
	return field, ok
}

func (t template) needsAnswer() bool {
	return slices.ContainsFunc(t, func(p part) bool { return strings.HasPrefix(p.name, answerPrefix) })
}

// neverLearned are header fields whose values are credentials that the target made.
var neverLearned = []string{"Set-Cookie", "Set-Cookie2", "Authentication-Info", "Proxy-Authentication-Info"}

// answerField notes that the status request needs a field of the action's own answer.
func (p *parser) answerField(n *node, path, field string, u use) {
	switch {
	case p.answers == nil:
		p.problem(n, path, "use an argument, or ask the target by replay.status with `accepted: [202]` under replay",
			"{%s%s} is a field of the action's own answer, which only a status request has, and only where the contract says by which answer the target takes a call", answerPrefix, field)
	case slices.Contains(neverLearned, field):
		p.problem(n, path, "use another field", "the header field %s is a credential of the target's own", field)
	case slices.Contains(*p.answers, field):
	case len(*p.answers) == maxAnswerFields:
		p.problem(n, path, "use fewer", "more than %d fields of the answer", maxAnswerFields)
	default:
		if strings.HasPrefix(field, "/") {
			if _, ok := pointer(field); !ok {
				p.problem(n, path, "write ~0 for ~ and ~1 for /", "%q is no JSON pointer", clip(field, 80))
				return
			}
		}
		*p.answers = append(*p.answers, field)
	}
}

// answerURL reads a URL that is a field of the action's own answer.
func (p *parser) answerURL(n *node, path string, h *HTTP, in *input) {
	t := p.templateOf(n, n.text, path, in, inPath)
	if t == nil {
		return
	}
	if t.whole() == "" {
		p.problem(n, path, "write the URL out and let the field stand in one segment of its path, or write nothing but the field", "a field of the answer is the whole URL, or one segment of its path")
		return
	}
	h.answer, _ = answerField(t.whole())
}

// within reads where a URL of the target's own may lead.
func (p *parser) within(n *node, path string) string {
	h := &HTTP{}
	p.url(n, path, h, nil)
	if h.answer != "" {
		p.problem(n, path, "write https://HOST/PATH", "where the target may send us is the contract's word")
	}
	if h.origin == "" {
		return ""
	}
	whole := h.origin
	for _, segment := range h.path {
		if !segment.isLiteral() || strings.ContainsRune(segment.literalText(), '%') {
			p.problem(n, path, "write a fixed path, without % and placeholders", "where the target may send us cannot depend on the call")
			return ""
		}
		whole += "/" + segment.literalText()
	}
	return whole
}

// answerRules holds what a status request with fields of the answer has to be.
func (p *parser) answerRules(n, within *node, path string, s *Status) {
	place := func(name string) *node {
		if f := n.get(name); f != nil {
			return f
		}
		return n
	}
	switch {
	case s.HTTP.answer == "" && within != nil:
		p.problem(within, sub(path, "within"), "remove it", "the contract fixes where the request goes: \"within\" is for a URL that is a field of the answer")
	case s.HTTP.answer != "" && s.Method == "POST":
		p.problem(place("method"), sub(path, "method"), "write GET or HEAD, or a URL of the contract's own", "a POST to a place that the target chooses could do anything there")
	case s.HTTP.answer != "" && within == nil:
		s.Within = p.origin + "/"
	}
	if len(s.Fields) > 0 && s.NotDone != "" {
		p.problem(place("not_done"), sub(path, "not_done"), "remove it, or ask by {execution_id} or arguments alone",
			"it would never be believed: the request needs the target's own answer, by which it said that it took the call")
	}
}

// accepted reads by which answer the target says that it is not done: listed statuses, or a condition.
func (p *parser) accepted(n *node, path string, c *Contract) *Accepted {
	const remedy = "write a list such as [202], or a CEL condition over status, headers and body"
	if c.Channel != effect.HTTP {
		p.problem(n, path, "remove it", "an answer that is not the outcome belongs to channel http")
		return nil
	}
	if n.kind == text {
		source, compiled := p.judgement(n, path, c.input)
		return &Accepted{Text: source, when: compiled}
	}
	if n.kind != list {
		p.problem(n, path, remedy, "found %s%s", n.kind, n.quoted())
		return nil
	}
	a := &Accepted{ranges: p.success(n, path)}
	var texts []string
	for _, r := range a.ranges {
		switch {
		case r.From < 200 || r.To > 299:
			p.problem(n, path, remedy, "only a status from 200 to 299 says that the target took the call")
			return nil
		case r.From == r.To:
			texts = append(texts, "status == "+strconv.Itoa(r.From))
		default:
			texts = append(texts, fmt.Sprintf("status in %dxx", r.From/100))
		}
	}
	a.Text = strings.Join(texts, " || ")
	return a
}

// JudgeAnswer says what an answer to the action's own request is: Running, where the target took the call and is not done; Done, where the answer is the outcome, whichever that is; CannotTell
// where the contract's condition cannot be evaluated.
func (a *Action) JudgeAnswer(p Prepared, id string, r Reading) (execution.Finding, string) {
	accepted := a.contract.Replay.Accepted
	if accepted == nil || r.Status < 200 || r.Status > 299 {
		return execution.FoundDone, ""
	}
	why := fmt.Sprintf("the target answered %d: it took the call, and is not done (%s)", r.Status, accepted.Text)
	if accepted.when == nil {
		if slices.ContainsFunc(accepted.ranges, func(s StatusRange) bool { return s.From <= r.Status && r.Status <= s.To }) {
			return execution.FoundRunning, why
		}
		return execution.FoundDone, ""
	}
	values, _ := r.values(p, id)
	switch holds, ok := accepted.when.holds(values); {
	case !ok:
		return execution.FoundCannotTell, fmt.Sprintf("the target answered %d, and whether it is done could not be told: %s", r.Status, accepted.Text)
	case holds:
		return execution.FoundRunning, why
	}
	return execution.FoundDone, ""
}

// Learned are the fields of an answer that a status request needs, as JSON: texts, whole numbers, true and false. What is kept of one has to serve for as long as the target works, so its JSON
// form is frozen: names as the contract writes them after "answer:".
type Learned map[string]json.RawMessage

// ErrAnswerLost says of a status request that needs the action's own answer that there is none.
var ErrAnswerLost = errors.New("the status request needs the target's own answer to the call, which was lost")

// Learn takes the fields that the status request needs out of the answer by which the target took the call.
func (a *Action) Learn(r Reading) (Learned, error) {
	s := a.contract.Replay.Status
	learned := Learned{}
	if s == nil || len(s.Fields) == 0 {
		return learned, nil
	}
	var body any
	unread := errors.New("it is not whole")
	if r.Whole {
		body, unread = decodeBody(r.Body)
	}
	for _, field := range s.Fields {
		value, err := any(nil), error(nil)
		if strings.HasPrefix(field, "/") {
			if err = unread; err == nil {
				value, err = lookUp(body, field)
			}
		} else if values := r.Header[field]; len(values) == 1 {
			value = values[0]
		} else {
			err = fmt.Errorf("it stands in the header %d times", len(values))
		}
		if err == nil {
			learned[field], err = scalar(value)
		}
		if err != nil {
			return nil, fmt.Errorf("its answer has no {%s%s} that can be used: %w", answerPrefix, field, err)
		}
	}
	return learned, nil
}

// StatusRequest makes the request that asks what became of an execution, complete but for the credential. learned may be nil where the answer was lost.
func (a *Action) StatusRequest(p Prepared, id string, learned Learned) (effect.HTTPRequest, error) {
	s := a.contract.Replay.Status
	if s == nil {
		return effect.HTTPRequest{}, errors.New("the contract has no status request")
	}
	for _, field := range s.Fields {
		raw, ok := learned[field]
		if !ok {
			return effect.HTTPRequest{}, ErrAnswerLost
		}
		if _, err := answerText(raw); err != nil { // it comes from the journal
			return effect.HTTPRequest{}, fmt.Errorf("what was kept of the target's answer cannot be used: %w", err)
		}
	}
	if learned == nil {
		learned = Learned{}
	}
	r := renderer{values: p.values, id: id, in: a.contract.input, answer: learned, within: s.Within}
	r.base = r.url(a.contract.HTTP)
	request := r.request(&s.HTTP, s.ownContentType)
	if r.err != nil {
		return effect.HTTPRequest{}, r.err
	}
	return *request, nil
}

func (r *renderer) refuseAnswer(t template, problem string) {
	name := ""
	for _, p := range t {
		if strings.HasPrefix(p.name, answerPrefix) {
			name = p.name
			break
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("the target's answer has a {%s} that cannot be used: %s", name, problem)
	}
}

// answerText is a field of the answer as text; where there is no answer yet, the placeholder itself, which is shown and never sent.
func (r *renderer) answerText(field string) (string, bool) {
	if r.answer == nil {
		return "{" + answerPrefix + field + "}", true
	}
	s, err := answerText(r.answer[field])
	return s, err == nil
}

// answerURL is a URL that the target gave: within the contract's bounds, or refused.
func (r *renderer) answerURL(h *HTTP) string {
	text, ok := r.answerText(h.answer)
	if r.answer == nil {
		return text
	}
	t := template{{name: answerPrefix + h.answer}}
	if !ok {
		r.refuseAnswer(t, "it is missing")
		return ""
	}
	u, problem := resolveWithin(r.base, text, r.within)
	if problem != "" {
		r.refuseAnswer(t, problem)
	}
	return u
}

// ambiguousPath finds, at any depth of percent-encoding, what servers read differently: dots, slashes, backslashes and control characters, and UTF-8 that is longer than it has to be, which can be any of them.
var ambiguousPath = lazily(`(?i)%(25)*(2e|2f|5c|[01][0-9a-f]|7f|c[01]|e0%(25)*[89][0-9a-f]|f0%(25)*8[0-9a-f])`)

// encodedSemicolon finds at any depth of percent-encoding what a proxy may decode and a server behind it then take for the start of a segment's parameters.
var encodedSemicolon = lazily(`(?i)%(25)*3b`)

// resolveWithin makes a URL of a target's own complete (RFC 9110, section 10.2.2: relative to the request), and says what is wrong with it where it does not lie within a URL of the contract's. The scheme, host and
// port have to be the same; the path has to be that one or to lie beneath it, in whole segments, whoever reads it.
func resolveWithin(base, given, within string) (resolved, problem string) {
	for _, c := range []byte(given) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return "", "it has a character that no URL has"
		}
	}
	from, err := url.Parse(base)
	bounds, wrong := url.Parse(within)
	ref, unread := url.Parse(given)
	switch {
	case err != nil || wrong != nil || bounds.Host == "":
		return "", "there is no place that it may lead to"
	case unread != nil || ref.Opaque != "":
		return "", "it is no URL"
	case ref.Fragment != "" || strings.Contains(given, "#"):
		return "", "it has a fragment, which is never sent"
	}
	u := from.ResolveReference(ref)
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	switch {
	case u.User != nil || u.Scheme != bounds.Scheme || authority(u) != authority(bounds):
		return "", "it leads to another place than " + within
	case ambiguousPath().MatchString(path) || dotted(path):
		return "", "its path can be read in two ways"
	}
	prefix := bounds.EscapedPath()
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok || rest != "" && rest[0] != '/' && !strings.HasSuffix(prefix, "/") {
		return "", "it leads to another place than " + within
	}
	resolved = bounds.Scheme + "://" + bounds.Host + path
	if u.RawQuery != "" {
		resolved += "?" + u.RawQuery
	}
	return resolved, ""
}

func dotted(path string) bool {
	return slices.ContainsFunc(strings.Split(encodedSemicolon().ReplaceAllString(path, ";"), "/"), func(segment string) bool {
		segment, _, _ = strings.Cut(segment, ";") // Java servers drop parameters before they resolve dots
		return segment == "." || segment == ".."
	})
}

// authority is host and port, so that one that is spelt out and one that is left out are the same.
func authority(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

// pointer splits an RFC 6901 JSON pointer.
func pointer(s string) ([]string, bool) {
	parts := strings.Split(s, "/")[1:]
	for i, part := range parts {
		for j := 0; j < len(part); j++ {
			if part[j] == '~' && (j+1 == len(part) || part[j+1] != '0' && part[j+1] != '1') {
				return nil, false
			}
		}
		parts[i] = unescapePointer.Replace(part)
	}
	return parts, true
}

func lookUp(v any, field string) (any, error) {
	parts, _ := pointer(field)
	for _, part := range parts {
		switch here := v.(type) {
		case map[string]any:
			next, ok := here[part]
			if !ok {
				return nil, errors.New("it is not there")
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(here) || strconv.Itoa(i) != part {
				return nil, errors.New("it is not there")
			}
			v = here[i]
		default:
			return nil, errors.New("it is not there")
		}
	}
	return v, nil
}

// scalar encodes what can be kept of an answer.
func scalar(v any) (json.RawMessage, error) {
	switch v.(type) {
	case string, int64, uint64, bool:
		raw, err := json.Marshal(v)
		if err == nil {
			_, err = answerText(raw)
		}
		return raw, err
	}
	return nil, errors.New("it is neither text nor a whole number")
}

// answerText is a kept field as text.
func answerText(raw json.RawMessage) (string, error) {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", errors.New("it is no text")
		}
	} else if _, err := strconv.ParseUint(strings.TrimPrefix(text, "-"), 10, 64); err != nil && text != "true" && text != "false" {
		return "", errors.New("it is neither text nor a whole number")
	}
	switch {
	case text == "":
		return "", errors.New("it is empty")
	case len(text) > maxAnswerField:
		return "", fmt.Errorf("it is longer than %d bytes", maxAnswerField)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return "", errors.New("it has a control character, or is no text")
	}
	return text, nil
}
