package mcpchan_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/channel/conformance"
)

// order is what a target of the conformance suite is to do.
type order struct {
	Case    conformance.Case
	Control string // where it reports
	HTTP    bool
	Stream  bool // it speaks 2025-11-25, and answers the call by a stream of events
}

// callAt is the number of the connection that the call goes over: before it come the probe and the listing, and with a handshake that and its confirmation.
func callAt(stream bool) int {
	if stream {
		return 5
	}
	return 3
}

// report is one line of a target's report.
type report struct {
	Event string
	N     int64
	Text  string
}

// target is an upstream that fails where it was told to, and writes down what it saw before it goes on.
type target struct {
	order
	control net.Conn
	told    chan struct{} // the channel has its connection
	answer  string        // to the call, for whoever asks to go on with it
	l       net.Listener
}

// conformanceTarget runs in a process of its own.
func conformanceTarget(text string) {
	t := &target{}
	if err := json.Unmarshal([]byte(text), &t.order); err != nil {
		panic(err)
	}
	var err error
	if t.control, err = net.Dial("tcp", t.Control); err != nil {
		panic(err)
	}
	t.told = make(chan struct{}, 1)
	go func() {
		for one := make([]byte, 1); ; { // the test's end is ours
			if _, err := t.control.Read(one); err != nil {
				os.Exit(0)
			}
			t.told <- struct{}{}
		}
	}()
	if t.HTTP {
		t.serveHTTP()
	} else {
		t.serveStdio()
	}
}

func (t *target) say(event string, n int64, text string) {
	b, _ := json.Marshal(report{event, n, text})
	if _, err := t.control.Write(append(b, '\n')); err != nil {
		os.Exit(1)
	}
}

// at says whether the fault is here.
func (t *target) at(b conformance.Boundary) bool { return t.Case.Boundary == b }

// fail does the fault. With Close and Reset it returns once end has done it; with Hang never.
func (t *target) fail(end func()) {
	switch t.Case.Fault {
	case conformance.Kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case conformance.Hang:
		t.say("silent", 0, "")
		select {}
	default:
		end()
		t.say("faulted", 0, "")
	}
}

const listed = `{"tools":[{"name":"charge","inputSchema":{"type":"object"}}]}`

// charged shows the secret that it was given.
func charged(id json.RawMessage, secret string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}],"resultType":"complete"}}`, id, "charged with "+secret)
}

type asked struct {
	ID     json.RawMessage
	Method string
}

func (t *target) serveStdio() {
	exit := func() { os.Exit(0) }
	for {
		line, n := readBytes(-1)
		var m asked
		if n == 0 || json.Unmarshal(line, &m) != nil {
			os.Exit(1)
		}
		if t.at(conformance.BeforeConnect) {
			t.fail(exit)
		}
		answer := func(result string) { fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result) }
		switch m.Method {
		case "server/discover":
			answer(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
			continue
		case "tools/list":
		default:
			os.Exit(1)
		}
		t.say("connection", 0, "")
		if t.at(conformance.AfterConnect) && t.Case.Fault == conformance.Close {
			_ = os.Stdin.Close()
		}
		answer(listed)
		break
	}
	if t.at(conformance.AfterConnect) {
		if t.Case.Fault == conformance.Close {
			t.say("faulted", 0, "")
			select {}
		}
		for { // not read, but there
			if _, err := unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, -1); err != unix.EINTR {
				break
			}
		}
		t.fail(exit)
	}
	if t.at(conformance.MidRequest) {
		_, n := readBytes(10)
		t.say("bytes", int64(n), "")
		t.fail(exit)
	}
	line, n := readBytes(-1)
	t.say("bytes", int64(n), "")
	var m asked
	if json.Unmarshal(line, &m) != nil || m.Method != "tools/call" {
		os.Exit(1)
	}
	t.say("request", 0, "")
	t.say("effect", 0, "")
	if t.at(conformance.AfterRequest) {
		t.fail(exit)
	}
	text := charged(m.ID, os.Getenv("BANK_TOKEN")) + "\n"
	if t.at(conformance.MidAnswer) {
		_, _ = os.Stdout.WriteString(text[:len(text)/2])
		t.fail(exit)
	}
	t.say("decided", 0, "")
	_, _ = os.Stdout.WriteString(text)
	t.fail(exit)
}

// readBytes reads a line of standard input, or so many bytes of it, and not one more.
func readBytes(most int) ([]byte, int) {
	var line []byte
	one := make([]byte, 1)
	for len(line) != most {
		if n, err := os.Stdin.Read(one); n == 0 || err != nil {
			break
		}
		line = append(line, one[0])
		if one[0] == '\n' {
			break
		}
	}
	return line, len(line)
}

func (t *target) serveHTTP() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	t.l = l
	t.say("listening", 0, "http://"+l.Addr().String()+"/mcp")
	for n := 1; ; n++ {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		t.serveConn(c.(*net.TCPConn), n)
	}
}

// serveConn takes the one request of a connection.
func (t *target) serveConn(c *net.TCPConn, n int) {
	end := func() {
		if t.Case.Fault == conformance.Reset {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	call := n >= callAt(t.Stream) && !t.at(conformance.BeforeConnect)
	if call && t.answer != "" {
		t.resume(c)
		return
	}
	if call {
		t.say("connection", 0, "")
	}
	if call && t.at(conformance.AfterConnect) {
		if t.Case.Fault == conformance.Hang {
			raw, _ := c.SyscallConn()
			_ = raw.Control(func(fd uintptr) {
				for {
					if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
						return
					}
				}
			})
		} else {
			<-t.told
		}
		t.fail(end)
		return
	}
	if call && t.at(conformance.MidRequest) {
		b := make([]byte, 10)
		got, _ := io.ReadFull(c, b)
		t.say("bytes", int64(got), "")
		t.fail(end)
		return
	}
	var seen bytes.Buffer
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &seen)))
	if err != nil {
		os.Exit(1)
	}
	body, err := io.ReadAll(r.Body)
	var m asked
	if err != nil || json.Unmarshal(body, &m) != nil {
		os.Exit(1)
	}
	if t.at(conformance.BeforeConnect) {
		t.fail(end)
		return
	}
	answer := func(text string) string {
		return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(text)) + "\r\n\r\n" + text
	}
	if !call {
		result := listed
		switch {
		case m.Method == "server/discover" && t.Stream:
			_, _ = io.WriteString(c, answer(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)))
			_ = c.Close()
			return
		case m.Method == "server/discover":
			result = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		case m.Method == "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`
		case m.Method == "notifications/initialized":
			_, _ = io.WriteString(c, "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
			return
		}
		_, _ = io.WriteString(c, answer(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)))
		_ = c.Close()
		return
	}
	t.say("bytes", int64(seen.Len()), "")
	t.say("request", 0, "")
	t.say("effect", 0, "")
	if t.at(conformance.AfterRequest) {
		t.fail(end)
		return
	}
	text := answer(charged(m.ID, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
	if t.Stream {
		t.answer = streamHead + "id: 2\ndata: " + charged(m.ID, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) + "\n\n"
		text = t.answer
	}
	if t.at(conformance.MidAnswer) {
		if t.Stream {
			t.asksBetween(c)
			text = text[len(streamHead):]
		}
		_, _ = io.WriteString(c, text[:len(text)-20])
		t.fail(end)
		return
	}
	t.say("decided", 0, "")
	_, _ = io.WriteString(c, text)
	t.fail(func() { _ = c.Close() }) // a reset could overtake the answer
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

// resume goes on with the answer to the call.
func (t *target) resume(c *net.TCPConn) {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil || r.Method != http.MethodGet || r.Header.Get("Last-Event-Id") != "1" || r.ContentLength > 0 {
		os.Exit(1)
	}
	t.say("resumed", 0, "")
	t.say("decided", 0, "")
	_, _ = io.WriteString(c, t.answer)
	_ = c.Close()
}

// asksBetween says from where the stream can be taken up again, and asks for something, so that the answer to that shows that it was read.
func (t *target) asksBetween(c *net.TCPConn) {
	_, _ = io.WriteString(c, streamHead+"id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\n\n")
	reply, err := t.l.Accept()
	if err != nil {
		os.Exit(1)
	}
	r, err := http.ReadRequest(bufio.NewReader(reply))
	if err != nil {
		os.Exit(1)
	}
	if b, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(b), `"id":"p","result":{}`) {
		os.Exit(1)
	}
	_, _ = io.WriteString(reply, "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	_ = reply.Close()
}
