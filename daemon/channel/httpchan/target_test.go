package httpchan_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/channel/conformance"
)

// The target of the conformance suite is a process of its own, this test binary started again, so that it can be killed. It follows TARGET, a script, and reports what happens on its
// standard output before it goes on, so that the report outlives it.

// script is what a target is told.
type script struct {
	Case conformance.Case
	TLS  []byte // PEM of a certificate and its key; none means plain TCP
}

// event is one line of a target's report.
type event struct {
	Event string `json:"event"` // listening, connection, bytes, request, effect, decided, faulted, silent, kill, end
	N     int64  `json:"n,omitempty"`
	Text  string `json:"text,omitempty"`
}

// finish is what a connection says that asks the target to report its end, once everything that was accepted before is done.
const finish = "FINISH\n"

func TestMain(m *testing.M) {
	if s := os.Getenv("HTTPCHAN_TEST_TARGET"); s != "" {
		if err := runTarget([]byte(s)); err != nil {
			fmt.Fprintln(os.Stderr, "target:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Under the race detector a program waits for a second before it ends. What is started here need not.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

type target struct {
	script
	tls *tls.Config

	mu     sync.Mutex // owns the report
	report *json.Encoder

	first    atomic.Bool
	handling sync.WaitGroup
}

func runTarget(s []byte) error {
	tg := &target{report: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal(s, &tg.script); err != nil {
		return err
	}
	if tg.TLS != nil {
		cert, err := tls.X509KeyPair(tg.TLS, tg.TLS)
		if err != nil {
			return err
		}
		tg.tls = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	}
	if tg.Case.Boundary == conformance.BeforeConnect {
		return tg.beforeConnect()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	tg.say(event{Event: "listening", Text: l.Addr().String()})
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		in := bufio.NewReader(conn)
		c := &wire{Conn: conn, in: in}
		faulty := tg.first.CompareAndSwap(false, true)
		if !faulty { // the script's connection may never say a word
			if start, _ := in.Peek(len(finish)); string(start) == finish {
				tg.handling.Wait()
				tg.say(event{Event: "end"})
				return nil
			}
		}
		tg.say(event{Event: "connection"})
		tg.handling.Go(func() {
			defer conn.Close()
			if err := tg.handle(c, faulty); err != nil && !errors.Is(err, errFaulted) {
				fmt.Fprintln(os.Stderr, "target:", err)
			}
		})
	}
}

// beforeConnect has an address at which no connection can be made.
func (tg *target) beforeConnect() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	if tg.Case.Fault == conformance.Hang { // a queue of one, which is full: Linux drops the next SYN
		if err := unix.Listen(fd, 0); err != nil {
			return err
		}
		if _, err := net.Dial("tcp", address); err != nil {
			return err
		}
	}
	tg.say(event{Event: "listening", Text: address}) // bound and not listening: refused
	tg.say(event{Event: map[conformance.Fault]string{conformance.Hang: "silent", conformance.Kill: "kill"}[tg.Case.Fault]})
	_, _ = io.Copy(io.Discard, os.Stdin)
	tg.say(event{Event: "end"})
	return nil
}

// wire counts what the target writes, beneath TLS.
type wire struct {
	net.Conn
	in    *bufio.Reader
	wrote atomic.Int64
}

func (w *wire) Read(b []byte) (int, error) { return w.in.Read(b) }

func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.wrote.Add(int64(n))
	return n, err
}

var errFaulted = errors.New("the fault was made")

func (tg *target) handle(w *wire, faulty bool) error {
	var conn net.Conn = w
	if tg.tls != nil {
		t := tls.Server(w, tg.tls)
		if err := t.Handshake(); err != nil {
			return err
		}
		conn = t
	}
	at := func(b conformance.Boundary) error {
		if !faulty || b != tg.Case.Boundary {
			return nil
		}
		return tg.fault(w, conn)
	}
	if faulty && tg.Case.Boundary == conformance.AfterConnect && tg.Case.Fault != conformance.Hang { // not while our peer still connects
		if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
			return err
		}
	}
	if err := at(conformance.AfterConnect); err != nil {
		return err
	}
	part := make([]byte, 20)
	n, err := io.ReadFull(conn, part)
	tg.say(event{Event: "bytes", N: int64(n)})
	if err != nil {
		return err
	}
	if err := at(conformance.MidRequest); err != nil {
		return err
	}
	whole := &counting{r: io.MultiReader(bytes.NewReader(part), conn)}
	req, err := http.ReadRequest(bufio.NewReader(whole))
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return err
	}
	tg.say(event{Event: "bytes", N: whole.n - int64(n)})
	tg.say(event{Event: "request"})
	tg.say(event{Event: "effect"})
	if err := at(conformance.AfterRequest); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"echo":%q,"done":true}`, req.Header.Get("Authorization"))
	inSecret := strings.Index(body, conformance.Canary) + len(conformance.Canary)/2
	for _, piece := range []struct {
		text string
		then conformance.Boundary
	}{
		{"HTTP/1.1 200 OK\r\nContent-Ty", conformance.MidAnswer},
		{fmt.Sprintf("pe: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:inSecret]), conformance.AfterVerdict},
		{body[inSecret:], conformance.AfterAnswer},
	} {
		if _, err := io.WriteString(conn, piece.text); err != nil {
			return err
		}
		if piece.then == conformance.AfterVerdict {
			tg.say(event{Event: "decided"})
		}
		if err := at(piece.then); err != nil {
			return err
		}
	}
	return nil
}

type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

func (tg *target) fault(w *wire, conn net.Conn) error {
	switch tg.Case.Fault {
	case conformance.Reset:
		if err := w.Conn.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		fallthrough
	case conformance.Close:
		if err := w.Conn.Close(); err != nil {
			return err
		}
		tg.say(event{Event: "faulted"})
	case conformance.Hang:
		tg.say(event{Event: "silent", N: w.wrote.Load()})
		n, _ := io.Copy(io.Discard, conn) // what came and was not read is counted too
		tg.say(event{Event: "bytes", N: n})
	case conformance.Kill:
		tg.say(event{Event: "kill"})
		select {}
	}
	return errFaulted
}

func (tg *target) say(e event) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	if err := tg.report.Encode(e); err != nil {
		panic(err)
	}
}
