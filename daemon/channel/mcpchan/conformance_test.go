package mcpchan_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/conformance"
	"singlepass.dev/daemon/upstream"
)

func TestConformanceOverStdio(t *testing.T) {
	conformance.Run(t, harness{}, "testdata/conformance_stdio.txt")
}

func TestConformanceOverHTTP(t *testing.T) {
	conformance.Run(t, harness{http: true}, "testdata/conformance_http.txt")
}

// At 2025-11-25 an answer can be a stream that says from where it can be taken up again.
func TestConformanceOverAStreamThatCanBeTakenUpAgain(t *testing.T) {
	conformance.Run(t, resuming{harness{http: true, stream: true}}, "testdata/conformance_stream.txt")
}

type harness struct{ http, stream bool }

type resuming struct{ harness }

func (resuming) Resuming() {}

// running is a target and what it reported.
type running struct {
	t       *testing.T
	c       conformance.Case
	rig     *rig
	call    int // the number of the connection that the call goes over
	listens chan string
	hanging chan struct{}
	done    chan struct{} // closed when the report has ended
	control net.Listener

	conns []net.Conn // owned by mu, as what follows

	mu     sync.Mutex // owns what follows
	ledger conformance.Ledger
	dials  int
}

func (h harness) Start(t *testing.T, c conformance.Case) conformance.Target {
	switch {
	case c.Boundary == conformance.AfterVerdict: // nothing decides but the whole answer
		return nil
	case !h.http && c.Fault == conformance.Reset: // a pipe has no such thing
		return nil
	case !h.http && c.Boundary == conformance.AfterConnect && c.Fault == conformance.Kill: // its pipe is closed like that of one that lives, and its death may be noticed first
		return nil
	}
	r := &running{t: t, c: c, call: callAt(h.stream), listens: make(chan string, 1), hanging: make(chan struct{}), done: make(chan struct{})}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(order{c, control.Addr().String(), h.http, h.stream})
	if err != nil {
		t.Fatal(err)
	}
	r.control = control
	go r.follow()
	if h.http {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MCPCHAN_TARGET="+string(text))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		address := <-r.listens
		if c.Boundary == conformance.BeforeConnect && c.Fault == conformance.Kill {
			_, _ = cmd.Process.Kill(), cmd.Wait() // nothing listens then
		}
		r.rig = behindDial(t, upstream.Definition{Name: "bank", URL: address, Credential: "bank"}, conformance.Canary, r.dial)
	} else {
		r.rig = behindDial(t, upstream.Definition{Name: "bank", Command: []string{os.Args[0]}, Env: []string{"MCPCHAN_TARGET=" + string(text), "GORACE=atexit_sleep_ms=0"}, Secrets: []string{"bank"}}, conformance.Canary, nil)
	}
	return r
}

// dial lets the channel go on with the connection of the call only when a fault right after connecting was made and has reached our end.
func (r *running) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	r.mu.Lock()
	r.dials++
	n := r.dials
	r.mu.Unlock()
	if err != nil || n != r.call || r.c.Boundary != conformance.AfterConnect || r.c.Fault == conformance.Hang {
		return conn, err
	}
	r.mu.Lock()
	_, err = r.conns[0].Write([]byte("!"))
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	return conn, raw.Control(func(fd uintptr) {
		for { // errors and hang-ups are always polled for
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, -1); err != unix.EINTR {
				return
			}
		}
	})
}

func (r *running) Channel() channel.Channel { return r.rig.Channel }
func (r *running) Hanging() <-chan struct{} { return r.hanging }

func (r *running) Request() channel.Request {
	q := r.rig.pinned("charge", pinOf(r.t, upstream.Tool{Name: "charge", InputSchema: json.RawMessage(`{"type":"object"}`)}), `{"amount":1}`)
	q.SideEffect = r.c.SideEffect
	return q
}

func pinOf(t *testing.T, tool upstream.Tool) string {
	t.Helper()
	pin, err := tool.Pin()
	if err != nil {
		t.Fatal(err)
	}
	return pin
}

func (r *running) Ledger() conformance.Ledger {
	r.rig.Close()
	r.end()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger
}

// follow reads the target's report to its end: of a program that was started twice, because it fell over the probe, both.
func (r *running) follow() {
	defer close(r.done)
	var reading sync.WaitGroup
	for {
		c, err := r.control.Accept()
		if err != nil {
			break
		}
		r.mu.Lock()
		r.conns = append(r.conns, c)
		r.mu.Unlock()
		reading.Go(func() {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				var e report
				if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
					r.t.Errorf("the target said %q", lines.Bytes())
					return
				}
				r.take(e)
			}
		})
	}
	reading.Wait()
}

// end ends a target that still runs; its end is the report's.
func (r *running) end() {
	_ = r.control.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.(*net.TCPConn).CloseWrite()
	}
}

func (r *running) take(e report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Event {
	case "listening":
		r.listens <- e.Text
	case "connection":
		r.ledger.Connections++
	case "bytes":
		r.ledger.Bytes += e.N
	case "request":
		r.ledger.Requests++
	case "effect":
		r.ledger.Effects++
	case "resumed":
		r.ledger.Resumes++
	case "decided":
		r.ledger.Decided = true
	case "silent":
		select {
		case <-r.hanging:
		default:
			close(r.hanging)
		}
	}
}
