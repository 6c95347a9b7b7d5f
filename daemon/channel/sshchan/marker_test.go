package sshchan_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/sshchan"
	"singlepass.dev/daemon/channel/sshchan/sshdtest"
	"singlepass.dev/daemon/effect"
)

// marked makes a request one that runs under a marker.
func marked(folder string) func(*channel.Request) {
	return func(r *channel.Request) { r.Effect.SSH.Marker = &effect.SSHMarker{Folder: folder, Keep: 7} }
}

// question is what is asked about a request whose answer was lost.
func question(r channel.Request) channel.Query {
	return channel.Query{ExecutionID: r.ExecutionID, Attempt: r.Attempt, Effect: r.Effect, Secret: r.Secret, Dispatched: time.Now()}
}

// fifo is a pipe that a command can wait at.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := mkfifo(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// write waits for a reader, which is the command, and lets it go on.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eachShell runs a test on hosts with each shell, and with the utilities that come with it.
func eachShell(t *testing.T, test func(t *testing.T, s *sshdtest.Server)) {
	for name, program := range map[string]string{"dash": "/usr/bin/dash", "bash": "/bin/bash", "busybox": "", "busybox without setsid": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := dir + ":/usr/bin:/bin"
			if program != "" {
				if err := os.Symlink(program, filepath.Join(dir, "sh")); err != nil { // bash then keeps to POSIX
					t.Fatal(err)
				}
			} else {
				if out, err := exec.Command("busybox", "--install", "-s", dir).CombinedOutput(); err != nil {
					t.Fatalf("%v: run .ci/setup\n%s", err, out)
				}
				path = dir
			}
			if strings.HasSuffix(name, "without setsid") {
				if err := os.Remove(filepath.Join(dir, "setsid")); err != nil {
					t.Fatal(err)
				}
			}
			test(t, sshdtest.New(t, sshdtest.Config{Path: path}))
		})
	}
}

// until asks until the answer is another one than not.
func until(t *testing.T, c *sshchan.Channel, q channel.Query, not channel.Word) channel.Finding {
	t.Helper()
	for {
		if f := c.Verify(t.Context(), q); f.Word != not {
			return f
		}
	}
}

func TestAMarkedCommandThatIsNotLostIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	eachShell(t, aMarkedCommandThatIsNotLostIsAnsweredAtOnce)
}

func aMarkedCommandThatIsNotLostIsAnsweredAtOnce(t *testing.T, s *sshdtest.Server) {
	c := newChannel(t)
	r := command(t, s, `pwd >&2; umask; printf 'a\000b'; cat; exit 3`, marked(""), func(r *channel.Request) { r.Effect.SSH.Stdin = []byte("in\n") })
	o := c.Do(t.Context(), r)
	if o.Verdict != channel.TargetError || o.Status != 3 {
		t.Fatalf("%+v", o)
	}
	plain := command(t, s, `pwd >&2; umask; printf 'a\000b'; cat; exit 3`, func(r *channel.Request) { r.Effect.SSH.Stdin = []byte("in\n") })
	if same := c.Do(t.Context(), plain); !bytes.Equal(same.Result, o.Result) {
		t.Errorf("with a marker\n%s\nwithout\n%s", o.Result, same.Result)
	}
	info, err := os.Stat(filepath.Join(s.Home, ".singlepass"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v %v", info, err)
	}
	f := c.Verify(t.Context(), question(r))
	if f.Word != channel.Failed || f.Status != 3 || !bytes.Equal(f.Result, o.Result) || !bytes.Equal(f.Answer, o.Answer) {
		t.Errorf("asked later: %+v\nnot\n%+v", f, o)
	}
}

func TestACommandWhoseLinkIsCutGoesOnAndItsResultIsRecovered(t *testing.T) {
	t.Parallel()
	eachShell(t, aCommandWhoseLinkIsCutGoesOnAndItsResultIsRecovered)
}

func aCommandWhoseLinkIsCutGoesOnAndItsResultIsRecovered(t *testing.T, s *sshdtest.Server) {
	c := newChannel(t)
	gate := fifo(t)
	r := command(t, s, "echo begun; read word <"+gate+"; echo \"ended $word\"; echo late >&2; exit 4", marked(""))
	done := make(chan channel.Outcome, 1)
	go func() { done <- c.Do(t.Context(), r) }()
	open, err := os.OpenFile(gate, os.O_WRONLY, 0) // the command is there
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if o := <-done; o.Verdict != channel.Unknown {
		t.Fatalf("with the link cut: %+v", o)
	}
	if f := c.Verify(t.Context(), question(r)); f.Word != channel.Running {
		t.Fatalf("while it runs: %+v", f)
	}
	if _, err := open.WriteString("well\n"); err != nil {
		t.Fatal(err)
	}
	_ = open.Close()
	f := until(t, c, question(r), channel.Running)
	if f.Word != channel.Failed || f.Status != 4 {
		t.Fatalf("after its end: %+v", f)
	}
	got, _ := result(t, f.Result)
	if got.Stdout != "begun\nended well\n" || got.Stderr != "late\n" || *got.ExitStatus != 4 {
		t.Errorf("%+v", got)
	}
	if again := c.Verify(t.Context(), question(r)); !bytes.Equal(again.Result, f.Result) {
		t.Error("asked twice, it gives two results")
	}
}

func TestWhatNeverStartedIsProvenAndCanNoLongerStart(t *testing.T) {
	t.Parallel()
	eachShell(t, whatNeverStartedIsProvenAndCanNoLongerStart)
}

func whatNeverStartedIsProvenAndCanNoLongerStart(t *testing.T, s *sshdtest.Server) {
	c := newChannel(t)
	// The folder is as it was when the attempt was sent: the channel knows it from an earlier command of the same attempt's kind.
	trace := filepath.Join(t.TempDir(), "trace")
	r := command(t, s, "echo ran >>"+trace, marked(""))
	held := &holding{at: 2} // prepare goes through; start is held
	c2 := newChannel(t, func(cfg *sshchan.Config) { cfg.Dial = held.dial })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan channel.Outcome, 1)
	go func() { done <- c2.Do(ctx, r) }()
	held.wait()
	if f := c2.Verify(t.Context(), question(r)); f.Word != channel.NotDone || !f.Certain {
		t.Fatalf("before it arrives: %+v", f)
	}
	held.letGo() // the start arrives late
	o := <-done
	cancel()
	if o.Verdict != channel.Unknown {
		t.Errorf("the late start: %+v", o)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("what was said to have never started has run")
	}
	if f := c2.Verify(t.Context(), question(r)); f.Word != channel.NotDone || !f.Certain {
		t.Errorf("asked again: %+v", f)
	}
	next := r
	next.Attempt = 2
	if o := c.Do(t.Context(), next); o.Verdict != channel.Success {
		t.Errorf("the next attempt: %+v", o)
	}
	if b, _ := os.ReadFile(trace); string(b) != "ran\n" {
		t.Errorf("the trace is %q", b)
	}
}

func TestAFolderThatWasEmptiedProvesNothing(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	c := newChannel(t)
	r := command(t, s, "true", marked(""))
	if o := c.Do(t.Context(), r); o.Verdict != channel.Success {
		t.Fatalf("%+v", o)
	}
	folder := filepath.Join(s.Home, ".singlepass")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if f := c.Verify(t.Context(), question(r)); f.Word != channel.CannotTell {
		t.Errorf("with the folder gone: %+v", f)
	}
	other := r
	other.ExecutionID = "act_02OTHER"
	if o := c.Do(t.Context(), other); o.Verdict != channel.Success { // makes the folder anew
		t.Fatalf("%+v", o)
	}
	if f := c.Verify(t.Context(), question(r)); f.Word != channel.CannotTell {
		t.Errorf("with the folder made anew: %+v", f)
	}
	// After a restart of the daemon only the ages tell.
	restarted := newChannel(t)
	third := r
	third.ExecutionID = "act_03NEVER"
	q := question(third)
	if f := restarted.Verify(t.Context(), q); f.Word != channel.CannotTell {
		t.Errorf("a folder younger than the attempt: %+v", f)
	}
	write(t, filepath.Join(folder, "born"), strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10)+"\n")
	if f := restarted.Verify(t.Context(), q); f.Word != channel.NotDone || !f.Certain {
		t.Errorf("a folder older than the attempt: %+v", f)
	}
	q.Dispatched = time.Time{}
	q.ExecutionID = "act_04NEVER"
	if f := restarted.Verify(t.Context(), q); f.Word != channel.CannotTell {
		t.Errorf("without the time of the attempt: %+v", f)
	}
}

func TestACommandWhoseWatcherDiedIsNeitherRunningNorDone(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	c := newChannel(t)
	gate := fifo(t)
	r := command(t, s, "read word <"+gate, marked(""))
	done := make(chan channel.Outcome, 1)
	go func() { done <- c.Do(t.Context(), r) }()
	open, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(s.Home, ".singlepass", "act_01TEST.1", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = open.Close()
	if o := <-done; o.Verdict != channel.Unknown {
		t.Errorf("%+v", o)
	}
	if f := c.Verify(t.Context(), question(r)); f.Word != channel.CannotTell {
		t.Errorf("%+v", f)
	}
}

func TestAMarkedCommandNeverRunsOnAPartOfItsInput(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	held := &holding{at: 4} // the connection is cut in the middle of the input
	c := newChannel(t, func(cfg *sshchan.Config) { cfg.Dial = held.dial })
	trace := filepath.Join(t.TempDir(), "trace")
	r := command(t, s, "cat >"+trace, marked(""), func(r *channel.Request) { r.Effect.SSH.Stdin = bytes.Repeat([]byte("0123456789abcdef"), 1<<14) })
	done := make(chan channel.Outcome, 1)
	go func() { done <- c.Do(t.Context(), r) }()
	held.wait()
	s.Kill()
	held.letGo()
	if o := <-done; o.Verdict != channel.Unknown {
		t.Errorf("%+v", o)
	}
	if f := until(t, c, question(r), channel.CannotTell); f.Word != channel.NotDone || !f.Certain {
		t.Errorf("%+v", f)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("it ran")
	}
}

func TestAFolderThatOthersCouldTouchIsNotUsed(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	c := newChannel(t)
	shared := t.TempDir()
	open := filepath.Join(shared, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o770); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(shared, "foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{open: "chmod 700", filepath.Join(shared, "file", "x"): "cannot be made"}
	write(t, filepath.Join(shared, "file"), "")
	if os.Getuid() == 0 {
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(shared, "link")
		if err := os.Symlink(foreign, link); err != nil {
			t.Fatal(err)
		}
		folders[foreign], folders[link] = "another account", "another account"
	}
	for folder, want := range folders {
		o := c.Do(t.Context(), command(t, s, "echo ran >"+shared+"/trace", marked(folder)))
		if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, want) {
			t.Errorf("%s: %+v", folder, o)
		}
	}
	if _, err := os.Stat(shared + "/trace"); err == nil {
		t.Error("it ran without a marker")
	}
	if o := c.Do(t.Context(), command(t, s, "true", marked(filepath.Join(shared, "own", "deeper")))); o.Verdict != channel.Success {
		t.Errorf("a folder of its own in a shared one: %+v", o)
	}
}

func TestOldMarkersAreLetGoOfAndNotForgotten(t *testing.T) {
	t.Parallel()
	eachShell(t, oldMarkersAreLetGoOfAndNotForgotten)
}

func oldMarkersAreLetGoOfAndNotForgotten(t *testing.T, s *sshdtest.Server) {
	c := newChannel(t)
	r := command(t, s, "echo done", marked(""))
	if o := c.Do(t.Context(), r); o.Verdict != channel.Success {
		t.Fatalf("%+v", o)
	}
	folder := filepath.Join(s.Home, ".singlepass")
	old := time.Now().Add(-9 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(folder, "act_01TEST.1"), old, old); err != nil {
		t.Fatal(err)
	}
	longer := r
	longer.ExecutionID = "act_02LONGER"
	if o := c.Do(t.Context(), longer); o.Verdict != channel.Success {
		t.Fatalf("%+v", o)
	}
	if _, err := os.Stat(filepath.Join(folder, "act_01TEST.1")); err == nil {
		t.Error("it is still there after nine days")
	}
	if f := c.Verify(t.Context(), question(r)); f.Word != channel.CannotTell {
		t.Errorf("what was let go of: %+v", f)
	}
	if o := c.Do(t.Context(), r); o.Verdict != channel.Unknown {
		t.Errorf("a second start under its name: %+v", o)
	}
}

func TestManyQuestionsAndOneStartAgreeOnWhatHappened(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	c := newChannel(t)
	trace := filepath.Join(t.TempDir(), "trace")
	for i := range 6 {
		r := command(t, s, fmt.Sprintf("echo %d >>%s", i, trace), marked(""), func(r *channel.Request) { r.ExecutionID = fmt.Sprintf("act_0%dRACE", i) })
		first := r
		first.ExecutionID = "act_00FIRST"
		var work sync.WaitGroup
		var o channel.Outcome
		var findings [2]channel.Finding
		work.Go(func() { o = c.Do(t.Context(), r) })
		for n := range findings {
			work.Go(func() { findings[n] = c.Verify(t.Context(), question(r)) })
		}
		work.Wait()
		b, _ := os.ReadFile(trace)
		ran := strings.Count(string(b), fmt.Sprintf("%d\n", i))
		if ran > 1 || (o.Verdict == channel.Success) != (ran == 1) {
			t.Errorf("%d: it ran %d times, and the channel says %s", i, ran, o.Verdict)
		}
		for _, f := range findings {
			if f.Word == channel.NotDone && ran > 0 {
				t.Errorf("%d: said never to have started, and it ran: %+v", i, f)
			}
		}
	}
}

// holding is a way to the host that holds the connection's bytes back from the time on at which the command for the at-th exec request is written.
type holding struct {
	at int

	once    sync.Once
	reached chan struct{}
	free    chan struct{}
}

func (h *holding) init() {
	h.once.Do(func() { h.reached, h.free = make(chan struct{}), make(chan struct{}) })
}

func (h *holding) wait()  { h.init(); <-h.reached }
func (h *holding) letGo() { h.init(); close(h.free) }

func (h *holding) dial(ctx context.Context, name, port string) (net.Conn, error) {
	h.init()
	conn, err := dial(ctx, name, port)
	if err != nil {
		return nil, err
	}
	return &heldConn{Conn: conn, h: h}, nil
}

// heldConn counts what the client writes after the handshake: see large.
type heldConn struct {
	net.Conn
	h     *holding
	execs int
}

func (c *heldConn) Write(b []byte) (int, error) {
	if len(b) > 3<<10 { // the marker's script is in it, or a piece of the input
		if c.execs++; c.execs == c.h.at {
			select {
			case <-c.h.reached:
			default:
				close(c.h.reached)
			}
			<-c.h.free
		}
	}
	return c.Conn.Write(b)
}

// A folder as version 1 leaves it is read by every later one.
func TestAFolderOfVersionOneIsUnderstood(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	folder := filepath.Join(s.Home, ".singlepass")
	for _, dir := range []string{folder, folder + "/act_01TEST.1", folder + "/act_02TEST.1", folder + "/act_03TEST.1"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"store": "5f2c\n", "born": "1700000000\n", "cleaned": "act_00TEST.1\n",
		"act_01TEST.1/keep": "7\n", "act_01TEST.1/in": "", "act_01TEST.1/pid": "1\n", "act_01TEST.1/status": "3\n", "act_01TEST.1/out": "o\x00\n", "act_01TEST.1/err": "e",
		"act_02TEST.1/refused": "", "act_03TEST.1/keep": "7\n", "act_03TEST.1/pid": "999999999\n",
	} {
		write(t, filepath.Join(folder, name), text)
	}
	c := newChannel(t)
	for id, want := range map[string]channel.Word{
		"act_00TEST": channel.CannotTell, "act_01TEST": channel.Failed, "act_02TEST": channel.NotDone, "act_03TEST": channel.CannotTell, "act_04TEST": channel.NotDone,
	} {
		r := command(t, s, "true", marked(""), func(r *channel.Request) { r.ExecutionID = id })
		f := c.Verify(t.Context(), question(r))
		if f.Word != want {
			t.Errorf("%s: %+v", id, f)
		}
		if id == "act_01TEST" {
			if got, _ := result(t, f.Result); f.Status != 3 || got.Stdout != "o\x00\n" || got.Stderr != "e" {
				t.Errorf("%+v", got)
			}
		}
	}
}
