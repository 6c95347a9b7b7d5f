package mcpchan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/scrub"
)

// reply is what a request of ours came to.
type reply struct {
	verdict channel.Verdict // NotSent or Unknown; "" if there is an answer
	reason  string
	message *message // the answer to this very request; nil if the server refused the POST itself
	status  int      // of HTTP; 0 on a pipe
	body    string   // what a server said that refused the POST
	asked   []string // what the upstream asked of us, and was refused
	resumed bool     // the stream broke, and the answer came when it was taken up again
}

func unsent(format string, args ...any) reply {
	return reply{verdict: channel.NotSent, reason: fmt.Sprintf(format, args...)}
}

func lost(format string, args ...any) reply {
	return reply{verdict: channel.Unknown, reason: fmt.Sprintf(format, args...)}
}

// rpcError is a JSON-RPC error object.
type rpcError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (r reply) rpcError() (rpcError, bool) {
	var e rpcError
	if r.message == nil || r.message.Error == nil {
		return e, false
	}
	if json.Unmarshal(r.message.Error, &e) != nil {
		e = rpcError{Message: "an error that cannot be read"}
	}
	return e, true
}

// err is what a request that asks for nothing with an effect came to, other than a result.
func (r reply) err() error {
	if r.verdict != "" {
		return fmt.Errorf("%s", r.reason)
	}
	if e, ok := r.rpcError(); ok {
		return fmt.Errorf("it answered with error %d: %s", e.Code, printable(e.Message, 300))
	}
	if r.message == nil {
		return fmt.Errorf("it answered HTTP %d: %s", r.status, printable(r.body, 300))
	}
	return nil
}

// scrubbed takes the upstream's secrets out of an error that quotes it: agents and logs are told why an upstream cannot be used.
func scrubbed(err error, l link, r *channel.Request) error {
	if err == nil {
		return nil
	}
	all, wipe := l.scrubbers(*r)
	defer wipe()
	text, cut := strings.CutSuffix(err.Error(), "…") // what was cut off may have been the rest of a secret
	b := []byte(text)
	for _, s := range all {
		if cut {
			b, _ = s.Cut(b)
		} else {
			b, _ = s.Bytes(b)
		}
	}
	if cut {
		b = append(b, "…"...)
	}
	return errors.New(string(b))
}

// madeByAClient says whether an error was made by somebody further up who lost the answer of somebody else: an upstream that is itself a gateway passes it on. What was behind it may
// have acted. go-sdk calls every transport error -32005; the TypeScript SDK has -32000 and -32001 with these words, the Python SDK
// 408 (a timeout) beside -32000.
func (e rpcError) madeByAClient() bool {
	text := strings.ToLower(e.Message)
	switch e.Code {
	case -32005:
		return true
	case -32000, -32001, 408:
		return strings.Contains(text, "connection closed") || strings.Contains(text, "timed out") || strings.Contains(text, "timeout")
	}
	return false
}

// outcome makes of a reply what the engine is told.
func (r reply) outcome(q channel.Request, l link) channel.Outcome {
	s, wipe := l.scrubbers(q)
	defer wipe()
	clean := func(b []byte) ([]byte, bool) {
		hit := false
		for _, one := range s {
			var h bool
			b, h = one.Bytes(b)
			hit = hit || h
		}
		return b, hit
	}
	note := ""
	if len(r.asked) > 0 {
		note = "the upstream asked for " + printable(strings.Join(r.asked, ", "), 300) + ", which was refused"
	}
	if r.resumed {
		note = join(note, "the stream broke before the answer, which came when it was taken up again")
	}
	o := channel.Outcome{Verdict: r.verdict, Reason: join(r.reason, note), Status: r.status}
	if r.verdict != "" {
		reason, _ := clean([]byte(o.Reason))
		o.Reason = string(reason)
		return o
	}
	if r.message != nil {
		if why := r.message.undecided(); why != "" {
			return channel.Outcome{Verdict: channel.Unknown, Reason: join(why, note), Status: r.status}
		}
	}
	failed, scrubbed := false, false
	size := 0
	if e, ok := r.rpcError(); ok {
		if e.madeByAClient() {
			reason, _ := clean([]byte(join(fmt.Sprintf("the upstream passed on that an answer was lost behind it (error %d: %s)", e.Code, printable(e.Message, 300)), note)))
			return channel.Outcome{Verdict: channel.Unknown, Reason: string(reason)}
		}
		failed = true
		raw := r.message.Error
		size = len(raw)
		text := fmt.Sprintf("The upstream answered with error %d: %s", e.Code, clip(e.Message, 2<<10))
		o.Result, scrubbed = clean(ownResult(text, `{"error":`+string(raw)+`}`, true))
		o.Status = int(e.Code)
	} else if r.message == nil {
		failed = true
		size = len(r.body)
		o.Result, scrubbed = clean(ownResult(fmt.Sprintf("The upstream refused the request itself: HTTP %d\n\n%s", r.status, r.body), "", true))
	} else if m := q.Effect.MCP; m.Method != "" {
		raw, hit := clean(r.message.Result)
		size, scrubbed = len(r.message.Result), hit
		var why string
		o.Result, failed, why = readAnswer(*m, raw)
		o.Reason = join(o.Reason, why)
	} else {
		raw := r.message.Result
		size = len(raw)
		what, reason := readResult(raw)
		if reason != "" {
			reason, _ := clean([]byte(join(reason, note)))
			return channel.Outcome{Verdict: channel.Unknown, Reason: string(reason), Status: r.status}
		}
		failed = what.failed
		o.Result, scrubbed = clean(raw)
		if what.note != "" {
			o.Reason = join(o.Reason, what.note)
			o.Result, scrubbed = clean(ownResult("The call is not finished: "+what.note+".", `{"upstream_result":`+string(raw)+`}`, true))
		}
	}
	o.Verdict = channel.Success
	if failed {
		o.Verdict = channel.TargetError
	}
	if scrubbed {
		o.Reason = join(o.Reason, "a secret was in the answer and was taken out")
	}
	switch {
	case int64(len(o.Result)) > q.Limits.Answer:
		o.Reason = join(o.Reason, fmt.Sprintf("the answer has %d bytes, more than the limit of %d, and is withheld", len(o.Result), q.Limits.Answer))
		o.Result = ownResult("The upstream answered, but its answer is withheld: it is "+strconv.Itoa(size)+" bytes long, more than the limit.", "", failed)
	case scrubbed && !json.Valid(o.Result):
		o.Reason = join(o.Reason, "what is left of the answer is no JSON, and is withheld")
		o.Result = ownResult("The upstream answered, but its answer is withheld: it held a secret where it cannot be taken out.", "", failed)
	}
	o.Answer = l.describe(r.status, size, scrubbed, r.asked)
	return o
}

// result is what decides about a CallToolResult.
type result struct {
	failed bool
	note   string // why it is not the tool's last word; "" if it is
}

const maxDepth = 256

// readResult reads what decides, or says why the result cannot be believed.
func readResult(raw []byte) (result, string) {
	if !utf8.Valid(raw) {
		return result{}, "the upstream's answer is not UTF-8"
	}
	if depth(raw) > maxDepth {
		return result{}, fmt.Sprintf("the upstream's answer nests deeper than %d levels", maxDepth)
	}
	var in struct {
		IsError    *bool   `json:"isError"`
		ResultType *string `json:"resultType"`
	}
	if err := json.Unmarshal(raw, &in); err != nil || len(raw) == 0 || raw[0] != '{' {
		return result{}, "the upstream's answer is not the result of a tool"
	}
	if again := repeated(raw, "isError", "resultType", "content", "structuredContent", "_meta"); again != "" {
		return result{}, fmt.Sprintf("the upstream's answer has %q twice, and readers differ in which one counts", again)
	}
	out := result{failed: in.IsError != nil && *in.IsError}
	if in.ResultType != nil {
		switch *in.ResultType {
		case "complete":
		case "input_required":
			out.failed, out.note = true, "the upstream asks the person or the model for more (elicitation or sampling), which is refused; it is not asked again"
		default:
			return result{}, fmt.Sprintf("the upstream answered with %q, which this version does not follow", clip(*in.ResultType, 40))
		}
	}
	return out, ""
}

// repeated names a member that an object has more than once.
func repeated(object []byte, names ...string) string {
	seen := map[string]bool{}
	d := json.NewDecoder(strings.NewReader(string(object)))
	if _, err := d.Token(); err != nil {
		return ""
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return ""
		}
		name, _ := t.(string)
		for _, n := range names {
			if strings.EqualFold(n, name) {
				if seen[n] {
					return n
				}
				seen[n] = true
			}
		}
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return ""
		}
	}
	return ""
}

// ownResult is a CallToolResult with our own words. structured is a JSON object or "".
func ownResult(text, structured string, failed bool) json.RawMessage {
	b := append([]byte(`{"content":[{"type":"text","text":`), quote(nil, text)...)
	b = append(b, `}]`...)
	if structured != "" {
		b = append(append(b, `,"structuredContent":`...), structured...)
	}
	return append(strconv.AppendBool(append(b, `,"isError":`...), failed), '}')
}

// described is what the operator sees of an answer beside its content.
type described struct {
	Transport string   `json:"transport"`
	Revision  string   `json:"revision"`
	Server    string   `json:"server,omitempty"`
	Process   int      `json:"process,omitempty"`
	Status    int      `json:"status,omitempty"`
	Bytes     int      `json:"bytes"`
	Scrubbed  bool     `json:"scrubbed,omitempty"`
	Refused   []string `json:"refused,omitempty"` // what the upstream asked of us
}

func (d described) encode() json.RawMessage {
	b, err := json.Marshal(d)
	if err != nil {
		return nil // cannot happen: strings, numbers, booleans
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

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// printable makes another's word fit for one line of ours.
func printable(s string, most int) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, clip(s, most))
}

func wipeAll(all []*scrub.Scrubber) {
	for _, s := range all {
		s.Wipe()
	}
}
