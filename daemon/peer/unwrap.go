package peer

import "net"

// UnixConn returns the unix connection that c is, or wraps.
func UnixConn(c net.Conn) (*net.UnixConn, bool) {
	if w, ok := c.(interface{ Unwrap() *net.UnixConn }); ok {
		u := w.Unwrap()
		return u, u != nil
	}
	u, ok := c.(*net.UnixConn)
	return u, ok
}
