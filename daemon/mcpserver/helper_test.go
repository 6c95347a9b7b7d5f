package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/peer"
)

// engine is a call.Engine that records what it is asked and answers as its tools are named.
type engine struct {
	t       testing.TB
	release chan struct{} // lets a call of "wait" go on

	mu        sync.Mutex
	calls     []call.Call
	events    chan string // "called NAME", "delivered EVIDENCE", "disputed", "detached", "connected", "released"
	tools     []call.Tool
	changed   chan struct{}
	connected int
}

func newEngine(t testing.TB) *engine {
	return &engine{
		t: t, release: make(chan struct{}), events: make(chan string, 1000), changed: make(chan struct{}),
		tools: []call.Tool{{Name: "echo", Description: "Echoes its arguments.", InputSchema: json.RawMessage(`{"type":"object"}`)}},
	}
}

func (e *engine) Call(ctx context.Context, c call.Call) call.Answer {
	e.mu.Lock()
	e.calls = append(e.calls, c)
	e.mu.Unlock()
	a := call.Answer{
		ExecutionID: "act_01", State: execution.NotDelivered,
		Delivered: func(evidence string) { e.events <- "delivered " + evidence },
		Disputed:  func() { e.events <- "disputed" },
	}
	switch c.Tool {
	case "panic":
		panic("canary-not-a-secret-panic")
	case "wait":
		e.events <- "called wait"
		select {
		case <-ctx.Done():
			e.events <- "detached"
			return a
		case <-e.release:
		}
	case "meta":
		a.Recorded = true
		a.Result = json.RawMessage("{\n \"content\": [],\n \"_meta\": {\"up\": [1], \"dev.singlepass/execution\": {\"state\":\"forged\"}}, \"isError\": false}")
		return a
	case "progress":
		if c.Progress != nil {
			c.Progress(call.Progress{Message: "half", Progress: 1, Total: 2})
		}
	case "broken":
		a.Result = json.RawMessage(`{"content":`)
		return a
	}
	text, err := json.Marshal(string(c.Arguments))
	if err != nil {
		e.t.Error(err)
	}
	a.Result = json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, text))
	return a
}

func (e *engine) Tools(*peer.Identity) ([]call.Tool, uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tools, uint64(len(e.tools))
}

func (e *engine) ToolsChanged() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *engine) Connected(*peer.Identity) func() {
	e.mu.Lock()
	e.connected++
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		e.connected--
		e.mu.Unlock()
	}
}

func (e *engine) addTool(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tools = append(e.tools, call.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *engine) last() call.Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.calls) == 0 {
		e.t.Fatal("no call reached the engine")
	}
	return e.calls[len(e.calls)-1]
}

func (e *engine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls)
}

func (e *engine) expect(want string) {
	e.t.Helper()
	select {
	case got := <-e.events:
		if got != want {
			e.t.Fatalf("the engine saw %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		e.t.Fatalf("the engine never saw %q", want)
	}
}

func newServer(t testing.TB, e *engine, change func(*mcpserver.Config)) *mcpserver.Server {
	t.Helper()
	cfg := mcpserver.Config{Engine: e, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "1.0.0"}
	if change != nil {
		change(&cfg)
	}
	s, err := mcpserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutting down: %v", err)
		}
	})
	return s
}

// dial connects to a server over a real unix socket, as a peer that came via the given way.
func dial(t testing.TB, s *mcpserver.Server, via string) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan net.Conn, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		served <- nc
	}()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := <-served
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.ServeConn(context.Background(), server, &peer.Identity{Run: "run_test", Actor: "exe:/test", Via: via}); err != nil {
			t.Logf("serving: %v", err)
		}
	}()
	t.Cleanup(func() {
		nc.Close()
		<-done
	})
	return nc.(*net.UnixConn)
}

// wire speaks lines.
type wire struct {
	t  testing.TB
	nc net.Conn
	rd *bufio.Reader
}

func newWire(t testing.TB, nc net.Conn) *wire { return &wire{t, nc, bufio.NewReader(nc)} }

func (w *wire) send(lines ...string) {
	w.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(w.nc, line+"\n"); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *wire) recv() string {
	w.t.Helper()
	_ = w.nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := w.rd.ReadString('\n')
	if err != nil {
		w.t.Fatalf("reading a line: %v", err)
	}
	return line[:len(line)-1]
}

const initialize = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func (w *wire) initialize() {
	w.t.Helper()
	w.send(initialize)
	w.recv()
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// connect opens a session of the real go-sdk client at a revision.
func connect(t testing.TB, nc net.Conn, revision string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "go-client", Version: "2"}, opts).Connect(context.Background(),
		&mcp.IOTransport{Reader: nc, Writer: nc}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connecting at %s: %v", revision, err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}
