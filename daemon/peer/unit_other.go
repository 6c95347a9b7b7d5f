//go:build !linux

package peer

// Root returns the process itself.
func Root(lineage []Process) Process { return lineage[0] }

// Unit cannot be told.
func Unit(int) (string, error) { return "", cannot() }
