package e2e_test

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// clientKind is an MCP client implementation at a protocol revision.
type clientKind struct {
	name     string
	protocol string // negotiated with a server that has every revision
	command  func(t *testing.T) *exec.Cmd
}

var clientKinds = []clientKind{
	{"ts-sdk-1.30.0", "2025-11-25", nodeClient("sdk-1.30.0")},
	{"ts-sdk-newest-1.x", "2025-11-25", nodeClient("sdk-newest")},
	{"ts-sdk-newest-2.x", "2026-07-28", nodeClient("@modelcontextprotocol/client", "2026-07-28")},
	{"go-sdk-2025-11-25", "2025-11-25", goClient("2025-11-25")},
	{"go-sdk-2026-07-28", "2026-07-28", goClient("2026-07-28")},
}

func nodeClient(args ...string) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd { return node(t, append([]string{"client.mjs"}, args...)...) }
}

func goClient(protocol string) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		return exec.Command(build(t, "singlepass.dev/daemon/e2e/cmd/agent"), protocol)
	}
}

// node runs a script directly. Never through npx: the child would be npx, and a SIGKILL would miss what matters.
func node(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if err := nodeModules(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", args...)
	cmd.Dir = nodeDir
	return cmd
}

// server says how a client reaches an MCP server: a command for stdio, a URL for Streamable HTTP.
type server struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Token   string            `json:"token,omitempty"` // for the URL
}

// client is one agent process.
type client struct {
	*process
	seq       int
	serverPID int // of the stdio server that this process started last
}

// reply is what a client says to one order.
type reply struct {
	OK       bool
	Code     int // JSON-RPC's or the SDK's: -32001 timed out, -32000 connection closed
	Message  string
	Result   *result
	PID      int
	Server   string
	Protocol string
	Tools    []tool
}

type tool struct {
	Name        string
	Description string
	InputSchema json.RawMessage
	Annotations struct{ ReadOnlyHint, DestructiveHint, IdempotentHint *bool }
}

// result is a tools/call result. Raw is kept because what an agent sees is all of it.
type result struct {
	raw        json.RawMessage
	Content    []struct{ Type, Text string }
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool
	Meta       map[string]json.RawMessage `json:"_meta"`
}

func (r *result) UnmarshalJSON(b []byte) error {
	type plain result
	r.raw = append(r.raw[:0], b...)
	return json.Unmarshal(b, (*plain)(r))
}

var receiptPattern = regexp.MustCompile(`rcpt_[a-z0-9]{26}`)

// receipt returns the receipt that an agent reads in the result, and "" if there is none.
func (r *result) receipt() string {
	if r == nil {
		return ""
	}
	return receiptPattern.FindString(string(r.raw))
}

// said is our own word about the execution: _meta, and the body of a pending or refused answer.
type said struct {
	ExecutionID string `json:"execution_id"`
	State       string `json:"state"`
	Recorded    bool   `json:"recorded"`
	Code        string `json:"code"`
}

func (r *result) meta(t *testing.T) said {
	t.Helper()
	var s said
	if err := json.Unmarshal(r.Meta["dev.singlepass/execution"], &s); err != nil {
		t.Fatalf("result has no _meta of ours: %s", r.raw)
	}
	return s
}

// body reads our structured content, and checks that the text says the same, because several clients pass only text on.
func (r *result) body(t *testing.T) said {
	t.Helper()
	var s, text said
	if err := json.Unmarshal(r.Structured, &s); err != nil {
		t.Fatalf("result has no structured content of ours: %s", r.raw)
	}
	words := ""
	if len(r.Content) > 0 {
		words = strings.TrimPrefix(r.Content[0].Text, s.Code+": ") // a refusal's text begins with its code
	}
	if json.Unmarshal([]byte(words), &text) != nil || text != s {
		t.Errorf("the text does not say what the structured content says: %s", r.raw)
	}
	return s
}

func startClient(t *testing.T, kind clientKind) *client {
	t.Helper()
	return &client{process: start(t, kind.name, kind.command(t), false)}
}

// order sends an order and returns a function that waits for the reply to it.
func (c *client) order(op string, fields map[string]any) func() reply {
	c.t.Helper()
	c.seq++
	seq := c.seq
	order := map[string]any{"seq": seq, "op": op}
	for k, v := range fields {
		order[k] = v
	}
	c.send(order)
	return func() reply {
		c.t.Helper()
		from := 0
		l, err := c.scan("reply to "+op, &from, func(l line) bool { return l.Seq == seq })
		if err != nil {
			c.t.Fatal(err)
		}
		var r reply
		l.into(c.t, &r)
		return r
	}
}

// connect connects, or connects anew, and must succeed.
func (c *client) connect(s server) reply {
	c.t.Helper()
	fields := map[string]any{"kind": "stdio", "command": s.Command, "args": s.Args, "env": s.Env}
	if s.URL != "" {
		fields = map[string]any{"kind": "http", "url": s.URL, "token": s.Token}
	}
	r := c.order("connect", fields)()
	if !r.OK {
		c.t.Fatalf("%s does not connect: %s", c.name, r.Message)
	}
	c.serverPID = r.PID
	return r
}

// killServer kills the stdio server that this client started.
func (c *client) killServer() {
	c.t.Helper()
	if err := syscall.Kill(c.serverPID, syscall.SIGKILL); err != nil {
		c.t.Fatalf("killing the server of %s: %v", c.name, err)
	}
}

// request is one tools/call.
type request struct {
	tool      string
	args      map[string]any
	timeoutMS int
	meta      map[string]any
}

// call starts a tools/call and returns a function that waits for its reply.
func (c *client) call(r request) func() reply {
	c.t.Helper()
	fields := map[string]any{"name": r.tool, "arguments": r.args}
	if r.timeoutMS > 0 {
		fields["timeout_ms"] = r.timeoutMS
	}
	if r.meta != nil {
		fields["meta"] = r.meta
	}
	return c.order("call", fields)
}

// mustCall waits for a result; a JSON-RPC error fails the test.
func (c *client) mustCall(r request) *result {
	c.t.Helper()
	got := c.call(r)()
	if !got.OK || got.Result == nil {
		c.t.Fatalf("%s: calling %s: %d %s", c.name, r.tool, got.Code, got.Message)
	}
	return got.Result
}

// callIDs returns the JSON-RPC ids of the tools/call requests that this process has sent.
func (c *client) callIDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for _, l := range c.lines {
		var sent struct {
			Event   string
			Message struct {
				Method string
				ID     json.RawMessage
			}
		}
		if l.Name == "sent" && json.Unmarshal([]byte(l.raw), &sent) == nil && sent.Message.Method == "tools/call" {
			ids = append(ids, string(sent.Message.ID))
		}
	}
	return ids
}
