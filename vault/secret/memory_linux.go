package secret

import (
	"os"
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

// spare holds locked pages, all zeros, for the next secrets: mapping, locking and unmapping a page costs more than
// everything else that a call does with a credential. Each secret still has a page to itself.
var spare = make(chan []byte, 64)

var pageSize = os.Getpagesize()

func allocate(n int) *memory {
	if n == 0 {
		return &memory{}
	}
	if n <= pageSize {
		select {
		case pages := <-spare:
			return &memory{bytes: pages[:n:n], pages: pages}
		default:
		}
	}
	size := (n + pageSize - 1) / pageSize * pageSize
	pages, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
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
		pages := m.pages
		m.bytes, m.pages = nil, nil
		if pages == nil {
			return
		}
		if len(pages) == pageSize {
			select {
			case spare <- pages:
				return
			default:
			}
		}
		_ = unix.Munmap(pages) // also unlocks
	})
}
