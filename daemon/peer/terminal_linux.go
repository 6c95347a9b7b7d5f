package peer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ptsMajor is the device number of every terminal below /dev/pts (Linux, Documentation/admin-guide/devices.txt).
const ptsMajor = 136

// Seat says where a process stands among sessions and terminals, in the kernel's sense (credentials(7)).
type Seat struct {
	Session  int // pid of the session's first process. It is given to no other process while one of the session lives
	Terminal int // N of the controlling terminal /dev/pts/N; -1 for another one, or none
}

// SeatOf reads the seat of a process.
func SeatOf(pid int) (Seat, error) {
	stat, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return Seat{}, fmt.Errorf("reading the session of process %d: %w", pid, err)
	}
	_, rest, ok := cutLast(stat, ')')
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 5 {
		return Seat{}, fmt.Errorf("reading the session of process %d: its stat has another form", pid)
	}
	session, err1 := strconv.Atoi(fields[3])
	device, err2 := strconv.ParseInt(fields[4], 10, 64)
	if err1 != nil || err2 != nil {
		return Seat{}, fmt.Errorf("reading the session of process %d: its stat has another form", pid)
	}
	return Seat{session, terminalOf(uint32(device))}, nil
}

// terminalOf reads a device number as proc_pid_stat(5) has it: the minor in bits 31 to 20 and 7 to 0, the major in bits 15 to 8.
func terminalOf(device uint32) int {
	if device>>8&0xfff != ptsMajor {
		return -1
	}
	return int(device>>12&0xfff00 | device&0xff)
}

// Terminals is who has which terminals open, at one moment. Only processes that let themselves be looked at are in it: an SSH server, for one, is not.
type Terminals struct {
	holders map[int][]Process // by N of /dev/pts/N: who has its other end, and so types into it and reads it
	open    map[int][]int     // by pid: the terminals themselves
}

// ReadTerminals looks at every process of our user.
func ReadTerminals() (*Terminals, error) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	t := &Terminals{map[int][]Process{}, map[int][]int{}}
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if uid, _, err := readUID(pid); err != nil || uid != os.Getuid() {
			continue
		}
		t.look(pid)
	}
	return t, nil
}

func (t *Terminals) look(pid int) {
	entries, err := os.ReadDir(procPath(pid, "fd"))
	if err != nil {
		return
	}
	var masters []int
	for _, e := range entries {
		target, err := os.Readlink(procPath(pid, "fd/"+e.Name()))
		if err != nil {
			continue
		}
		switch {
		case target == "/dev/ptmx" || target == "/dev/pts/ptmx":
			if n, ok := masterOf(pid, e.Name()); ok && !slices.Contains(masters, n) {
				masters = append(masters, n)
			}
		case strings.HasPrefix(target, "/dev/pts/"):
			if n, err := strconv.Atoi(strings.TrimPrefix(target, "/dev/pts/")); err == nil && !slices.Contains(t.open[pid], n) {
				t.open[pid] = append(t.open[pid], n)
			}
		}
	}
	if len(masters) == 0 {
		return
	}
	p, err := readProcess(pid)
	if err != nil {
		return
	}
	_ = p.readExe() // for its name only
	for _, n := range masters {
		t.holders[n] = append(t.holders[n], p)
	}
	t.open[pid] = slices.DeleteFunc(t.open[pid], func(n int) bool { return slices.Contains(masters, n) })
}

// masterOf says which terminal a descriptor is the other end of (proc_pid_fdinfo(5), tty-index).
func masterOf(pid int, fd string) (int, bool) {
	info, err := os.ReadFile(procPath(pid, "fdinfo/"+fd))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(info)) {
		if text, ok := strings.CutPrefix(line, "tty-index:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			return n, err == nil
		}
	}
	return 0, false
}

// Holders returns who has the other end of a terminal.
func (t *Terminals) Holders(terminal int) []Process { return t.holders[terminal] }

// Behind returns the terminals that a holder stands in, or is attached to, itself: those that a tmux server's clients gave it, and the one that `script` was started in.
func (t *Terminals) Behind(holder int) []int {
	behind := slices.Clone(t.open[holder])
	if seat, err := SeatOf(holder); err == nil && seat.Terminal >= 0 && !slices.Contains(behind, seat.Terminal) {
		behind = append(behind, seat.Terminal)
	}
	return behind
}
