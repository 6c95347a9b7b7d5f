//go:build !linux

package main

// harden does nothing where the system has no prctl; docs/threat-model.md says what is missing there.
func harden() {}
