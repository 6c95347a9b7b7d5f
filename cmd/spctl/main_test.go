package main_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/testscript"

	"singlepass.dev/daemon/control/controltest"
	"singlepass.dev/daemon/home"
)

// bin holds the real spctl, and beside it this test program under the name spd: spctl trusts only the spd that lies beside it, so the fake has to be found there. real holds
// the real ones.
var bin, real string

// golden is the file of everything that --help says; with -update it is written anew.
var (
	golden = absolute("testdata/help.golden")
	update = flag.Bool("update", false, "write testdata/help.golden anew")
)

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

// TestHelpIsWhatTheDocumentationSays keeps the words that people read under review: a change of a flag or a command shows in the diff of one file.
func TestHelpIsWhatTheDocumentationSays(t *testing.T) {
	got := help(t, nil)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the help changed: look at the difference, then run go test ./cmd/spctl -run Help -update\n%s", diff.Diff("want", want, "got", []byte(got)))
	}
}

// help is the --help of a command and of all commands below it.
func help(t *testing.T, path []string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "spctl"), append(slices.Clone(path), "--help")...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	text := "$ spctl " + strings.Join(append(slices.Clone(path), "--help"), " ") + "\n" + string(out) + "\n"
	inCommands := false
	for line := range strings.SplitSeq(string(out), "\n") {
		switch {
		case strings.HasSuffix(line, ":") && !strings.HasPrefix(line, " "):
			inCommands = line != "Flags:" && line != "Usage:" && line != "Global Flags:" && line != "Examples:"
		case line == "":
			inCommands = false
		case inCommands && strings.HasPrefix(line, "  "):
			if name := strings.Fields(line)[0]; name != "help" && name != "completion" {
				text += help(t, append(slices.Clone(path), name))
			}
		}
	}
	return text
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "spd" {
		os.Exit(fakeDaemon())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "spctl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin, real = filepath.Join(dir, "fake"), filepath.Join(dir, "real")
	build := exec.Command("go", "build", "-o", real+"/", ".", "../spd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building spctl and spd: %v\n%s", err, out)
		return 1
	}
	self, err := os.ReadFile("/proc/self/exe")
	err = errors.Join(err, os.Mkdir(bin, 0o700), os.WriteFile(filepath.Join(bin, "spd"), self, 0o700), os.Link(filepath.Join(real, "spctl"), filepath.Join(bin, "spctl")))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// fakeDaemon serves a home from a table. Contracts are the real one's to read.
func fakeDaemon() int {
	if len(os.Args) > 1 {
		self, err := os.Executable()
		if err == nil {
			err = syscall.Exec(filepath.Join(filepath.Dir(self), "../real/spd"), os.Args, os.Environ())
		}
		fmt.Fprintln(os.Stderr, "spd:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h, err := home.Resolve("", os.Getenv)
	if err == nil {
		err = controltest.Run(ctx, h, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "spd:", err)
		return 1
	}
	return 0
}

// TestScripts plays the scripts with the real spctl and a daemon whose engine is a table.
func TestScripts(t *testing.T) { scripts(t, "testdata/script", bin) }

// TestScriptsWithTheRealDaemon plays those that need what only the real spd does.
func TestScriptsWithTheRealDaemon(t *testing.T) { scripts(t, "testdata/real", real) }

func scripts(t *testing.T, dir, bin string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			// The script's own folder is too long for a socket's path.
			dir, err := os.MkdirTemp("", "sp")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(dir) })
			e.Setenv("SINGLEPASS_HOME", dir)
			e.Setenv("BIN", bin)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			for name, text := range map[string]string{"right": "canary-not-a-secret-passphrase\n", "wrong": "canary-not-the-passphrase\n", "other": "canary-not-a-secret-either\n"} {
				if err := os.WriteFile(filepath.Join(e.WorkDir, name), []byte(text), 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"daemon": daemon, "halt": halt, "exits": exits, "private": private},
	})
}

// daemons holds how the daemon of a script's home is ended.
var daemons sync.Map // home → func()

// halt ends the script's daemon, which signs a last checkpoint.
func halt(ts *testscript.TestScript, neg bool, args []string) {
	end, ok := daemons.Load(ts.Getenv("SINGLEPASS_HOME"))
	if neg || len(args) > 0 || !ok {
		ts.Fatalf("usage: halt, after daemon")
	}
	end.(func())()
}

// daemon starts the spd beside spctl on the script's home and waits until it is ready.
func daemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: daemon [PROGRAM]")
	}
	program := filepath.Join(ts.Getenv("BIN"), "spd")
	if len(args) == 1 {
		program = ts.MkAbs(args[0])
	}
	cmd := exec.Command(program)
	cmd.Env = []string{"SINGLEPASS_HOME=" + ts.Getenv("SINGLEPASS_HOME"), "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	cmd.Args[0] = "spd"
	// The real one says that it is ready in its log, the fake one on its standard output.
	out, err := cmd.StderrPipe()
	ts.Check(err)
	cmd.Stdout = cmd.Stderr
	ts.Check(cmd.Start())
	ended := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	daemons.Store(ts.Getenv("SINGLEPASS_HOME"), ended)
	ts.Defer(ended)
	log := bufio.NewScanner(out)
	for log.Scan() {
		ts.Logf("spd: %s", log.Text())
		if log.Text()+"\n" == controltest.Ready || strings.Contains(log.Text(), `"msg":"ready"`) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	ts.Fatalf("spd did not start")
}

// exits runs a program and compares its exit code: exits 3 spctl credential list.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// private gives files the mode that secrets need.
func private(ts *testscript.TestScript, _ bool, args []string) {
	for _, f := range args {
		ts.Check(os.Chmod(ts.MkAbs(f), 0o600))
	}
}
