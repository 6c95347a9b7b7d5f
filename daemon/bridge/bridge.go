// Package bridge is `spctl mcp`: it forwards the lines of an agent's MCP client between its standard streams and the daemon's agent.sock.
//
// It never decides about effects. It does not answer initialize, invents no failure, and sends no tools/call twice. When the daemon goes away (killed, restarted, upgraded)
// the bridge stays, because the agent would lose its MCP server for good: it connects again, replays the client's initialize and what else has no effect, and answers
// each tools/call that was under way by the truth: it cannot tell what became of it, and a repeat attaches to the original. A tools/call that never left the bridge is answered as not sent.
//
// After an answer has left, the bridge watches how much of its standard output is unread, and reports to the daemon when the agent has taken it: a pipe without unread bytes, or
// an empty queue of the socket pair that Node uses. On a terminal, a file, or a system that cannot tell, it reports nothing.
//
// It imports no MCP SDK: it must be ready a few milliseconds after the agent started it.
package bridge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"singlepass.dev/daemon/mcpserver/envelope"
)

// ErrNotRunning is returned when the daemon could not be reached at all within Config.StartWithin.
var ErrNotRunning = errors.New("the daemon is not running")

// Config says what a bridge needs.
type Config struct {
	Stdin  io.Reader // required; the agent's requests
	Stdout *os.File  // required; the agent's answers
	Stderr io.Writer // required; notes for the person, which clients keep in a log
	Socket string    // required; path of agent.sock

	// Connecting is optional: it is called with each try to connect. A group that spctl was installed with goes onto the connection there (package harden).
	Connecting func(connect func() error) error

	StartWithin time.Duration // optional, 60 s by default: how long to wait for a daemon that was not there at start
	HoldFor     time.Duration // optional, 5 s by default: how long a request waits for a daemon that went away, before it is answered as not sent
	Grace       time.Duration // optional, 1.5 s by default: how long answers may still come after the end of Stdin; common clients kill after 2 s
}

const (
	maxLine     = 4 << 20 // bytes of a request; the daemon's own limit
	bufferSize  = 64 << 10
	firstDelay  = 10 * time.Millisecond
	longestWait = time.Second
)

// request is a request of the client's that has no answer yet.
type request struct {
	id      []byte // raw
	call    bool   // tools/call: the one method with an effect
	read    bool   // resources/read, prompts/get: may be sent again, and the daemon wants to know that its answer was taken
	hello   bool   // initialize
	endless bool   // subscriptions/listen, which is answered only when it is cancelled
	modern  bool   // it names its revision itself (2026-07-28)
	line    []byte // kept where it may be sent again
}

// bridge is one run of Run. Lock order: outMu, mu.
type bridge struct {
	cfg  Config
	ctx  context.Context
	end  context.CancelCauseFunc
	took *watcher

	outMu sync.Mutex
	out   *bufio.Writer // owner: outMu
	sent  uint64        // owner: outMu; bytes written into out

	mu          sync.Mutex
	nc          net.Conn           // owner: mu; nil while there is no daemon
	to          *bufio.Writer      // owner: mu; to nc
	up          chan struct{}      // owner: mu; closed when nc is set
	inflight    map[string]request // owner: mu; by envelope.IDKey
	initialize  []byte             // owner: mu; the client's, once it was answered
	initID      string             // owner: mu
	initialized []byte             // owner: mu
	swallow     string             // owner: mu; key of a replayed initialize
	quiet       chan struct{}      // owner: mu; non-nil when somebody waits for inflight to be empty
}

// errDone ends a run that did what it was for.
var errDone = errors.New("done")

// Run forwards until Stdin ends, Stdout is closed or ctx ends, and then returns nil. The effect of a call that is under way goes on in the daemon.
func Run(ctx context.Context, cfg Config) error {
	switch {
	case cfg.Stdin == nil || cfg.Stdout == nil || cfg.Stderr == nil:
		return errors.New("running the bridge: Stdin, Stdout and Stderr are required")
	case cfg.Socket == "":
		return errors.New("running the bridge: Socket is required")
	}
	if cfg.Connecting == nil {
		cfg.Connecting = func(connect func() error) error { return connect() }
	}
	setDefault(&cfg.StartWithin, time.Minute)
	setDefault(&cfg.HoldFor, 5*time.Second)
	setDefault(&cfg.Grace, 1500*time.Millisecond)
	b := &bridge{cfg: cfg, up: make(chan struct{}), inflight: make(map[string]request)}
	b.ctx, b.end = context.WithCancelCause(ctx)
	defer b.end(errDone)
	b.out = bufio.NewWriterSize(cfg.Stdout, bufferSize)
	b.took = newWatcher(b)
	nc, err := b.dial(cfg.StartWithin)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	go b.fromDaemon(nc)
	go b.fromClient()
	<-b.ctx.Done()
	b.mu.Lock()
	if b.nc != nil {
		_ = b.nc.Close()
	}
	b.mu.Unlock()
	if cause := context.Cause(b.ctx); ctx.Err() == nil && !errors.Is(cause, errDone) {
		return cause
	}
	return nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// dial connects, again and again with growing waits, for at most the given time; zero means for ever.
func (b *bridge) dial(within time.Duration) (net.Conn, error) {
	started, noted := time.Now(), false
	var dialer net.Dialer
	for delay := firstDelay; ; delay = min(2*delay, longestWait) {
		var nc net.Conn
		err := b.cfg.Connecting(func() (err error) { nc, err = dialer.DialContext(b.ctx, "unix", b.cfg.Socket); return err })
		if err == nil {
			return nc, nil
		}
		if !noted {
			noted = true
			fmt.Fprintf(b.cfg.Stderr, "spctl: the daemon is not running: %v\nhint: start it: systemctl --user start singlepass, or run spd in another terminal; waiting for it\n", err)
		}
		if within > 0 && time.Since(started) > within {
			return nil, err
		}
		select {
		case <-time.After(delay):
		case <-b.ctx.Done():
			return nil, b.ctx.Err()
		}
	}
}

// fromDaemon carries answers to the client, and connects again when the daemon goes away. A daemon that keeps closing the connection is asked less and less often.
func (b *bridge) fromDaemon(nc net.Conn) {
	for delay := firstDelay; ; delay = min(2*delay, longestWait) {
		b.connected(nc)
		if b.forwardAnswers(nc) {
			delay = firstDelay
		}
		b.lost(nc)
		if b.ctx.Err() != nil {
			return
		}
		fmt.Fprintln(b.cfg.Stderr, "spctl: the connection to the daemon was lost; connecting again")
		select {
		case <-time.After(delay):
		case <-b.ctx.Done():
			return
		}
		var err error
		if nc, err = b.dial(0); err != nil {
			return
		}
		fmt.Fprintln(b.cfg.Stderr, "spctl: connected again")
	}
}

// connected takes a new connection into use. On the second one the daemon first hears again what the client said at the beginning, and the requests without effect that
// were lost with the first.
func (b *bridge) connected(nc net.Conn) {
	b.outMu.Lock()
	defer b.outMu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nc, b.to = nc, bufio.NewWriterSize(nc, bufferSize)
	if b.initialize != nil {
		b.swallow = b.initID
		b.write(b.initialize)
		if b.initialized != nil {
			b.write(b.initialized)
		}
		// Another daemon may have other tools, and nobody else would say so.
		b.emit([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
		b.flushOut()
	}
	for _, r := range b.inflight {
		b.write(r.line)
	}
	_ = b.to.Flush()
	close(b.up)
}

// write sends a line to the daemon; a failure shows when the answers end. The caller holds mu.
func (b *bridge) write(line []byte) {
	_, _ = b.to.Write(line)
	if len(line) == 0 || line[len(line)-1] != '\n' {
		_ = b.to.WriteByte('\n')
	}
}

// lost answers the calls that were under way on a connection that ended.
func (b *bridge) lost(nc net.Conn) {
	_ = nc.Close()
	b.outMu.Lock()
	defer b.outMu.Unlock()
	b.mu.Lock()
	b.nc, b.to, b.up = nil, nil, make(chan struct{})
	b.took.forgetLocked()
	var calls []request
	for key, r := range b.inflight {
		if r.call {
			calls = append(calls, r)
			delete(b.inflight, key)
		}
	}
	b.settledLocked()
	b.mu.Unlock()
	for _, r := range calls {
		b.emit(unknownAnswer(r))
	}
	b.flushOut()
}

// emit writes one line to the client. The caller holds outMu.
func (b *bridge) emit(line []byte) {
	n, _ := b.out.Write(line)
	b.sent += uint64(n)
	if len(line) == 0 || line[len(line)-1] != '\n' {
		_ = b.out.WriteByte('\n')
		b.sent++
	}
}

// flushOut ends the run when the client no longer reads. The caller holds outMu.
func (b *bridge) flushOut() {
	if err := b.out.Flush(); err != nil {
		b.end(errDone)
	}
}

// settledLocked wakes who waits for the last answer. The caller holds mu.
func (b *bridge) settledLocked() {
	if b.quiet != nil && !b.busyLocked() {
		close(b.quiet)
		b.quiet = nil
	}
}

func (b *bridge) busyLocked() bool {
	for _, r := range b.inflight {
		if !r.endless {
			return true
		}
	}
	return false
}

// forwardAnswers runs until the connection ends, and says whether the daemon answered anything. It flushes when no further whole line is there yet.
func (b *bridge) forwardAnswers(nc net.Conn) (served bool) {
	rd := bufio.NewReaderSize(nc, bufferSize)
	for line := range lines(rd, 0) {
		b.outMu.Lock()
		id, ours := b.answered(line)
		served = served || id != "" || ours
		if !ours {
			b.emit(line)
			if id != "" {
				b.took.add(id, b.sent)
			}
		}
		if !hasLine(rd) {
			b.flushOut()
			b.took.wrote(b.sent)
		}
		b.outMu.Unlock()
	}
	return served
}

// answered takes note of an answer. It returns the raw id of an answered call or reading, and whether the answer is to something that the bridge itself asked.
func (b *bridge) answered(line []byte) (id string, ours bool) {
	var m envelope.Message
	if envelope.Scan(line, &m) != nil || !m.Response {
		return "", false
	}
	if m.ID == nil {
		// An error that belongs to no request is for the person, too: it says why the daemon will not serve this agent.
		fmt.Fprintf(b.cfg.Stderr, "spctl: the daemon says: %s", line)
		return "", false
	}
	key := envelope.IDKey(m.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.swallow != "" && key == b.swallow {
		b.swallow = ""
		return "", true
	}
	r, known := b.inflight[key]
	if !known {
		return "", false
	}
	delete(b.inflight, key)
	b.settledLocked()
	if r.call || r.read {
		return string(m.ID), false
	}
	if r.hello && b.initialize == nil {
		b.initialize, b.initID = r.line, key
	}
	return "", false
}
