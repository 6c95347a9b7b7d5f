package mcpchan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
)

// The revisions that are spoken. Anything from statelessRevision on has no handshake and no session.
const (
	statelessRevision = "2026-07-28"
	initializeWith    = "2025-11-25"
)

// revisions are what an upstream may answer to initialize.
var revisions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// message is any JSON-RPC message. The raw parts are the sender's own bytes.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (m *message) isResponse() bool { return m.Method == "" && (m.Result != nil || m.Error != nil) }

// readMessage reads one. Some servers write a null beside what they mean, as JSON-RPC 1.0 had it: it says that there is no error, or no result.
func readMessage(b []byte) (m message, err error) {
	err = json.Unmarshal(b, &m)
	switch {
	case isNull(m.Error) && m.Result != nil:
		m.Error = nil
	case isNull(m.Result) && m.Error != nil:
		m.Result = nil
	}
	return m, err
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// undecided says why nobody can tell whether an answer is a result or an error, or "".
func (m *message) undecided() string {
	switch {
	case m.Result != nil && m.Error != nil:
		return "the upstream's answer has both a result and an error"
	case isNull(m.Error):
		return "the upstream's answer has neither a result nor an error"
	}
	return ""
}

// answers says whether m is the answer to the request with the number id.
func (m *message) answers(id uint64) bool {
	return m.isResponse() && string(bytes.TrimSpace(m.ID)) == strconv.FormatUint(id, 10)
}

// request is one JSON-RPC request of ours.
type request struct {
	method  string
	name    string         // what it is about, where the method has such a thing: the tool's name
	params  []byte         // a JSON object
	header  []effect.Field // that go with it over HTTP
	pending *pending
}

// wire writes a request in one line.
func (r request) wire(id uint64) []byte {
	b := make([]byte, 0, len(r.params)+len(r.method)+64)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendUint(b, id, 10)
	b = append(b, `,"method":`...)
	b = quote(b, r.method)
	b = append(b, `,"params":`...)
	b = append(b, r.params...)
	return append(b, '}')
}

// pending is a request whose answer is awaited, with what the upstream says meanwhile.
type pending struct {
	progress func(channel.Progress)

	mu      sync.Mutex
	done    float64  // the newest progress that was passed on
	refused []string // what the upstream asked of us
	lines   int      // messages that were passed on
}

// maxAsked bounds what is kept of an upstream's requests and how many of them are answered at a time, and maxLines its notifications that are passed on, for one call.
const (
	maxAsked = 8
	maxLines = 10_000
)

// take passes a notification on. Progress has to increase from one notification to the next, so that a log message counts as the least progress.
func (p *pending) take(m *message) {
	if p == nil || p.progress == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines++; p.lines > maxLines {
		return
	}
	var say channel.Progress
	switch m.Method {
	case "notifications/progress":
		var in struct {
			Progress float64 `json:"progress"`
			Total    float64 `json:"total"`
			Message  string  `json:"message"`
		}
		if json.Unmarshal(m.Params, &in) != nil {
			return
		}
		say = channel.Progress{Message: in.Message, Done: in.Progress, Total: in.Total}
	case "notifications/message":
		var in struct {
			Level  string          `json:"level"`
			Logger string          `json:"logger"`
			Data   json.RawMessage `json:"data"`
		}
		if json.Unmarshal(m.Params, &in) != nil {
			return
		}
		text := string(in.Data)
		_ = json.Unmarshal(in.Data, &text)
		say = channel.Progress{Message: clip(fmt.Sprintf("%s: %s", in.Level, text), 2<<10)}
	default:
		return
	}
	if !(say.Done > p.done) { // NaN too
		say.Done = math.Nextafter(p.done, math.Inf(1))
	}
	p.done = say.Done
	p.progress(say)
}

// refuse notes what the upstream asked of us.
func (p *pending) refuse(method string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.refused) < maxAsked {
		p.refused = append(p.refused, clip(method, 80))
	}
}

func (p *pending) asked() []string {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// replyTo is what an upstream's own request gets.
func replyTo(m *message) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), bytes.TrimSpace(m.ID)...)
	if m.Method == "ping" {
		return append(b, `,"result":{}}`...)
	}
	b = append(b, `,"error":{"code":-32601,"message":`...)
	b = quote(b, "Singlepass refuses "+clip(m.Method, 80)+": an upstream behind it can ask neither the person nor the agent's model")
	return append(b, `}}`...)
}

// meta is the _meta that every request of the stateless revision carries.
func meta(version string) string {
	return `"io.modelcontextprotocol/protocolVersion":"` + statelessRevision + `","io.modelcontextprotocol/clientInfo":` + clientInfo(version) + `,"io.modelcontextprotocol/clientCapabilities":{}`
}

func clientInfo(version string) string {
	return string(append(quote([]byte(`{"name":"singlepass","version":`), version), '}'))
}

// params writes the parameters of a request that says nothing else than what it is given.
func params(revision, version string, members ...string) []byte {
	b := []byte{'{'}
	if revision >= statelessRevision {
		members = append(members, `"_meta":{`+meta(version)+`}`)
	}
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m...)
	}
	return append(b, '}')
}

// callParams writes the parameters of tools/call: the arguments are exactly the effect's bytes.
func callParams(revision, version string, r channel.Request, p *pending) []byte {
	m := r.Effect.MCP
	b := append([]byte(`{"name":`), quote(nil, m.Tool)...)
	b = append(b, `,"arguments":`...)
	b = append(b, m.Arguments...)
	b = append(b, `,"_meta":{"dev.singlepass/execution_id":`...)
	b = quote(b, r.ExecutionID)
	if revision >= statelessRevision {
		b = append(append(b, ','), meta(version)...)
	}
	if p.progress != nil {
		b = append(b, `,"progressToken":`...)
		b = quote(b, r.ExecutionID+"."+strconv.Itoa(r.Attempt))
	}
	return append(b, `}}`...)
}

// progressToken is what callParams gave.
func progressToken(r channel.Request) string { return r.ExecutionID + "." + strconv.Itoa(r.Attempt) }

func quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // what is not UTF-8 becomes U+FFFD; what is sent was checked before
	return b
}
