package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/api"
)

// origin is where a program comes from, as far as it can be proven.
type origin struct {
	pkg    string  // Identity.Package
	actor  string  // in place of exe:/path, where the path says nothing lasting; else ""
	system bool    // nobody but root can change it
	doubts []doubt // Identity.Doubts
}

// originOf tells where the executable of a held process comes from.
func (id *Identifier) originOf(h *held) origin {
	if o, ok := id.snap(h.Process); ok {
		return o
	}
	if o, ok := id.flatpak(h.Process); ok {
		return o
	}
	if o, ok := appImage(h.Process); ok {
		return o
	}
	o := origin{system: systemOwned(h.Exe) && sameFile(h.Exe, h.Process)}
	if o.system {
		o.pkg = id.packageOf(h.Exe)
	}
	return o
}

// packageOf names the package that a file of the system belongs to.
func (id *Identifier) packageOf(path string) string {
	if name := id.dpkg.owner(path); name != "" {
		return "deb:" + name
	}
	if name := id.rpm.owner(path); name != "" {
		return "rpm:" + name
	}
	return ""
}

// sameFile says that a path still leads to the file that the process runs: a container's /usr/bin/node is another file than ours.
func sameFile(path string, p Process) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Dev == p.Device && st.Ino == p.Inode
}

// snap recognizes a program of a snap: it runs from the snap's own read-only image, which snapd mounts as root.
func (id *Identifier) snap(p Process) (origin, bool) {
	rest, ok := strings.CutPrefix(p.Exe, id.cfg.Snap+"/")
	if !ok {
		return origin{}, false
	}
	name, _, ok := strings.Cut(rest, "/")
	if !ok || !systemOwned(p.Exe) || !sameFile(p.Exe, p) {
		return origin{}, false
	}
	// The revision in the path changes with every update; the name does not.
	return origin{pkg: "snap:" + name, actor: "snap:" + name, system: true}, true
}

// A sandbox's own word about itself. Anybody can start a process that says the same, so it is believed only where the file that runs is the installed one.
var flatpakName = regexp.MustCompile(`(?m)^name=([A-Za-z0-9._-]{1,255})$`)

const (
	maxInfo        = 64 << 10
	maxEnvironment = 2 << 20
)

// flatpak recognizes a program of a Flatpak by the file that it runs: within the sandbox it lies beneath /app, and the same file, by device and inode, beneath the installation
// of the app that the sandbox says it is.
func (id *Identifier) flatpak(p Process) (origin, bool) {
	inside, ok := strings.CutPrefix(p.Exe, "/app/")
	if !ok {
		return origin{}, false
	}
	info, err := readSmall(procPath(p.PID, "root/.flatpak-info"))
	if err != nil {
		return origin{}, false
	}
	m := flatpakName.FindSubmatch(info)
	if m == nil || strings.Contains(string(m[1]), "..") {
		return origin{}, false
	}
	name := string(m[1])
	for _, installation := range id.cfg.Flatpak {
		installed, err := filepath.EvalSymlinks(filepath.Join(installation, "app", name, "current", "active"))
		if err != nil {
			continue
		}
		path := filepath.Join(installed, "files", inside)
		if sameFile(path, p) {
			return origin{pkg: "flatpak:" + name, actor: "flatpak:" + name, system: systemOwned(path)}, true
		}
	}
	return origin{doubts: []doubt{{api.Say(api.DoubtFlatpak, "name", name), "it says that it is the Flatpak " + name + ", but does not run a file of that"}}}, true
}

// appImage recognizes a program that runs from the mount of an AppImage. Where the image lies is the process's own word.
func appImage(p Process) (origin, bool) {
	if !strings.Contains(p.Exe, "/.mount_") {
		return origin{}, false
	}
	o := origin{doubts: []doubt{{api.Say(api.DoubtAppImage), "it runs from an AppImage's mount, which cannot be looked behind"}}}
	path := environment(p.PID)["APPIMAGE"]
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' }) {
		return o, true
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return o, true
	}
	defer f.Close()
	// AppImage specification, draft: the ELF header's padding says AI and the type of the image.
	magic := make([]byte, 11)
	if _, err := io.ReadFull(f, magic); err != nil || !bytes.HasPrefix(magic, []byte("\x7fELF")) || !bytes.Equal(magic[8:10], []byte("AI")) {
		return o, true
	}
	o.pkg, o.actor = "appimage:"+path, "appimage:"+path
	return o, true
}

// ownerOfScript says what a script belongs to, by the files beside it that its installer writes and the user can change.
func ownerOfScript(script string) string {
	dir := filepath.Dir(script)
	for range maxChain {
		if b, err := readSmall(filepath.Join(dir, "package.json")); err == nil {
			var p struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			}
			if json.Unmarshal(b, &p) == nil && p.Name != "" && len(p.Name) <= 214 && len(p.Version) <= 64 {
				return "npm:" + strings.TrimSuffix(p.Name+"@"+p.Version, "@")
			}
		}
		if parent := filepath.Dir(dir); filepath.Base(parent) == "site-packages" || filepath.Base(parent) == "dist-packages" {
			return "python:" + filepath.Base(dir)
		}
		if dir == "/" {
			break
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// loaders are variables by which code of anybody's gets into a program at its start, whatever its files are: those of the dynamic linker, and those of what interprets it. What
// is no interpreter by its name may hold one, as Electron and Java programs do.
var loaders = map[string][]string{
	"":       {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"},
	"other":  {"NODE_OPTIONS", "ELECTRON_RUN_AS_NODE", "JAVA_TOOL_OPTIONS"},
	"node":   {"NODE_OPTIONS", "NODE_PATH"},
	"nodejs": {"NODE_OPTIONS", "NODE_PATH"},
	"python": {"PYTHONPATH", "PYTHONHOME"},
	"perl":   {"PERL5LIB", "PERL5OPT"},
	"ruby":   {"RUBYLIB", "RUBYOPT"},
	"bash":   {"BASH_ENV"},
}

// doubt is one reason for which it cannot be told what a program is.
type doubt struct {
	said api.Said
	text string
}

// doubtsOf says what keeps a process from being what its files say. That there is no such thing is no proof: a process can write over its environment.
func doubtsOf(h *held) (doubts []doubt) {
	env := environment(h.PID)
	language, interprets := interpreter(h.Exe)
	if !interprets {
		language = "other"
	}
	for _, name := range slices.Concat(loaders[""], loaders[language]) {
		if env[name] != "" {
			doubts = append(doubts, doubt{api.Say(api.DoubtPreload, "variable", name), "it was started with " + name + ", which can bring other code into it"})
		}
	}
	if tracer := tracerOf(h.PID); tracer != "" && tracer != "0" {
		doubts = append(doubts, doubt{api.Say(api.DoubtTraced, "process", tracer), "process " + tracer + " traces it, and can make it say anything"})
	}
	if interprets && h.Script == "" {
		doubts = append(doubts, doubt{api.Say(api.DoubtNoScript), "it is an interpreter, and no file says what it runs"})
	}
	if h.Script != "" && !sameNamespace(h.PID) {
		doubts = append(doubts, doubt{api.Say(api.DoubtOtherFiles), "it sees other files than you do, so its script may be another one"})
	}
	return doubts
}

// sameNamespace says that a process sees the same tree of files as we do.
func sameNamespace(pid int) bool {
	var theirs, ours unix.Stat_t
	return unix.Stat(procPath(pid, "ns/mnt"), &theirs) == nil && unix.Stat("/proc/self/ns/mnt", &ours) == nil && theirs.Dev == ours.Dev && theirs.Ino == ours.Ino
}

func environment(pid int) map[string]string {
	b, err := readSome(procPath(pid, "environ"), maxEnvironment)
	if err != nil {
		return nil
	}
	env := map[string]string{}
	for _, v := range strings.Split(string(b), "\x00") {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	return env
}

func tracerOf(pid int) string {
	status, err := readSmall(procPath(pid, "status"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if tracer, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			return strings.TrimSpace(tracer)
		}
	}
	return ""
}

// readSmall reads the beginning of a file that somebody else may have made: never a pipe that blocks, never without end.
func readSmall(path string) ([]byte, error) { return readSome(path, maxInfo) }

func readSome(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// memo keeps answers that cost a process. It is safe for concurrent use.
type memo struct {
	mu    sync.Mutex
	known map[string]string // owner: mu
}

func (m *memo) of(key string, look func() string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, ok := m.known[key]
	if !ok {
		answer = look()
		if m.known == nil || len(m.known) >= maxDigests {
			m.known = map[string]string{}
		}
		m.known[key] = answer
	}
	return answer
}

// rpm finds the package that a file belongs to by asking rpm itself, whose database has no form that others may read.
type rpm struct {
	program string
	found   memo
}

const rpmPatience = 5 * time.Second

func (r *rpm) owner(path string) string {
	if !systemOwned(r.program) {
		return ""
	}
	return r.found.of(path, func() string {
		ctx, cancel := context.WithTimeout(context.Background(), rpmPatience)
		defer cancel()
		cmd := exec.CommandContext(ctx, r.program, "-qf", "--qf", "%{NAME}\n", "--", path) // #nosec G204 -- a program that only root can change, and a path that is no option
		cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
		out, err := cmd.Output()
		name, _, _ := strings.Cut(string(out), "\n")
		if err != nil || !rpmName.MatchString(name) {
			return ""
		}
		return name
	})
}

var rpmName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`)
