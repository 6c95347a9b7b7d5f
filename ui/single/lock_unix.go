//go:build unix

package single

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// acquire takes the lock; nil means that another process has it.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claiming this home for the tray app: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("claiming this home for the tray app: locking %s: %w", path, err)
}
