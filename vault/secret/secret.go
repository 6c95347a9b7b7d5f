// Package secret holds one secret value so that it cannot be printed by accident.
//
// Promises: the bytes of a [Bytes] are reachable only inside Use. Every formatting verb, JSON, text encoding
// and slog shows "[secret]" instead. On Linux the bytes lie in pages of their own outside the Go heap, locked
// against swapping and left out of core dumps where the system allows it (RLIMIT_MEMLOCK may not; the value
// then still lies in its own pages). Wipe overwrites them; up to 64 emptied pages stay locked for the next values, since making one costs
// more than a call does otherwise. A value that was forgotten
// is wiped when it is collected. Comparison takes constant time for values of the same length.
//
// Non-promises: copies that a callback of Use makes, and the ones that Go's cryptography makes on the heap while it
// works, are not wiped (runtime/secret is still an experiment of the toolchain). On systems other than Linux the
// bytes lie on the Go heap, unlocked, and are overwritten by Wipe. The length of a value is not secret.
//
// The package freezes no format: a Bytes cannot be stored or read back except through Use and New.
package secret

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
)

// ErrWiped is returned by Use and Clone after Wipe, and by a nil *Bytes.
var ErrWiped = errors.New("secret was wiped")

const redacted = "[secret]"

// Bytes is one secret value. It is safe for concurrent use, and all methods accept a nil receiver, which
// behaves like a wiped value. It must not be copied.
type Bytes struct {
	// view returns the bytes. They hide in a closure because no reflection looks into one: a debugging printer
	// that follows unexported pointers finds nothing.
	view    func() []byte
	release func()
	cleanup runtime.Cleanup

	mu    sync.Mutex // owns what follows
	idle  *sync.Cond // signalled when users falls to 0
	users int
	wiped bool
}

// New takes b over: its content is copied into protected memory and b itself is overwritten with zeros.
func New(b []byte) *Bytes {
	s := newFrom(b)
	clear(b)
	return s
}

func newFrom(b []byte) *Bytes {
	m := allocate(len(b))
	copy(m.bytes, b)
	s := &Bytes{
		view:    func() []byte { return m.bytes },
		release: m.free,
	}
	s.idle = sync.NewCond(&s.mu)
	s.cleanup = runtime.AddCleanup(s, func(m *memory) { m.free() }, m)
	return s
}

// Use calls f with the bytes and returns its error. f must neither keep nor change the slice: after Wipe it
// reads zeros or another value, or crashes the program. f may call Use on the same value; calling Wipe on it from inside f deadlocks.
func (s *Bytes) Use(f func([]byte) error) error {
	if s == nil || s.view == nil {
		return ErrWiped
	}
	s.mu.Lock()
	if s.wiped {
		s.mu.Unlock()
		return ErrWiped
	}
	s.users++
	s.mu.Unlock()
	defer func() { // also when f panics
		s.mu.Lock()
		if s.users--; s.users == 0 {
			s.idle.Broadcast()
		}
		s.mu.Unlock()
	}()
	b := s.view()
	return f(b[:len(b):len(b)])
}

// Clone returns an independent copy, which the caller wipes.
func (s *Bytes) Clone() (*Bytes, error) {
	var c *Bytes
	err := s.Use(func(b []byte) error {
		c = newFrom(b)
		return nil
	})
	return c, err
}

// Wipe overwrites the bytes and releases their memory. From its call on, Use fails; it returns once the running
// Uses have ended. Calling it again does nothing.
func (s *Bytes) Wipe() {
	if s == nil || s.view == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.wiped
	s.wiped = true
	for s.users > 0 {
		s.idle.Wait()
	}
	if first {
		s.cleanup.Stop()
		s.release()
	}
}

// Equal reports whether both hold the same bytes, in constant time for values of equal length. A nil or wiped value
// equals nothing, itself included.
func (s *Bytes) Equal(other *Bytes) bool {
	equal := false
	_ = s.Use(func(a []byte) error {
		return other.Use(func(b []byte) error {
			equal = subtle.ConstantTimeCompare(a, b) == 1
			return nil
		})
	})
	return equal
}

// Len returns the number of bytes, 0 after Wipe.
func (s *Bytes) Len() int {
	n := 0
	_ = s.Use(func(b []byte) error {
		n = len(b)
		return nil
	})
	return n
}

// String returns "[secret]".
func (s *Bytes) String() string { return redacted }

// GoString returns "[secret]".
func (s *Bytes) GoString() string { return redacted }

// Format writes "[secret]" for every verb and flag.
func (s *Bytes) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON returns "[secret]" as a JSON string.
func (s *Bytes) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "[secret]".
func (s *Bytes) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[secret]".
func (s *Bytes) LogValue() slog.Value { return slog.StringValue(redacted) }
