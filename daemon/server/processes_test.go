package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/home"
	"singlepass.dev/daemon/server"
	"singlepass.dev/policy"
	"singlepass.dev/vault/secret"
	"singlepass.dev/vault/vaulttest"
)

// A benchmark has the processes that a desktop has: a client (this one), a daemon, an agent with a bridge, a target. This program is all of them but the bridge; a part says
// which one it is.
const (
	partOf        = "SINGLEPASS_BENCH_PART"
	bridgeOf      = "SINGLEPASS_BENCH_BRIDGE"
	targetOf      = "SINGLEPASS_BENCH_TARGET"
	allocationsOf = "SINGLEPASS_BENCH_ALLOCATIONS" // set by hand: where the daemon writes what it allocated; for its processor time there is perf record -p
	partDaemon    = "daemon"                       // serves home.Variable
	partInstant   = "instant-daemon"               // the same with a channel that answers at once
	partAgent     = "agent"                        // starts the bridge and hands its standard input and output on
	partStarts    = "starts"                       // starts the bridge anew for each line that it reads, makes a call, and says how long its result took
	partDirect    = "direct"                       // an MCP server that makes the same requests itself, with the go-sdk
	partTarget    = "target"                       // answers requests
	benchReceipt  = `{"receipt":1}`
)

func TestMain(m *testing.M) {
	var err error
	part := os.Getenv(partOf)
	switch part {
	case "":
		if flag.Parse(); flag.Lookup("test.bench").Value.String() == "" {
			vaulttest.CheapKDF()
		}
		// Under the race detector a program waits for a second before it ends. What is started here need not.
		os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
		os.Exit(m.Run())
	case partDaemon:
		err = serveDaemon(nil)
	case partInstant:
		err = serveDaemon(map[effect.Channel]channel.Channel{effect.HTTP: instant{}})
	case partAgent:
		cmd := exec.Command(os.Getenv(bridgeOf), "mcp")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		err = cmd.Run()
	case partStarts:
		err = startAndCall(os.Getenv(bridgeOf))
	case partDirect:
		err = serveDirect(os.Getenv(targetOf))
	case partTarget:
		serveTarget()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", part, err)
		os.Exit(1)
	}
}

// instant is a channel that answers at once, so that what is measured is ours alone.
type instant struct{}

func (instant) Do(context.Context, channel.Request) channel.Outcome {
	return channel.Outcome{Verdict: channel.Success, Status: 200, Result: json.RawMessage(`{"content":[{"type":"text","text":"HTTP 200 OK\n\n{\"receipt\":1}"}],"structuredContent":{"status":200,"body":{"receipt":1}}}`)}
}

func serveDaemon(channels map[effect.Channel]channel.Channel) error {
	h, err := home.Resolve("", os.Getenv)
	if err != nil {
		return err
	}
	s, err := server.Open(server.Config{Home: h, Version: "bench", Bridge: os.Getenv(bridgeOf), Logger: slog.New(slog.DiscardHandler), Channels: channels, Loaded: loaded})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err = s.Serve(ctx, func() { fmt.Println(s.OperatorSocket()) })
	if path := os.Getenv(allocationsOf); path != "" {
		f, created := os.Create(path)
		if created != nil {
			return errors.Join(err, created)
		}
		err = errors.Join(err, pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
	}
	return err
}

// loaded is what cmd/spd does.
func loaded(yes bool) {
	percent := 100
	if yes {
		percent = 300
	}
	debug.SetGCPercent(percent)
}

func serveTarget() {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, benchReceipt)
	}))
	defer target.Close()
	fmt.Println(target.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func serveDirect(url string) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "direct", Version: "1"}, nil)
	fresh, pooled := freshClient(), &http.Client{}
	schema := json.RawMessage(`{"type":"object","properties":{"order":{"type":"string"},"amount":{"type":"integer"}},"required":["order"]}`)
	for tool, do := range map[string]func() error{
		"pay": func() error { return post(fresh, url) },
		"look": func() error {
			resp, err := pooled.Get(url + "/v1/pay?order=1")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		},
	} {
		s.AddTool(&mcp.Tool{Name: tool, InputSchema: schema}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := do(); err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: benchReceipt}}}, nil
		})
	}
	return s.Run(context.Background(), &mcp.StdioTransport{})
}

// process is this program as another part.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
}

func start(b *testing.B, part string, env ...string) *process {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(append(os.Environ(), partOf+"="+part), env...)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.stdin.Close()
		if err := p.cmd.Wait(); err != nil {
			b.Errorf("%s: %v", part, err)
		}
	})
	return p
}

// says is the first line that the process prints.
func (p *process) says(b *testing.B) string {
	b.Helper()
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// spctl is built once.
var spctl = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sp")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "spctl")
	cmd := exec.Command("go", "build", "-o", path, "singlepass.dev/cmd/spctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building spctl: %w\n%s", err, out)
	}
	return path, nil
})

const passphrase = "bench words that are long enough"

const benchContract = `
action: %s
title: Bench
description: Does nothing much.
channel: http
input:
  type: object
  properties:
    order: {type: string}
    amount: {type: integer, default: 5}
  required: [order]
  additionalProperties: false
credential: api
approval: session
http:
  method: %s
  url: %s/v1/pay
  %s
replay:
  class: %s
  %s
`

// daemonBench is a daemon with one credential and two contracts.
type daemonBench struct {
	*process
	operator *client.Operator
	env      []string // of an agent
}

func newDaemonBench(b *testing.B, part, target string) *daemonBench {
	b.Helper()
	bridge, err := spctl()
	if err != nil {
		b.Fatal(err)
	}
	root, err := os.MkdirTemp("", "sp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(root) })
	env := []string{home.Variable + "=" + root, bridgeOf + "=" + bridge}
	daemon := start(b, part, env...)
	o := &client.Operator{Socket: daemon.says(b), Daemon: daemon.cmd.Path, Proof: func(context.Context) (string, *secret.Bytes, error) {
		return "Passphrase", secret.New([]byte(passphrase)), nil
	}}
	b.Cleanup(o.Close)
	ctx := b.Context()
	if _, err := o.Init(ctx, api.InitRequest{Passphrase: []byte(passphrase), NoKeyring: true}); err != nil {
		b.Fatal(err)
	}
	if err := o.AddCredential(ctx, api.CredentialRequest{Credential: api.Credential{Name: "api", Kind: "bearer", Targets: []string{target}}, Secret: []byte("canary-not-a-secret-bench")}); err != nil {
		b.Fatal(err)
	}
	for _, src := range []string{
		fmt.Sprintf(benchContract, "pay", "POST", target, `json: {order: "{order}", amount: "{amount}"}`, "irreversible", "attach_window: 1h"),
		fmt.Sprintf(benchContract, "look", "GET", target, `query: {order: "{order}"}`, "read_only", "attempts: 1"),
	} {
		if _, err := o.AcceptAction(ctx, api.ActionRequest{Source: []byte(src), File: "bench.yaml", Digest: policy.Digest([]byte(src))}); err != nil {
			b.Fatal(err)
		}
	}
	return &daemonBench{daemon, o, env}
}

// approve answers the first card with a session.
func (d *daemonBench) approve(b *testing.B) {
	b.Helper()
	for e, err := range d.operator.WatchCards(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
		if e.Card.Card != "" {
			if err := d.operator.Answer(b.Context(), e.Card.Card, api.CardAnswer{Answer: "session"}); err != nil {
				b.Fatal(err)
			}
			return
		}
	}
}

// newBench starts a daemon and an agent with a bridge, whose first call the person has allowed.
func newBench(b *testing.B, part, target string) *lines {
	b.Helper()
	d := newDaemonBench(b, part, target)
	agent := start(b, partAgent, d.env...) // a process of its own: this one is the operator, and an agent may not approve
	x := newLines(b, agent)
	x.parts = []share{{"client", os.Getpid()}, {"bridge", childOf(b, agent.cmd.Process.Pid)}, {"daemon", d.cmd.Process.Pid}}
	done := make(chan error, 1)
	go func() { done <- x.call(0, "pay", "first") }()
	d.approve(b)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return x
}

// share is a process whose processor time is told.
type share struct {
	name string
	pid  int
}

// childOf waits for the only child of a process.
func childOf(b *testing.B, pid int) int {
	b.Helper()
	for b.Context().Err() == nil {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				return child
			}
		}
	}
	b.Fatal("the agent has no bridge")
	return 0
}

// maxCallers bounds the callers of one connection.
const maxCallers = 64

// lines is an MCP client that only writes and reads lines, so that the client's own cost is small. A caller makes one call at a time.
type lines struct {
	parts   []share
	in      io.Writer
	answers [maxCallers]chan []byte
	lines   [maxCallers][]byte // owner: the caller; its request, and then its answer

	mu      sync.Mutex
	buf     []byte // owner: mu
	spare   []byte // owner: mu
	writing bool   // owner: mu
	serial  int64  // owner: mu
}

func newLines(b *testing.B, p *process) *lines {
	b.Helper()
	l := &lines{in: p.stdin}
	for i := range l.answers {
		l.answers[i] = make(chan []byte, 1)
	}
	go l.read(p.stdout)
	line, err := l.request(0, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`)
	if err != nil || !bytes.Contains(line, []byte("serverInfo")) {
		b.Fatalf("initialize brought %s, %v", line, err)
	}
	l.write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"))
	return l
}

// read gives each answer to its caller, who is in the lower digits of the id.
func (l *lines) read(r io.Reader) {
	defer func() {
		for _, c := range l.answers {
			close(c)
		}
	}()
	rd := bufio.NewReaderSize(r, 256<<10)
	for {
		line, err := rd.ReadSlice('\n')
		if err != nil {
			return
		}
		_, rest, found := bytes.Cut(line, []byte(`"id":`))
		if !found {
			continue
		}
		id := 0
		for _, c := range rest {
			if c < '0' || c > '9' {
				break
			}
			id = id*10 + int(c-'0')
		}
		c := id % maxCallers
		l.lines[c] = append(l.lines[c][:0], line...)
		l.answers[c] <- l.lines[c]
	}
}

// write lets whoever finds nobody writing take along what the others add meanwhile.
func (l *lines) write(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, line...)
	if l.writing {
		return
	}
	l.writing = true
	for len(l.buf) > 0 {
		out := l.buf
		l.buf, l.spare = l.spare[:0], nil
		l.mu.Unlock()
		_, _ = l.in.Write(out)
		l.mu.Lock()
		l.spare = out
	}
	l.writing = false
}

func (l *lines) request(caller int, method, params string) ([]byte, error) {
	l.mu.Lock()
	l.serial++
	id := l.serial*maxCallers + int64(caller)
	l.mu.Unlock()
	line := append(l.lines[caller][:0], `{"jsonrpc":"2.0","id":`...)
	line = strconv.AppendInt(line, id, 10)
	line = append(append(line, `,"method":"`...), method...)
	line = append(append(line, `","params":`...), params...)
	line = append(line, "}\n"...)
	l.lines[caller] = line
	l.write(line)
	answer, ok := <-l.answers[caller]
	if !ok {
		return nil, io.ErrUnexpectedEOF
	}
	return answer, nil
}

// call makes a call and looks for the receipt in its answer.
func (l *lines) call(caller int, tool, order string) error {
	line, err := l.request(caller, "tools/call", `{"name":"`+tool+`","arguments":{"order":"`+order+`"}}`)
	if err == nil && !bytes.Contains(line, []byte("receipt")) {
		err = fmt.Errorf("got %s", line)
	}
	return err
}
