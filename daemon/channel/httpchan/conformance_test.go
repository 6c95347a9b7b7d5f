package httpchan_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/conformance"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, &harness{}, "testdata/conformance.txt")
}

func TestConformanceOverTLS(t *testing.T) {
	pair, roots := certificate(t)
	conformance.Run(t, &harness{pair: pair, roots: roots}, "testdata/conformance_tls.txt")
}

// A target that answers that it took the request and is not done.
func TestConformanceOfATargetThatIsNotDone(t *testing.T) {
	conformance.Run(t, taking{&harness{}}, "testdata/conformance_taken.txt")
}

type taking struct{ *harness }

func (taking) Taking() {}

func (h taking) Start(t *testing.T, c conformance.Case) conformance.Target {
	if !c.SideEffect {
		return nil // nobody would have to ask how a read ends
	}
	target := h.harness.Start(t, c)
	if r, ok := target.(*running); ok {
		r.req.JudgeAnswer = func(a channel.Reading) (channel.Word, json.RawMessage, string) {
			if a.Status != 200 {
				return channel.Done, nil, ""
			}
			return channel.Running, json.RawMessage(`{}`), "the target took it"
		}
	}
	return target
}

type harness struct {
	pair  []byte
	roots *x509.CertPool
}

// running is one target process and what it reported.
type running struct {
	t     *testing.T
	c     conformance.Case
	tls   bool
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ch    *httpchan.Channel
	req   channel.Request

	address string
	faulted chan struct{} // closed when the fault was made
	hanging chan struct{} // closed when the target is silent and the channel waits
	done    chan struct{} // closed when the report has ended

	mu      sync.Mutex // owns what follows
	ledger  conformance.Ledger
	silent  bool
	wrote   int64 // bytes that the target sent before it fell silent
	client  *watched
	dialled bool
}

func (h *harness) Start(t *testing.T, c conformance.Case) conformance.Target {
	if c.Boundary == conformance.BeforeConnect && c.Fault == conformance.Close {
		return nil // there is nothing to close
	}
	if h.pair != nil && !c.SideEffect && c.Boundary == conformance.AfterConnect && c.Fault != conformance.Hang {
		return nil // net/http gives no way to stand between its handshake and its first byte
	}
	text, err := json.Marshal(script{Case: c, TLS: h.pair})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{
		t: t, c: c, tls: h.pair != nil,
		faulted: make(chan struct{}), hanging: make(chan struct{}), done: make(chan struct{}),
	}
	r.cmd = exec.Command(os.Args[0])
	r.cmd.Env = append(os.Environ(), "HTTPCHAN_TEST_TARGET="+string(text))
	r.cmd.Stderr = os.Stderr
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill(); <-r.done; _ = r.cmd.Wait() })
	listening := make(chan string, 1)
	go r.follow(stdout, listening)
	select {
	case r.address = <-listening:
	case <-r.done:
		t.Fatal("the target did not start")
	}
	if c.Boundary == conformance.BeforeConnect && c.Fault == conformance.Kill {
		<-r.faulted
	}
	r.ch = client(t, httpchan.Config{Dial: r.dial, RootCAs: h.roots})
	scheme := "http://"
	if r.tls {
		scheme = "https://"
	}
	class := func(*channel.Request) {}
	if !c.SideEffect {
		class = readOnly
	}
	r.req = attempt(scheme+r.address+"/effect", class, with(t, effect.Auth{Credential: "c", Kind: "bearer"}, conformance.Canary))
	if r.tls {
		r.req.Permitted = func(string) error { r.settle(); return nil }
	}
	return r
}

func (r *running) Channel() channel.Channel { return r.ch }
func (r *running) Request() channel.Request { return r.req }
func (r *running) Hanging() <-chan struct{} { return r.hanging }

func (r *running) Ledger() conformance.Ledger {
	r.ch.Close()
	if r.c.Fault != conformance.Kill {
		_ = r.stdin.Close()
		if r.c.Boundary != conformance.BeforeConnect {
			last, err := net.Dial("tcp", r.address)
			if err != nil {
				r.t.Fatal(err)
			}
			defer last.Close()
			if _, err := io.WriteString(last, finish); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger
}

// follow reads the target's report to its end.
func (r *running) follow(stdout io.Reader, listening chan<- string) {
	defer close(r.done)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.t.Errorf("the target said %q", lines.Bytes())
			return
		}
		r.mu.Lock()
		switch e.Event {
		case "listening":
			listening <- e.Text
		case "connection":
			r.ledger.Connections++
		case "bytes":
			r.ledger.Bytes += e.N
		case "request":
			r.ledger.Requests++
		case "effect":
			r.ledger.Effects++
		case "decided":
			r.ledger.Decided = true
		case "silent":
			r.silent, r.wrote = true, e.N
			r.checkHangingLocked()
		case "faulted":
			close(r.faulted)
		case "kill":
			if err := r.cmd.Process.Kill(); err != nil {
				r.t.Error(err)
			}
			_, _ = r.cmd.Process.Wait() // its sockets are closed then
			close(r.faulted)
		}
		r.mu.Unlock()
	}
}

func (r *running) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialled = true
	r.checkHangingLocked()
	r.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := &watched{TCPConn: conn.(*net.TCPConn), r: r}
	r.mu.Lock()
	r.client = w
	r.mu.Unlock()
	if !r.tls {
		r.settle()
	}
	return w, nil
}

// settle lets the channel go on only when a fault right after connecting was made and has reached our end of the connection.
func (r *running) settle() {
	if r.c.Boundary != conformance.AfterConnect || r.c.Fault == conformance.Hang {
		return
	}
	if _, err := io.WriteString(r.stdin, "!"); err != nil {
		r.t.Error(err)
	}
	<-r.faulted
	r.mu.Lock()
	conn := r.client.TCPConn
	r.mu.Unlock()
	raw, err := conn.SyscallConn()
	if err != nil {
		r.t.Error(err)
		return
	}
	if err := raw.Control(func(fd uintptr) {
		for { // errors and hang-ups are always polled for
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, -1)
			if err != unix.EINTR {
				return
			}
		}
	}); err != nil {
		r.t.Error(err)
	}
}

// watched knows whether the channel waits in Read and how much it has taken.
type watched struct {
	*net.TCPConn
	r *running

	waiting        bool // owned by r.mu, as the next
	taken, written int64
}

func (w *watched) Read(b []byte) (int, error) {
	w.r.mu.Lock()
	w.waiting = true
	w.r.checkHangingLocked()
	w.r.mu.Unlock()
	n, err := w.TCPConn.Read(b)
	w.r.mu.Lock()
	w.waiting = false
	w.taken += int64(n)
	w.r.mu.Unlock()
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.TCPConn.Write(b)
	w.r.mu.Lock()
	w.written += int64(n)
	w.r.checkHangingLocked()
	w.r.mu.Unlock()
	return n, err
}

func (r *running) checkHangingLocked() {
	select {
	case <-r.hanging:
		return
	default:
	}
	if !r.silent {
		return
	}
	if r.c.Boundary == conformance.BeforeConnect && r.dialled || r.client != nil && r.client.waiting && r.client.written > 0 && r.client.taken == r.wrote {
		close(r.hanging)
	}
}
