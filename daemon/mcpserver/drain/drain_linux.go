package drain

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// KindOf says what fd is. A terminal or a file has no reader that could be watched.
func KindOf(fd int) (Kind, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("looking at a descriptor: %w", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return Pipe, nil
	case unix.S_IFSOCK:
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil {
			return "", fmt.Errorf("looking at a socket: %w", err)
		}
		if domain == unix.AF_UNIX {
			return Socket, nil
		}
		return TCP, nil
	}
	return "", ErrUnsupported
}

// Queued returns an upper bound of the bytes that were written and not yet taken: exact for a pipe (FIONREAD) and for TCP (SIOCOUTQ, not yet acknowledged); for a unix socket
// SIOCOUTQ counts the kernel's buffers whole, so it is never less than the unread bytes and zero only when there are none.
func Queued(fd int, kind Kind) (int, error) {
	if kind == Pipe {
		return unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD by its other name
	}
	return unix.IoctlGetInt(fd, unix.SIOCOUTQ)
}

// Standing says that a TCP connection is open, so that an empty queue means acknowledged and not thrown away.
func Standing(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	const established, closeWait = 1, 8 // net/tcp_states.h
	return err == nil && (info.State == established || info.State == closeWait)
}

// Held is a descriptor of its own for a TCP connection. Whoever serves the connection may close it before its peer's acknowledgement is seen: with it would go what tells of that.
type Held struct{ fd int }

// Hold duplicates the descriptor of a connection. The connection ends when the last descriptor is closed, so it is not to be held for long.
func Hold(nc syscall.Conn) (*Held, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("holding a connection: %w", err)
	}
	h := &Held{fd: -1}
	var failed error
	if err := raw.Control(func(fd uintptr) { h.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, fmt.Errorf("holding a connection: %w", err)
	}
	if failed != nil {
		return nil, fmt.Errorf("holding a connection: %w", failed)
	}
	return h, nil
}

// Close lets the connection go.
func (h *Held) Close() error { return unix.Close(h.fd) }

// Acknowledged says whether the peer's kernel has everything that was written; with an error it never will, or nobody can tell.
func (h *Held) Acknowledged() (bool, error) {
	queued, err := Queued(h.fd, TCP)
	if err != nil {
		return false, err
	}
	if !Standing(h.fd) {
		return false, errors.New("the connection does not stand any more")
	}
	return queued == 0, nil
}

// HungUp says that the other side of a socket is closed in both directions, as opposed to having only ended its own sending, and whether it was reset: a unix socket is, when it
// was closed with unread bytes (unix_release_sock in net/unix/af_unix.c). It waits up to timeout milliseconds.
func HungUp(fd, timeout int) (gone, reset bool) {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	if n, err := unix.Poll(fds, timeout); err != nil || n <= 0 {
		return false, false
	}
	got := fds[0].Revents
	return got&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0, got&(unix.POLLERR|unix.POLLNVAL) != 0
}
