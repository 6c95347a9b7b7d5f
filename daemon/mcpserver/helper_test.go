package mcpserver_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/mcpserver/enginetest"
	"singlepass.dev/daemon/peer"
)

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newServer(t testing.TB, e *enginetest.Engine, change func(*mcpserver.Config)) *mcpserver.Server {
	t.Helper()
	cfg := mcpserver.Config{Engine: e, Logger: discard(), Version: "1.0.0"}
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
	folder, err := os.MkdirTemp("", "sp") // short enough for a socket, whatever the test is called
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "agent.sock")
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
