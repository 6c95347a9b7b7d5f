package peer_test

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"singlepass.dev/daemon/peer"
)

// lineageOf starts a helper that connects by itself or through a descendant, and returns the lineage of who connected.
func lineageOf(t *testing.T, mode string, args ...string) (top int, connected peer.Process, lineage []peer.Process) {
	t.Helper()
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	p, nc := start(t, l, mode, self(t), args...)
	connected, err := id.ProcessOf(nc.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	if lineage, err = id.Lineage(connected.PID); err != nil {
		t.Fatal(err)
	}
	return p.cmd.Process.Pid, connected, lineage
}

func has(lineage []peer.Process, pid int) bool {
	return slices.ContainsFunc(lineage, func(p peer.Process) bool { return p.PID == pid })
}

func TestALineageBeginsWithTheProcessItself(t *testing.T) {
	_, connected, lineage := lineageOf(t, "connect")
	if lineage[0].PID != connected.PID || lineage[0].Start != connected.Start || !has(lineage, os.Getpid()) {
		t.Errorf("the lineage of %+v is %+v", connected, lineage)
	}
}

func TestNobodyHidesByNestingProcesses(t *testing.T) {
	if top, _, lineage := lineageOf(t, "nest", "80"); !has(lineage, top) || !has(lineage, os.Getpid()) {
		t.Errorf("the topmost process %d is not in a lineage of %d", top, len(lineage))
	}
}

func TestNobodyHidesBehindASetuidProgram(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a process that runs as two users")
	}
	if top, _, lineage := lineageOf(t, "two users"); !has(lineage, top) || !has(lineage, os.Getpid()) {
		t.Errorf("process %d is not in the lineage %+v", top, lineage)
	}
}

func TestNobodyHidesByEndingTheFirstThread(t *testing.T) {
	top, _, lineage := lineageOf(t, "first thread ends")
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(top) + "/stat")
	if err != nil || !strings.Contains(string(stat), ") Z ") {
		t.Fatalf("the helper did not end its first thread: %s, %v", stat, err)
	}
	if !has(lineage, top) || !has(lineage, os.Getpid()) {
		t.Errorf("process %d is not in the lineage %+v", top, lineage)
	}
}

func TestTheLineageOfAProcessThatIsGoneCannotBeTold(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	p, _ := start(t, l, "connect", self(t))
	pid := p.cmd.Process.Pid
	p.end()
	if lineage, err := id.Lineage(pid); err == nil {
		t.Errorf("it is %+v", lineage)
	}
}
