package attack_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
)

const (
	user       = 65534 // nobody: without rights, and known to the system, as a message bus wants it
	group      = 64991 // that spd and spctl are installed with
	passphrase = "correct horse battery staple attack"
	canary     = "canary-not-a-secret-9Xk2Vw7Q"
	patience   = time.Minute // bounds every wait for an event; only a failure reaches it
)

// installed is where the programs of all tests lie, as root installs them.
var installed = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("ATTACK_INSTALLED"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "sp")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "singlepass.dev/cmd/spd", "singlepass.dev/cmd/spctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("building: %w\n%s", err, out)
	}
	for _, name := range []string{"spd", "spctl"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Chown(path, 0, group), os.Chmod(path, 0o755|os.ModeSetgid)); err != nil {
			return dir, err
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(dir, "agent"), self, 0o755)
})

func TestMain(m *testing.M) {
	if role := os.Getenv("ATTACK_ROLE"); role != "" {
		os.Exit(play(role))
	}
	code := m.Run()
	if dir, err := installed(); (err == nil || dir != "") && os.Getenv("ATTACK_INSTALLED") == "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// stand is one home with its daemon, its target, and its person.
type stand struct {
	t      *testing.T
	bin    string
	dir    string // the user's own folder
	home   string
	spd    *exec.Cmd
	log    *lines
	target *target
	env    []string // more of the environment, for everybody
}

// target counts what reaches it.
type target struct {
	*httptest.Server
	acted  atomic.Int64
	slow   atomic.Value // chan struct{}: answers wait until it is closed
	answer atomic.Value // string: what it says, in place of the usual
}

func startTarget(t *testing.T) *target {
	x := &target{}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			http.Error(w, "no credential", http.StatusUnauthorized)
			return
		}
		n := x.acted.Add(1)
		if wait, ok := x.slow.Load().(chan struct{}); ok {
			<-wait
		}
		if s, ok := x.answer.Load().(string); ok {
			_, _ = io.WriteString(w, s)
			return
		}
		fmt.Fprintf(w, `{"receipt":%d}`, n)
	}))
	t.Cleanup(x.Close)
	return x
}

// begin installs everything, and leaves an unlocked vault with one accepted contract, pay.
func begin(t *testing.T, env ...string) *stand {
	t.Helper()
	s := prepare(t, env...)
	s.start()
	s.furnish()
	return s
}

// prepare makes a stand whose daemon does not run yet.
func prepare(t *testing.T, env ...string) *stand {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can install the programs as they should be, and become the user")
	}
	bin, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, bin: bin, dir: dir, home: filepath.Join(dir, "h"), target: startTarget(t), env: env}
	s.write("passphrase", passphrase+"\n")
	return s
}

// furnish makes the vault and what is in it.
func (s *stand) furnish() {
	s.t.Helper()
	if slices.Contains(s.env, withKeyring) {
		s.spctl("init")
	} else {
		s.spctl("init", "--no-keyring")
	}
	s.spctl("credential", "add", "bank", "--kind", "bearer", "--target", s.target.URL, "--value-file", s.write("token", canary))
	if err := os.Remove(filepath.Join(s.dir, "token")); err != nil {
		s.t.Fatal(err)
	}
	s.spctl("action", "accept", s.write("pay.yaml", s.contract("/v1/pay")))
}

func (s *stand) contract(path string) string {
	return fmt.Sprintf(`action: pay
title: Pay
description: Pays one order.
channel: http
input: {type: object, properties: {order: {type: string}}, required: [order], additionalProperties: false}
credential: bank
approval: session
http: {method: POST, url: "%s%s", json: {order: "{order}"}}
replay: {class: irreversible, attach_window: 1h}
`, s.target.URL, path)
}

// write writes a private file of the user's.
func (s *stand) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chown(path, user, user); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// command makes a command of the user's. Its environment is the person's, the file with the passphrase included: what the tests show is refused in spite of it.
func (s *stand) command(program string, args ...string) *exec.Cmd {
	if !filepath.IsAbs(program) {
		program = filepath.Join(s.bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "SINGLEPASS_HOME=" + s.home, "SINGLEPASS_PASSPHRASE_FILE=" + s.dir + "/passphrase", "ATTACK_BIN=" + s.bin}
	cmd.Env = append(cmd.Env, s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts the daemon.
func (s *stand) start() {
	s.t.Helper()
	s.spd = s.command("spd")
	s.log = follow(s.t, s.spd)
	s.log.wait(`"msg":"ready"`)
}

// stop ends the daemon in order.
func (s *stand) stop() {
	s.t.Helper()
	if err := s.spd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	<-s.log.ended
}

// run runs a command to its end.
func run(cmd *exec.Cmd) (out string, status int) {
	b, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return err.Error(), -1
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// spctl runs the person's command, which must succeed.
func (s *stand) spctl(args ...string) string {
	s.t.Helper()
	out, status := run(s.command("spctl", args...))
	if status != 0 {
		s.t.Fatalf("spctl %s: exit status %d\n%s", strings.Join(args, " "), status, out)
	}
	return out
}

func (s *stand) status() (st api.Status) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.spctl("status", "--json")), &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// card waits for the one card.
func (s *stand) card() (card api.Card) {
	s.t.Helper()
	for until := time.Now().Add(patience); ; {
		if out := s.spctl("approvals", "--json"); out != "" {
			if err := json.Unmarshal([]byte(out), &card); err != nil {
				s.t.Fatalf("reading %s: %v", out, err)
			}
			return card
		}
		if time.Now().After(until) {
			s.t.Fatal("no card came")
		}
	}
}

func (s *stand) wantActed(n int64) {
	s.t.Helper()
	if got := s.target.acted.Load(); got != n {
		s.t.Errorf("the target acted %d times, want %d", got, n)
	}
}

// lines is what a program writes.
type lines struct {
	t     *testing.T
	ended chan struct{}

	mu      sync.Mutex
	all     bytes.Buffer  // owner: mu
	read    int           // owner: mu; what wait has passed
	changed chan struct{} // owner: mu; closed and replaced
}

// follow starts cmd and reads its standard error.
func follow(t *testing.T, cmd *exec.Cmd) *lines {
	t.Helper()
	r, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	return collect(t, cmd, r)
}

func collect(t *testing.T, cmd *exec.Cmd, r io.Reader) *lines {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l := &lines{t: t, ended: make(chan struct{}), changed: make(chan struct{})}
	go func() {
		for in := bufio.NewReaderSize(r, 1<<20); ; {
			line, err := in.ReadBytes('\n')
			l.mu.Lock()
			l.all.Write(line)
			close(l.changed)
			l.changed = make(chan struct{})
			l.mu.Unlock()
			if err != nil {
				break
			}
		}
		_ = cmd.Wait()
		close(l.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-l.ended
		if t.Failed() {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), l.all.Bytes())
		}
	})
	return l
}

// wait waits for a line that holds the text, and returns it.
func (l *lines) wait(text string) string {
	l.t.Helper()
	deadline := time.After(patience)
	for {
		l.mu.Lock()
		rest := l.all.Bytes()[l.read:]
		for i := bytes.IndexByte(rest, '\n'); i >= 0; i = bytes.IndexByte(rest, '\n') {
			line := string(rest[:i])
			l.read += i + 1
			rest = rest[i+1:]
			if strings.Contains(line, text) {
				l.mu.Unlock()
				return line
			}
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-l.ended:
			l.mu.Lock()
			more := bytes.Contains(l.all.Bytes()[l.read:], []byte(text))
			l.mu.Unlock()
			if !more {
				l.t.Fatalf("the program ended before it said %s", text)
			}
		case <-deadline:
			l.t.Fatalf("the program never said %s", text)
		}
	}
}
