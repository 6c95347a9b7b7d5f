package e2e_test

import (
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

func TestThePersonsVerdictSettlesAnUnknownOutcome(t *testing.T) {
	for _, v := range []struct {
		name, verdict string
		loss          ledger.Mode // what really happened, which the person found out at the target
		between       int         // effects before the repeated call
	}{
		{"it was done", "--done", ledger.Cut, 1},
		{"it was not done", "--not-done", ledger.Drop, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, option{})
			s.agreeable()
			c := s.agent(clientKinds[0], "stdio")
			s.target.plan(v.loss)
			call := request{tool: "charge_once", args: args("A-1")}
			id := c.mustCall(call).meta(t).ExecutionID
			s.target.wantEffects(t, "A-1", v.between)
			if got := c.mustCall(request{tool: "execution_status", args: map[string]any{"execution_id": id}}); got.body(t).State != "unknown" {
				t.Errorf("the agent that asks is not told that the outcome is unknown: %s", got.raw)
			}
			if st := s.status(); st.Unknown != 1 {
				t.Errorf("status counts %d unknown outcomes, want 1", st.Unknown)
			}

			s.spctl("settle", id, v.verdict, "--note", "looked at the ledger")
			again := c.mustCall(call)
			s.target.wantEffects(t, "A-1", 1)
			switch said := again.meta(t); v.verdict {
			case "--done":
				if said.ExecutionID != id || !said.Recorded || again.IsError {
					t.Errorf("the verdict is not what the repeated call gets: %s", again.raw)
				}
			case "--not-done":
				s.wantReceipt(again)
			}
			if st := s.status(); st.Unknown != 0 {
				t.Errorf("status still counts %d unknown outcomes", st.Unknown)
			}
		})
	}
}
