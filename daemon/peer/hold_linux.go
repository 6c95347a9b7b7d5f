package peer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Held is one live process, for as long as something of ours is bound to it. It is safe for concurrent use.
type Held struct {
	process Process
	closed  bool // its executable could not be read when it was held: it had closed itself to others (prctl(2), PR_SET_DUMPABLE)

	mu sync.Mutex
	fd int // owner: mu; -1 after Close
}

// Hold binds to the process that has this pid and start time. A process that closed itself to others keeps its executable from us too; it is then known by being closed, which an
// exec ends (execve(2)), unless the new program closes itself in turn before it is looked at.
func (id *Identifier) Hold(pid int, start uint64) (*Held, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("holding process %d: %w", pid, err)
	}
	h := &Held{fd: fd}
	err = func() error {
		if h.process, err = readProcess(pid); err != nil {
			return err
		}
		if h.process.Start != start {
			return fmt.Errorf("holding process %d: it is another one by now", pid)
		}
		if h.closed, err = readProgram(&h.process); err != nil {
			return err
		}
		return h.Check()
	}()
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Check proves that the process lives, runs the program that it ran when it was held, and has nobody who traces it.
func (h *Held) Check() error {
	now := Process{PID: h.process.PID}
	closed, err := readProgram(&now)
	if err != nil {
		return err
	}
	tracer, err := Tracer(h.process.PID)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd < 0 {
		return fmt.Errorf("checking process %d: it is not held any more", h.process.PID)
	}
	// After what was read: a pid that was given on would have answered for another process.
	if err := unix.PidfdSendSignal(h.fd, 0, nil, 0); err != nil {
		return fmt.Errorf("checking process %d: it is gone: %w", h.process.PID, err)
	}
	switch {
	case closed != h.closed, now.Device != h.process.Device, now.Inode != h.process.Inode:
		return fmt.Errorf("checking process %d: it has become another program", h.process.PID)
	case tracer != 0:
		return fmt.Errorf("checking process %d: process %d traces it", h.process.PID, tracer)
	}
	return nil
}

// Close lets the process go.
func (h *Held) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
		h.fd = -1
	}
}

// readProgram adds the executable, or says that the process keeps it from us.
func readProgram(p *Process) (closed bool, err error) {
	err = p.readExe()
	if errors.Is(err, fs.ErrPermission) {
		return true, nil
	}
	return false, err
}

// Tracer returns the thread that traces this process, as a debugger's does, or 0 (proc_pid_status(5), TracerPid).
func Tracer(pid int) (int, error) {
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return 0, fmt.Errorf("looking who traces process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, fmt.Errorf("looking who traces process %d: its status has another form", pid)
}
