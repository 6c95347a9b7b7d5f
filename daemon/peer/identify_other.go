//go:build !linux

package peer

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
)

// state is what an Identifier remembers: nothing.
type state struct{}

func newState(Config) state { return state{} }

func cannot() error { return fmt.Errorf("%w: not built for %s yet", ErrCannotTell, runtime.GOOS) }

// Identify says which agent is behind a connection of agent.sock.
func (id *Identifier) Identify(*net.UnixConn) (*Identity, error) { return nil, cannot() }

// IdentifyCaller says which process is behind a connection, and takes a bridge for what it is.
func (id *Identifier) IdentifyCaller(*net.UnixConn) (*Identity, error) { return nil, cannot() }

// IdentifyTCP says which process has the other end of a loopback connection.
func (id *Identifier) IdentifyTCP(netip.AddrPort, netip.AddrPort) (*Identity, error) {
	return nil, cannot()
}

// OwnerTCP says which user has the other end of a loopback connection.
func OwnerTCP(netip.AddrPort, netip.AddrPort) (uid int, err error) { return 0, cannot() }

// ProcessOf says which process is behind a connection.
func (id *Identifier) ProcessOf(*net.UnixConn) (Process, error) { return Process{}, cannot() }

// Ancestors returns the ancestors of a process, nearest first.
func (id *Identifier) Ancestors(int) ([]Process, error) { return nil, cannot() }

// Lineage returns a process and its ancestors, nearest first.
func (id *Identifier) Lineage(int) ([]Process, error) { return nil, cannot() }
