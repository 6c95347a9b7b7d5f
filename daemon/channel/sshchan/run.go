package sshchan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// ran is what one command came to.
type ran struct {
	sent   bool   // the request for it may have reached the host
	why    string // where it was not sent or did not end
	exited bool
	status int
	signal string // without SIG, where one ended it

	stdout, stderr output
	incomplete     string // why the output is not whole; "" if it is
}

// output is what was read of one stream.
type output struct {
	bytes []byte
	total int64
}

// run asks for a command, once, and follows it to its end. limit bounds each stream; what is beyond it is read and thrown away, so that the command can go on.
func (l *link) run(ctx context.Context, line string, stdin []byte, limit int64) ran {
	stop := context.AfterFunc(ctx, func() { _ = l.raw.Close() })
	defer stop()
	session, requests, err := l.client.OpenChannel("session", nil)
	if err != nil {
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			return ran{why: fmt.Sprintf("the host opened no session: %s", clean(refused.Message))}
		}
		return ran{why: fmt.Sprintf("the host opened no session: %v", reason(ctx, err))}
	}
	defer session.Close()
	before := l.raw.accepted.Load()
	started, err := session.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{line}))
	if err != nil {
		l.close() // nothing more can leave from here on
		if l.raw.accepted.Load() == before {
			return ran{why: fmt.Sprintf("the connection took no byte of the request: %v", reason(ctx, err))}
		}
		return ran{sent: true, why: fmt.Sprintf("the request to start the command was sent, and %v before the host answered", reason(ctx, err))}
	}
	if !started {
		return ran{why: "the host refused to start the command: its sshd lets this account run none, or another one only"}
	}
	out := ran{sent: true}
	go func() { // ends with the session
		if _, err := session.Write(stdin); err == nil || errors.Is(err, io.EOF) {
			_ = session.CloseWrite()
		}
	}()
	var read sync.WaitGroup
	read.Go(func() { out.stdout = readAll(session, limit) })
	read.Go(func() { out.stderr = readAll(session.Stderr(), limit) })
	ended := make(chan struct{})
	defer close(ended)
	var silent atomic.Bool
	go l.stayAlive(ended, &silent)

	var drain <-chan time.Time
	held := false
	for open := true; open; {
		select {
		case r, ok := <-requests:
			if !ok {
				open = false
				break
			}
			out.take(r)
			if out.exited && drain == nil {
				t := time.NewTimer(drainAfterExit)
				defer t.Stop()
				drain = t.C
			}
		case <-drain:
			held, open = true, false
		case <-ctx.Done():
			open = false
		}
	}
	broken := l.raw.broken.Load()
	if held || ctx.Err() != nil {
		l.close()
		for r := range requests { // what had come before counts
			out.take(r)
		}
	}
	read.Wait()
	lost := func() string {
		switch {
		case ctx.Err() != nil:
			return fmt.Sprintf("the attempt was ended: %v", context.Cause(ctx))
		case silent.Load():
			return "the host stopped answering"
		}
		return "the connection was lost"
	}
	switch {
	case !out.exited && !broken && ctx.Err() == nil:
		out.why = "the command was started, and the host closed its session without saying how it ended"
	case !out.exited:
		out.why = "the command was started, and " + lost() + " before the host said how it ended"
	case held:
		out.incomplete = "a process that the command left behind still holds its output open"
	case broken || ctx.Err() != nil:
		out.incomplete = lost()
	}
	return out
}

// take reads what the host says about the command's end (RFC 4254, section 6.10).
func (r *ran) take(q *ssh.Request) {
	switch q.Type {
	case "exit-status":
		var m struct{ Status uint32 }
		if ssh.Unmarshal(q.Payload, &m) == nil && !r.exited {
			r.exited, r.status = true, int(m.Status)
		}
	case "exit-signal":
		var m struct {
			Signal   string
			Core     bool
			Message  string
			Language string
		}
		if ssh.Unmarshal(q.Payload, &m) == nil && !r.exited && m.Signal != "" {
			r.exited, r.signal, r.status = true, clean(m.Signal), -1
		}
	}
	if q.WantReply {
		_ = q.Reply(false, nil)
	}
}

// stayAlive asks a host that is silent whether it is still there, and closes the connection if it is not.
func (l *link) stayAlive(ended <-chan struct{}, silent *atomic.Bool) {
	t := time.NewTicker(l.keepAlive)
	defer t.Stop()
	answered := make(chan struct{}, 1)
	waiting := 0
	for {
		select {
		case <-ended:
			return
		case <-answered:
			waiting = 0
		case <-t.C:
			if waiting++; waiting > keepAliveMisses {
				silent.Store(true)
				_ = l.raw.Close()
				return
			}
			if waiting == 1 {
				go func() {
					if _, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil); err == nil {
						answered <- struct{}{}
					}
				}()
			}
		}
	}
}

func readAll(r io.Reader, limit int64) output {
	var o output
	b := make([]byte, 32<<10)
	for {
		n, err := r.Read(b)
		o.total += int64(n)
		if room := limit - int64(len(o.bytes)); room > 0 {
			o.bytes = append(o.bytes, b[:min(int64(n), room)]...)
		}
		if err != nil {
			return o
		}
	}
}

// reason is why a connection failed, in words.
func reason(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the attempt was ended: %w", context.Cause(ctx))
	case isLost(err):
		return errors.New("the connection was lost")
	}
	return fmt.Errorf("the connection failed: %w", err)
}

// isLost reports whether the other end, or the network, ended a connection. In which of the ways is chance.
func isLost(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &op)
}
