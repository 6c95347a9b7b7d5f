package main_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"singlepass.dev/daemon/control/controltest"
	"singlepass.dev/daemon/home"
)

// bin holds the real spctl, and beside it this test program under the name spd: spctl trusts only the spd that lies beside it, so the fake has to be found there.
var bin string

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
	bin = dir
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "spctl"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building spctl: %v\n%s", err, out)
		return 1
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(bin, "spd"), self, 0o700)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func fakeDaemon() int {
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

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
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
			e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			for name, text := range map[string]string{"right": "canary-not-a-secret-passphrase\n", "wrong": "canary-not-the-passphrase\n", "other": "canary-not-a-secret-either\n"} {
				if err := os.WriteFile(filepath.Join(e.WorkDir, name), []byte(text), 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"daemon": daemon, "exits": exits, "private": private},
	})
}

// daemon starts the spd beside spctl on the script's home and waits until it is ready.
func daemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: daemon [PROGRAM]")
	}
	program := filepath.Join(bin, "spd")
	if len(args) == 1 {
		program = ts.MkAbs(args[0])
	}
	cmd := exec.Command(program)
	cmd.Env = []string{"SINGLEPASS_HOME=" + ts.Getenv("SINGLEPASS_HOME"), "PATH=" + os.Getenv("PATH")}
	cmd.Args[0] = "spd"
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != controltest.Ready {
		ts.Fatalf("spd did not start: %q, %v\n%s", line, err, stderr.String())
	}
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
