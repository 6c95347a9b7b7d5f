package peer

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// schedulers run what was left for a later time. Their names are those of processes of other users, which cannot be renamed by ours, and of system units, which only root makes.
var schedulers = []string{"atd", "cron", "crond", "cronie", "dcron", "fcron", "anacron", "bcron", "bcron-start", "bcron-exec"}

// transient is how systemd-run names a unit that it is given no name for.
var transient = regexp.MustCompile(`^run-(u[0-9]+|r[0-9a-f]{32}|p[0-9]+-i[0-9]+)\.service$`)

// Unattended says, in words, by what a process was started where no person can sit at it: a scheduler among its ancestors, the control group of one, or a service that systemd-run made. It is empty
// for every other process, and where that cannot be seen: a service that was given a name of its own looks like one of the desktop's.
func Unattended(lineage []Process) (by string, err error) {
	for _, p := range lineage[1:] {
		if p.PID == 1 {
			break
		}
		if name := othersName(p.PID); slices.Contains(schedulers, name) {
			return name, nil
		}
	}
	group, err := controlGroup(lineage[0].PID)
	if err != nil {
		return "", err
	}
	return unattended(group), nil
}

func unattended(group string) string {
	name := path.Base(group)
	if transient.MatchString(name) {
		return "systemd-run, as " + name
	}
	// A job may have left its family by forking twice. It cannot leave the group of a system unit, which is root's.
	parts := strings.Split(group, "/")
	if i := slices.Index(parts, "system.slice"); i >= 0 && i+1 < len(parts) {
		if unit, ok := strings.CutSuffix(parts[i+1], ".service"); ok && slices.Contains(schedulers, unit) {
			return unit
		}
	}
	return ""
}

// othersName returns the name of a process that is not our user's alone, as a service of the system is not, and nothing for any other: those name themselves as they like.
func othersName(pid int) string {
	if uid, several, err := readUID(pid); err != nil || uid == os.Getuid() && !several && uid != 0 {
		return ""
	}
	name, err := os.ReadFile(procPath(pid, "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// controlGroup returns the control group of a process, in the one hierarchy (cgroups(7), version 2); it is empty on a system without.
func controlGroup(pid int) (string, error) {
	text, err := os.ReadFile(procPath(pid, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("reading the control group of process %d: %w", pid, err)
	}
	return groupOf(string(text)), nil
}

func groupOf(text string) string {
	for line := range strings.Lines(text) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return group
		}
	}
	return ""
}

// ServedBy names the service of the user's service manager that a process runs in, and is empty where there is none. A desktop that starts its programs as services calls them app-….
func ServedBy(lineage []Process) (string, error) {
	if !slices.ContainsFunc(lineage[1:], serviceManager) {
		return "", nil
	}
	group, err := controlGroup(lineage[0].PID)
	if err != nil {
		return "", err
	}
	name := path.Base(group)
	if !strings.HasSuffix(name, ".service") || strings.HasPrefix(name, "app-") {
		return "", nil
	}
	return strings.Map(func(r rune) rune { // a group that was made by hand can be called anything
		if r > '~' || r < '!' {
			return '?'
		}
		return r
	}, name), nil
}
