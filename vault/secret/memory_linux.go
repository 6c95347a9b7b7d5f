package secret

import (
	"sync"

	"golang.org/x/sys/unix"
)

// memory is one allocation: pages of its own, because mlock and madvise work on whole pages and munlock of a page
// that two secrets share would unlock both.
type memory struct {
	bytes []byte
	pages []byte // nil if the system gave no pages; bytes then lie on the heap
	once  sync.Once
}

func allocate(n int) *memory {
	if n == 0 {
		return &memory{}
	}
	pages, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return &memory{bytes: make([]byte, n)}
	}
	// Both are best effort: a container may forbid them, and a secret in unlocked memory is better than no daemon.
	_ = unix.Mlock(pages)
	_ = unix.Madvise(pages, unix.MADV_DONTDUMP)
	return &memory{bytes: pages[:n:n], pages: pages}
}

func (m *memory) free() {
	m.once.Do(func() {
		clear(m.bytes)
		if m.pages != nil {
			_ = unix.Munmap(m.pages) // also unlocks
		}
		m.bytes, m.pages = nil, nil
	})
}
