package httpchan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/scrub"
)

// answer is what a target answered.
type answer struct {
	status int
	proto  string
	header http.Header
	body   []byte
	cut    bool   // there was more than the limit
	extra  bool   // there was more than the answer declared
	broken string // why the body is not whole; "" if it is
	hidden string // why the body is withheld; "" if it is not
	asked  bool   // it answers a status request, and not the request of the action itself
	later  bool   // and that one was answered: the target took it

	stream io.Reader        // the body, where it was not read yet
	after  func() bool      // says whether something follows what was read
	taken  *channel.Outcome // what another made of the answer
}

// told are the header fields that an agent is given.
var told = []string{"Content-Type", "Content-Language", "Content-Encoding", "ETag", "Last-Modified", "Link", "Location", "Retry-After", "Idempotent-Replayed"}

// withheld are fields whose values are credentials that the target made.
var withheld = []string{"Set-Cookie", "Set-Cookie2", "Authentication-Info", "Proxy-Authentication-Info"}

const (
	maxField = 2 << 10 // bytes of one field's value that are told
	maxDepth = 256     // levels of a JSON body; past it, a reader of ours further up could refuse the whole result
)

func (a *answer) outcome(r channel.Request, p request) channel.Outcome {
	o := channel.Outcome{Verdict: channel.TargetError, Status: a.status}
	if p.Succeeded(a.status) {
		o.Verdict = channel.Success
	}
	var scrubbed bool
	scrubbed, o.Reason = a.clean(r, p)
	if r.JudgeAnswer != nil {
		word, kept, why := r.JudgeAnswer(a.reading())
		switch word {
		case channel.Done:
		case channel.Running:
			return channel.Outcome{
				Verdict: channel.Taken, Status: a.status, Reason: join(why, o.Reason), Kept: kept, Answer: a.forOperator(scrubbed), After: retryAfter(a.header, time.Now()),
			}
		default:
			return unknown(join(why, o.Reason))
		}
	}
	o.Result = a.result(o.Verdict != channel.Success, scrubbed)
	o.Answer = a.forOperator(scrubbed)
	return o
}

// reading is the answer as conditions see it.
func (a *answer) reading() channel.Reading {
	return channel.Reading{Status: a.status, Header: a.header, Body: a.body, Whole: !a.cut && a.broken == "" && a.hidden == ""}
}

// clean takes the secret out of the answer, or withholds what it cannot be taken out of, and says what is odd about it.
func (a *answer) clean(r channel.Request, p request) (scrubbed bool, reason string) {
	reason = a.oddities()
	var s *scrub.Scrubber
	if err := useSecret(r, func(secret []byte) error {
		if r.Secret == nil {
			return nil
		}
		values, whole := lookedFor(p.auth, secret)
		for _, w := range whole {
			clear(w)
		}
		for _, v := range values {
			if n := len(v); n > 0 && n < scrub.MinLength {
				reason = join(reason, "the secret is too short to be looked for in the answer: store a longer one")
			}
		}
		s = Scrubber(p.auth, secret)
		return nil
	}); err != nil { // the status is known; the rest cannot be shown, since it cannot be scrubbed
		a.header, a.body, a.hidden = nil, nil, "the secret was wiped before it could be scrubbed"
		reason = join(reason, "the answer is withheld, because the secret was wiped before it could be scrubbed")
	}
	defer s.Wipe()
	scrubbed = a.scrub(s)
	if scrubbed {
		reason = join(reason, "the secret was in the answer and was taken out")
	}
	if a.hidden == "" {
		if a.hidden = a.unseen(s); a.hidden != "" {
			a.body = nil
			reason = join(reason, a.withholding())
		}
	}
	if a.cut || a.broken != "" {
		a.body = wholeRunes(a.body)
	}
	return scrubbed, reason
}

func (a *answer) oddities() string {
	var s string
	if a.broken != "" {
		s = join(s, "the target answered "+strconv.Itoa(a.status)+", but its answer is incomplete: "+a.broken)
	}
	if a.cut {
		s = join(s, "the answer is longer than the limit and was cut after "+strconv.Itoa(len(a.body))+" bytes")
	}
	if a.extra {
		s = join(s, "the target sent more than the answer that it announced")
	}
	if a.hidden != "" {
		s = join(s, a.withholding())
	}
	return s
}

func (a *answer) withholding() string { return "the body is withheld: " + a.hidden }

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func (a *answer) scrub(s *scrub.Scrubber) bool {
	if s == nil {
		return false
	}
	var hit, h bool
	if a.cut || a.broken != "" {
		a.body, hit = s.Cut(a.body)
	} else {
		a.body, hit = s.Bytes(a.body)
	}
	for name, values := range a.header {
		clean, named := s.String(name)
		if named {
			hit = true
			delete(a.header, name)
			a.header[clean] = values
		}
		for i := range values {
			values[i], h = s.String(values[i])
			hit = hit || h
		}
	}
	return hit
}

// result is the JSON of an MCP CallToolResult. It is one line, since MCP over stdio ends a message at a line break: white space between the values of a JSON body goes, its
// numbers, keys, order and escapes stay.
func (a *answer) result(isError, scrubbed bool) json.RawMessage {
	kind := a.kind()
	body, shown := a.structured(kind)
	text := a.text(kind, scrubbed)
	b := make([]byte, 0, 256+2*len(body)+len(text))
	b = append(b, `{"content":[{"type":"text","text":`...)
	b = quote(b, text)
	b = append(b, `}],"structuredContent":{"status":`...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	b = append(b, `,"headers":{`...)
	first := true
	for _, name := range told {
		values := a.header.Values(name)
		if len(values) == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = quote(b, strings.ToLower(name))
		b = quote(append(b, ':'), printable(strings.Join(values, ", "), maxField))
	}
	b = append(b, '}')
	if shown {
		b = append(append(b, `,"body":`...), body...)
	}
	for _, note := range []struct {
		name string
		is   bool
	}{
		{`,"body_encoding":"base64"`, kind == isBinary}, {`,"incomplete":true`, a.broken != ""}, {`,"cut":true`, a.cut}, {`,"scrubbed":true`, scrubbed}, {`,"from":"status_query"`, a.asked},
	} {
		if note.is {
			b = append(b, note.name...)
		}
	}
	b = append(b, `},"isError":`...)
	return append(strconv.AppendBool(b, isError), '}')
}

// kind is what a body is to its reader.
type kind string

const (
	isEmpty  kind = "empty"
	isJSON   kind = "json"
	isText   kind = "text"
	isBinary kind = "binary"
)

func (a *answer) kind() kind {
	coding := strings.TrimSpace(a.header.Get("Content-Encoding"))
	switch {
	case len(a.body) == 0:
		return isEmpty
	case coding != "" && !strings.EqualFold(coding, "identity"), !utf8.Valid(a.body):
		return isBinary
	}
	if a.cut || a.broken != "" {
		return isText
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	start := bytes.TrimLeft(a.body, " \t\r\n")
	declared := media == "application/json" || strings.HasSuffix(media, "+json")
	if (declared || len(start) > 0 && (start[0] == '{' || start[0] == '[')) && depth(a.body) <= maxDepth && json.Valid(a.body) {
		return isJSON
	}
	return isText
}

func (a *answer) structured(k kind) (body []byte, shown bool) {
	switch k {
	case isJSON:
		var b bytes.Buffer
		if err := json.Compact(&b, a.body); err == nil {
			return b.Bytes(), true
		}
		return quote(nil, string(a.body)), true
	case isText:
		return quote(nil, string(a.body)), true
	case isBinary:
		b := append(make([]byte, 0, 2+base64.StdEncoding.EncodedLen(len(a.body))), '"')
		return append(base64.StdEncoding.AppendEncode(b, a.body), '"'), true
	}
	return nil, false
}

// text is for clients that pass only the text on: the status, what is odd, an empty line, and the body exactly as it came.
func (a *answer) text(k kind, scrubbed bool) string {
	var t strings.Builder
	t.WriteString("HTTP " + strconv.Itoa(a.status))
	if name := http.StatusText(a.status); name != "" { // not the target's own phrase
		t.WriteString(" " + name)
	}
	switch {
	case a.later:
		t.WriteString("\nNote: the target took the call and answered that it was not done; this is its answer to the later question what became of it.")
	case a.asked:
		t.WriteString("\nNote: the target's answer to the call itself was lost; this is its answer to the question what became of it.")
	}
	if odd := a.oddities(); odd != "" {
		t.WriteString("\nNote: " + odd + ".")
	}
	if scrubbed {
		t.WriteString("\nNote: the credential was in the answer and was taken out.")
	}
	switch k {
	case isEmpty:
	case isBinary:
		t.WriteString("\nNote: the body is not text; its " + strconv.Itoa(len(a.body)) + " bytes follow in base64.\n\n")
		t.WriteString(base64.StdEncoding.EncodeToString(a.body))
	default:
		t.WriteString("\n\n")
		t.Write(a.body)
	}
	return t.String()
}

func (a *answer) forOperator(scrubbed bool) json.RawMessage {
	type field struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	v := struct {
		Status     int     `json:"status"`
		Protocol   string  `json:"protocol"`
		Header     []field `json:"header,omitempty"`
		Bytes      int     `json:"bytes"`
		Cut        bool    `json:"cut,omitempty"`
		Incomplete string  `json:"incomplete,omitempty"`
		Extra      bool    `json:"extra,omitempty"`
		Scrubbed   bool    `json:"scrubbed,omitempty"`
	}{a.status, a.proto, nil, len(a.body), a.cut, a.broken, a.extra, scrubbed}
	for name, values := range a.header {
		for _, value := range values {
			if slices.Contains(withheld, name) {
				value = "[withheld]"
			}
			v.Header = append(v.Header, field{printable(name, maxField), printable(value, maxField)})
		}
	}
	slices.SortStableFunc(v.Header, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	if len(v.Header) > 100 {
		v.Header = v.Header[:100]
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil // cannot happen: strings, numbers, booleans
	}
	return b
}

// wholeRunes leaves out a character that a cut went through, so that the rest is still text.
func wholeRunes(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}

// depth counts how deep JSON nests, without judging it.
func depth(b []byte) int {
	now, most, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			most = max(most, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}

// quote adds s as a JSON string. What is not UTF-8 becomes U+FFFD; bodies are checked before.
func quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// printable makes a target's word fit for one line of ours.
func printable(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}
