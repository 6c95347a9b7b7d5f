package policy

import "singlepass.dev/policy/source"

// Digest is what an operator accepts: source.Digest.
func Digest(src []byte) string { return source.Digest(src) }

// Diff shows what changed between two versions of a contract: source.Diff.
func Diff(oldName string, old []byte, newName string, new []byte) string {
	return source.Diff(oldName, old, newName, new)
}
