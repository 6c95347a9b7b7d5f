//go:build unix

package home

import (
	"errors"
	"io/fs"
	"syscall"
)

// openFlags refuse a link, and a pipe that would block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func isLink(err error) bool { return errors.Is(err, syscall.ELOOP) }

func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// rights are the permission bits that people who are not the owner have.
func rights(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() & 0o077 }
