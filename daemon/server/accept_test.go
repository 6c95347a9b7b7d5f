package server_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"

	"singlepass.dev/daemon/server"
)

// scripted is a listener that gives what its test put in.
type scripted struct {
	results chan any // a net.Conn or an error
	once    sync.Once
	closed  chan struct{}
}

func newScripted() *scripted {
	return &scripted{results: make(chan any), closed: make(chan struct{})}
}

func (s *scripted) Accept() (net.Conn, error) {
	select {
	case r := <-s.results:
		if err, failed := r.(error); failed {
			return nil, err
		}
		return r.(net.Conn), nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}
func (s *scripted) Close() error   { s.once.Do(func() { close(s.closed) }); return nil }
func (s *scripted) Addr() net.Addr { return nil }

func TestAgentsAreServedAgainAfterDescriptorsRanOut(t *testing.T) {
	l, served, failures := newScripted(), make(chan net.Conn), 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Accept(l, 1, func(error) { failures++ }, func(c net.Conn) { served <- c }, func(net.Conn) { t.Error("refused") })
	}()
	l.results <- syscall.EMFILE
	l.results <- syscall.EMFILE
	ours, theirs := net.Pipe()
	defer ours.Close()
	l.results <- theirs
	if got := <-served; got != theirs {
		t.Error("another connection was served")
	}
	l.Close()
	<-ended
	if failures != 2 {
		t.Errorf("%d failures were told, want 2", failures)
	}
}

func TestMoreConnectionsThanThereArePlacesAreRefused(t *testing.T) {
	l, leave, served, refused := newScripted(), make(chan struct{}), make(chan net.Conn), make(chan net.Conn)
	go server.Accept(l, 1, func(err error) { t.Error(err) }, func(c net.Conn) { served <- c; <-leave; served <- c }, func(c net.Conn) { refused <- c })
	defer l.Close()
	first, _ := net.Pipe()
	second, _ := net.Pipe()
	l.results <- first
	<-served
	go func() { l.results <- second }()
	if got := <-refused; got != second {
		t.Error("another connection was refused")
	}
	close(leave)
	<-served
}

func TestTheLoopbackListenerTakesSoManyConnectionsOfItsUserAndNoOther(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	uid, refusals := os.Getuid(), make(chan string, 10)
	var mu sync.Mutex
	whose := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		uid = n
	}
	l := server.OfThisUser(inner, 2, func(_, _ netip.AddrPort) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if uid < 0 {
			return 0, errors.New("cannot tell")
		}
		return uid, nil
	}, func(why string) { refusals <- why })
	defer l.Close()
	taken := make(chan net.Conn)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			taken <- nc
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		nc, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	closed := func(nc net.Conn, why string) {
		t.Helper()
		if got := <-refusals; got != why {
			t.Errorf("refused because %s, want %s", got, why)
		}
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection is not closed: %v", err)
		}
	}
	whose(os.Getuid() + 1)
	closed(dial(), "it is another user's")
	whose(os.Getuid())
	dial()
	one := <-taken
	if _, ok := one.(syscall.Conn); !ok {
		t.Error("whoever looks at the connection's socket cannot")
	}
	whose(-1) // it is told when it asks for something
	dial()
	two := <-taken
	closed(dial(), "there are too many")
	one.Close()
	one.Close()
	dial()
	three := <-taken
	closed(dial(), "there are too many")
	two.Close()
	three.Close()
}
