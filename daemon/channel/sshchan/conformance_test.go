package sshchan_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/conformance"
	"singlepass.dev/daemon/channel/sshchan"
	"singlepass.dev/daemon/channel/sshchan/sshdtest"
)

// The target is a real sshd, with a wire to it that fails where the case says. The secret is a private key, which no target ever sees.
func TestConformance(t *testing.T) { conformance.Run(t, harness{}, "testdata/conformance.txt") }

type harness struct{}

// phase is how far a command came on the wire.
type phase int

const (
	connecting phase = iota
	asked            // the request for it went through
	released         // it was let go on to its end
	ended            // its status went through
)

// outputSize is what the command writes before it waits at its gate.
const outputSize = 40000

// running is one sshd, the wire to it, and the command that it runs.
type running struct {
	t      *testing.T
	c      conformance.Case
	server *sshdtest.Server
	ch     *sshchan.Channel
	req    channel.Request
	trace  string // the command's own ledger
	gate   string // a pipe at which it waits, having acted

	hanging chan struct{}
	over    chan struct{} // closed after Do: what was held back ends then

	mu        sync.Mutex // owns what follows
	idle      *sync.Cond // told when the channel waits for more
	wire      *net.TCPConn
	phase     phase
	execBytes int64 // of the request for the command, as sshd got it
	sent      int64 // what the channel was given
	taken     int64 // what of it the channel has read
	output    int64 // what it was given since the request went through
	waiting   bool  // the channel waits for more
	stalled   bool  // nothing goes over the wire any more
}

func (harness) Start(t *testing.T, c conformance.Case) conformance.Target {
	dir := t.TempDir()
	r := &running{t: t, c: c, trace: filepath.Join(dir, "trace"), gate: filepath.Join(dir, "gate"), hanging: make(chan struct{}), over: make(chan struct{})}
	r.idle = sync.NewCond(&r.mu)
	holds := filepath.Join(dir, "holds")
	for _, path := range []string{r.gate, holds} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Open for both, so that whoever reads there at the end of the test is not left waiting.
	held, err := os.OpenFile(holds, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = held.WriteString("go\n"); _ = held.Close() })
	r.server = sshdtest.New(t, sshdtest.Config{Between: r.between})
	if c.Boundary == conformance.BeforeConnect && c.Fault == conformance.Kill {
		r.server.Close()
	}
	line := "echo effect >>" + r.trace + "; "
	if c.Boundary != conformance.AfterRequest {
		line += fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x; `, outputSize)
	}
	if c.Boundary == conformance.AfterVerdict {
		line += "(read -r word <" + holds + ") & " // it keeps the output open
	}
	line += "read -r word <" + r.gate + "; exit 0 #" + strings.Repeat("x", 8<<10) // long, so that the request for it is known on the wire
	r.ch = newChannel(t, func(cfg *sshchan.Config) { cfg.Dial = r.dial })
	r.req = command(t, r.server, line, func(q *channel.Request) { q.SideEffect = c.SideEffect })
	return r
}

func (r *running) Channel() channel.Channel { return r.ch }
func (r *running) Request() channel.Request { return r.req }
func (r *running) Hanging() <-chan struct{} { return r.hanging }

func (r *running) Ledger() conformance.Ledger {
	close(r.over)
	r.server.Close()
	b, err := os.ReadFile(r.trace)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	effects := bytes.Count(b, []byte("effect\n"))
	r.mu.Lock()
	defer r.mu.Unlock()
	return conformance.Ledger{Connections: r.server.Connections(), Bytes: r.execBytes, Requests: effects, Effects: effects, Decided: r.phase == ended}
}

// between is the wire.
func (r *running) between(client, server net.Conn) {
	r.mu.Lock()
	r.wire = client.(*net.TCPConn)
	r.mu.Unlock()
	if r.c.Boundary == conformance.BeforeConnect {
		if _, err := client.Read(make([]byte, 64)); err != nil { // it is in its handshake
			r.t.Error(err)
		}
		r.fail()
	} else {
		go r.pass(client, server, r.asking)
		go r.pass(server, client, r.answering)
	}
	<-r.over
	_, _ = client.Close(), server.Close()
}

// pass gives on what it reads, as far as next says, which also says when it is time to fail.
func (r *running) pass(from, to net.Conn, next func(n int) (give int, fail bool)) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			r.mu.Lock()
			give, fail := 0, false
			if !r.stalled {
				give, fail = next(n)
			}
			r.mu.Unlock()
			if _, err := to.Write(b[:give]); err != nil {
				return
			}
			if fail {
				r.settle()
				r.fail()
			}
		}
		if err != nil {
			// The connection ends after an answer when the channel has it, so that is when this case's fault can come.
			if r.c.Boundary == conformance.AfterAnswer {
				r.fail()
			}
			return
		}
	}
}

// asking sees what goes to sshd. It has mu.
func (r *running) asking(n int) (give int, fail bool) {
	if r.phase == connecting && n > 3<<10 { // the request for the command
		switch r.c.Boundary {
		case conformance.AfterConnect:
			return 0, true
		case conformance.MidRequest:
			r.execBytes = int64(n / 2)
			return n / 2, true
		}
		r.phase, r.execBytes = asked, int64(n)
		if r.c.Boundary == conformance.AfterRequest {
			go r.release()
		}
	}
	return n, false
}

// answering sees what goes to the channel. It has mu.
func (r *running) answering(n int) (give int, fail bool) {
	r.sent += int64(n)
	if r.phase == connecting {
		return n, false
	}
	r.output += int64(n)
	switch {
	case r.phase == asked && r.output >= outputSize && r.c.Boundary == conformance.MidAnswer:
		return n, true
	case r.phase == asked && r.output >= outputSize && r.c.Boundary != conformance.AfterRequest:
		r.phase = released
		go r.release()
	case r.phase == released: // nothing but its end is left to be said
		r.phase = ended
		return n, r.c.Boundary == conformance.AfterVerdict
	}
	return n, false
}

// release waits until the command is at its gate, which is after it acted, and lets it go on.
func (r *running) release() {
	f, err := os.OpenFile(r.gate, os.O_WRONLY, 0)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer f.Close()
	if r.c.Boundary == conformance.AfterRequest {
		r.settle()
		r.fail()
		<-r.over
	}
	_, _ = f.WriteString("go\n")
}

// settle waits until the channel has taken all that was said, and that its command was started where it was: a reset would take it away again.
func (r *running) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.waiting || r.taken != r.sent || r.phase == asked && r.output == 0 {
		r.idle.Wait()
	}
}

// fail does what the case says.
func (r *running) fail() {
	r.mu.Lock()
	r.stalled = true
	wire := r.wire
	r.checkHangingLocked()
	r.mu.Unlock()
	switch r.c.Fault {
	case conformance.Reset:
		_ = wire.SetLinger(0)
	case conformance.Kill:
		r.server.Kill()
	case conformance.Hang:
		return
	}
	_ = wire.Close()
}

func (r *running) dial(ctx context.Context, name, port string) (net.Conn, error) {
	conn, err := dial(ctx, name, port)
	if err != nil {
		return nil, err
	}
	return &watched{Conn: conn, r: r}, nil
}

// watched knows whether the channel waits in Read, and how much it has taken.
type watched struct {
	net.Conn
	r *running
}

func (w *watched) Read(b []byte) (int, error) {
	w.r.mu.Lock()
	w.r.waiting = true
	w.r.idle.Broadcast()
	w.r.checkHangingLocked()
	w.r.mu.Unlock()
	n, err := w.Conn.Read(b)
	w.r.mu.Lock()
	w.r.waiting = false
	w.r.taken += int64(n)
	w.r.mu.Unlock()
	return n, err
}

func (r *running) checkHangingLocked() {
	select {
	case <-r.hanging:
	default:
		if r.stalled && r.waiting && r.taken == r.sent {
			close(r.hanging)
		}
	}
}
