package cli

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// closeToOthers makes this process undumpable before it reads a secret, so that no other process of the same user can read its memory or attach to it (prctl(2)), and forbids
// core dumps. `spctl mcp` never reads one, and stays readable: the daemon has to see which program it is.
func closeToOthers() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("closing this process to others: %w", err)
	}
	return noCore()
}

// noCore forbids core dumps.
func noCore() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding core dumps: %w", err)
	}
	return nil
}
