package bridge

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"time"

	"singlepass.dev/daemon/mcpserver/envelope"
)

// fromClient carries requests to the daemon until the client ends.
func (b *bridge) fromClient() {
	rd := bufio.NewReaderSize(b.cfg.Stdin, bufferSize)
	for line := range lines(rd, maxLine) {
		if b.ctx.Err() != nil {
			return
		}
		if line == nil {
			b.outMu.Lock()
			b.emit(tooLongAnswer())
			b.flushOut()
			b.outMu.Unlock()
			continue
		}
		b.took.check(false)
		b.toDaemon(line, !hasLine(rd))
	}
	b.finish()
}

// toDaemon sends one line. While there is no daemon it waits for a while, and so does the client; what then never left is answered as that.
func (b *bridge) toDaemon(line []byte, flush bool) {
	var m envelope.Message
	request := envelope.Scan(line, &m) == nil && !m.Response
	for b.waitUp() {
		b.mu.Lock()
		if b.to == nil {
			b.mu.Unlock()
			continue // lost again
		}
		if request {
			b.note(line, &m)
		}
		b.write(line)
		if flush {
			_ = b.to.Flush()
		}
		b.mu.Unlock()
		return
	}
	if b.ctx.Err() == nil && request && m.ID != nil {
		b.outMu.Lock()
		b.emit(notSentAnswer(&m))
		b.flushOut()
		b.outMu.Unlock()
	}
}

// note remembers what waits for an answer. The caller holds mu.
func (b *bridge) note(line []byte, m *envelope.Message) {
	switch method := string(m.Method); {
	case m.ID == nil:
		if method == "notifications/initialized" {
			b.initialized = bytes.Clone(line)
		}
		if method == "notifications/cancelled" {
			// Nobody waits for it any more, and the daemon writes no answer.
			if id, err := envelope.RequestID(m.Params); err == nil {
				delete(b.inflight, envelope.IDKey(id))
				b.settledLocked()
			}
		}
	case method == "tools/call":
		key := envelope.IDKey(m.ID)
		if _, twice := b.inflight[key]; !twice { // the daemon refuses the second; the first is still to be answered
			b.inflight[key] = request{id: bytes.Clone(m.ID), call: true, modern: envelope.Revision(m.Params) != ""}
		}
	default:
		b.inflight[envelope.IDKey(m.ID)] = request{
			id: bytes.Clone(m.ID), line: bytes.Clone(line), hello: method == "initialize", endless: method == "subscriptions/listen", read: envelope.IsCall(method),
		}
	}
}

// waitUp waits until there is a daemon, for at most HoldFor.
func (b *bridge) waitUp() bool {
	b.mu.Lock()
	up, connected := b.up, b.nc != nil
	b.mu.Unlock()
	if connected {
		return true
	}
	timer := time.NewTimer(b.cfg.HoldFor)
	defer timer.Stop()
	select {
	case <-up:
		return true
	case <-timer.C:
	case <-b.ctx.Done():
	}
	return false
}

// finish is the end of the client's sending: it leaves the answers under way a moment, tells the daemon, and ends the run.
func (b *bridge) finish() {
	grace, cancel := context.WithTimeout(b.ctx, b.cfg.Grace)
	defer cancel()
	b.mu.Lock()
	var quiet chan struct{}
	if b.busyLocked() {
		quiet = make(chan struct{})
	}
	b.quiet = quiet
	b.mu.Unlock()
	if quiet != nil {
		select {
		case <-quiet:
		case <-grace.Done():
		}
	}
	b.took.settle(grace)
	b.mu.Lock()
	if uc, ok := b.nc.(*net.UnixConn); ok {
		_ = b.to.Flush()
		_ = uc.CloseWrite()
	}
	b.mu.Unlock()
	b.end(errDone)
}
