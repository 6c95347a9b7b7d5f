//go:build !unix

package home

import (
	"io/fs"
	"os"
)

// Where rights are lists and not bits, this version cannot tell who else may read a file, and takes the folder of the user's profile for private. No agent is served there either
// (package peer).

const openFlags = 0

func isLink(error) bool { return false }

func owner(fs.FileInfo) int { return os.Getuid() }

func rights(fs.FileInfo) fs.FileMode { return 0 }
