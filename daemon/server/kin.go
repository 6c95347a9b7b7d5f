package server

import (
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"sync"

	"singlepass.dev/daemon/peer"
)

// maxKin bounds how many agents are remembered; the oldest goes.
const maxKin = 512

// kin is what is remembered of an agent, after its end too: its children may outlive it.
type kin struct {
	run       string
	agent     peer.Process
	ancestors []peer.Process
	unit      string // the control group that was made for it alone; empty where it shares one
	session   int    // of its terminal, in the kernel's sense (credentials(7)); 0 where it has none that a program holds
}

// family remembers the agents of this daemon.
type family struct {
	mu   sync.Mutex
	kin  []kin // owner: mu; oldest first
	runs map[string]bool
}

// met remembers an agent.
func (f *family) met(id *peer.Identity) {
	unit, _ := peer.Unit(id.Agent.PID)
	session := 0
	if seat, err := peer.SeatOf(id.Agent.PID); err == nil && seat.Terminal >= 0 {
		session = seat.Session
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs[id.Run] {
		return
	}
	if f.runs == nil {
		f.runs = map[string]bool{}
	}
	if len(f.kin) == maxKin {
		delete(f.runs, f.kin[0].run)
		f.kin = slices.Delete(f.kin, 0, 1)
	}
	f.runs[id.Run] = true
	f.kin = append(f.kin, kin{id.Run, id.Agent, id.Chain, unit, session})
}

// leftBy finds the agent that a process was left by: an orphan, or a descendant of one, in the control group that was made for the agent, begun after it, and none of the agent's own
// ancestors. Runs that are excepted left nothing.
func (f *family) leftBy(root peer.Process, unit string, except ...string) (run string, found bool) {
	if unit == "" {
		return "", false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kin {
		if k.unit == unit && !slices.Contains(except, k.run) && root.Start >= k.agent.Start && !k.descends([]peer.Process{root}) {
			return k.run, true
		}
	}
	return "", false
}

// leftInSession finds the agent whose terminal's session an orphan is in, or what it was left by. Nobody joins a session but by being born there; only setsid(2) leads out of it. The terminal's own
// shell is an ancestor of the agent, and so of whatever the person starts there. Runs that are excepted left nothing.
func (f *family) leftInSession(orphans []peer.Process, sessionOf func(pid int) int, except ...string) (run string, found bool) {
	f.mu.Lock()
	kin := slices.Clone(f.kin)
	f.mu.Unlock()
	for _, k := range kin {
		if k.session == 0 || slices.Contains(except, k.run) || k.descends(orphans) {
			continue
		}
		if slices.ContainsFunc(orphans, func(p peer.Process) bool { return p.Start >= k.agent.Start && sessionOf(p.PID) == k.session }) {
			return k.run, true
		}
	}
	return "", false
}

// descends says whether the agent descends from one of these.
func (k *kin) descends(from []peer.Process) bool {
	return slices.ContainsFunc(k.ancestors, func(a peer.Process) bool {
		return slices.ContainsFunc(from, func(p peer.Process) bool { return p.PID == a.PID && p.Start == a.Start })
	})
}

// belongs finds the agent to which a process belongs: itself, an ancestor, or the one that left it behind. An error means that it cannot be told.
func (s *Server) belongs(pid int, start uint64) (run string, found bool, err error) {
	// Whoever traces a process speaks with its voice, and hears what it hears.
	tracer, err := peer.Tracer(pid)
	if err != nil {
		return "", false, err
	}
	if tracer != 0 {
		return "", false, fmt.Errorf("process %d is traced by %d", pid, tracer)
	}
	chain, err := s.peers.Lineage(pid)
	if err != nil {
		return "", false, err
	}
	if chain[0].Start != start {
		return "", false, fmt.Errorf("process %d is another one than the one that connected", pid)
	}
	// An upstream server is a program of somebody else's that this daemon started.
	if slices.ContainsFunc(chain[1:], func(p peer.Process) bool { return p.PID == os.Getpid() }) {
		return "an upstream server", true, nil
	}
	if run, found := s.engine.KnowsAgent(chain); found {
		return run, true, nil
	}
	if run, found := s.family.among(chain); found {
		return run, true, nil
	}
	root := peer.Root(chain)
	unit, err := peer.Unit(root.PID)
	if err != nil {
		return "", false, err
	}
	if own, err := peer.Unit(os.Getpid()); err != nil {
		return "", false, err
	} else if leftByUpstream(unit, own) {
		return "what an upstream server left behind", true, nil
	}
	if run, found := s.family.leftBy(root, unit); found {
		return run, true, nil
	}
	run, found = s.family.leftInSession(beneath(chain, root), sessionOf)
	return run, found, nil
}

// beneath cuts a lineage after its root.
func beneath(chain []peer.Process, root peer.Process) []peer.Process {
	return chain[:1+slices.IndexFunc(chain, func(p peer.Process) bool { return p.PID == root.PID })]
}

// sessionOf returns the session of a process, or 0 where it is gone, and no ancestor any more.
func sessionOf(pid int) int {
	seat, err := peer.SeatOf(pid)
	if err != nil {
		return 0
	}
	return seat.Session
}

// leftByUpstream says whether an orphan is of an upstream server: the daemon's own unit holds nothing that the person starts.
func leftByUpstream(unit, own string) bool {
	return unit == own && path.Base(own) == peer.DaemonUnit
}

// among finds a remembered agent in a lineage; the engine forgets those that have ended, and one whose first thread has ended is still the parent of its children.
func (f *family) among(chain []peer.Process) (run string, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kin {
		if slices.ContainsFunc(chain, func(p peer.Process) bool { return p.PID == k.agent.PID && p.Start == k.agent.Start }) {
			return k.run, true
		}
	}
	return "", false
}

// identifyTCP says who is behind a loopback connection, and remembers it.
func (s *Server) identifyTCP(local, remote netip.AddrPort) (*peer.Identity, error) {
	id, err := s.peers.IdentifyTCP(local, remote)
	if err == nil {
		s.family.met(id)
	}
	return id, err
}
