package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/mcpserver/drain"
	"singlepass.dev/daemon/mcpserver/envelope"
	"singlepass.dev/daemon/peer"
)

const (
	// sessionIdle ends a 2025 session that nobody used for that long; the client then makes a new one. The SDK by itself never would.
	sessionIdle = 4 * time.Hour
	// ackTimeout is how long an acknowledgement is waited for; one takes microseconds on loopback, or 40 ms where it is delayed.
	ackTimeout = 10 * time.Second

	// lingering is how long the rest of a request that was refused may take.
	lingering = time.Second

	headerProtocol = "Mcp-Protocol-Version"
	headerSession  = "Mcp-Session-Id"
)

// httpState is what the Server keeps for Streamable HTTP.
type httpState struct {
	sessions  http.Handler // up to 2025-11-25
	stateless http.Handler // from 2026-07-28

	mu     sync.Mutex
	conns  map[net.Conn]*httpConn // owner: mu
	open   map[string]int         // owner: mu; connections of a run
	made   map[string][]string    // owner: mu; the sessions of a run, up to 2025-11-25, oldest first
	calls  map[string]*exchange   // owner: mu; by session and id, 2025 only: 2026 knows no cancellation but the disconnect
	done   [256]*exchange         // owner: mu; ring of answered ones
	next   int                    // owner: mu
	active int                    // owner: mu; exchanges, until their acknowledgement was seen or given up
	quiet  chan struct{}          // owner: mu; closed when active falls to zero
}

// httpConn is one TCP connection. All its requests come from one process.
type httpConn struct {
	nc       net.Conn
	id       string
	once     sync.Once
	identity *peer.Identity
	err      error
	release  func()
	counted  bool // among its run's
}

// errTooMany is told to a process that has as many connections as one may have: those of others must find a place.
var errTooMany = errors.New("this process has too many connections: close some, or use one for several requests")

type httpConnKey struct{}

func (h *httpState) init(s *Server) {
	h.open, h.made = make(map[string]int), make(map[string][]string)
	h.conns, h.calls = make(map[net.Conn]*httpConn), make(map[string]*exchange)
	get := func(*http.Request) *mcp.Server { return s.sdk }
	limit := int64(s.cfg.MaxMessage)
	h.sessions = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{SessionTimeout: sessionIdle, MaxRequestBodyBytes: limit})
	h.stateless = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, MaxRequestBodyBytes: limit, PropagateRequestCancellation: true})
}

// HTTPServer returns a server for a loopback listener, with HTTPHandler and what it needs to know its peers and to see acknowledgements. Call its Serve, and on the way out
// Shutdown of the Server before the http.Server's.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.HTTPHandler(),
		ConnContext:       s.ConnContext,
		ConnState:         s.ConnState,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       10 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// ConnContext is an http.Server's ConnContext: HTTPHandler finds the connection of a request by it.
func (s *Server) ConnContext(ctx context.Context, nc net.Conn) context.Context {
	hc := &httpConn{nc: nc, id: s.cfg.ConnectionID()}
	s.http.mu.Lock()
	s.http.conns[nc] = hc
	s.http.mu.Unlock()
	return context.WithValue(ctx, httpConnKey{}, hc)
}

// ConnState is an http.Server's ConnState: it lets go of closed connections.
func (s *Server) ConnState(nc net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	s.http.mu.Lock()
	hc := s.http.conns[nc]
	delete(s.http.conns, nc)
	s.http.mu.Unlock()
	if hc == nil {
		return
	}
	hc.once.Do(func() { hc.err = net.ErrClosed })
	if hc.counted {
		s.http.vacate(hc.identity.Run)
	}
	if hc.release != nil {
		hc.release()
	}
}

// place counts a connection among its run's, if one more may be.
func (h *httpState) place(run string, most int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open[run] >= most {
		return false
	}
	h.open[run]++
	return true
}

func (h *httpState) vacate(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open[run]--; h.open[run] == 0 {
		delete(h.open, run)
	}
}

func (hc *httpConn) identify(s *Server) (*peer.Identity, error) {
	hc.once.Do(func() {
		local, lerr := netip.ParseAddrPort(hc.nc.LocalAddr().String())
		remote, rerr := netip.ParseAddrPort(hc.nc.RemoteAddr().String())
		if hc.err = errors.Join(lerr, rerr); hc.err != nil {
			return
		}
		if hc.identity, hc.err = s.cfg.IdentifyTCP(local, remote); hc.err != nil {
			return
		}
		if hc.counted = s.http.place(hc.identity.Run, s.cfg.MaxHTTP); !hc.counted {
			hc.err = errTooMany
			return
		}
		hc.release = s.cfg.Engine.Connected(hc.identity)
	})
	return hc.identity, hc.err
}

// HTTPHandler serves Streamable HTTP at any path. It must run under ConnContext (see HTTPServer), on loopback.
func (s *Server) HTTPHandler() http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(s.serveHTTP))
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	hc, _ := r.Context().Value(httpConnKey{}).(*httpConn)
	if hc == nil || s.cfg.IdentifyTCP == nil {
		http.Error(w, "this listener cannot tell its peers apart: serve it by HTTPServer", http.StatusInternalServerError)
		return
	}
	// A page that was rebound to this address by DNS still sends its own name.
	if !loopbackHost(r.Host) {
		hangUp(w)
		http.Error(w, "the Host header must name this machine: use 127.0.0.1 or localhost", http.StatusForbidden)
		return
	}
	identity, err := hc.identify(s)
	if err != nil {
		// Whoever has nothing to say here must not hold a descriptor of ours: on loopback any user can connect.
		hangUp(w)
		s.cfg.Logger.Warn("refusing an HTTP connection", "remote", hc.nc.RemoteAddr().String(), "error", err)
		if errors.Is(err, errTooMany) {
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		http.Error(w, "the process behind this connection cannot be told; it must run on this machine as the same user", http.StatusForbidden)
		return
	}
	if s.cfg.Authorize != nil {
		token := bearer(r.Header)
		if err := s.cfg.Authorize(token, identity); err != nil {
			refuseToken(w, token, err)
			return
		}
	}
	if r.Method != http.MethodPost {
		if r.ContentLength != 0 {
			// While a body is unread, net/http does not look whether its sender is still there, and a stream would outlive it.
			hangUp(w)
			http.Error(w, r.Method+" takes no body", http.StatusBadRequest)
			return
		}
		s.forwardHTTP(w, r, &source{peer: identity}, false)
		return
	}
	// A writer that is slow on purpose must not keep a connection, and half a message, for ever. The answer takes its time again.
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.cfg.MaxMessage)))
	if err != nil {
		hangUp(w)
		status := http.StatusBadRequest
		if errors.Is(err, os.ErrDeadlineExceeded) {
			status, err = http.StatusRequestTimeout, fmt.Errorf("it did not come within %s", s.cfg.BodyTimeout)
		} else if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "reading the request: "+err.Error(), status)
		return
	}
	_ = deadline.SetReadDeadline(time.Time{})
	var m envelope.Message
	if err := envelope.Scan(body, &m); err != nil {
		refuseHTTP(w, http.StatusBadRequest, m.ID, err)
		return
	}
	modern := r.Header.Get(headerProtocol) >= firstModern || envelope.Revision(m.Params) >= firstModern
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	switch {
	case envelope.IsCall(string(m.Method)) && m.ID != nil:
		s.exchangeHTTP(w, r, &m, hc, modern)
		return
	case string(m.Method) == noticeCancelled && !modern:
		s.http.cancelled(identity.Run, r.Header.Get(headerSession), m.Params)
	}
	s.forwardHTTP(w, r, &source{peer: identity}, modern)
}

// forwardHTTP gives a request to the SDK, bound to the process that sent it: a session that one process made is closed to every other.
func (s *Server) forwardHTTP(w http.ResponseWriter, r *http.Request, from *source, modern bool) {
	ref := s.reference()
	s.sources.Store(ref, from)
	defer s.sources.Delete(ref)
	r.Header.Set(referenceHeader, ref)
	r.Header.Set("Authorization", "Bearer "+ref)
	inner := s.http.sessions
	if modern {
		inner = s.http.stateless
	}
	fresh := !modern && r.Method == http.MethodPost && r.Header.Get(headerSession) == ""
	ended := r.Header.Get(headerSession)
	defer func() {
		switch id := w.Header().Get(headerSession); {
		case fresh && id != "":
			if oldest := s.http.began(from.peer.Run, id); oldest != "" {
				s.endSession(r, from, oldest)
			}
		case r.Method == http.MethodDelete:
			s.http.over(from.peer.Run, ended)
		}
	}()
	bind := auth.RequireBearerToken(func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: from.peer.Run}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	bind(inner).ServeHTTP(w, r)
}

// maxSessions bounds the sessions of one run. Clients that never end theirs are common, and each is kept for sessionIdle.
const (
	maxSessions = 64
	maxRuns     = 4096 // that are counted; one more and some other run is counted anew
)

// began notes a session, and returns the oldest of its run if that is one too many.
func (h *httpState) began(run, session string) (oldest string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other := range h.made {
		if len(h.made) < maxRuns || h.made[run] != nil {
			break
		}
		delete(h.made, other)
	}
	h.made[run] = append(h.made[run], session)
	if list := h.made[run]; len(list) > maxSessions {
		oldest = list[0]
		h.made[run] = slices.Delete(list, 0, 1)
	}
	return oldest
}

// over forgets a session that its client ended.
func (h *httpState) over(run, session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made[run] = slices.DeleteFunc(h.made[run], func(s string) bool { return s == session }); len(h.made[run]) == 0 {
		delete(h.made, run)
	}
}

// endSession ends a session as its client would. A call that is under way in it has to end first, so it is not waited for; whoever uses the session later is told that there is none, and makes another.
func (s *Server) endSession(r *http.Request, from *source, session string) {
	gone, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodDelete, "http://"+r.Host+"/", nil)
	if err != nil {
		s.cfg.Logger.Warn("ending an old session", "error", err)
		return
	}
	gone.Header.Set(headerSession, session)
	go s.forwardHTTP(&nobody{header: http.Header{}}, gone, from, false)
}

// nobody reads an answer that nobody waits for.
type nobody struct{ header http.Header }

func (n *nobody) Header() http.Header         { return n.header }
func (n *nobody) WriteHeader(int)             {}
func (n *nobody) Write(b []byte) (int, error) { return len(b), nil }

func refuseHTTP(w http.ResponseWriter, status int, id []byte, err error) {
	code, message, data := wireError(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(appendError(nil, id, code, message, data))
}

// hangUp makes the answer the last one on its connection. What is still to come of the request's body is read for a moment, so that a client that sent it sees the answer, and not waited for.
func hangUp(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingering))
}

// bearer is the token that a request carries (RFC 6750, section 2.1); empty where there is none, or more than one header of which nobody can say which counts.
func bearer(h http.Header) string {
	all := h.Values("Authorization")
	if len(all) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(all[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(token, " ")
}

// refuseToken answers a request whose token does not count. Its body stays unread, so the connection ends.
func refuseToken(w http.ResponseWriter, token string, err error) {
	hangUp(w)
	if errors.Is(err, ErrCannotCheck) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	challenge := `Bearer realm="singlepass"`
	if token != "" {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	http.Error(w, err.Error(), http.StatusUnauthorized)
}

func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}

// acknowledgement returns what waits until the peer's kernel has everything that was written so far, and says whether it does. It holds the connection until then: a client may end it as soon as it has read
// its answer, and the server closes its side as soon as it sees that.
func (hc *httpConn) acknowledgement() func() bool {
	sc, ok := hc.nc.(syscall.Conn)
	if !ok {
		return func() bool { return false }
	}
	held, err := drain.Hold(sc)
	if err != nil {
		return func() bool { return false }
	}
	return func() bool {
		defer func() { _ = held.Close() }()
		wait := 100 * time.Microsecond
		for until := time.Now().Add(ackTimeout); time.Now().Before(until); wait = min(2*wait, 20*time.Millisecond) {
			if has, err := held.Acknowledged(); has || err != nil {
				return has
			}
			time.Sleep(wait)
		}
		return false
	}
}
