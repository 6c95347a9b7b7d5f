//go:build !linux

package drain

import "syscall"

// KindOf says what fd is.
func KindOf(int) (Kind, error) { return "", ErrUnsupported }

// Queued returns an upper bound of the bytes that were written and not yet taken.
func Queued(int, Kind) (int, error) { return 0, ErrUnsupported }

// Standing says that a TCP connection is open.
func Standing(int) bool { return false }

// Held is a descriptor of its own for a TCP connection.
type Held struct{}

// Hold duplicates the descriptor of a connection.
func Hold(syscall.Conn) (*Held, error) { return nil, ErrUnsupported }

// Close lets the connection go.
func (*Held) Close() error { return nil }

// Acknowledged says whether the peer's kernel has everything that was written.
func (*Held) Acknowledged() (bool, error) { return false, ErrUnsupported }

// HungUp says that the other side of a socket is closed in both directions. Where that cannot be told apart, the end of the other side's sending counts as that, and
// everything as unread.
func HungUp(int, int) (gone, reset bool) { return true, true }
