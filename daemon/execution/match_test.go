package execution_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
)

// claimOf is a repeat of x, by a client that carries no key.
func claimOf(x execution.Execution) execution.Claim {
	return execution.Claim{Actor: x.Actor, Scope: x.Scope, Fingerprint: x.Fingerprint, Now: x.ChangedAt.Add(time.Minute)}
}

func standing(state execution.State, class execution.Class, after execution.AfterDelivery) execution.Execution {
	x := execution.Execution{ID: id, Acceptance: *acceptance(class), State: state, ChangedAt: start}
	x.AfterDelivery = after
	return x
}

// Section 4 of the architecture, row by row, for a contract with a side effect.
func TestARepeatGetsWhatTheEarlierStateGivesIt(t *testing.T) {
	for _, c := range []struct {
		state execution.State
		after execution.AfterDelivery
		want  execution.Disposition
	}{
		{execution.Accepted, execution.Ask, execution.Attach},
		{execution.Authorized, execution.Ask, execution.Attach},
		{execution.Dispatched, execution.Ask, execution.Attach},
		{execution.Unknown, execution.Ask, execution.Recover},
		{execution.NotDelivered, execution.Ask, execution.HandOut},
		{execution.NotDelivered, execution.New, execution.HandOut},
		{execution.Rejected, execution.Ask, execution.SameNo},
		{execution.Delivered, execution.Ask, execution.AskAgain},
		{execution.Delivered, execution.Return, execution.HandOut},
		{execution.Delivered, execution.New, execution.StartNew},
		{execution.Delivered, "", execution.AskAgain},
		{execution.Expired, execution.Ask, execution.StartNew},
		{execution.Withdrawn, execution.Ask, execution.StartNew},
		{execution.NotSent, execution.Ask, execution.StartNew},
		{execution.NotDone, execution.Ask, execution.StartNew},
	} {
		for _, class := range []execution.Class{execution.Idempotent, execution.StatusQuery, execution.Irreversible} {
			x := standing(c.state, class, c.after)
			if got := execution.Judge(x, claimOf(x)); got != c.want {
				t.Errorf("%s, %s, after delivery %q: %s, not %s", c.state, class, c.after, got, c.want)
			}
		}
	}
}

func TestAnotherActorScopeOrFingerprintIsAnotherIntent(t *testing.T) {
	for _, state := range execution.States() {
		x := standing(state, execution.Irreversible, execution.Return)
		for what, change := range map[string]func(*execution.Claim){
			"actor":       func(c *execution.Claim) { c.Actor = "deb:other" },
			"scope":       func(c *execution.Claim) { c.Scope = "run:run_2" },
			"fingerprint": func(c *execution.Claim) { c.Fingerprint = "hmac-sha256:02" },
		} {
			claim := claimOf(x)
			change(&claim)
			if got := execution.Judge(x, claim); got != execution.StartNew {
				t.Errorf("%s with another %s: %s", state, what, got)
			}
		}
	}
}

func TestAKeyThatStandsForAnotherEffectIsAnErrorInEveryState(t *testing.T) {
	for _, state := range execution.States() {
		for _, isPruned := range []bool{false, true} {
			x := standing(state, execution.Irreversible, execution.Ask)
			x.Scope, x.Pruned = "key:k", isPruned
			claim := claimOf(x)
			claim.Keyed, claim.Fingerprint, claim.Now = true, "hmac-sha256:02", start.Add(10*365*24*time.Hour)
			if got := execution.Judge(x, claim); got != execution.KeyReused {
				t.Errorf("%s, pruned %v: %s", state, isPruned, got)
			}
			claim.Actor = "deb:other"
			if got := execution.Judge(x, claim); got != execution.StartNew {
				t.Errorf("%s, pruned %v, another actor's key: %s", state, isPruned, got)
			}
		}
	}
}

func TestTheAttachWindowCountsFromTheLastTransitionAndNeverClosesOnWhatIsOpen(t *testing.T) {
	for _, state := range execution.States() {
		x := standing(state, execution.Irreversible, execution.Ask)
		claim := claimOf(x)
		claim.Now = start.Add(x.AttachWindow)
		within := execution.Judge(x, claim)
		claim.Now = claim.Now.Add(1)
		past := execution.Judge(x, claim)
		if state.Open() && past != within || !state.Open() && past != execution.StartNew {
			t.Errorf("%s: %s within the window, %s past it", state, within, past)
		}
		claim.Keyed = true
		if got := execution.Judge(x, claim); state.Completed() && got != execution.HandOut {
			t.Errorf("%s: a key does not outlive the window: %s", state, got)
		}
	}
}

// Every combination, to be read by people: a change here is a change of what a repeated call gets.
func TestEveryMatch(t *testing.T) {
	var table strings.Builder
	table.WriteString("What a call gets that matches an earlier execution: without a key within and past the attach window | with a key, at any time.\n")
	for _, class := range []execution.Class{execution.ReadOnly, execution.Irreversible} {
		for _, after := range []execution.AfterDelivery{execution.Ask, execution.Return, execution.New} {
			name := string(class)
			if class != execution.ReadOnly {
				name = "side effect"
			}
			fmt.Fprintf(&table, "\n%s, after_delivery %s\n", name, after)
			for _, state := range execution.States() {
				x := standing(state, class, after)
				var got [4]execution.Disposition
				for i, claim := range []execution.Claim{{Now: start}, {Now: start.Add(2 * time.Hour)}, {Now: start, Keyed: true}, {Now: start.Add(2 * time.Hour), Keyed: true}} {
					claim.Actor, claim.Scope, claim.Fingerprint = x.Actor, x.Scope, x.Fingerprint
					got[i] = execution.Judge(x, claim)
				}
				if got[2] != got[3] {
					t.Errorf("%s: a key depends on the window: %s and %s", state, got[2], got[3])
				}
				fmt.Fprintf(&table, "    %-32s %-10s %-10s | %s\n", state, got[0], got[1], got[2])
			}
		}
	}
	golden(t, "testdata/matches.txt", table.String())
}
