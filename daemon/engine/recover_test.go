package engine_test

import (
	"testing"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// The journal's chain has no key, so a record that says "idempotent" permits nothing by itself.
func TestNothingIsSentAgainButWhatTheContractThatWasAcceptedMakesOfTheCall(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = lost
	first := r.call(background, a, "release", `{"order":"7"}`)
	sent := r.target.effects()
	r.target.answer = nil

	// The contract in force is another one, and nobody vouches for the one that the record names.
	changed := contract(t, "release", "idempotent", idempotent+"\n  attempts: 3", "api", "session", inBinding)
	r.SetActions([]*policy.Action{changed}, nil)
	got := r.call(background, a, "release", `{"order":"7"}`)
	r.want(got, "", sent)
	if got.ExecutionID != first.ExecutionID || got.State != execution.Unknown {
		t.Errorf("got %s %s", got.ExecutionID, got.State)
	}

	// The vault still has the contract that it was accepted with.
	r.SetActions([]*policy.Action{changed}, r.actions[2:3])
	got = r.call(background, a, "release", `{"order":"7"}`)
	r.want(got, "", sent+1)
	if got.ExecutionID != first.ExecutionID || got.State != execution.NotDelivered {
		t.Errorf("got %s %s", got.ExecutionID, got.State)
	}
}
