package peer

import (
	"path/filepath"
	"slices"
	"strings"
)

// interpreters run a script that says more about them than their own executable. The values are options that take another word.
var interpreters = map[string][]string{
	"node":    {"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions", "--env-file"},
	"python":  {"-W", "-X"},
	"bash":    {"-O", "+O", "-o", "+o", "--rcfile", "--init-file"},
	"sh":      {"-o", "+o"},
	"dash":    {"-o", "+o"},
	"ruby":    {"-r", "-I"},
	"perl":    {"-I"},
	"deno":    nil,
	"bun":     nil,
	"tsx":     nil,
	"nodejs":  {"-r", "--require", "--import"},
	"busybox": nil,
}

// interpreter returns the entry of interpreters for an executable: python3.11 is python.
func interpreter(exe string) (name string, ok bool) {
	name = strings.TrimRight(filepath.Base(exe), "0123456789.")
	_, ok = interpreters[name]
	return name, ok
}

// scriptOf returns the script in an interpreter's command line as it was written, or "" for inline code, modules and prompts.
func scriptOf(name string, args []string) string {
	for i := 1; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			if i+1 < len(args) {
				return args[i+1]
			}
			return ""
		case (name == "deno" || name == "bun") && arg == "run":
		case name == "node" && (arg == "-e" || arg == "--eval" || arg == "-p"):
			return ""
		case name == "python" && (arg == "-m" || arg == "-c"):
			return ""
		case arg == "-c" || arg == "-e" || arg == "-" || isShell(name) && strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.Contains(arg, "c"):
			return ""
		case slices.Contains(interpreters[name], arg):
			i++
		case strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "+"):
		default:
			return arg
		}
	}
	return ""
}

func isShell(name string) bool { return name == "sh" || name == "bash" || name == "dash" }

// runsCommand says that a shell was given a command line with -c. Any other shell is somebody's terminal, or takes its commands from a file or a pipe.
func runsCommand(name string, args []string) bool {
	for i := 1; i < len(args); i++ {
		switch arg := args[i]; {
		case slices.Contains(interpreters[name], arg):
			i++
		case strings.HasPrefix(arg, "--") && len(arg) > 2, strings.HasPrefix(arg, "+"):
		case !strings.HasPrefix(arg, "-"), arg == "-", arg == "--":
			return false
		case strings.Contains(arg, "c"):
			return true
		}
	}
	return false
}

// launcher says that a process only starts another one for its parent: a shell's -c, env, or the shims of npm and uv.
func launcher(p Process, args []string) bool {
	base := filepath.Base(p.Exe)
	switch base {
	case "env", "npx", "uvx", "uv":
		return true
	}
	name, ok := interpreter(p.Exe)
	if !ok {
		return false
	}
	if isShell(name) {
		return runsCommand(name, args)
	}
	switch filepath.Base(p.Script) {
	case "npx", "npx-cli.js", "npm", "npm-cli.js", "uvx":
		return true
	}
	return false
}
