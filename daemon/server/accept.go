package server

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"singlepass.dev/daemon/peer"
)

// maxAgents bounds the connections of agent.sock, so that no agent can use up the descriptors that the journal, the targets and the operator need.
const maxAgents = 1024

// accept serves connections, at most so many at a time, until the listener is closed, and returns when all of them have ended. A failure that passes (no descriptor is free) is waited out, as net/http does: a daemon
// that stopped accepting would look alive and serve nobody.
func accept(l net.Listener, most int, failed func(error), serve, refuse func(net.Conn)) {
	var serving sync.WaitGroup
	defer serving.Wait()
	places := make(chan struct{}, most)
	delay := time.Duration(0)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			failed(err)
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			time.Sleep(delay)
			continue
		}
		delay = 0
		select {
		case places <- struct{}{}:
			serving.Go(func() {
				defer func() { <-places }()
				serve(c)
			})
		default:
			refuse(c)
		}
	}
}

// ofThisUser is the loopback listener. Any user of the machine can connect to it, so a connection of another user's is closed at once: it must not take a place, nor a descriptor for as long as it is silent. Of
// this user's there are so many at a time at most; one too many is closed.
type ofThisUser struct {
	net.Listener
	owner   func(local, remote netip.AddrPort) (uid int, err error)
	places  chan struct{}
	refused func(nc net.Conn, why string)
}

func newOfThisUser(l net.Listener, most int, refused func(nc net.Conn, why string)) net.Listener {
	return &ofThisUser{l, peer.OwnerTCP, make(chan struct{}, most), refused}
}

func (l *ofThisUser) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		why := ""
		// What cannot be told here is told, and refused with words, when it asks for something.
		if uid, err := l.owner(addrPort(nc.LocalAddr()), addrPort(nc.RemoteAddr())); err == nil && uid != os.Getuid() {
			why = "it is another user's"
		} else {
			select {
			case l.places <- struct{}{}:
				if tcp, ok := nc.(*net.TCPConn); ok {
					return &placedConn{tcp, sync.OnceFunc(func() { <-l.places })}, nil
				}
				<-l.places
				why = "it is not TCP"
			default:
				why = "there are too many"
			}
		}
		l.refused(nc, why)
		_ = nc.Close()
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// placedConn gives its place back when it is closed. It stays a TCP connection to whoever looks at its socket.
type placedConn struct {
	*net.TCPConn
	free func()
}

func (c *placedConn) Close() error {
	c.free()
	return c.TCPConn.Close()
}
