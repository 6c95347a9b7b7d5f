package journal

import (
	"io"
	"io/fs"
	"os"
)

// FS is where segments live. The real one is used when Config.FS is nil; tests put faults in front of it.
// Its methods are called from one goroutine at a time, but for OpenFile with os.O_RDONLY.
type FS interface {
	OpenFile(path string, flag int, perm fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes names in the directory durable.
	SyncDir(path string) error
}

// File is one open segment. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	// Datasync returns once the file's bytes and length are durable (fdatasync).
	Datasync() error
	Size() (int64, error)
}

// OS is the real file system.
type OS struct{}

// OpenFile opens a file of the operating system.
func (OS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Rename renames a file, replacing what has the new name.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir makes names in the directory durable.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncDir(d)
}

type osFile struct{ *os.File }

func (f osFile) Datasync() error { return datasync(f.File) }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
