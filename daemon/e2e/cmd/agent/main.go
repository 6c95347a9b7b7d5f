// Command agent is an MCP client on go-sdk that does what a test orders. It speaks the same JSON Lines as
// testdata/node/client.mjs and tells every message that it sends or receives.
//
//	agent PROTOCOL     2025-11-25 or 2026-07-28
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type order struct {
	Seq       int               `json:"seq"`
	Op        string            `json:"op"`
	Kind      string            `json:"kind"`
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	URL       string            `json:"url"`
	Token     string            `json:"token"`
	Name      string            `json:"name"`
	Arguments json.RawMessage   `json:"arguments"`
	TimeoutMS int               `json:"timeout_ms"`
	Meta      map[string]any    `json:"meta"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: agent PROTOCOL")
		os.Exit(2)
	}
	a := &agent{protocol: os.Args[1]}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, "agent: reading order:", err)
			os.Exit(1)
		}
		go func() {
			answer, err := a.obey(o)
			if err != nil {
				a.emit(map[string]any{"seq": o.Seq, "ok": false, "code": code(err), "message": err.Error()})
				return
			}
			answer["seq"], answer["ok"] = o.Seq, true
			a.emit(answer)
		}()
	}
}

// code gives a timeout and a closed connection the numbers that the TypeScript SDK gives them.
func code(err error) int {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return -32001
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF):
		return -32000
	}
	return 0
}

type agent struct {
	protocol string

	out sync.Mutex // of standard output

	mu      sync.Mutex // of what follows
	session *mcp.ClientSession
	tear    func()
}

func (a *agent) emit(v any) {
	a.out.Lock()
	defer a.out.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(v)
}

func (a *agent) obey(o order) (map[string]any, error) {
	switch o.Op {
	case "connect":
		return a.connect(o)
	case "call":
		return a.call(o)
	case "tools":
		tools, err := a.current().ListTools(context.Background(), nil)
		if err != nil {
			return nil, err
		}
		return map[string]any{"tools": tools.Tools}, nil
	case "tear":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tear()
		return map[string]any{}, nil
	case "close":
		return map[string]any{}, a.current().Close()
	}
	return nil, fmt.Errorf("unknown op %q", o.Op)
}

func (a *agent) current() *mcp.ClientSession {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session
}

func (a *agent) connect(o order) (map[string]any, error) {
	var transport mcp.Transport
	var tear func()
	pid := func() int { return 0 }
	if o.Kind == "http" {
		wire := &tap{agent: a, token: o.Token, base: http.DefaultTransport.(*http.Transport).Clone()}
		ctx, cancel := context.WithCancel(context.Background())
		wire.torn = ctx
		transport = &mcp.StreamableClientTransport{Endpoint: o.URL, HTTPClient: &http.Client{Transport: wire}, MaxRetries: -1}
		tear = cancel
	} else {
		cmd := exec.Command(o.Command, o.Args...)
		cmd.Stderr = os.Stderr
		cmd.Env = os.Environ()
		for k, v := range o.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		// Pipes of our own: those of exec.Cmd are closed by Wait, and a server that is killed must be seen as the end of its output.
		stdout, theirOut, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirIn, stdin, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		cmd.Stdin, cmd.Stdout = theirIn, theirOut
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("starting server: %w", err)
		}
		theirIn.Close()
		theirOut.Close()
		go func() { _ = cmd.Wait() }()
		tear = func() { stdin.Close(); stdout.Close() }
		pid = func() int { return cmd.Process.Pid }
		transport = &mcp.LoggingTransport{Transport: &mcp.IOTransport{Reader: stdout, Writer: stdin}, Writer: trafficLog{a}}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e go-sdk", Version: "1"}, nil)
	session, err := client.Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: a.protocol})
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	go func() { _ = session.Wait(); a.emit(map[string]any{"event": "closed"}) }()
	a.mu.Lock()
	a.session, a.tear = session, tear
	a.mu.Unlock()
	init := session.InitializeResult()
	return map[string]any{"pid": pid(), "server": serverName(init), "protocol": init.ProtocolVersion}, nil
}

func serverName(init *mcp.InitializeResult) string {
	if init.ServerInfo == nil {
		return ""
	}
	return init.ServerInfo.Name
}

func (a *agent) call(o order) (map[string]any, error) {
	timeout := time.Minute
	if o.TimeoutMS > 0 {
		timeout = time.Duration(o.TimeoutMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	result, err := a.current().CallTool(ctx, &mcp.CallToolParams{Name: o.Name, Arguments: o.Arguments, Meta: mcp.Meta(o.Meta)})
	if err != nil {
		return nil, err
	}
	return map[string]any{"result": result}, nil
}

// trafficLog turns LoggingTransport's "read: …" and "write: …" lines into events.
type trafficLog struct{ agent *agent }

func (l trafficLog) Write(p []byte) (int, error) {
	direction, message, _ := strings.Cut(strings.TrimSpace(string(p)), ": ")
	event := map[string]string{"read": "received", "write": "sent"}[direction]
	if event != "" && json.Valid([]byte(message)) {
		l.agent.emit(map[string]any{"event": event, "message": json.RawMessage(message)})
	}
	return len(p), nil
}

// tap tells what goes over HTTP without wrapping the SDK's transport, which would lose its protocol version header.
type tap struct {
	agent *agent
	token string
	base  *http.Transport
	torn  context.Context
}

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = nil
		if json.Valid(body) {
			t.agent.emit(map[string]any{"event": "sent", "message": json.RawMessage(body)})
		}
	}
	if t.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	ctx, cancel := context.WithCancel(r.Context())
	context.AfterFunc(t.torn, cancel)
	resp, err := t.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &tappedBody{resp.Body, t.agent, cancel, nil}
	return resp, nil
}

// tappedBody tells each complete message of a JSON or event-stream body.
type tappedBody struct {
	io.ReadCloser
	agent  *agent
	cancel context.CancelFunc
	rest   []byte
}

func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.rest = append(b.rest, p[:n]...)
	for {
		line, rest, found := bytes.Cut(b.rest, []byte("\n"))
		if !found && err == nil {
			return n, err
		}
		b.rest = rest
		message := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("data:")))
		if len(message) > 0 && message[0] == '{' && json.Valid(message) {
			b.agent.emit(map[string]any{"event": "received", "message": json.RawMessage(message)})
		}
		if !found {
			return n, err
		}
	}
}

func (b *tappedBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}
