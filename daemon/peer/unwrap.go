package peer

import "net"

// UnixConn returns the unix connection that c is, or wraps.
func UnixConn(c net.Conn) (*net.UnixConn, bool) {
	if w, ok := c.(interface{ Unwrap() *net.UnixConn }); ok {
		return w.Unwrap(), true
	}
	u, ok := c.(*net.UnixConn)
	return u, ok
}
