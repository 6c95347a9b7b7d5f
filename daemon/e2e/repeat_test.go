package e2e_test

import (
	"testing"

	"singlepass.dev/daemon/api"
)

func TestARepeatOfSomethingDeliveredAsksThePersonFirst(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, option{})
			c := startClient(t, clientKinds[0])
			c.connect(s.server(transport))
			call := request{tool: "charge_once", args: args("A-1")}

			// answer lets one call wait for its card, and answers that.
			answer := func(question, how string) *result {
				reply := c.call(call)
				card := s.nextCard()
				if card.Question != question {
					t.Errorf("the card asks %q, want %q", card.Question, question)
				}
				if again := question == "again"; again != (card.Original != nil) {
					t.Errorf("the card for %q has the earlier record %+v", question, card.Original)
				}
				s.spctl("approve", card.Card, how)
				return must(t, reply())
			}

			first := answer("session", "--session")
			s.record("delivered", state("completed_result_delivered"))
			second := answer("again", "--once")
			s.wantReceipt(second)
			if second.receipt() == first.receipt() {
				t.Errorf("the person said once more, and the agent got the first receipt")
			}
			s.target.wantEffects(t, "A-1", 2)

			id := second.meta(t).ExecutionID
			s.record("delivered again", func(r api.Record) bool { return r.ExecutionID == id && r.State == "completed_result_delivered" })
			recorded := answer("again", "--recorded")
			// That is the person's answer to further repeats too: an agent that insists brings no more cards.
			insisting := c.mustCall(call)
			for _, r := range []*result{recorded, insisting} {
				if r.receipt() != second.receipt() || !r.meta(t).Recorded {
					t.Errorf("the person handed out the recorded result, and the agent got %s", r.raw)
				}
			}
			if st := s.status(); st.Pending != 0 {
				t.Errorf("%d cards wait, want none", st.Pending)
			}
			s.target.wantEffects(t, "A-1", 2)
		})
	}
}
