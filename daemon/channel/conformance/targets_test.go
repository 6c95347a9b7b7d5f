package conformance_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/channel/conformance"
	"singlepass.dev/daemon/channel/sshchan/sshdtest"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/upstream"
)

// afterRecord is the one boundary that is the daemon's alone: the outcome is durable, and no agent has it.
const afterRecord conformance.Boundary = "after the record"

const (
	canary = conformance.Canary
	tool   = `{"name":"charge","inputSchema":{"type":"object"}}`
)

// stage is a target that stops at a boundary until the daemon was killed, and from then on does what it is asked; or, with a fault, one that fails there whenever it is armed. It knows
// nothing of Singlepass but the key that it is sent.
type stage struct {
	t        *testing.T
	boundary conformance.Boundary
	fault    conformance.Fault // refuses, closes or resets; empty where the daemon is killed
	armed    atomic.Bool       // the next attempt fails
	failed   atomic.Bool       // the connection at hand is to be ended as the fault says
	reached  chan struct{}     // one for each attempt that has come to the boundary
	killed   chan struct{}     // closed when the daemon is

	mu       sync.Mutex
	requests map[execution.Class]int
	effects  map[execution.Class]int
	done     map[string]bool // by key
	ledgers  map[execution.Class]string
	wire     net.Conn // to the SSH client, the newest
}

func newStage(t *testing.T, b conformance.Boundary) *stage {
	return &stage{t: t, boundary: b, reached: make(chan struct{}, 64), killed: make(chan struct{}), requests: map[execution.Class]int{}, effects: map[execution.Class]int{}, done: map[string]bool{}, ledgers: map[execution.Class]string{}}
}

// fails says whether an attempt that comes to b now goes no further.
func (s *stage) fails(b conformance.Boundary) bool {
	if s.fault != "" {
		return s.boundary == b && s.armed.Load()
	}
	select {
	case <-s.killed:
		return false
	default:
		return s.boundary == b
	}
}

// stops says whether this is the boundary, and if it is returns after the kill, or at once where it is the target that fails.
func (s *stage) stops(b conformance.Boundary) bool {
	if !s.fails(b) {
		return false
	}
	if s.fault != "" {
		s.failed.Store(true)
		return s.armed.CompareAndSwap(true, false)
	}
	s.reached <- struct{}{}
	<-s.killed
	return true
}

// act is the effect. A target of an idempotent action remembers the key.
func (s *stage) act(class execution.Class, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[class]++
	if class != execution.Idempotent || !s.done[key] {
		s.effects[class]++
	}
	s.done[key] = true
}

// seen is how many whole requests of a class came, and how often the target acted.
func (s *stage) seen(class execution.Class) (requests, effects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path, ok := s.ledgers[class]; ok {
		b, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			s.t.Error(err)
		}
		n := bytes.Count(b, []byte("effect\n"))
		return n, n
	}
	return s.requests[class], s.effects[class]
}

// end closes a connection, as the fault says if it is its turn.
func (s *stage) end(c net.Conn) {
	if s.failed.Swap(false) && s.fault == conformance.Reset {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	_ = c.Close()
}

// listen serves each connection until the end of the test.
func (s *stage) listen(serve func(c net.Conn, n int)) string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				serve(c, n)
				s.end(c)
			})
		}
	})
	s.t.Cleanup(func() { _ = l.Close(); work.Wait() })
	return l.Addr().String()
}

// request reads the one request of a connection, unless it stops before.
func (s *stage) request(c net.Conn, call bool) (*http.Request, []byte) {
	if call && s.fails(conformance.AfterConnect) {
		s.arrived(c)
		if s.stops(conformance.AfterConnect) {
			return nil, nil
		}
	}
	part := make([]byte, 20)
	if _, err := io.ReadFull(c, part); err != nil || call && s.stops(conformance.MidRequest) {
		return nil, nil
	}
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(part), c)))
	if err != nil {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil
	}
	return r, body
}

// arrived waits until the request is there, and reads nothing of it.
func (s *stage) arrived(c net.Conn) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0
		})
	}
	if err != nil {
		s.t.Error(err)
	}
}

// answer sends one, unless it stops in the middle.
func (s *stage) answer(c net.Conn, call bool, status int, body string) {
	text := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body)
	if call && s.fails(conformance.MidAnswer) {
		_, _ = io.WriteString(c, text[:len("HTTP/1.1 200 OK\r\nConte")]) // it decides nothing yet
		s.stops(conformance.MidAnswer)
		return
	}
	_, _ = io.WriteString(c, text)
}

// overHTTP is a target of HTTP actions of every class.
func overHTTP(s *stage) *home {
	address := s.listen(func(c net.Conn, _ int) {
		r, _ := s.request(c, true)
		if r == nil {
			return
		}
		class, asked, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if asked != "" {
			s.mu.Lock()
			known := s.done[asked]
			s.mu.Unlock()
			status := map[bool]int{true: 200, false: 404}[known]
			s.answer(c, false, status, `{"receipt":"from the status request"}`)
			return
		}
		s.act(execution.Class(class), r.Header.Get("X-Order-Key"))
		if s.stops(conformance.AfterRequest) {
			return
		}
		s.answer(c, true, 200, `{"receipt":"R-1"}`)
	})
	h := &home{Targets: []string{"http://" + address + "/"}}
	replay := map[execution.Class]string{
		execution.ReadOnly:     "",
		execution.Idempotent:   "\n  attach_window: 1h\n  idempotency_header: X-Order-Key\n  key_lifetime: 24h",
		execution.StatusQuery:  fmt.Sprintf("\n  attach_window: 1h\n  status: {method: GET, url: \"http://%s/status_query/{execution_id}\", done: status == 200, not_done: status == 404}\n  wait: {not_done_after: 30s}", address),
		execution.Irreversible: "\n  attach_window: 1h",
	}
	for _, class := range execution.Classes() {
		key := "headers: {X-Order-Key: \"{execution_id}\"}"
		if class == execution.Idempotent {
			key = "headers: {X-Class: idempotent}"
		}
		h.add(class, "http", fmt.Sprintf("credential: api\nhttp:\n  method: POST\n  url: http://%s/%s\n  body: \"{order}\"\n  %s\n", address, class, key), replay[class])
	}
	return h
}

// add writes a contract. Its name is its class.
func (h *home) add(class execution.Class, channel, how, replay string) {
	h.Contracts = append(h.Contracts, fmt.Sprintf(`action: %s
description: Charges an order.
channel: %s
input: {type: object, properties: {order: {type: string}}, required: [order], additionalProperties: false}
approval: session
%sreplay:
  class: %s%s
`, class, channel, how, class, replay))
	h.Calls = append(h.Calls, string(class))
}

// message answers what an MCP client asks for. Of a call it tells the class's effect first.
func (s *stage) message(class execution.Class, line []byte) (text string, call bool) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Arguments struct{ Key string } }
	}
	if json.Unmarshal(line, &m) != nil {
		return "", false
	}
	result := ""
	switch m.Method {
	case "server/discover":
		result = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
	case "tools/list":
		result = `{"tools":[` + tool + `]}`
	case "tools/call":
		s.act(class, m.Params.Arguments.Key)
		call, result = true, `{"content":[{"type":"text","text":"receipt R-1"}],"resultType":"complete"}`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result), call
}

var upstreamClasses = []execution.Class{execution.ReadOnly, execution.Idempotent, execution.Irreversible}

// upstreams writes a contract for each class, with an upstream of its own.
func (s *stage) upstreams(h *home, define func(execution.Class) upstream.Definition) *home {
	s.t.Helper()
	described := upstream.Tool{Name: "charge", InputSchema: json.RawMessage(`{"type":"object"}`)}
	pin, err := described.Pin()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, class := range upstreamClasses {
		d := define(class)
		d.Name = strings.ReplaceAll(string(class), "_", "-")
		if err := d.Validate(); err != nil {
			s.t.Fatal(err)
		}
		h.Upstreams = append(h.Upstreams, d)
		h.add(class, "mcp", fmt.Sprintf("mcp: {upstream: %s, tool: charge, digest: \"%s\", arguments: {order: \"{order}\", key: \"{execution_id}\"}}\n", d.Name, pin), map[execution.Class]string{
			execution.Idempotent: "\n  attach_window: 1h\n  key_lifetime: 24h", execution.Irreversible: "\n  attach_window: 1h",
		}[class])
	}
	return h
}

// overMCP is an MCP server over HTTP. The third connection is the call's: before it come the probe and the listing.
func overMCP(s *stage) *home {
	h := &home{Earlier: 2}
	return s.upstreams(h, func(class execution.Class) upstream.Definition {
		url := "http://" + s.listen(func(c net.Conn, n int) {
			r, body := s.request(c, n > 2)
			if r == nil {
				return
			}
			text, call := s.message(class, body)
			if call && s.stops(conformance.AfterRequest) {
				return
			}
			s.answer(c, call, 200, text)
		}) + "/mcp"
		h.Targets = append(h.Targets, url)
		return upstream.Definition{URL: url, Credential: "bank"}
	})
}

// overStdio is an MCP server that the daemon starts. The program is a wire; what answers is here.
func overStdio(s *stage) *home {
	return s.upstreams(&home{Earlier: -1}, func(class execution.Class) upstream.Definition {
		address := s.listen(func(c net.Conn, _ int) {
			in := bufio.NewReader(c)
			for n := 1; ; n++ {
				if n == 3 && s.stops(conformance.AfterConnect) {
					return
				}
				if _, err := in.Peek(10); err != nil || n == 3 && s.stops(conformance.MidRequest) {
					return
				}
				line, err := in.ReadBytes('\n')
				if err != nil || n == 1 && s.stops(conformance.BeforeConnect) {
					return
				}
				text, call := s.message(class, line)
				if call && s.stops(conformance.AfterRequest) {
					return
				}
				if call && s.fails(conformance.MidAnswer) {
					_, _ = io.WriteString(c, text[:len(text)/2])
					s.stops(conformance.MidAnswer)
					return
				}
				_, _ = io.WriteString(c, text+"\n")
			}
		})
		return upstream.Definition{Command: []string{os.Args[0]}, Env: []string{wireVariable + "=" + address, "GORACE=atexit_sleep_ms=0"}}
	})
}

// overSSH is a real sshd, with a wire to it. What a command did is counted by what it wrote.
func overSSH(s *stage) *home {
	dir := s.t.TempDir()
	server := sshdtest.New(s.t, sshdtest.Config{Between: s.between})
	// The marker's folder has been there for an hour: only such a one can tell a daemon that did not see it before that something never started.
	marker := filepath.Join(server.Home, ".singlepass")
	if err := os.Mkdir(marker, 0o700); err != nil {
		s.t.Fatal(err)
	}
	for name, text := range map[string]string{"store": "0123456789abcdef", "born": strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)} {
		if err := os.WriteFile(filepath.Join(marker, name), []byte(text+"\n"), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	h := &home{Secret: server.Key, HostKey: server.HostKey, Targets: []string{fmt.Sprintf("ssh://%s@%s", server.User, server.Address())}}
	for _, class := range []execution.Class{execution.ReadOnly, execution.StatusQuery, execution.Irreversible} {
		ledger, gate := filepath.Join(dir, string(class)), filepath.Join(dir, string(class)+".gate")
		if s.boundary == conformance.AfterRequest {
			s.gate(gate)
		}
		// Long, so that the request for it is known on the wire, and so that its answer has a middle.
		line := `echo effect >>"$LEDGER"; [ ! -p "$GATE" ] || read -r word <"$GATE"; head -c 40000 /dev/zero | tr "\\0" x #` + strings.Repeat("x", 16<<10)
		h.add(class, "ssh", fmt.Sprintf("credential: db\nssh:\n  host: %s\n  port: %d\n  user: %s\n  command: [sh, -c, '%s', sh, \"{order}\"]\n  env: {LEDGER: %s, GATE: %s}\n",
			server.Host, server.Port, server.User, line, ledger, gate), map[execution.Class]string{
			execution.ReadOnly: "", execution.StatusQuery: "\n  attach_window: 1h\n  wait: {poll: 1s, give_up_after: 24h}", execution.Irreversible: "\n  attach_window: 1h",
		}[class])
		s.ledgers[class] = ledger
	}
	return h
}

// gate is where a command waits that has acted, and is opened when the daemon is dead.
func (s *stage) gate(path string) {
	s.t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		s.t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // returns when the command is there
		if err != nil {
			return
		}
		defer f.Close()
		if s.stops(conformance.AfterRequest) && s.fault != "" {
			s.mu.Lock()
			wire := s.wire
			s.mu.Unlock()
			s.end(wire)
		}
		_ = os.Remove(path)
		_, _ = f.WriteString("go\n")
	})
	s.t.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil { // nobody ever came
			defer f.Close()
		}
		work.Wait()
	})
}

// between is the wire to sshd.
func (s *stage) between(client, server net.Conn) {
	s.mu.Lock()
	s.wire = client
	s.mu.Unlock()
	var asked atomic.Bool // the request for the command went through
	var work sync.WaitGroup
	pass := func(from, to net.Conn, stops func(b []byte) (give int, stop bool)) {
		defer from.Close()
		defer to.Close()
		for b := make([]byte, 64<<10); ; {
			n, err := from.Read(b)
			give, stop := stops(b[:n])
			if _, broken := to.Write(b[:give]); err != nil || broken != nil || stop {
				if stop {
					s.end(client)
				}
				return
			}
		}
	}
	work.Go(func() {
		pass(client, server, func(b []byte) (int, bool) {
			if len(b) < 10<<10 || asked.Load() {
				return len(b), false
			}
			if s.stops(conformance.AfterConnect) {
				return 0, true
			}
			if s.fails(conformance.MidRequest) {
				_, _ = server.Write(b[:len(b)/2])
				s.stops(conformance.MidRequest)
				return 0, true
			}
			asked.Store(true)
			return len(b), false
		})
	})
	output := 0
	pass(server, client, func(b []byte) (int, bool) {
		if asked.Load() {
			output += len(b)
		}
		if output < 16<<10 || output-len(b) >= 16<<10 {
			return len(b), false
		}
		if s.fails(conformance.MidAnswer) {
			_, _ = client.Write(b[:len(b)-(output-16<<10)])
			s.stops(conformance.MidAnswer)
			return 0, true
		}
		return len(b), false
	})
	work.Wait()
}
