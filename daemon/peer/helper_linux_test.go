package peer_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/peer"
)

// init keeps TestMain on the process's first thread, which one of the helpers ends.
func init() { runtime.LockOSThread() }

// TestMain makes the test binary a peer when a test starts it as one: PEER_TEST says how it behaves, PEER_SOCKET where it connects.
func TestMain(m *testing.M) {
	switch os.Getenv("PEER_TEST") {
	case "":
		// Under the race detector a program waits for a second before it ends. What is started here need not.
		os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
		os.Exit(m.Run())
	case "connect":
		connectAndWait(os.Getenv("PEER_SOCKET"))
	case "parent": // starts itself again as PEER_CHILD, with its own streams
		cmd := exec.Command(os.Args[1], os.Args[2:]...)
		cmd.Env = append(os.Environ(), "PEER_TEST=connect")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			os.Exit(1)
		}
	case "nest": // starts itself as its own child as often as its argument says; the last one connects
		n, _ := strconv.Atoi(os.Args[1])
		if n == 0 {
			connectAndWait(os.Getenv("PEER_SOCKET"))
			break
		}
		cmd := exec.Command("/proc/self/exe", strconv.Itoa(n-1))
		cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
		if err := cmd.Run(); err != nil {
			os.Exit(1)
		}
	case "two users": // as a setuid program does, it keeps one user and acts as another
		if err := syscall.Setreuid(65534, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "PEER_TEST=connect")
		cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{}}
		if err := cmd.Run(); err != nil {
			os.Exit(1)
		}
	case "first thread ends": // the process lives on, but /proc says Z of it
		go func() {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "PEER_TEST=connect")
			cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
			if err := cmd.Run(); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		}()
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	case "exec": // connects, then becomes another program once told to
		nc := dial(os.Getenv("PEER_SOCKET"))
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		_ = os.Unsetenv("PEER_TEST")
		_ = nc
		if err := syscall.Exec("/bin/sleep", []string{"sleep", "1000"}, os.Environ()); err != nil {
			os.Exit(1)
		}
	}
	os.Exit(0)
}

func dial(where string) net.Conn {
	network := "unix"
	if !strings.HasPrefix(where, "/") {
		network = "tcp"
	}
	nc, err := net.Dial(network, where)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return nc
}

func connectAndWait(where string) {
	nc := dial(where)
	_, _ = io.Copy(io.Discard, os.Stdin)
	nc.Close()
}

// process is a child that connected.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func (p *process) end() {
	p.stdin.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func listenUnix(t *testing.T) *net.UnixListener {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.UnixListener)
}

// start runs a command that connects to l, and returns the connection as the server has it.
func start(t *testing.T, l net.Listener, mode, exe string, args ...string) (*process, net.Conn) {
	t.Helper()
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "PEER_TEST="+mode, "PEER_SOCKET="+l.Addr().String())
	cmd.Stderr = os.Stderr
	// A group of its own, so that what the process starts ends with it and does not hold on to our standard error.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, stdin}
	t.Cleanup(func() {
		p.end()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	})
	type deadliner interface{ SetDeadline(time.Time) error }
	_ = l.(deadliner).SetDeadline(time.Now().Add(2 * time.Minute))
	nc, err := l.Accept()
	if err != nil {
		t.Fatalf("the peer never connected: %v", err)
	}
	t.Cleanup(func() { nc.Close() })
	return p, nc
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func copyOf(t *testing.T, exe, name string) string {
	t.Helper()
	from, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), name)
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func newIdentifier(t *testing.T, cfg peer.Config) *peer.Identifier {
	t.Helper()
	id, err := peer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func identify(t *testing.T, id *peer.Identifier, nc net.Conn) *peer.Identity {
	t.Helper()
	got, err := id.Identify(nc.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func waitEnded(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the end of the process was not seen")
	}
}
