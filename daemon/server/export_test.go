package server

import "singlepass.dev/daemon/peer"

// Accept is accept, for its tests.
var Accept = accept

// Family is the memory of agents, with its questions.
type Family struct{ f family }

// Met remembers an agent in a control group.
func (f *Family) Met(id *peer.Identity, unit string) {
	f.f.kin = append(f.f.kin, kin{id.Run, id.Agent, id.Chain, unit})
}

// LeftBy finds the agent that a process was left by.
func (f *Family) LeftBy(root peer.Process, unit string) (string, bool) { return f.f.leftBy(root, unit) }
