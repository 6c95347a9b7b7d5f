package control

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/peer"
)

// PeerOf asks the kernel who connected (SO_PEERCRED, unix(7)).
func PeerOf(c net.Conn) (Peer, error) {
	u, ok := peer.UnixConn(c)
	if !ok {
		return Peer{}, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("asking who connected: %w", err)
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return Peer{}, fmt.Errorf("asking who connected: %w", err)
	}
	if failed != nil {
		return Peer{}, fmt.Errorf("asking who connected: %w", failed)
	}
	return Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}
