package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/home"
	"singlepass.dev/daemon/server"
	"singlepass.dev/policy"
	"singlepass.dev/vault/secret"
)

const passphrase = "bench words that are long enough"

// instant is a channel that answers at once, so that what is measured is ours alone.
type instant struct{}

func (instant) Do(context.Context, channel.Request) channel.Outcome {
	return channel.Outcome{Verdict: channel.Success, Status: 200, Result: json.RawMessage(`{"content":[{"type":"text","text":"HTTP 200 OK\n\n{\"receipt\":1}"}],"structuredContent":{"status":200,"body":{"receipt":1}}}`)}
}

// bench is a daemon in this process and a real bridge in another, with an MCP client that speaks raw lines.
type bench struct {
	*lines
	operator *client.Operator
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

func newBench(b *testing.B, target string, channels map[effect.Channel]channel.Channel) *bench {
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
	h, err := home.Resolve(root, os.Getenv)
	if err != nil {
		b.Fatal(err)
	}
	s, err := server.Open(server.Config{Home: h, Version: "bench", Bridge: bridge, Logger: slog.New(slog.DiscardHandler), Channels: channels})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	ready := make(chan struct{})
	go func() { served <- s.Serve(ctx, func() { close(ready) }) }()
	<-ready
	b.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	o := &client.Operator{Socket: s.OperatorSocket(), Daemon: self, Proof: func(context.Context) (string, *secret.Bytes, error) {
		return "Passphrase", secret.New([]byte(passphrase)), nil
	}}
	b.Cleanup(o.Close)
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
	// The agent is a process of its own: this one is the operator, and an agent may not approve.
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), home.Variable+"="+root, agentOf+"="+bridge)
	x := &bench{lines: startLines(b, cmd), operator: o}
	x.hello(b)
	done := x.send("pay", "first")
	for e, err := range o.WatchCards(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		if e.Card.Card != "" {
			if err := o.Answer(ctx, e.Card.Card, api.CardAnswer{Answer: "session"}); err != nil {
				b.Fatal(err)
			}
			break
		}
	}
	if line := <-done; !bytes.Contains(line, []byte("receipt")) {
		b.Fatalf("the first call brought %s", line)
	}
	return x
}

// lines is an MCP client that only writes and reads lines, so that the client's own cost is small.
type lines struct {
	in   io.Writer
	next atomic.Int64
	wait sync.Map // id → chan []byte

	mu      sync.Mutex
	buf     []byte // guarded by mu
	writing bool   // guarded by mu
}

func startLines(b *testing.B, cmd *exec.Cmd) *lines {
	b.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	l := &lines{in: stdin}
	go func() {
		r := bufio.NewReaderSize(stdout, 256<<10)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			at := bytes.Index(line, []byte(`"id":`))
			if at < 0 {
				continue
			}
			rest := line[at+5:]
			n := 0
			for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
				n++
			}
			id, err := strconv.ParseInt(string(rest[:n]), 10, 64)
			if err != nil {
				continue
			}
			if c, ok := l.wait.LoadAndDelete(id); ok {
				c.(chan []byte) <- line
			}
		}
	}()
	return l
}

// write lets whoever finds nobody writing take along what the others add meanwhile.
func (l *lines) write(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, line...)
	if l.writing {
		return
	}
	l.writing = true
	for len(l.buf) > 0 {
		out := l.buf
		l.buf = nil
		l.mu.Unlock()
		_, _ = l.in.Write(out)
		l.mu.Lock()
	}
	l.writing = false
}

func (l *lines) request(method, params string) chan []byte {
	id := l.next.Add(1)
	c := make(chan []byte, 1)
	l.wait.Store(id, c)
	l.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params))
	return c
}

func (l *lines) hello(b *testing.B) {
	b.Helper()
	if line := <-l.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); !bytes.Contains(line, []byte("serverInfo")) {
		b.Fatalf("initialize brought %s", line)
	}
	l.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
}

func (l *lines) send(tool, order string) chan []byte {
	return l.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"order":%q}}`, tool, order))
}

// figures are what measure found, by the benchmark's name beneath its parent, for the ratios of the same run.
type figures map[string]struct{ rate, median float64 }

// measure makes b.N calls at a time from so many callers, and reports calls a second and the median latency.
func (f figures) measure(b *testing.B, name string, callers int, call func(i int64) error) {
	b.Helper()
	if f != nil {
		defer func() {
			rate, median := float64(b.N)/b.Elapsed().Seconds(), 0.0
			if m, ok := f[name]; ok {
				median = m.median
			}
			f[name] = struct{ rate, median float64 }{rate, median}
		}()
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	all := make([][]time.Duration, callers)
	b.ResetTimer()
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				t := time.Now()
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
				all[c] = append(all[c], time.Since(t))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	b.StopTimer()
	flat := slices.Concat(all...)
	slices.Sort(flat)
	b.ReportMetric(float64(b.N)/took.Seconds(), "calls/s")
	if len(flat) > 0 {
		median := float64(flat[len(flat)/2].Microseconds())
		b.ReportMetric(median, "median-µs")
		if f != nil {
			f[name] = struct{ rate, median float64 }{0, median}
		}
	}
}

func measure(b *testing.B, callers int, call func(i int64) error) {
	b.Helper()
	figures(nil).measure(b, "", callers, call)
}

func answered(line []byte) error {
	if !bytes.Contains(line, []byte("receipt")) {
		return fmt.Errorf("got %s", line)
	}
	return nil
}

// BenchmarkStdio is what a desktop agent sees: one stdio connection through the bridge, with a channel that answers at once.
func BenchmarkStdio(b *testing.B) {
	x := newBench(b, "https://api.example.com", map[effect.Channel]channel.Channel{effect.HTTP: instant{}})
	for _, tool := range []string{"pay", "look"} {
		for _, callers := range []int{1, 8, 64} {
			run := fmt.Sprintf("%s-%d-%d", tool, callers, time.Now().UnixNano())
			b.Run(fmt.Sprintf("%s/callers=%d", tool, callers), func(b *testing.B) {
				measure(b, callers, func(i int64) error { return answered(<-x.send(tool, fmt.Sprintf("%s %d %d", run, b.N, i))) })
			})
		}
	}
	floor(b, nil)
}

// floor is one append and fdatasync of about as many bytes as a durable point has.
func floor(b *testing.B, found figures) {
	b.Run("floor=append+fdatasync", func(b *testing.B) {
		f := floorFile(b)
		line := make([]byte, 2200)
		var at int64
		found.measure(b, "floor", 1, func(int64) error {
			_, err := f.WriteAt(line, at)
			at = (at + int64(len(line))) % (60 << 20)
			return errors.Join(err, dataSync(f))
		})
	})
}

func floorFile(b *testing.B) *os.File {
	b.Helper()
	f, err := os.CreateTemp("", "sp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = f.Close(), os.Remove(f.Name()) })
	if _, err := f.Write(make([]byte, 64<<20)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return f
}

// BenchmarkHTTP compares a call through the daemon with an MCP server that makes the same request itself, and with the request alone.
func BenchmarkHTTP(b *testing.B) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"receipt":1}`)
	}))
	defer target.Close()
	x := newBench(b, target.URL, nil)
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), directServer+"="+target.URL)
	direct := startLines(b, cmd)
	direct.hello(b)
	found := figures{}
	floor(b, found)
	for _, callers := range []int{1, 8, 64} {
		run := time.Now().UnixNano()
		for _, tool := range []string{"pay", "look"} {
			b.Run(fmt.Sprintf("singlepass/%s/callers=%d", tool, callers), func(b *testing.B) {
				found.measure(b, fmt.Sprintf("%s/%d", tool, callers), callers, func(i int64) error {
					return answered(<-x.send(tool, fmt.Sprintf("%d %d %d", run, b.N, i)))
				})
			})
			b.Run(fmt.Sprintf("direct-server/%s/callers=%d", tool, callers), func(b *testing.B) {
				found.measure(b, fmt.Sprintf("direct %s/%d", tool, callers), callers, func(i int64) error { return answered(<-direct.send(tool, strconv.FormatInt(i, 10))) })
			})
		}
		b.Run(fmt.Sprintf("request-alone/pay/callers=%d", callers), func(b *testing.B) {
			c := freshClient()
			found.measure(b, fmt.Sprintf("alone/%d", callers), callers, func(int64) error { return post(c, target.URL) })
		})
	}
	b.Run("ratios", func(b *testing.B) {
		// A disk's speed drifts within a minute, so what is divided is measured in turns.
		f, line, at := floorFile(b), make([]byte, 2200), int64(0)
		took := map[string][]time.Duration{}
		turn := func(name string, do func() error) {
			t := time.Now()
			if err := do(); err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], time.Since(t))
		}
		run := time.Now().UnixNano()
		for i := 0; b.Loop(); i++ {
			turn("floor", func() error {
				_, err := f.WriteAt(line, at)
				at = (at + int64(len(line))) % (60 << 20)
				return errors.Join(err, dataSync(f))
			})
			turn("pay", func() error { return answered(<-x.send("pay", fmt.Sprintf("turn %d %d", run, i))) })
			turn("direct", func() error { return answered(<-direct.send("pay", "turn")) })
		}
		median := func(name string) float64 {
			slices.Sort(took[name])
			return float64(took[name][len(took[name])/2])
		}
		b.ReportMetric((median("pay")-median("direct"))/median("floor"), "journaled-added/fdatasync")
		b.ReportMetric(median("floor")/1000, "fdatasync-µs")
		if found["look/1"].median == 0 || found["alone/64"].rate == 0 {
			return // only a part was asked for
		}
		b.ReportMetric(found["look/1"].median-found["direct look/1"].median, "read_only-added-µs")
		for _, callers := range []int{1, 8, 64} {
			rate := func(name string) float64 { return found[fmt.Sprintf("%s/%d", name, callers)].rate }
			b.ReportMetric(rate("pay")/rate("direct pay"), fmt.Sprintf("rate/direct@%d", callers))
			b.ReportMetric(rate("pay")/rate("alone"), fmt.Sprintf("rate/alone@%d", callers))
		}
	})
}

// freshClient makes a connection for every request, as anything with a side effect does.
func freshClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
}

func post(c *http.Client, url string) error {
	r, err := http.NewRequest(http.MethodPost, url+"/v1/pay", bytes.NewReader([]byte(`{"order":"1","amount":5}`)))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer canary-not-a-secret-bench")
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// directServer makes this program an MCP server that makes the same requests itself, with the go-sdk.
const directServer = "SINGLEPASS_BENCH_DIRECT"

func TestMain(m *testing.M) {
	if url := os.Getenv(directServer); url != "" {
		serveDirect(url)
		return
	}
	if bridge := os.Getenv(agentOf); bridge != "" {
		cmd := exec.Command(bridge, "mcp")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
		}
		return
	}
	os.Exit(m.Run())
}

// agentOf makes this program an agent that starts the bridge and hands its standard input and output on.
const agentOf = "SINGLEPASS_BENCH_AGENT"

func serveDirect(url string) {
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
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: `{"receipt":1}`}}}, nil
		})
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, "direct server:", err)
	}
}
