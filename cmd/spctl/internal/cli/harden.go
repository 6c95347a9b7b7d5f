package cli

import (
	"slices"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/harden"
)

// closeAtStart closes this process to others of the same user before anything else. `spctl mcp` stays readable where it was installed without a group of its own: the daemon has to see
// which program it is, and it never reads a secret.
func (a *app) closeAtStart() error {
	if slices.Contains(a.cfg.Args, "mcp") && !a.cfg.Group.Sealed() {
		return harden.NoCore()
	}
	return harden.Close()
}

// closeToOthers comes before a secret is read. Whoever traced this process from its start would read it too.
func closeToOthers() error {
	if err := harden.Close(); err != nil {
		return err
	}
	if err := harden.Alone(); err != nil {
		return api.Errorf(api.CodeProofNeeded, "%v", err).WithHint("run spctl by itself, in a terminal of your own")
	}
	return nil
}
