//go:build !linux

package drain

// KindOf says what fd is.
func KindOf(int) (Kind, error) { return "", ErrUnsupported }

// Queued returns an upper bound of the bytes that were written and not yet taken.
func Queued(int, Kind) (int, error) { return 0, ErrUnsupported }

// Standing says that a TCP connection is open.
func Standing(int) bool { return false }

// HungUp says that the other side of a socket is closed in both directions. Where that cannot be told apart, the end of the other side's sending counts as that, and
// everything as unread.
func HungUp(int, int) (gone, reset bool) { return true, true }
