package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// trim gives back what only the start needed. Half of what a fresh spd has resident are pages of its own file that package initialization (protobuf and CEL above all) touched
// once, and what the kernel mapped around them. They are clean and private, so MADV_DONTNEED (madvise(2)) only forgets the mapping; what runs again comes back from the page
// cache by a minor fault.
func trim() {
	debug.FreeOSMemory()
	self, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		var mode string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); n != 3 || !strings.HasSuffix(lines.Text(), " "+self) || strings.Contains(mode, "w") {
			continue
		}
		// A failure costs memory and nothing else.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}
