//go:build !linux

package cli

// closeToOthers does nothing where the system has no prctl; docs/threat-model.md says what is missing there.
func closeToOthers() error { return nil }

func noCore() error { return nil }
