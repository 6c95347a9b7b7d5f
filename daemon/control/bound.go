package control

import (
	"net"
	"sync"

	"singlepass.dev/daemon/peer"
)

// maxConnections bounds the operator's connections, so that nobody who can reach the socket uses up the descriptors that the journal, the targets and the agents need. Silent ones give
// their place up by the server's time limits.
const maxConnections = 256

// bounded closes a connection that is one too many at once.
type bounded struct {
	net.Listener
	places chan struct{}
}

func bound(l net.Listener) net.Listener { return &bounded{l, make(chan struct{}, maxConnections)} }

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &boundedConn{Conn: c, free: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

type boundedConn struct {
	net.Conn
	free func()
}

func (c *boundedConn) Close() error {
	c.free()
	return c.Conn.Close()
}

// Unwrap returns the connection itself.
func (c *boundedConn) Unwrap() *net.UnixConn {
	u, _ := peer.UnixConn(c.Conn)
	return u
}
