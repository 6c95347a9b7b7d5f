package peer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// clockTicks is USER_HZ, which is 100 on every architecture that Go runs on.
const clockTicks = 100

var bootID = sync.OnceValues(func() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
})

var bootTime = sync.OnceValue(func() time.Time {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range strings.Lines(string(stat)) {
		if at, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(at), 10, 64)
			if err == nil {
				return time.Unix(seconds, 0).UTC()
			}
		}
	}
	return time.Time{}
})

// readProcess reads what /proc says of a process. Nothing holds the pid meanwhile: the caller proves afterwards, by a pidfd, that it was one process all the time.
func readProcess(pid int) (Process, error) {
	p := Process{PID: pid}
	var err error
	if p.Boot, err = bootID(); err != nil {
		return p, fmt.Errorf("reading the boot id: %w", err)
	}
	if err := p.readStat(); err != nil {
		return p, err
	}
	var several bool
	if p.UID, several, err = readUID(pid); err != nil {
		return p, err
	}
	if several { // a process that runs as two users at once is none of ours
		return p, fmt.Errorf("reading the user of process %d: it has several", pid)
	}
	p.began()
	return p, nil
}

func (p *Process) began() {
	if !bootTime().IsZero() {
		p.Began = bootTime().Add(time.Duration(p.Start) * time.Second / clockTicks)
	}
}

// place adds to readPlace what people want to see of an ancestor, whatever user it runs as.
func (p *Process) place() {
	p.Boot, _ = bootID()
	p.UID, _, _ = readUID(p.PID)
	p.began()
}

func (p *Process) readStat() error {
	state, err := p.readPlace()
	if err == nil && (state == "Z" || state == "X") {
		err = fmt.Errorf("reading process %d: it has ended", p.PID)
	}
	return err
}

// readPlace reads where a process stands in the tree, and its state. A state of Z does not mean that it has ended: its first thread may have left the others behind.
func (p *Process) readPlace() (state string, err error) {
	stat, err := os.ReadFile(procPath(p.PID, "stat"))
	if err != nil {
		return "", fmt.Errorf("reading process %d: %w", p.PID, err)
	}
	// The name stands in parentheses and may hold anything, parentheses too.
	_, rest, ok := cutLast(stat, ')')
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return "", fmt.Errorf("reading process %d: its stat has another form", p.PID)
	}
	ppid, err1 := strconv.Atoi(fields[1])
	start, err2 := strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return "", fmt.Errorf("reading process %d: %w", p.PID, err)
	}
	p.PPID, p.Start = ppid, start
	return fields[0], nil
}

// readExe adds which file the process runs. A file that was replaced since is still named by its old place.
func (p *Process) readExe() error {
	link := procPath(p.PID, "exe")
	path, err := os.Readlink(link)
	if err != nil {
		return fmt.Errorf("reading the executable of process %d: %w: %w", p.PID, ErrCannotTell, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(link, &st); err != nil {
		return fmt.Errorf("looking at the executable of process %d: %w: %w", p.PID, ErrCannotTell, err)
	}
	p.Exe, p.Device, p.Inode = strings.TrimSuffix(path, " (deleted)"), st.Dev, st.Ino
	return nil
}

// readUID returns the real user of a process, and whether it runs as another one too, as a setuid program does.
func readUID(pid int) (real int, several bool, err error) {
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return 0, false, fmt.Errorf("reading the user of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		ids, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		fields := strings.Fields(ids)
		if len(fields) < 3 {
			break
		}
		real, err := strconv.Atoi(fields[0])
		return real, fields[0] != fields[1] || fields[1] != fields[2], err
	}
	return 0, false, fmt.Errorf("reading the user of process %d: its status has another form", pid)
}

func readArgs(pid int) []string {
	line, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil || len(line) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

// readScript adds what an interpreter runs, where its command line names a file that is there.
func (p *Process) readScript(args []string) {
	name, ok := interpreter(p.Exe)
	if !ok {
		return
	}
	script := scriptOf(name, args)
	if script == "" {
		return
	}
	if !filepath.IsAbs(script) {
		cwd, err := os.Readlink(procPath(p.PID, "cwd"))
		if err != nil {
			return
		}
		script = filepath.Join(cwd, script)
	}
	real, err := filepath.EvalSymlinks(script)
	if err != nil {
		return
	}
	if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() {
		p.Script = real
	}
}

// systemOwned says that neither the file nor a folder above it can be changed by anybody but root.
func systemOwned(path string) bool {
	for {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Uid != 0 || st.Mode&0o022 != 0 {
			return false
		}
		if path == "/" {
			return true
		}
		path = filepath.Dir(path)
	}
}

func procPath(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

func cutLast(b []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}
