package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/home"
	"singlepass.dev/daemon/server"
	"singlepass.dev/policy"
	"singlepass.dev/vault/secret"
)

const (
	rightPassphrase = "correct horse battery staple"
	canary          = "canary-not-a-secret-4Jd9s2Lq"
	agentSocket     = "SINGLEPASS_TEST_AGENT"
)

// patience bounds every wait for an event; only a failure reaches it.
const patience = 30 * time.Second

// TestAnAgentsProcess is no test: it makes this program an agent when a test starts it as one. It carries lines between its standard streams and the socket that the
// variable names. A line that begins with "connect " names another socket, to which the rest of its lines go.
func TestAnAgentsProcess(t *testing.T) {
	socket := os.Getenv(agentSocket)
	if socket == "" {
		t.Skip("only another test starts this")
	}
	carry := func(socket string) net.Conn {
		nc, err := net.Dial("unix", socket)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() { _, _ = io.Copy(os.Stdout, nc) }()
		return nc
	}
	nc := carry(socket)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var other string
		if n, _ := fmt.Sscanf(in.Text(), "connect %s", &other); n == 1 {
			nc = carry(other)
			continue
		}
		_, _ = fmt.Fprintf(nc, "%s\n", in.Text())
	}
	os.Exit(0)
}

// stage is a daemon in this process, its operator, and a target.
type stage struct {
	t        *testing.T
	home     home.Home
	daemon   *server.Server
	operator *client.Operator
	target   *target
	stop     func() error
}

// target counts what reaches it. It answers, or drops the connection after it acted, by what the test says.
type target struct {
	*httptest.Server
	acted  atomic.Int64
	silent atomic.Bool // the answer is lost from now on
}

func startTarget(t *testing.T) *target {
	x := &target{}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			http.Error(w, "no credential", http.StatusUnauthorized)
			return
		}
		n := x.acted.Add(1)
		if x.silent.Load() {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"receipt":%d,"path":%q}`, n, r.URL.Path)
	}))
	t.Cleanup(x.Close)
	return x
}

// begin opens a daemon on a new home, with a vault, a credential, and two contracts: pay, which is irreversible, and look, which only reads.
func begin(t *testing.T) *stage {
	t.Helper()
	root, err := os.MkdirTemp("", "sp") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h, err := home.Resolve(root, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, home: h, target: startTarget(t)}
	s.open()
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.operator.Init(t.Context(), api.InitRequest{Passphrase: []byte(rightPassphrase), NoKeyring: true}); err != nil {
		t.Fatal(err)
	}
	add := api.CredentialRequest{Credential: api.Credential{Name: "bank", Kind: "bearer", Targets: []string{s.target.URL}}, Secret: []byte(canary)}
	if err := s.operator.AddCredential(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	s.accept("pay", "POST", "/v1/pay", "irreversible")
	s.accept("look", "GET", "/v1/look", "read_only")
	return s
}

// open starts the daemon, which is then locked or uninitialized.
func (s *stage) open() {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	d, err := server.Open(server.Config{Home: s.home, Version: "test", Bridge: filepath.Join(filepath.Dir(self), "spctl"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- d.Serve(ctx, func() { close(ready) }) }()
	<-ready
	s.daemon = d
	o := &client.Operator{Socket: d.OperatorSocket(), Daemon: self, Proof: func(context.Context) (string, *secret.Bytes, error) {
		return "Passphrase", secret.New([]byte(rightPassphrase)), nil
	}}
	s.operator = o
	s.stop = sync.OnceValue(func() error {
		o.Close()
		cancel()
		return <-served
	})
}

func (s *stage) restart() {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.t.Fatal(err)
	}
	s.open()
}

func (s *stage) unlock() {
	s.t.Helper()
	if _, err := s.operator.Unlock(s.t.Context(), api.UnlockRequest{Passphrase: []byte(rightPassphrase)}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) accept(action, method, path, class string) {
	s.t.Helper()
	window, body := "", ""
	if class != "read_only" {
		window, body = "\n  attach_window: 1h", `
  json: {order: "{order}"}`
	}
	src := fmt.Appendf(nil, `action: %s
title: Test
description: Does what the test says.
channel: http
input: {type: object, properties: {order: {type: string}}, required: [order], additionalProperties: false}
credential: bank
approval: session
http:
  method: %s
  url: "%s%s"%s
replay:
  class: %s%s
`, action, method, s.target.URL, path, body, class, window)
	if _, err := s.operator.AcceptAction(s.t.Context(), api.ActionRequest{Name: action, Source: src, File: action + ".yaml", Digest: policy.Digest(src)}); err != nil {
		s.t.Fatal(err)
	}
}

// nextCard waits for a card.
func (s *stage) nextCard() api.Card {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for e, err := range s.operator.WatchCards(ctx) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Event == "waiting" || e.Event == "added" {
			return e.Card
		}
	}
	s.t.Fatal("no card came")
	return api.Card{}
}

func (s *stage) approve() {
	s.t.Helper()
	if err := s.operator.Answer(s.t.Context(), s.nextCard().Card, api.CardAnswer{Answer: "session"}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) status() api.Status {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	st, err := s.operator.Status(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// agent is a process of its own, whose descendants and self may decide nothing.
type agent struct {
	t     *testing.T
	stdin io.WriteCloser
	lines chan string
	next  int
}

// outcome is what an agent reads of a call.
type outcome struct {
	IsError bool
	Code    api.Code
	ID      string
	State   string
	raw     string
}

// agent starts an agent. command is how it reaches the daemon; nil connects to the socket itself.
func (s *stage) agent() *agent {
	s.t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAnAgentsProcess$")
	cmd.Env = append(os.Environ(), agentSocket+"="+s.daemon.AgentSocket())
	return startAgent(s.t, cmd)
}

func startAgent(t *testing.T, cmd *exec.Cmd) *agent {
	t.Helper()
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, stdin: stdin, lines: make(chan string, 1000)}
	go func() {
		defer close(a.lines)
		in := bufio.NewScanner(stdout)
		in.Buffer(nil, 16<<20)
		for in.Scan() {
			a.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	id := a.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}})
	a.answer(id)
	a.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

func (a *agent) write(line string) {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.stdin, line); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) ask(method string, params any) int {
	a.t.Helper()
	a.next++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.next, "method": method, "params": params})
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(string(b))
	return a.next
}

// line waits for the next line that matches.
func (a *agent) line(match func(line string) bool) string {
	a.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case l, ok := <-a.lines:
			if !ok {
				a.t.Fatal("the agent's process has ended")
			}
			if match(l) {
				return l
			}
		case <-deadline:
			a.t.Fatal("no answer came")
		}
	}
}

func (a *agent) answer(id int) json.RawMessage {
	a.t.Helper()
	var m struct {
		ID     int
		Result json.RawMessage
		Error  json.RawMessage
	}
	l := a.line(func(l string) bool { m.ID = 0; return json.Unmarshal([]byte(l), &m) == nil && m.ID == id })
	if m.Result == nil {
		a.t.Fatalf("request %d: %s", id, l)
	}
	return m.Result
}

func (a *agent) send(tool, order string) int {
	a.t.Helper()
	return a.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"order": order}})
}

func (a *agent) outcome(id int) outcome {
	a.t.Helper()
	raw := a.answer(id)
	var r struct {
		IsError bool `json:"isError"`
		Meta    map[string]struct {
			ID    string   `json:"execution_id"`
			State string   `json:"state"`
			Code  api.Code `json:"code"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		a.t.Fatalf("reading %s: %v", raw, err)
	}
	m := r.Meta["dev.singlepass/execution"]
	return outcome{r.IsError, m.Code, m.ID, m.State, string(raw)}
}

func (a *agent) call(tool, order string) outcome {
	a.t.Helper()
	return a.outcome(a.send(tool, order))
}
