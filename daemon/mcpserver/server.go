package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/mcpserver/envelope"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/workers"
)

// Config says what a Server needs.
type Config struct {
	Engine  call.Engine  // required
	Logger  *slog.Logger // required
	Version string       // required; the daemon's version, told to clients

	// IdentifyTCP says who is behind a loopback connection; required for HTTPHandler. It is asked once per connection.
	IdentifyTCP func(local, remote netip.AddrPort) (*peer.Identity, error)
	// Authorize looks at the bearer token of an HTTP request, which may be empty, before anything of the body is read. Its error is told to the client, with status 401, or 503 for
	// ErrCannotCheck. Optional; the peer's identity is required in any case.
	Authorize func(token string, from *peer.Identity) error

	// ConnectionID makes the daemon's own id of a connection. Optional; the default counts from 1 in each Server.
	ConnectionID func() string
	Instructions string        // optional; told to clients
	MaxMessage   int           // optional, bytes of one message; 4 MiB by default
	BodyTimeout  time.Duration // optional, for the body of one HTTP request to come; 30 seconds by default
	MaxHTTP      int           // optional, HTTP connections of one run; 256 by default
	MaxCalls     int           // optional, calls in flight per connection; 256 by default. The engine bounds them per run.
}

// ErrCannotCheck is what Authorize returns, wrapped, when it cannot check any token yet.
var ErrCannotCheck = errors.New("tokens cannot be checked yet")

// Server is the MCP face. All methods are safe for concurrent use.
type Server struct {
	cfg        Config
	sdk        *mcp.Server
	serverInfo []byte // JSON of the implementation, for results of 2026-07-28
	versions   []string

	listing  chan struct{}                     // held while a list of resources is made
	offering sync.Mutex                        // orders what the SDK is told of resources and prompts
	offered  struct{ resources, prompts bool } // owner: offering

	sources sync.Map // reference string → *source
	counter atomic.Uint64

	mu       sync.Mutex
	conns    map[*conn]struct{} // owner: mu
	draining bool               // owner: mu
	stop     chan struct{}      // closed once draining began
	crew     *workers.Crew      // carries calls out
	serving  sync.WaitGroup

	http httpState
}

// idleWorkers is how many goroutines wait for the next call at most.
const idleWorkers = 64

// New makes a Server. It starts two goroutines, which tell clients of changed lists until Shutdown.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Engine == nil:
		return nil, errors.New("making an MCP server: Engine is required")
	case cfg.Logger == nil:
		return nil, errors.New("making an MCP server: Logger is required")
	case cfg.Version == "":
		return nil, errors.New("making an MCP server: Version is required")
	}
	if cfg.MaxMessage == 0 {
		cfg.MaxMessage = 4 << 20
	}
	if cfg.BodyTimeout == 0 {
		cfg.BodyTimeout = 30 * time.Second
	}
	if cfg.MaxHTTP == 0 {
		cfg.MaxHTTP = 256
	}
	if cfg.MaxCalls == 0 {
		cfg.MaxCalls = 256
	}
	s := &Server{cfg: cfg, versions: mcp.SupportedProtocolVersions(), conns: make(map[*conn]struct{}), stop: make(chan struct{}), listing: make(chan struct{}, listsAtATime)}
	s.crew = workers.New(idleWorkers, s.stop)
	if cfg.ConnectionID == nil {
		s.cfg.ConnectionID = func() string { return "connection-" + s.reference() }
	}
	impl := &mcp.Implementation{Name: "singlepass", Title: "Singlepass", Version: cfg.Version}
	var err error
	if s.serverInfo, err = json.Marshal(impl); err != nil {
		return nil, fmt.Errorf("making an MCP server: %w", err)
	}
	s.sdk = mcp.NewServer(impl, &mcp.ServerOptions{
		Instructions: cfg.Instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	s.sdk.AddReceivingMiddleware(s.middleware)
	s.http.init(s)
	go s.announce()
	go s.announceShared()
	return s, nil
}

func (s *Server) reference() string { return strconv.FormatUint(s.counter.Add(1), 10) }

// announce makes the SDK tell its clients that the tools changed, each in the way of its revision. The SDK keeps no tools of ours, so adding a nameless one is how it learns
// of a change; tools/list never shows it (see middleware). The SDK gathers changes within 10 ms into one notification.
func (s *Server) announce() {
	for {
		changed := s.cfg.Engine.ToolsChanged()
		select {
		case <-s.stop:
			return
		case <-changed:
		}
		s.sdk.AddTool(&mcp.Tool{Name: "changed", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, errors.New("not a tool")
			})
	}
}

// ServeConn serves one connection of agent.sock until its other side closes it, ctx ends or Shutdown has drained it; it closes nc. Identity is who the kernel says is there.
// A nil error means that the other side closed the connection.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, identity *peer.Identity) error {
	if nc == nil || identity == nil {
		return errors.New("serving a connection: connection and identity are required")
	}
	c := newConn(ctx, s, nc, identity)
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		_ = nc.Close()
		return errors.New("serving a connection: the daemon is shutting down")
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.serving.Done()
	}()
	return c.serve()
}

// Refuse tells a connection that is not served why, for the client's log, and closes it.
func (s *Server) Refuse(nc net.Conn, reason error) {
	_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = nc.Write(append(appendError(nil, nil, envelope.InvalidRequest, reason.Error(), nil), '\n'))
	_ = nc.Close()
}

func (s *Server) isDraining() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// Shutdown refuses new calls, lets the answers of those in flight be written and taken, and closes every connection. It returns ctx's error if that took too long; the
// connections are closed all the same, and what was not delivered is recorded as that.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.draining {
		s.draining = true
		close(s.stop)
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	var drained sync.WaitGroup
	for _, c := range conns {
		drained.Go(func() {
			c.drain(ctx)
			c.close()
		})
	}
	drained.Go(func() { s.http.drain(ctx) })
	drained.Wait()
	s.serving.Wait()
	for session := range s.sdk.Sessions() {
		_ = session.Close() // of HTTP: this ends their event streams
	}
	return ctx.Err()
}

// ask hands a call to the engine. A panic there is the daemon's fault and ends this call only; what it may have done stays in the journal, so the answer claims nothing.
func (s *Server) ask(ctx context.Context, c call.Call) (a call.Answer) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Logger.Error("handling a call panicked", "tool", c.Tool, "panic", fmt.Sprint(p))
			a = call.Answer{Code: api.CodeInternal, Result: refusal(string(api.CodeInternal),
				"a fault in the daemon ended this call; whether something was sent is not known here",
				"repeat the call with the same arguments: it attaches to the original and is not carried out twice; or ask executions_recent",
				[2]string{"state", "unknown"})}
		}
	}()
	if s.isDraining() {
		return call.Answer{Code: api.CodeShuttingDown, Result: refusal(string(api.CodeShuttingDown),
			"the daemon is shutting down; this call was not taken and nothing was sent for it", "repeat it once the daemon runs again")}
	}
	return s.cfg.Engine.Call(ctx, c)
}
