package attack_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	roles["attach"] = attach
	roles["look"] = look
}

// attach tries to trace a process, by each of the two ways.
func attach(args []string) error {
	runtime.LockOSThread()
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if err := unix.PtraceSeize(pid); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("seizing process %d: %w", pid, err)
	}
	if err := unix.PtraceAttach(pid); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("attaching to process %d: %w", pid, err)
	}
	fmt.Println("refused")
	return nil
}

// look tries to read what a process holds.
func look(args []string) error {
	for _, name := range []string{"mem", "maps", "environ", "auxv", "fd/0", "exe", "stack", "syscall"} {
		f, err := os.Open("/proc/" + args[0] + "/" + name)
		if err == nil {
			// Some are refused only when they are read.
			_, err = f.Read(make([]byte, 1))
			f.Close()
		}
		if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	if _, err := unix.PidfdGetfd(fd, 0, 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("taking a descriptor: %w", err)
	}
	local := make([]byte, 1)
	if _, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &local[0], Len: 1}}, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("reading memory: %w", err)
	}
	fmt.Println("refused")
	return nil
}

// An agent has its children attach to the daemon, and to the bridge of another agent that has a session.
func TestNobodyAttachesToTheDaemonOrToAnAgentsBridge(t *testing.T) {
	s := begin(t)
	a, other := s.agent(), s.agent()
	for name, pid := range map[string]int{"spd": s.spd.Process.Pid, "its own bridge": a.bridge, "another agent's bridge": other.bridge} {
		for _, role := range []string{"attach", "look"} {
			cmd := s.command("agent")
			cmd.Env = append(cmd.Env, fmt.Sprintf("ATTACK_ROLE=%s %d", role, pid))
			if out, status := run(cmd); status != 0 || out != "refused\n" {
				t.Errorf("%s of %s: %s", role, name, out)
			}
			if r := a.does(fmt.Sprintf("%s %d", role, pid)); r.Status != 0 {
				t.Errorf("%s of %s, by an agent: %s", role, name, r.Out)
			}
		}
	}
	// And the bridge is known for what it is all the same: the agent behind it asks.
	a.pay("1")
	if card := s.card(); card.Via != "bridge" || card.Agent.PID != a.cmd.Process.Pid {
		t.Errorf("the card names %+v by %s", card.Agent, card.Via)
	}
}

// Whoever starts spctl under a tracer reads what it reads. The kernel takes its group from it then, and it does not read a passphrase.
func TestATracedSpctlReadsNoPassphraseAndIsNotTheOperator(t *testing.T) {
	s := begin(t)
	trace := s.dir + "/trace"
	out, status := run(s.command("/usr/bin/strace", "-f", "-o", trace, s.bin+"/spctl", "approvals"))
	if status != 4 {
		t.Errorf("exit status %d\n%s", status, out)
	}
	b, err := os.ReadFile(trace)
	if err != nil || !strings.Contains(string(b), "execve") {
		t.Fatalf("strace saw nothing: %v", err)
	}
	if strings.Contains(string(b), "passphrase\"") && strings.Contains(string(b), "horse") {
		t.Error("the tracer saw the passphrase")
	}
}

// A crash must leave nothing of what was in memory.
func TestNoCoreIsLeft(t *testing.T) {
	s := begin(t)
	a := s.agent()
	for name, pid := range map[string]int{"spd": s.spd.Process.Pid, "the bridge": a.bridge} {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0") {
			t.Errorf("%s may leave a core: %s, %v", name, limits, err)
		}
	}
}

// The environment is the agent's to write where it starts the daemon itself, or where a service manager of the user's was told so.
func TestTheEnvironmentDoesNotChangeTheDaemon(t *testing.T) {
	s := begin(t)
	s.stop()
	s.spd = s.command("spd")
	s.spd.Env = append(s.spd.Env, "GODEBUG=http2debug=2", "SSL_CERT_FILE="+s.dir+"/ca.pem", "LD_PRELOAD=/tmp/x.so", "HTTPS_PROXY=http://127.0.0.1:1")
	s.log = follow(t, s.spd)
	if l := s.log.wait("started again without these"); !strings.Contains(l, "GODEBUG,HTTPS_PROXY,LD_PRELOAD,SSL_CERT_FILE") {
		t.Errorf("it says %s", l)
	}
	s.log.wait(`"msg":"ready"`)
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.spd.Process.Pid))
	if err != nil || strings.Contains(string(environ), "http2debug") || strings.Contains(string(environ), "ca.pem") {
		t.Errorf("its environment is %q, %v", environ, err)
	}
	s.spctl("unlock") // it is still the installed one
}
