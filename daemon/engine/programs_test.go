package engine_test

import (
	"context"
	"testing"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/peer"
)

// programsOf keeps what is known of programs in memory, and says when there is more.
type programsOf struct {
	known map[string]peer.Known // owner: who receives from kept
	kept  chan peer.Known
}

func (p *programsOf) Known(actor string) (peer.Known, error) { return p.known[actor], nil }

func (p *programsOf) Remember(k peer.Known) error {
	p.kept <- k
	return nil
}

func TestACardSaysHowTheProgramStandsToItsLastSession(t *testing.T) {
	p := &programsOf{known: map[string]peer.Known{}, kept: make(chan peer.Known)}
	r := newRig(t, func(r *rig) { r.cfg.Programs = p })
	// next has a new process of the same program ask, and returns how its card shows it.
	next := func(name, digest string, answer approval.Answer) peer.Identity {
		a := newAgent(name)
		a.Identity.Assurance, a.Identity.Agent.Digest = peer.UserOwned, digest
		done := r.begin(context.Background(), a, "look", `{"order":"`+name+`"}`)
		c := r.card()
		r.answer(c, answer)
		if answer == approval.ForRun {
			k := <-p.kept
			p.known[k.Actor] = k
		}
		<-done
		return c.Peer
	}
	for _, step := range []struct {
		run, digest string
		answer      approval.Answer
		want        peer.Assurance
		changes     int
	}{
		{"1", "sha256:01", approval.Once, peer.UserOwned, 0},
		{"2", "sha256:01", approval.ForRun, peer.UserOwned, 0}, // one use is no session
		{"3", "sha256:01", approval.Deny, peer.Unchanged, 0},
		{"4", "sha256:02", approval.Deny, peer.Changed, 1},
		{"5", "sha256:02", approval.ForRun, peer.Changed, 1}, // what was denied is not remembered
		{"6", "sha256:02", approval.Deny, peer.Unchanged, 0},
	} {
		got := next(step.run, step.digest, step.answer)
		if got.Assurance != step.want || len(got.Changes) != step.changes {
			t.Errorf("run %s with %s: %q, %q", step.run, step.digest, got.Assurance, got.Changes)
		}
	}
}
