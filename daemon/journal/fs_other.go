//go:build !linux

package journal

import "os"

// On macOS, (*os.File).Sync is F_FULLFSYNC; on Windows, FlushFileBuffers.
func datasync(f *os.File) error { return f.Sync() }
