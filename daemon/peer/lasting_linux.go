package peer

import (
	"os"
	"path/filepath"
)

// RunsScripts says that a living process is of a program with a script engine of its own beside it, as Electron's and Chromium's are: a variable, an argument or a file of the user's makes it run any script.
func RunsScripts(p Process) bool {
	beside := filepath.Join(procPath(p.PID, "root"), filepath.Dir(p.Exe))
	for _, name := range []string{"snapshot_blob.bin", "v8_context_snapshot.bin", "v8_context_snapshot.x86_64.bin", "v8_context_snapshot.arm64.bin", "resources/app.asar"} {
		if _, err := os.Lstat(filepath.Join(beside, name)); err == nil {
			return true
		}
	}
	return false
}

// OnlyRootMayWrite says that neither the file nor a folder above it can be changed by anybody but root.
func OnlyRootMayWrite(path string) bool { return systemOwned(path) }
