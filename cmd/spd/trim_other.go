//go:build !linux

package main

// trim does nothing where the system has no madvise of this kind.
func trim() {}
