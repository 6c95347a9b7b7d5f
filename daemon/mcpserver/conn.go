package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/mcpserver/envelope"
	"singlepass.dev/daemon/peer"
)

const (
	noticeCancelled = "notifications/cancelled"
	// noticeDelivered comes from the bridge only: {"requestId": …, "evidence": "pipe"|"socket"}.
	noticeDelivered = "notifications/dev.singlepass/delivered"
)

// conn is one connection of agent.sock. Lock order: report, writer.mu, mu.
type conn struct {
	s     *Server
	nc    net.Conn
	raw   syscall.RawConn // nil where there is no descriptor to ask
	peer  *peer.Identity
	id    string
	ref   string
	out   writer
	ctx   context.Context // ends with the connection: callers are detached then
	end   context.CancelFunc
	calls sync.WaitGroup

	report sync.Mutex // orders Delivered before Disputed of one answer

	mu        sync.Mutex
	requests  map[string]*request // owner: mu; by IDKey: in flight, and the last answered ones
	answered  [1024]*request      // owner: mu; ring of those, for a cancellation that comes late
	next      int                 // owner: mu
	running   int                 // owner: mu; requests in flight
	inflight  int                 // owner: mu; those of them that will be answered by themselves
	quiet     chan struct{}       // owner: mu; closed when inflight falls to zero
	waiting   []*request          // owner: mu; answers that nobody is known to have taken, by position
	polling   bool                // owner: mu
	written   uint64              // owner: mu; bytes that the kernel took
	protocol  string              // owner: mu; negotiated by initialize
	client    string              // owner: mu
	clientRaw string              // owner: mu; what client was made from

	session   *mcp.ServerSession   // owner: the reading goroutine
	toSDK     chan jsonrpc.Message // nil until the SDK is needed
	handshake string               // owner: mu; IDKey of an initialize that is being answered
	shaken    chan struct{}        // owner: mu; closed when it was
}

func newConn(ctx context.Context, s *Server, nc net.Conn, identity *peer.Identity) *conn {
	c := &conn{s: s, nc: nc, peer: identity, id: s.cfg.ConnectionID(), ref: s.reference(), requests: make(map[string]*request), toSDK: make(chan jsonrpc.Message)}
	c.ctx, c.end = context.WithCancel(ctx)
	c.out.nc, c.out.written = nc, c.wrote
	if sc, ok := nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
	return c
}

func (c *conn) close() {
	c.end()
	c.out.close()
}

func (c *conn) serve() error {
	release := c.s.cfg.Engine.Connected(c.peer)
	c.s.sources.Store(c.ref, &source{peer: c.peer})
	stop := context.AfterFunc(c.ctx, func() { _ = c.nc.Close() })
	defer func() {
		stop()
		c.close()
		c.calls.Wait()
		if c.session != nil {
			_ = c.session.Close()
		}
		c.s.sources.Delete(c.ref)
		release()
	}()
	err := c.read()
	if errors.Is(err, io.EOF) {
		c.linger()
		return nil
	}
	if c.ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving a connection: %w", err)
}

// read takes one line after the other. A line is handled before the next is looked at, up to where its call runs on its own.
func (c *conn) read() error {
	rd := bufio.NewReaderSize(c.nc, 64<<10)
	var long []byte
	for {
		line, err := rd.ReadSlice('\n')
		if err == nil && long == nil {
			c.line(line)
			continue
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(bytes.TrimSpace(line))+len(long) > 0 {
				c.refuse(nil, envelope.ParseError, "the last message was cut off")
			}
			return err
		}
		if len(long) <= c.s.cfg.MaxMessage {
			long = append(long, line...)
		}
		if err == nil {
			if len(long) > c.s.cfg.MaxMessage {
				c.refuse(nil, envelope.InvalidRequest, fmt.Sprintf("a message may have at most %d bytes", c.s.cfg.MaxMessage))
			} else {
				c.line(long)
			}
			long = nil
		}
	}
}

func (c *conn) line(line []byte) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return
	}
	var m envelope.Message
	if err := envelope.Scan(line, &m); err != nil {
		c.refuseErr(m.ID, err)
		return
	}
	switch string(m.Method) {
	case envelope.MethodCall, envelope.MethodRead, envelope.MethodPrompt:
		if m.ID == nil {
			c.s.cfg.Logger.Debug("ignoring a call without an id: nobody could get its answer", "connection", c.id)
			return
		}
		c.toolCall(&m)
	case noticeCancelled:
		c.cancelled(line, &m)
	case noticeDelivered:
		c.bridgeDelivered(&m)
	default:
		c.forward(line, &m)
	}
}

func (c *conn) refuseErr(id []byte, err error) {
	code, message, data := wireError(err)
	_ = c.out.send(false, func(dst []byte) []byte { return appendError(dst, id, code, message, data) }, nil)
}

func (c *conn) refuse(id []byte, code int, message string) {
	c.refuseErr(id, &envelope.Error{Code: code, Message: message})
}

// linger is called when the other side has ended its sending. It may still read: a script that pipes requests in wants its answers. Its callers are detached when it is
// gone altogether. If it then left nothing unread, it had taken every answer that was written: Linux resets a unix socket whose other side was closed with unread bytes.
func (c *conn) linger() {
	for c.ctx.Err() == nil {
		c.mu.Lock()
		done := c.inflight == 0 && len(c.waiting) == 0
		c.mu.Unlock()
		if done {
			select {
			case <-c.out.flushed():
			case <-c.ctx.Done():
			}
			return
		}
		if gone, reset := c.hungUp(100); gone {
			if !reset {
				c.out.settle() // a write that is just returning was read, too
				written, _ := c.progressOfWriting()
				c.report.Lock()
				c.reportTaken(written, 0)
				c.report.Unlock()
			}
			return
		}
		c.checkDrained()
	}
}

// drain waits until every request in flight is answered and every answer was written and, where that can be seen, taken.
func (c *conn) drain(ctx context.Context) {
	c.mu.Lock()
	quiet := c.quiet
	if c.inflight == 0 {
		quiet = nil
	}
	c.mu.Unlock()
	if quiet != nil {
		select {
		case <-quiet:
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
	select {
	case <-c.out.flushed():
	case <-ctx.Done():
		return
	}
	for wait := time.Millisecond; ctx.Err() == nil && c.ctx.Err() == nil; wait = min(2*wait, 50*time.Millisecond) {
		c.checkDrained()
		c.mu.Lock()
		done := len(c.waiting) == 0
		c.mu.Unlock()
		if gone, _ := c.hungUp(0); done || gone {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
	}
}

// describe returns what the client calls itself, which is its claim. The last one is kept, because a 2026-07-28 client says it with every request.
func (c *conn) describe(raw []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if raw == nil || string(raw) == c.clientRaw {
		return c.client
	}
	name := clientName(raw)
	c.client, c.clientRaw = name, string(raw)
	return name
}

func clientName(raw []byte) string {
	var name, version string
	_ = envelope.Members(raw, func(key, value []byte) error {
		switch string(key) {
		case "name":
			text, _ := envelope.Text(value)
			name = string(text)
		case "version":
			text, _ := envelope.Text(value)
			version = string(text)
		}
		return nil
	})
	full := name
	if version != "" {
		full += "/" + version
	}
	if len(full) > 200 {
		full = strings.ToValidUTF8(full[:200], "")
	}
	return full
}
