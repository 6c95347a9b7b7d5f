package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// line is one JSON line that a program printed.
type line struct {
	raw  string
	Seq  int    `json:"seq"`
	Msg  string `json:"msg"`
	Name string `json:"event"`
}

func (l line) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(l.raw), v); err != nil {
		t.Fatalf("reading %s: %v", l.raw, err)
	}
}

// process is a program under test or a helper, with its JSON lines. What it writes to either stream is kept in files.
type process struct {
	t     *testing.T // what is tested now: who shares a process between tests sets it
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	exit  chan struct{} // closed when it has ended and its output is read

	mu      sync.Mutex
	lines   []line
	read    int           // how many of lines next has passed
	changed chan struct{} // closed and replaced when there are more lines, or none will come
	ended   bool
}

// start runs cmd until the end of the test. Its JSON lines are read from its standard output, or from standard error.
func start(t *testing.T, name string, cmd *exec.Cmd, fromStderr bool) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, exit: make(chan struct{}), changed: make(chan struct{})}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	pipe, other := cmd.StdoutPipe, &cmd.Stderr
	if fromStderr {
		pipe, other = cmd.StderrPipe, &cmd.Stdout
	}
	lines, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	logs := logDir(t)
	kept, err := os.CreateTemp(logs, name+".*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	rest, err := os.CreateTemp(logs, name+".*.txt")
	if err != nil {
		t.Fatal(err)
	}
	*other = rest
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go p.collect(lines, kept, rest)
	t.Cleanup(func() {
		p.stdin.Close()
		p.kill()
		if t.Failed() {
			for _, f := range []string{kept.Name(), rest.Name()} {
				if data, _ := os.ReadFile(f); len(data) > 0 {
					t.Logf("%s:\n%s", filepath.Base(f), tail(string(data), 6000))
				}
			}
		}
	})
	return p
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}

func (p *process) collect(lines io.Reader, kept, rest *os.File) {
	in := bufio.NewScanner(lines)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		fmt.Fprintf(kept, "%s\n", in.Text())
		l := line{raw: in.Text()}
		if json.Unmarshal(in.Bytes(), &l) == nil {
			p.mu.Lock()
			p.lines = append(p.lines, l)
			p.tellLocked()
			p.mu.Unlock()
		}
	}
	_ = p.cmd.Wait()
	kept.Close()
	rest.Close()
	p.mu.Lock()
	p.ended = true
	p.tellLocked()
	p.mu.Unlock()
	close(p.exit)
}

func (p *process) tellLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// scan looks at each line from *from on until match says yes, and leaves *from behind that line. Its owner locks p.mu.
func (p *process) scan(what string, from *int, match func(line) bool) (line, error) {
	deadline := time.After(patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for *from < len(p.lines) {
			l := p.lines[*from]
			*from++
			if match(l) {
				return l, nil
			}
		}
		if p.ended {
			return line{}, fmt.Errorf("%s ended before %s", p.name, what)
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
			p.mu.Lock()
		case <-deadline:
			p.mu.Lock()
			return line{}, fmt.Errorf("%s: no %s within %s", p.name, what, patience)
		}
	}
}

// next waits for the next line that matches, and passes over those before it.
func (p *process) next(what string, match func(line) bool) line {
	p.t.Helper()
	l, err := p.scan(what, &p.read, match)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

func event(name string) func(line) bool { return func(l line) bool { return l.Name == name } }

func (p *process) send(order any) {
	p.t.Helper()
	b, err := json.Marshal(order)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.stdin.Write(append(b, '\n')); err != nil {
		p.t.Fatalf("ordering %s: %v", p.name, err)
	}
}

// kill ends the process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exit
}

// stop ends the process with SIGTERM and returns its exit status.
func (p *process) stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exit:
	case <-time.After(patience):
		p.t.Errorf("%s is still there %s after SIGTERM", p.name, patience)
		p.kill()
	}
	return p.cmd.ProcessState.ExitCode()
}

// logDir is where the output of a test's processes is kept while it runs.
func logDir(t *testing.T) string {
	dir, _ := logDirs.LoadOrStore(t, sync.OnceValues(func() (string, error) {
		path, err := os.MkdirTemp("", "sp-log-")
		t.Cleanup(func() { os.RemoveAll(path) })
		return path, err
	}))
	path, err := dir.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var logDirs sync.Map // *testing.T: func() (path string, err error)

// run runs a command to its end with the given standard input.
func run(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %s: %v", cmd, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
