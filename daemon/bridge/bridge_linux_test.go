package bridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
	"singlepass.dev/daemon/bridge"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/mcpserver/enginetest"
	"singlepass.dev/daemon/peer"
)

// TestMain makes the test binary a bridge when a test starts it as one.
func TestMain(m *testing.M) {
	if socket := os.Getenv("BRIDGE_TEST_SOCKET"); socket != "" {
		grace, _ := time.ParseDuration(os.Getenv("BRIDGE_TEST_GRACE")) // empty: the default
		err := bridge.Run(context.Background(), bridge.Config{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Socket: socket, HoldFor: 300 * time.Millisecond, Grace: grace})
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Under the race detector a program waits for a second before it ends. What is started here need not.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// socketPath returns a path that is short enough for a socket, whatever the test is called.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "sp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return filepath.Join(folder, "agent.sock")
}

// daemon is an agent.sock with a real mcpserver behind it, which can be killed and started again.
type daemon struct {
	t      *testing.T
	path   string
	engine *enginetest.Engine
	server *mcpserver.Server
	l      net.Listener
	served sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
}

func startDaemon(t *testing.T, path string, e *enginetest.Engine) *daemon {
	t.Helper()
	server, err := mcpserver.New(mcpserver.Config{Engine: e, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, path: path, engine: e, server: server, l: l}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.conns = append(d.conns, nc)
			d.mu.Unlock()
			d.served.Go(func() {
				_ = server.ServeConn(context.Background(), nc, &peer.Identity{Run: "run_x", Actor: "exe:/x", Via: "bridge"})
			})
		}
	}()
	t.Cleanup(d.kill)
	return d
}

// kill ends the daemon as SIGKILL would: its connections break, nothing is drained.
func (d *daemon) kill() {
	d.l.Close()
	d.mu.Lock()
	for _, nc := range d.conns {
		nc.Close()
	}
	d.mu.Unlock()
	d.served.Wait()
}

// agent starts a bridge as its child and speaks with it over the given kind of stream.
type agent struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stdout *os.File
	notes  *notes
}

// notes is the bridge's standard error, which tests wait on.
type notes struct {
	mu   sync.Mutex
	text string
	seen chan struct{}
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text += string(p)
	close(n.seen)
	n.seen = make(chan struct{})
	return len(p), nil
}

func (n *notes) wait(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		n.mu.Lock()
		text, seen := n.text, n.seen
		n.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-seen:
		case <-deadline:
			t.Fatalf("the bridge never noted %q, only %q", want, text)
		}
	}
}

func startAgent(t *testing.T, socket, stream string) *agent {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, cmd: exec.Command(exe), notes: &notes{seen: make(chan struct{})}}
	a.cmd.Env = append(os.Environ(), "BRIDGE_TEST_SOCKET="+socket)
	a.cmd.Stderr = a.notes
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	var theirs *os.File
	switch stream {
	case "pipe":
		a.stdout, theirs, err = os.Pipe()
	case "socket": // as Node does it
		var fds [2]int
		fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		a.stdout, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	}
	if err != nil {
		t.Fatal(err)
	}
	a.cmd.Stdout = theirs
	a.out = bufio.NewReader(a.stdout)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() {
		a.in.Close()
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
		a.stdout.Close()
	})
	return a
}

func (a *agent) send(lines ...string) {
	a.t.Helper()
	if _, err := io.WriteString(a.in, strings.Join(lines, "\n")+"\n"); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) recv() string {
	a.t.Helper()
	_ = a.stdout.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := a.out.ReadString('\n')
	if err != nil {
		a.t.Fatalf("reading from the bridge: %v", err)
	}
	return line
}

func (a *agent) unread() (n int) {
	a.t.Helper()
	raw, err := a.stdout.SyscallConn()
	if err != nil {
		a.t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); cerr != nil || err != nil {
		a.t.Fatal(cerr, err)
	}
	return n
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func (a *agent) initialize() {
	a.t.Helper()
	a.send(initialize)
	if line := a.recv(); !strings.Contains(line, `"protocolVersion":"2025-11-25"`) {
		a.t.Fatalf("initialize was answered by %s", line)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func tool(id, name string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{"n":1}}}`
}

func TestAnAnswerThroughTheBridgeIsDeliveredOnceTheAgentHasReadIt(t *testing.T) {
	for _, stream := range []string{"pipe", "socket"} {
		t.Run(stream, func(t *testing.T) {
			e := enginetest.New(t)
			d := startDaemon(t, socketPath(t), e)
			a := startAgent(t, d.path, stream)
			a.initialize()
			a.send(tool("1", "echo"))
			// The answer has left the bridge and was not read yet, so it may not count, however often the bridge looks.
			for a.unread() == 0 {
				runtime.Gosched()
			}
			select {
			case got := <-e.Events:
				t.Fatalf("before the agent read anything the engine saw %q", got)
			case <-time.After(50 * time.Millisecond):
			}
			if line := a.recv(); !strings.Contains(line, `"id":1`) {
				t.Errorf("answer %s", line)
			}
			e.Expect("delivered bridge_" + stream + "_drained")
		})
	}
}

func TestWhatWasReadThroughTheBridgeIsDeliveredToo(t *testing.T) {
	e := enginetest.New(t)
	d := startDaemon(t, socketPath(t), e)
	a := startAgent(t, d.path, "pipe")
	a.initialize()
	a.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"singlepass+up:a"}}`)
	if line := a.recv(); !strings.Contains(line, `"id":1,"result"`) {
		t.Errorf("answer %s", line)
	}
	e.Expect("delivered bridge_pipe_drained")
}

func TestTheBridgeOutlivesTheDaemonAndSaysWhatItDoesNotKnow(t *testing.T) {
	e := enginetest.New(t)
	d := startDaemon(t, socketPath(t), e)
	a := startAgent(t, d.path, "pipe")
	a.initialize()
	a.send(tool(`"a"`, "wait"))
	e.Expect("called wait")
	d.kill()
	line := a.recv()
	var answer struct {
		ID     string
		Result struct {
			IsError           bool
			Content           []struct{ Text string }
			StructuredContent map[string]string
		}
	}
	if err := json.Unmarshal([]byte(line), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.ID != "a" || answer.Result.IsError || answer.Result.StructuredContent["state"] != "unknown" || !strings.Contains(answer.Result.Content[0].Text, "attaches to the original") {
		t.Errorf("the call under way was answered by %s", line)
	}
	// While there is no daemon, a call is answered as not sent.
	a.send(tool("2", "echo"))
	if line := a.recv(); !strings.Contains(line, "daemon_not_running") || !strings.Contains(line, "nothing was sent for it") {
		t.Errorf("without a daemon a call was answered by %s", line)
	}
	e2 := enginetest.New(t)
	startDaemon(t, d.path, e2)
	a.notes.wait(t, "connected again")
	if line := a.recv(); !strings.Contains(line, "list_changed") {
		t.Errorf("then came %s", line)
	}
	a.send(tool("3", "echo"))
	// The first answer is to this call: the daemon's to the replayed initialize is not shown.
	if line := a.recv(); !strings.Contains(line, `"id":3,"result"`) || strings.Contains(line, `"isError":true`) {
		t.Errorf("after the restart a call was answered by %s", line)
	}
	if e2.Count() != 1 || e2.Last().Correlation.Client != "t/1" || e2.Last().Correlation.Protocol != "2025-11-25" {
		t.Errorf("the new daemon saw %d calls, %+v", e2.Count(), e2.Last().Correlation)
	}
}

func TestARequestWithoutEffectSurvivesTheDaemon(t *testing.T) {
	path := socketPath(t)
	// A daemon that never answers.
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, path, "pipe")
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	a.send(initialize)
	if line, err := bufio.NewReader(nc).ReadString('\n'); err != nil || line != initialize+"\n" {
		t.Fatalf("the bridge forwarded %q, %v", line, err)
	}
	l.Close()
	nc.Close()
	startDaemon(t, path, enginetest.New(t))
	if line := a.recv(); !strings.Contains(line, `"id":0,"result":{`) {
		t.Errorf("initialize was answered by %s", line)
	}
}

func TestARestartedBridgeOfTheSameAgentGoesOn(t *testing.T) {
	e := enginetest.New(t)
	d := startDaemon(t, socketPath(t), e)
	first := startAgent(t, d.path, "pipe")
	first.initialize()
	first.send(tool("1", "wait"))
	e.Expect("called wait")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	e.Expect("detached")
	second := startAgent(t, d.path, "pipe")
	second.initialize()
	second.send(tool("1", "echo"))
	if line := second.recv(); !strings.Contains(line, `"id":1,"result"`) {
		t.Errorf("answer %s", line)
	}
}

func TestTheEndOfStandardInputLetsAnswersComeAndThenEndsTheBridge(t *testing.T) {
	e := enginetest.New(t)
	d := startDaemon(t, socketPath(t), e)
	a := startAgent(t, d.path, "pipe")
	a.send(initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, tool("1", "wait"))
	a.in.Close()
	e.Expect("called wait")
	e.Release <- struct{}{}
	a.recv()
	if line := a.recv(); !strings.Contains(line, `"id":1,"result"`) {
		t.Errorf("answer %s", line)
	}
	e.Expect("delivered bridge_pipe_drained")
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("the bridge ended with %v", err)
	}
}

func TestWithoutADaemonTheBridgeSaysSoAndWaits(t *testing.T) {
	path := socketPath(t)
	a := startAgent(t, path, "pipe")
	a.send(initialize)
	a.notes.wait(t, "hint: start it: systemctl --user start singlepass")
	startDaemon(t, path, enginetest.New(t))
	if line := a.recv(); !strings.Contains(line, `"id":0,"result":{`) {
		t.Errorf("initialize was answered by %s", line)
	}
}

func TestTheBridgeGivesUpOnADaemonThatNeverComes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	err = bridge.Run(t.Context(), bridge.Config{
		Stdin: strings.NewReader(""), Stdout: w, Stderr: io.Discard, Socket: socketPath(t), StartWithin: time.Millisecond,
	})
	if err == nil || !strings.Contains(err.Error(), bridge.ErrNotRunning.Error()) {
		t.Errorf("got %v", err)
	}
}

func TestARealClientOfEitherRevisionWorksThroughTheBridge(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			e := enginetest.New(t)
			d := startDaemon(t, socketPath(t), e)
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), "BRIDGE_TEST_SOCKET="+d.path)
			session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd},
				&mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"n":9007199254740993}`)})
			if err != nil {
				t.Fatal(err)
			}
			if text := result.Content[0].(*mcp.TextContent).Text; text != `{"n":9007199254740993}` {
				t.Errorf("the engine saw %s", text)
			}
			e.Expect("delivered bridge_pipe_drained")
		})
	}
}

func TestALineThatIsTooLongIsRefusedAndTheNextOneWorks(t *testing.T) {
	e := enginetest.New(t)
	d := startDaemon(t, socketPath(t), e)
	a := startAgent(t, d.path, "pipe")
	a.initialize()
	var sent sync.WaitGroup
	defer sent.Wait()
	long := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":"` + strings.Repeat("x", 5<<20) + `"}}}`
	sent.Go(func() { _, _ = io.WriteString(a.in, long+"\n"+tool("2", "echo")+"\n") })
	if line := a.recv(); !strings.Contains(line, "at most 4 MiB") {
		t.Errorf("the long line was answered by %s", line)
	}
	if line := a.recv(); !strings.Contains(line, `"id":2,"result"`) {
		t.Errorf("the next line was answered by %s", line)
	}
	if e.Count() != 1 {
		t.Errorf("the engine saw %d calls", e.Count())
	}
}

func TestADaemonThatRefusesTheAgentIsHeardAndNotHammered(t *testing.T) {
	path := socketPath(t)
	server, err := mcpserver.New(mcpserver.Config{Engine: enginetest.New(t), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := startAgent(t, path, "pipe")
	started := time.Now()
	for range 6 {
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server.Refuse(nc, errors.New("the agent behind this bridge cannot be told"))
	}
	if took := time.Since(started); took < 150*time.Millisecond {
		t.Errorf("the bridge came back 5 times in %v", took)
	}
	a.notes.wait(t, "cannot be told")
}

func TestACancelledCallIsForwardedAndHoldsUpNoEnd(t *testing.T) {
	e := enginetest.New(t)
	d := startDaemon(t, socketPath(t), e)
	t.Setenv("BRIDGE_TEST_GRACE", "1h") // it would wait for an answer for as long as that
	a := startAgent(t, d.path, "pipe")
	a.initialize()
	a.send(tool("1", "wait"))
	e.Expect("called wait")
	a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	e.Expect("detached")
	a.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- a.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the bridge ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the bridge waits for the answer of a cancelled call")
	}
}
