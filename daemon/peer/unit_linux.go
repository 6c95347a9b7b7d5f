package peer

import (
	"os"
	"path"
	"strings"
)

// Root returns the topmost process of a lineage that is not one of those to which the system gives orphans: init, or the user's service manager. A process that left its family by forking
// twice is its own root.
func Root(lineage []Process) Process {
	root := lineage[0]
	for _, p := range lineage[1:] {
		if p.PID == 1 || serviceManager(p) {
			return root
		}
		root = p
	}
	return root
}

// serviceManager says whether a process is the user's service manager, which init starts. Any process can call itself that, and be init's as an orphan: what it gains is to be a root of its own.
func serviceManager(p Process) bool {
	name, err := os.ReadFile(procPath(p.PID, "comm"))
	return err == nil && p.PPID == 1 && strings.TrimSpace(string(name)) == "systemd"
}

// Unit returns the control group of a process where it was made for one program (systemd.scope(5), the desktop environments' convention "app-…", and DaemonUnit): whatever that program starts stays
// in it, however often it forks. It is empty for a group that several programs of the person share, such as a login session's. A process can move itself to another group of the same user.
func Unit(pid int) (string, error) {
	group, err := controlGroup(pid)
	if err != nil {
		return "", err
	}
	return unitOfGroup(group), nil
}

func unitOfGroup(group string) string {
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
	return ""
}
