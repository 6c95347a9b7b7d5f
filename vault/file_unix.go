//go:build linux || darwin

package vault

import (
	"os"

	"golang.org/x/sys/unix"
)

const filesHaveModes = true

// abandon closes a file that bbolt panicked over. Its mapping, which nothing can undo, would keep the lock.
func abandon(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}
