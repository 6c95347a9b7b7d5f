package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// harden makes the process undumpable, so that no other process of the same user can attach to it or read its memory, and forbids core dumps (prctl(2), core(5)). It is
// done before anything else: what the person types into the window passes through its memory.
func harden() {
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	}
	if err != nil {
		_, _ = os.Stderr.WriteString("sp-tray: making the process undumpable: " + err.Error() + "\n")
		os.Exit(1)
	}
}
