package peer

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// general are programs that do whatever their arguments, their variables or their input say, besides the interpreters that are looked into: what is decided about one of them would be decided about every
// script, and about whatever an agent types. No such list is whole; the person sees the program's name before they decide.
var general = []string{
	"ash", "csh", "elvish", "fish", "ksh", "mksh", "nu", "osh", "pwsh", "rbash", "tcsh", "xonsh", "yash", "zsh",
	"awk", "bc", "beam.smp", "clisp", "dotnet", "elixir", "emacs", "erl", "expect", "gawk", "ghci", "gjs", "guile", "irb", "java", "jshell", "julia", "jupyter", "lua", "luajit", "mawk", "mono", "nvim", "ocaml", "octave",
	"perl6", "php", "php-cgi", "pypy", "qjs", "r", "racket", "raku", "rscript", "sbcl", "scala", "swipl", "tclsh", "vi", "view", "vim", "vim.basic", "wasmtime", "wish",
	"curl", "nc", "nc.openbsd", "nc.traditional", "ncat", "netcat", "openssl", "socat", "ssh", "telnet", "wget", "websocat",
	"gdb", "ltrace", "lldb", "rr", "strace", "valgrind",
	"bwrap", "chroot", "coreutils", "dbus-run-session", "env", "find", "firejail", "flatpak", "flock", "git", "make", "nice", "nohup", "npm", "npx", "nsenter", "parallel", "podman", "docker", "script", "screen", "setarch", "setsid",
	"sort", "ssh-agent", "stdbuf", "sudo", "systemd-run", "tee", "time", "timeout", "tmux", "toybox", "unshare", "uv", "uvx", "wine", "wine64", "xargs", "xterm", "pipx", "cat", "sed", "electron",
}

// RunsAnything says that a program does what it is told, and nothing of its own.
func RunsAnything(exe string) bool {
	base := strings.ToLower(filepath.Base(exe))
	bare := strings.TrimRight(base, "0123456789.-")
	_, interprets := interpreter(base)
	return interprets || slices.Contains(general, base) || slices.Contains(general, bare) || strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld.so") || strings.HasPrefix(base, "ld-musl") || strings.HasPrefix(base, "qemu-")
}

// The bounds of what is remembered of where a program stands in the tree of processes.
const (
	maxLastingChain = 32
	maxLastingPath  = 512
)

// Lasting says why nothing that is decided about this run may be remembered for the next runs of its program; nil where it may. Only a program of the system that nobody of the user can change, that is
// itself what runs, and that reached the daemon itself, by a bridge of its own at most, is the same program the next time.
//
// A program that is the user's is not, whatever its digest: its libraries, its packed resources and what it loads at its start are not in the digest, and an agent can change them.
func (i Identity) Lasting() error {
	switch {
	case len(i.Doubts) > 0:
		return fmt.Errorf("its program cannot be told: %s", i.Doubts[0])
	case i.Assurance != SystemOwned:
		return fmt.Errorf("its program is %s; it has to be %s", cmp.Or(i.Assurance, CannotTell), SystemOwned)
	case i.Agent.Script != "", RunsAnything(i.Agent.Exe):
		return errors.New("its program runs whatever it is told, so its next run can be anything")
	case i.Agent.Exe == "" || i.Agent.Digest == "" || i.Actor == "":
		return errors.New("its program cannot be told")
	case i.Via != ViaBridge && i.Via != ViaSocket:
		return errors.New("over HTTP, any program that shares its connection speaks for it")
	case i.Via == ViaBridge && len(i.Through) != 1, i.Via == ViaSocket && len(i.Through) > 0:
		return errors.New("a launcher stands between it and its bridge; have it start spctl mcp itself")
	case len(i.Chain) == 0 || i.Chain[len(i.Chain)-1].PPID != 0:
		return errors.New("what stands above it cannot be told to the end")
	case len(i.Chain) > maxLastingChain:
		return errors.New("too many processes stand above it")
	}
	for _, path := range slices.Concat([]string{i.Actor, i.Agent.Exe}, i.Between(), i.Above()) {
		if len(path) > maxLastingPath {
			return errors.New("the path of its program, or of one above it, is too long")
		}
	}
	return nil
}

// Between returns what stands between the agent and the daemon, as it is remembered: paths.
func (i Identity) Between() []string { return places(i.Through) }

// Above returns the agent's ancestors as they are remembered, nearest first: the executable and the script of each, or whose it is where the system does not show more.
func (i Identity) Above() []string { return places(i.Chain) }

func places(list []Process) []string {
	var out []string
	for _, p := range list {
		place := p.Exe
		if place == "" {
			place = "user " + strconv.Itoa(p.UID)
		}
		if p.Script != "" {
			place += " " + p.Script
		}
		if p.OtherFile {
			place += " (another file)"
		}
		out = append(out, place)
	}
	return out
}
