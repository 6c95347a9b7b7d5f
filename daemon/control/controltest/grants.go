package controltest

import (
	"cmp"
	"context"
	"slices"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
)

// GrantOf is the program that a grant is bound to here, whatever its level.
func GrantOf(p peer.Identity) approval.Program {
	return approval.Program{
		Actor: p.Actor, Package: p.Package, Exe: p.Agent.Exe, Digest: cmp.Or(p.Agent.Digest, "sha256:00"), Via: cmp.Or(p.Via, peer.ViaBridge), Through: p.Between(), Chain: p.Above(),
	}
}

// Grants implements control.Grants.
func (d *Daemon) Grants(context.Context) ([]api.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Vault.Status() != vault.Unlocked {
		return nil, vault.ErrLocked
	}
	var list []api.Grant
	for _, g := range d.grants {
		var runs []string
		for _, s := range d.sessions {
			if s.Session.Grant == g.ID {
				runs = append(runs, s.Session.Run)
			}
		}
		list = append(list, control.Grant(g, runs))
	}
	return list, nil
}

// RevokeGrant implements control.Grants.
func (d *Daemon) RevokeGrant(_ context.Context, id, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.grants)
	d.grants = slices.DeleteFunc(d.grants, func(g approval.Standing) bool { return g.ID == id })
	if len(d.grants) == n {
		return api.Errorf(api.CodeMissing, "there is no standing grant %q", id).WithHint("spctl grants")
	}
	d.sessions = slices.DeleteFunc(d.sessions, func(s control.SessionView) bool { return s.Session.Grant == id })
	return nil
}
