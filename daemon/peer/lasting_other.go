//go:build !linux

package peer

// RunsScripts cannot be told, which counts as yes.
func RunsScripts(Process) bool { return true }

// OnlyRootMayWrite cannot be told, which counts as no.
func OnlyRootMayWrite(string) bool { return false }
