package peer

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// ErrAnotherSpeaker says that bytes came over a connection from another process than the one that made it.
var ErrAnotherSpeaker = errors.New("another process than the one that connected wrote to this connection")

// OneSpeaker returns a listener whose connections take bytes only from the process that connected. The kernel names the writer of each message (SO_PASSCRED, unix(7)), so a
// connection that was inherited over a fork, or passed on as a descriptor, is worth nothing to whoever got it: its first byte ends it.
func OneSpeaker(l *net.UnixListener) (net.Listener, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("asking for the writers of %s: %w", l.Addr(), err)
	}
	var failed error
	// Set on the listener, the connections have it before anybody can write to them.
	if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }); err != nil {
		return nil, fmt.Errorf("asking for the writers of %s: %w", l.Addr(), err)
	}
	if failed != nil {
		return nil, fmt.Errorf("asking for the writers of %s: %w", l.Addr(), failed)
	}
	return speakerListener{l}, nil
}

type speakerListener struct{ *net.UnixListener }

func (l speakerListener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	s := &speakerConn{UnixConn: c}
	raw, err := c.SyscallConn()
	if err == nil {
		var failed error
		err = errors.Join(raw.Control(func(fd uintptr) {
			var cred *unix.Ucred
			if cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed == nil {
				s.pid = cred.Pid
			}
		}), failed)
	}
	if err != nil || s.pid == 0 {
		s.failed = fmt.Errorf("asking who connected: %w", errors.Join(err, ErrCannotTell))
	}
	return s, nil
}

// speakerConn checks the writer of everything that it reads. One goroutine reads at a time, as net/http does.
type speakerConn struct {
	*net.UnixConn
	pid    int32
	failed error
}

// Unwrap returns the connection itself.
func (c *speakerConn) Unwrap() *net.UnixConn { return c.UnixConn }

func (c *speakerConn) Read(b []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	if len(b) == 0 {
		return 0, nil
	}
	// Room for the credentials and nothing else: descriptors that somebody sends along are dropped by the kernel.
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, m, _, _, err := c.ReadMsgUnix(b, oob)
	if errors.Is(err, io.EOF) {
		return n, io.EOF // bare, as Read gives it
	}
	if err != nil || n == 0 {
		return n, err
	}
	if who := writer(oob[:m]); who != c.pid {
		clear(b[:n])
		c.failed = fmt.Errorf("%w: process %d connected and process %d wrote", ErrAnotherSpeaker, c.pid, who)
		return 0, c.failed
	}
	return n, nil
}

// writer returns the pid in a message's credentials, or -1.
func writer(oob []byte) int32 {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	for i := range messages {
		if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return cred.Pid
		}
	}
	return -1
}
