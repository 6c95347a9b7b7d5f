//go:build !linux

package control

import (
	"errors"
	"net"
)

// PeerOf fails: who is on the other end is proven on Linux only.
func PeerOf(net.Conn) (Peer, error) {
	return Peer{}, errors.New("who connected can be proven on Linux only")
}
