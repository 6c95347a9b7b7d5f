package server_test

import (
	"net"
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
