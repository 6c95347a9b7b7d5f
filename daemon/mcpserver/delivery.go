package mcpserver

import (
	"time"

	"singlepass.dev/daemon/mcpserver/drain"
	"singlepass.dev/daemon/mcpserver/envelope"
	"singlepass.dev/daemon/peer"
)

// Evidence of delivery, as it is recorded. Frozen.
const (
	evidenceSocket       = "socket_drained"
	evidenceBridgePipe   = "bridge_pipe_drained"
	evidenceBridgeSocket = "bridge_socket_drained"
	evidenceHTTP         = "tcp_acknowledged"
)

// wrote is told by the writer what the kernel took.
func (c *conn) wrote(position uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = position
	if len(c.waiting) > 0 && !c.polling {
		c.polling = true
		go c.poll()
	}
}

// poll looks at the queue while answers are outstanding. The kernel has no event for "the reader took it all". It backs off, because each call that comes in looks too.
func (c *conn) poll() {
	wait := 200 * time.Microsecond
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			return
		}
		if c.checkDrained() {
			wait = 200 * time.Microsecond
		} else {
			wait = min(2*wait, 50*time.Millisecond)
		}
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.polling = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		timer.Reset(wait)
	}
}

// checkDrained reports the answers that the other side has taken. When it returns, every report that another goroutine began is made, too.
func (c *conn) checkDrained() (progress bool) {
	c.report.Lock()
	defer c.report.Unlock()
	written, last := c.progressOfWriting()
	if last == 0 {
		return false
	}
	queued, ok := c.queued()
	if ok && queued == 0 && written < last {
		// The other side may have read what a write that is just returning gave it, and already acted on it.
		c.out.settle()
		written, _ = c.progressOfWriting()
		queued, ok = c.queued()
	}
	if !ok {
		return false
	}
	if queued == 0 {
		// An empty queue of a socket whose reader is gone proves nothing: the kernel threw away what was not read.
		if gone, _ := c.hungUp(0); gone {
			return false
		}
	}
	return c.reportTaken(written, queued)
}

// progressOfWriting returns how much was written, and where the last answer ends that nobody is known to have taken.
func (c *conn) progressOfWriting() (written, last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		last = c.waiting[len(c.waiting)-1].position
	}
	return c.written, last
}

// reportTaken reports the answers that were read. Of the bytes that had been written before the queue was looked at, at most the last queued ones are unread.
// The caller holds report.
func (c *conn) reportTaken(written uint64, queued int) (progress bool) {
	var done []*request
	c.mu.Lock()
	keep := c.waiting[:0]
	for _, r := range c.waiting {
		switch {
		case r.phase != answered:
		case r.position+uint64(queued) <= written:
			r.phase = taken
			done = append(done, r)
		default:
			keep = append(keep, r)
		}
	}
	clear(c.waiting[len(keep):])
	c.waiting = keep
	c.mu.Unlock()
	for _, r := range done {
		r.delivered(evidenceSocket)
	}
	return len(done) > 0
}

func (c *conn) queued() (n int, ok bool) {
	if c.raw == nil {
		return 0, false
	}
	err := c.raw.Control(func(fd uintptr) {
		var err error
		n, err = drain.Queued(int(fd), drain.Socket)
		ok = err == nil
	})
	return n, ok && err == nil
}

// hungUp says that the other side is gone in both directions, waiting up to timeout milliseconds for it, and whether it left something unread.
func (c *conn) hungUp(timeout int) (gone, reset bool) {
	if c.raw == nil {
		return true, true
	}
	if err := c.raw.Control(func(fd uintptr) { gone, reset = drain.HungUp(int(fd), timeout) }); err != nil {
		return true, true
	}
	return gone, reset
}

// bridgeDelivered takes the bridge's word that the agent took an answer. From anybody else it is ignored: only the bridge's executable is known not to lie.
func (c *conn) bridgeDelivered(m *envelope.Message) {
	if c.peer.Via != peer.ViaBridge {
		c.s.cfg.Logger.Warn("ignoring a report of delivery from a peer that is not the bridge", "connection", c.id)
		return
	}
	id, err := envelope.RequestID(m.Params)
	if err != nil {
		c.s.cfg.Logger.Warn("ignoring a report of delivery", "connection", c.id, "error", err)
		return
	}
	evidence := evidenceBridgePipe
	_ = envelope.Members(m.Params, func(key, value []byte) error {
		if string(key) == "evidence" && string(value) == `"socket"` {
			evidence = evidenceBridgeSocket
		}
		return nil
	})
	c.report.Lock()
	defer c.report.Unlock()
	c.mu.Lock()
	r := c.requests[envelope.IDKey(id)]
	if r == nil || r.phase != answered || r.delivered == nil {
		c.mu.Unlock()
		return
	}
	r.phase = taken
	c.mu.Unlock()
	r.delivered(evidence)
}
