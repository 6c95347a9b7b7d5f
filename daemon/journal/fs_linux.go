package journal

import (
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// ReadDirect reads from the disk and not from the page cache. It returns false where the file system
// cannot do that.
func (f osFile) ReadDirect(b []byte, offset int64) (bool, error) {
	const block = 4096 // Aligned for every disk that Linux runs on with 4 KiB pages.
	d, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return false, nil
	}
	defer d.Close()
	from := offset &^ (block - 1)
	raw := make([]byte, (offset+int64(len(b))-from+2*block-1)&^(block-1)+block)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (block - 1) // #nosec G103 -- only the address is looked at, for its alignment
	raw = raw[skip : skip+(len(raw)-skip)&^(block-1)]
	n, err := unix.Pread(int(d.Fd()), raw, from)
	if err == unix.EINVAL {
		return false, nil
	}
	if err != nil {
		return false, os.NewSyscallError("pread", err)
	}
	copy(b, raw[min(int64(n), offset-from):n])
	return int64(n) >= offset-from+int64(len(b)), nil
}
