//go:build !linux

package secret

type memory struct{ bytes []byte }

func allocate(n int) *memory { return &memory{bytes: make([]byte, n)} }

func (m *memory) free() { clear(m.bytes) }
