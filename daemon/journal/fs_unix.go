//go:build unix

package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(d *os.File) error { return d.Sync() }

// lockDir takes the directory for this process. The lock goes with the process, whatever ends it.
func lockDir(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		d.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, os.NewSyscallError("flock", err)
	}
	return d, nil
}

const checkModes = true
