package mcpserver

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"
)

const (
	// writeTimeout is how long a reader may take nothing at all before its connection is given up.
	writeTimeout = 30 * time.Second
	// maxPending bounds what waits for a slow reader; beyond it the connection is closed. It is more than the largest answer and never reached by a reader that reads.
	maxPending = 64 << 20
	// keepBuffer is the largest buffer that is kept for the next batch.
	keepBuffer = 1 << 20
)

var (
	errClosed = errors.New("the connection is closed")
	errSlow   = errors.New("the reader is too slow")
)

// writer sends lines in order. Whoever finds nobody writing becomes the one who writes, and takes along whatever the others added meanwhile: under load many answers leave
// in one system call, and a lone answer waits for no other goroutine.
type writer struct {
	nc      net.Conn
	written func(position uint64) // called without mu after each batch; everything before position has been written

	kernel sync.Mutex // held while a batch goes to the kernel and is noted

	mu       sync.Mutex
	buf      []byte // owner: mu
	spare    []byte // owner: mu
	position uint64 // owner: mu; bytes accepted
	writing  bool   // owner: mu
	frames   int    // owner: mu; in buf
	company  bool   // owner: mu; the last batch was of more than one frame
	err      error  // owner: mu
	idle     chan struct{}
}

// send appends one frame, which build writes without its line end; build may write nothing. queued is told the position after the frame while the lock is held. With wait
// false another goroutine does the writing, where one is needed.
func (w *writer) send(wait bool, build func(dst []byte) []byte, queued func(position uint64)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	before := len(w.buf)
	w.buf = build(w.buf)
	if len(w.buf) == before {
		return nil
	}
	w.buf = append(w.buf, '\n')
	w.frames++
	w.position += uint64(len(w.buf) - before)
	if queued != nil {
		queued(w.position)
	}
	switch {
	case len(w.buf) > maxPending:
		w.fail(errSlow)
	case w.writing:
	case wait:
		w.writing = true
		w.flushLocked()
	default:
		w.writing = true
		go func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.flushLocked()
		}()
	}
	return w.err
}

// flushLocked writes until there is nothing left. It gives up the lock while it writes. When the last batch had company, it lets whoever is about to answer do so first: each
// write wakes the other side.
func (w *writer) flushLocked() {
	for len(w.buf) > 0 && w.err == nil {
		if w.company {
			w.mu.Unlock()
			runtime.Gosched()
			w.mu.Lock()
			if w.err != nil {
				break
			}
		}
		w.company, w.frames = w.frames > 1, 0
		out, position := w.buf, w.position
		w.buf, w.spare = w.spare[:0], nil
		w.mu.Unlock()
		err := w.write(out, position)
		w.mu.Lock()
		if cap(out) <= keepBuffer {
			w.spare = out[:0]
		}
		if err != nil {
			w.fail(err)
		}
	}
	w.writing = false
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

func (w *writer) write(out []byte, position uint64) error {
	w.kernel.Lock()
	defer w.kernel.Unlock()
	_ = w.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := w.nc.Write(out); err != nil {
		return err
	}
	w.written(position)
	return nil
}

// settle waits until a write that the kernel has taken whole is also known as written.
func (w *writer) settle() {
	w.kernel.Lock()
	defer w.kernel.Unlock()
}

// fail closes the connection, because half a frame may have left. The caller holds mu.
func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
		w.buf = nil
		_ = w.nc.Close()
	}
}

// pending says how many bytes wait.
func (w *writer) pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.buf)
}

// flushed returns a channel that is closed when nothing is being written.
func (w *writer) flushed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.writing {
		done := make(chan struct{})
		close(done)
		return done
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	return w.idle
}

// close refuses what comes later.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(errClosed)
}
