package drain_test

import (
	"io"
	"net"
	"testing"

	"singlepass.dev/daemon/mcpserver/drain"
)

// connected returns both ends of a TCP connection on loopback.
func connected(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// A client that reads its answer and goes has it, also where the server has closed its side before anybody looked.
func TestAnAnswerThatWasReadIsAcknowledgedAfterBothSidesClosed(t *testing.T) {
	ours, theirs := connected(t)
	held, err := drain.Hold(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := io.WriteString(ours, "answer"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(theirs, make([]byte, len("answer"))); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if n, err := ours.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("read %d, %v", n, err)
	}
	ours.Close()
	if has, err := held.Acknowledged(); !has || err != nil {
		t.Errorf("got %v, %v", has, err)
	}
}

// What was thrown away with a connection was not acknowledged, though nothing is queued any more.
func TestAResetConnectionAcknowledgesNothing(t *testing.T) {
	ours, theirs := connected(t)
	held, err := drain.Hold(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := io.WriteString(ours, "answer"); err != nil {
		t.Fatal(err)
	}
	if err := theirs.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if _, err := ours.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Fatalf("the connection was not reset: %v", err)
	}
	if has, err := held.Acknowledged(); has || err == nil {
		t.Errorf("got %v, %v", has, err)
	}
}

// The descriptor is the connection's as long as it is held, and no longer.
func TestAConnectionThatIsLetGoEnds(t *testing.T) {
	ours, theirs := connected(t)
	held, err := drain.Hold(ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v", err)
	}
}
