package peer

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// state is what an Identifier remembers.
type state struct {
	digests digests
	dpkg    dpkg
	rpm     rpm

	mu   sync.Mutex
	runs map[string]*watched // owner: mu; live runs by their id
}

func newState(cfg Config) state {
	return state{dpkg: dpkg{folder: cfg.Dpkg}, rpm: rpm{program: cfg.Rpm}, runs: make(map[string]*watched)}
}

// watched is what is kept about a run while its process lives: one pidfd, whatever number of connections it has.
type watched struct {
	file  *os.File // the pidfd
	raw   syscall.RawConn
	ended chan struct{}
	first program // as first seen
}

// watch returns what is kept about a run, and begins to watch its process when this is the first time. It takes over the pidfd.
func (id *Identifier) watch(run string, h *held) (*watched, error) {
	id.mu.Lock()
	known := id.runs[run]
	id.mu.Unlock()
	if known != nil {
		h.close()
		return known, nil
	}
	first := id.programOf(h) // may read files: not under the lock
	if err := h.alive(); err != nil {
		h.close()
		return nil, fmt.Errorf("identifying a peer: %w", err)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if known := id.runs[run]; known != nil {
		h.close()
		return known, nil
	}
	// The runtime's poller takes descriptors that do not block: no thread waits for each process.
	if err := unix.SetNonblock(h.fd, true); err != nil {
		h.close()
		return nil, fmt.Errorf("watching process %d: %w", h.PID, err)
	}
	w := &watched{file: os.NewFile(uintptr(h.fd), "pidfd"), ended: make(chan struct{}), first: first}
	var err error
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("watching process %d: %w", h.PID, err)
	}
	id.runs[run] = w
	go func() {
		w.wait()
		id.mu.Lock()
		delete(id.runs, run)
		id.mu.Unlock()
		close(w.ended)
		_ = w.file.Close()
	}()
	return w, nil
}

// wait returns when the process has ended: its pidfd is readable from then on.
func (w *watched) wait() {
	_ = w.raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// alive proves that the process has not ended.
func (w *watched) alive() error {
	err := errors.New("it has ended")
	if cerr := w.raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), 0, nil, 0) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("the process is gone: %w", err)
	}
	return nil
}
