package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/harden"
	"singlepass.dev/daemon/index"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
)

// standingGrants keeps the standing grants in the vault, where an agent cannot change them.
type standingGrants struct{ s *Server }

// grantPrefix begins the settings' keys.
const grantPrefix = "grant/"

// Program says what a grant for the next runs of this one's program is bound to, or why there can be none.
func (g standingGrants) Program(p *peer.Identity) (approval.Program, error) {
	if err := p.Lasting(); err != nil {
		return approval.Program{}, err
	}
	if os.Getuid() <= 0 {
		return approval.Program{}, errors.New("you are root and may write every program, so none is known to be the same the next time")
	}
	if peer.RunsScripts(p.Agent) {
		return approval.Program{}, errors.New("its program has a script engine beside it, so its next run can be anything")
	}
	if p.Via == peer.ViaBridge {
		// The group is of this very file; without it, whoever can write the file could put another in its place.
		if _, sealed := harden.GroupOf(g.s.cfg.Bridge); !sealed && !peer.OnlyRootMayWrite(g.s.cfg.Bridge) {
			return approval.Program{}, fmt.Errorf("its bridge, %s, lies where you can write", g.s.cfg.Bridge)
		}
	}
	if err := g.s.startedByNoAgent(p); err != nil {
		return approval.Program{}, err
	}
	return approval.Program{
		Actor: p.Actor, Package: p.Package, Exe: p.Agent.Exe, Digest: p.Agent.Digest, Via: p.Via, Through: p.Between(), Chain: p.Above(),
	}, nil
}

// startedByNoAgent says why a living agent is not, or cannot be told to be, a program that the person started: another agent is above it, left it behind or types into its terminal, no person can sit where it was started, or somebody traces it.
func (s *Server) startedByNoAgent(p *peer.Identity) error {
	tracer, err := peer.Tracer(p.Agent.PID)
	if err != nil {
		return err
	}
	if tracer != 0 {
		return fmt.Errorf("process %d traces it", tracer)
	}
	chain, err := s.peers.Lineage(p.Agent.PID)
	if err != nil {
		return err
	}
	if chain[0].Start != p.Agent.Start {
		return fmt.Errorf("process %d is another one than the one that connected", p.Agent.PID)
	}
	above := chain[1:]
	if slices.ContainsFunc(above, func(q peer.Process) bool { return q.PID == os.Getpid() }) {
		return errors.New("an upstream server started it")
	}
	if run, found := s.engine.KnowsAgent(above); found {
		return fmt.Errorf("another agent started it, %s", run)
	}
	if run, found := s.family.among(above); found {
		return fmt.Errorf("another agent started it, %s", run)
	}
	root := peer.Root(chain)
	unit, err := peer.Unit(root.PID)
	if err != nil {
		return err
	}
	own, err := peer.Unit(os.Getpid())
	if err != nil {
		return err
	}
	if leftByUpstream(unit, own) {
		return errors.New("an upstream server left it behind")
	}
	if run, found := s.family.leftBy(root, unit, p.Run); found {
		return fmt.Errorf("another agent left it behind, %s", run)
	}
	if run, found := s.family.leftInSession(beneath(chain, root), sessionOf, p.Run); found {
		return fmt.Errorf("another agent left it behind, %s", run)
	}
	// A doubt is passed over for whoever has the passphrase besides. Here nothing stands beside it.
	o := (&search{s: s}).origin(p.Agent.PID, p.Agent.Start)
	if why := cmp.Or(o.Refused, o.Doubt); why != "" {
		return errors.New(why)
	}
	return nil
}

// Keep stores a grant.
func (g standingGrants) Keep(grant approval.Standing) error {
	b, err := grant.Encode()
	if err != nil {
		return err
	}
	return g.s.vault.SetSetting(grantPrefix+grant.ID, b)
}

// Drop removes one.
func (g standingGrants) Drop(id string) error {
	if err := g.s.vault.RemoveSetting(grantPrefix + id); err != nil && !errors.Is(err, vault.ErrNotFound) {
		return err
	}
	return nil
}

// loadStanding puts the grants of the open vault into force that the journal bears out, and takes the others out of the vault. The vault's file can be set back to an older copy, and the journal then still
// says what has ended; while the journal does not verify, no grant counts. Whatever goes wrong, there are none.
func (s *Server) loadStanding() {
	if s.records.Journal().Quarantine() != nil {
		s.engine.SetStanding(nil)
		return
	}
	list, over, err := s.storedStanding()
	if err != nil {
		s.log.Error("reading the standing grants; none is in force", "error", err)
		s.engine.SetStanding(nil)
		return
	}
	maps.Copy(over, s.engine.SetStanding(list))
	for _, id := range slices.Sorted(maps.Keys(over)) {
		s.log.Info("a standing grant is over", "grant", id, "reason", over[id])
		if over[id] != ended {
			if err := s.engine.Note(engine.GrantEvent{Kind: index.GrantEnded, Grant: id, Reason: over[id]}); err != nil {
				s.log.Error("recording the end of a standing grant", "grant", id, "error", err)
			}
		}
		if err := (standingGrants{s}).Drop(id); err != nil {
			s.log.Error("taking a standing grant out of the vault", "grant", id, "error", err)
		}
	}
}

// ended is the reason that needs no more words in the journal.
const ended = "the journal says that it has ended"

// storedStanding returns the grants of the vault that the journal bears out, and those that it does not. One that this version cannot read is left where it is, and counts for nothing.
func (s *Server) storedStanding() (list []approval.Standing, over map[string]string, err error) {
	all, err := s.vault.Settings()
	if err != nil {
		return nil, nil, err
	}
	contracts, err := s.vault.Contracts()
	if err != nil {
		return nil, nil, err
	}
	over = map[string]string{}
	for _, setting := range all {
		id, ok := strings.CutPrefix(setting.Key, grantPrefix)
		if !ok {
			continue
		}
		g, err := approval.DecodeStanding(setting.Value)
		if err == nil && g.ID != id {
			err = errors.New("it has another id")
		}
		if err != nil {
			s.log.Error("a standing grant is not understood, so it is none", "grant", id, "error", err)
			continue
		}
		said, counts, err := s.records.Index().Grant(id)
		switch {
		case err != nil:
			return nil, nil, err
		case said.Ended != 0:
			over[id] = ended
		case counts && !slices.ContainsFunc(contracts, func(c vault.AcceptedContract) bool {
			return c.Action == g.Subject.Tool && c.Digest == g.Subject.ContractDigest
		}):
			over[id] = "its action is not accepted any more as it was"
		case counts:
			list = append(list, g)
		case said.Given == 0:
			over[id] = "the journal does not know it"
		default:
			over[id] = "the journal did not verify since it was given"
		}
	}
	return list, over, nil
}

// Grants lists the standing grants.
func (o *operatorSide) Grants(context.Context) ([]api.Grant, error) {
	views, err := o.s.engine.StandingGrants()
	if err != nil {
		return nil, err
	}
	out := make([]api.Grant, 0, len(views))
	for _, v := range views {
		out = append(out, control.Grant(v.Grant, v.Runs))
	}
	return out, nil
}

// RevokeGrant ends one at once, with the sessions that came from it.
func (o *operatorSide) RevokeGrant(_ context.Context, id, by string) error {
	o.s.touch()
	return o.s.engine.RevokeGrant(id, by)
}
