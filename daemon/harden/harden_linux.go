package harden

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Close makes this process undumpable, so that no other process of the same user can read its memory or attach to it, and forbids core dumps.
func Close() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("closing this process to others: %w", err)
	}
	return NoCore()
}

// NoCore forbids core dumps (core(5)).
func NoCore() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding core dumps: %w", err)
	}
	return nil
}

// ErrTraced says that another process sees and steers all that this one does.
var ErrTraced = errors.New("this process is traced, as by a debugger: whoever traces it would read what you type")

// Alone fails with ErrTraced where somebody attached before Close.
func Alone() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("looking who traces this process: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && pid == 0 {
				return nil
			}
			return ErrTraced
		}
	}
	return errors.New("looking who traces this process: its status has another form")
}

// Restart runs this program anew, in this process, without what is dangerous in its environment; the variable note then names what was dropped. It returns only where nothing is
// dangerous, or where it failed. What the runtime and libraries read before main cannot be undone otherwise.
func Restart(note string) error {
	names := Dangerous(os.Environ())
	if len(names) == 0 {
		return nil
	}
	if os.Getenv(note) != "" {
		return fmt.Errorf("starting again without %s: they came back", strings.Join(names, ", "))
	}
	err := syscall.Exec("/proc/self/exe", os.Args, append(Clean(os.Environ()), note+"="+strings.Join(names, ","))) // #nosec G204 G702 -- this very program, with less of its environment
	return fmt.Errorf("starting again without %s: %w", strings.Join(names, ", "), err)
}

// Group is the group that this program was installed with, where it was. Its zero value has none.
type Group struct {
	mu     sync.Mutex
	gid    int
	sealed bool
}

// Sealed says that the program was installed with a group of its own.
func (g *Group) Sealed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sealed
}

// SetAside takes the group that the kernel gave to the program out of force, until With. It is called first thing, before there is a second goroutine that makes files or processes.
func SetAside() (*Group, error) {
	real, effective := os.Getgid(), os.Getegid()
	g := &Group{gid: effective, sealed: real != effective}
	if !g.sealed {
		return g, nil
	}
	// Not unix.Setresgid: that changes the calling thread only.
	if err := syscall.Setresgid(-1, real, effective); err != nil {
		return nil, fmt.Errorf("setting group %d aside: %w", effective, err)
	}
	return g, nil
}

// With calls f under the group, where there is one. Nothing else may make processes meanwhile: they would have the group too.
func (g *Group) With(f func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.sealed {
		return f()
	}
	real := os.Getgid()
	if err := syscall.Setresgid(-1, g.gid, -1); err != nil {
		return fmt.Errorf("taking up group %d: %w", g.gid, err)
	}
	err := f()
	return errors.Join(err, syscall.Setresgid(-1, real, g.gid))
}

// Drop gives the group up for good.
func (g *Group) Drop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.sealed {
		return nil
	}
	g.sealed = false
	real := os.Getgid()
	if err := syscall.Setresgid(real, real, real); err != nil {
		return fmt.Errorf("giving group %d up: %w", g.gid, err)
	}
	return nil
}

// GroupOf returns the group that the kernel gives to this executable and to no other program of this user, and whether there is one: the file has its set-group-ID bit, and its group is
// none of ours.
func GroupOf(executable string) (gid int, sealed bool) {
	info, err := os.Stat(executable)
	if err != nil || info.Mode()&fs.ModeSetgid == 0 {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Perm()&0o010 == 0 { // without the group's x bit it means mandatory locking (fcntl(2))
		return 0, false
	}
	gid = int(st.Gid)
	ours, err := os.Getgroups()
	if err != nil || gid == os.Getgid() || slices.Contains(ours, gid) {
		return 0, false
	}
	return gid, true
}
