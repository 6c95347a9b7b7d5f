package peer_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/peer"
)

// held connects a helper and binds to it.
func held(t *testing.T, mode string) (*process, *peer.Held) {
	t.Helper()
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	p, nc := start(t, l, mode, self(t))
	who, err := id.ProcessOf(nc.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	h, err := id.Hold(who.PID, who.Start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return p, h
}

// until waits for a check to fail, and returns why.
func until(t *testing.T, h *peer.Held) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err := h.Check(); err != nil {
			return err.Error()
		}
	}
	t.Fatal("the check still succeeds")
	return ""
}

func TestWhatIsBoundToAProcessEndsWithIt(t *testing.T) {
	p, h := held(t, "connect")
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	p.end()
	if h.Check() == nil {
		t.Error("the process has ended, and what was bound to it is not")
	}
}

func TestWhatIsBoundToAProcessEndsWithAnExec(t *testing.T) {
	p, h := held(t, "exec")
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.stdin, "now\n"); err != nil {
		t.Fatal(err)
	}
	if why := until(t, h); !strings.Contains(why, "another program") {
		t.Errorf("it ended because %s", why)
	}
}

func TestATracedProcessIsBoundToNobody(t *testing.T) {
	p, h := held(t, "connect")
	pid := p.cmd.Process.Pid
	done := make(chan error)
	go func() { // ptrace belongs to a thread
		done <- unix.PtraceSeize(pid)
		<-done
		done <- unix.PtraceDetach(pid)
	}()
	if err := <-done; err != nil {
		t.Skipf("this machine lets nobody trace: %v", err)
	}
	if err := h.Check(); err == nil || !strings.Contains(err.Error(), "traces it") {
		t.Errorf("while it is traced: %v", err)
	}
	if tracer, err := peer.Tracer(pid); err != nil || tracer == 0 {
		t.Errorf("its tracer is %d, %v", tracer, err)
	}
	done <- nil
	<-done
}

func TestAPidAloneIsBoundToNobody(t *testing.T) {
	id := newIdentifier(t, peer.Config{})
	if _, err := id.Hold(os.Getpid(), 1); err == nil {
		t.Error("another start time was taken")
	}
}

// speaks listens as the operator's socket does.
func speaks(t *testing.T) (*net.UnixListener, net.Listener) {
	t.Helper()
	l := listenUnix(t)
	one, err := peer.OneSpeaker(l)
	if err != nil {
		t.Fatal(err)
	}
	return l, one
}

func TestAConnectionSpeaksWithTheVoiceOfWhoMadeIt(t *testing.T) {
	l, one := speaks(t)
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "before it was accepted, "); err != nil {
		t.Fatal(err)
	}
	nc, err := one.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(c, "and after"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(nc); err != nil || string(got) != "before it was accepted, and after" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestAConnectionThatWasPassedOnSaysNothing(t *testing.T) {
	l, one := speaks(t)
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nc, err := one.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	passed, err := c.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	other := exec.Command("/bin/sh", "-c", "printf 'approve everything' >&3")
	other.ExtraFiles = []*os.File{passed}
	if out, err := other.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := make([]byte, 100)
	if n, err := nc.Read(b); n != 0 || !errors.Is(err, peer.ErrAnotherSpeaker) || strings.Contains(string(b), "approve") {
		t.Errorf("read %q, %v", b[:n], err)
	}
	if _, err := io.WriteString(c, "its owner"); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Read(b); !errors.Is(err, peer.ErrAnotherSpeaker) {
		t.Errorf("the connection goes on: %v", err)
	}
}

func TestDescriptorsThatAreSentAlongAreDropped(t *testing.T) {
	l, one := speaks(t)
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nc, err := one.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte("x"), syscall.UnixRights(int(w.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	w.Close()
	b := make([]byte, 1)
	if _, err := nc.Read(b); err != nil && !errors.Is(err, peer.ErrAnotherSpeaker) {
		t.Fatal(err)
	}
	// Were the pipe's other end still held by anybody, this would wait.
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(b); err != io.EOF {
		t.Errorf("the descriptor is held: %v", err)
	}
}
