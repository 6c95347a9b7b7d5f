package peer

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// Root returns the topmost process of a lineage that is not one of those to which the system gives orphans: init, or the user's service manager. A process that left its family by forking
// twice is its own root.
func Root(lineage []Process) Process {
	root := lineage[0]
	for _, p := range lineage[1:] {
		if p.PID == 1 || serviceManager(p.PID) {
			return root
		}
		root = p
	}
	return root
}

func serviceManager(pid int) bool {
	name, err := os.ReadFile(procPath(pid, "comm"))
	return err == nil && strings.TrimSpace(string(name)) == "systemd"
}

// Unit returns the control group of a process where it was made for one program (systemd.scope(5), the desktop environments' convention "app-…", and DaemonUnit): whatever that program starts stays
// in it, however often it forks. It is empty for a group that several programs of the person share, such as a login session's. A process can move itself to another group of the same user.
func Unit(pid int) (string, error) {
	text, err := os.ReadFile(procPath(pid, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("reading the control group of process %d: %w", pid, err)
	}
	return unitOf(string(text)), nil
}

func unitOf(text string) string {
	for line := range strings.Lines(text) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		name := path.Base(group)
		if name == DaemonUnit {
			return group
		}
		scope := strings.HasSuffix(name, ".scope") || strings.HasSuffix(name, ".service")
		for _, made := range []string{"app-", "vte-spawn-", "tmux-spawn-", "snap.", "run-", "kitty-", "ptyxis-spawn-"} {
			if scope && strings.HasPrefix(name, made) {
				return group
			}
		}
	}
	return ""
}
