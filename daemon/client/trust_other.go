//go:build !linux

package client

import (
	"net"

	"singlepass.dev/daemon/api"
)

func checkSocket(string) error { return nil }

// checkServer refuses: who listens can be proven on Linux only, and no proof goes to a stranger.
func checkServer(net.Conn, string) error {
	return api.Errorf(api.CodeStranger, "who listens at the operator's socket can be proven on Linux only")
}
