package peer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// fileKey says that a file is still the one that was hashed. A change of content changes ctime, which only the kernel sets.
type fileKey struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// digests keeps the SHA-256 of executables: an agent's can have 100 MB, and comes back with every connection.
type digests struct {
	mu    sync.Mutex
	known map[fileKey]string // owner: mu
}

// maxDigests bounds the cache; past it, it starts anew.
const maxDigests = 256

// maxDigested bounds a file that is hashed. The largest programs have some 100 MB.
const maxDigested = 4 << 30

func (d *digests) of(path string) (string, error) {
	// A script's owner may put something else in its place at any moment: a pipe would be waited for, a file without an end read without one.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() || info.Size() > maxDigested {
		return "", fmt.Errorf("hashing %s: it is no file of at most %d bytes", path, int64(maxDigested))
	}
	key, err := keyOf(f)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	digest, ok := d.known[key]
	d.mu.Unlock()
	if ok {
		return digest, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxDigested)); err != nil {
		return "", fmt.Errorf("hashing %s: %w", path, err)
	}
	digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	if after, err := keyOf(f); err != nil || after != key {
		return "", fmt.Errorf("hashing %s: it changed meanwhile", path)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= maxDigests {
		d.known = make(map[fileKey]string)
	}
	d.known[key] = digest
	return digest, nil
}

func keyOf(f *os.File) (fileKey, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileKey{}, err
	}
	return fileKey{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}
