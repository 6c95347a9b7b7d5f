package e2e_test

import (
	"fmt"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

// What is meant twice is done twice: a gateway that swallowed these would be as wrong as one that repeats.

func TestTwoIntentsAreTwoEffects(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, s *stand, kind clientKind, transport, order string) (first, second *result)
	}{
		{"two processes with the same arguments", func(t *testing.T, s *stand, kind clientKind, transport, order string) (first, second *result) {
			a, b := s.agent(kind, transport), s.agent(kind, transport)
			r := request{tool: "charge_once", args: args(order)}
			return a.mustCall(r), b.mustCall(r)
		}},
		{"two processes with the same arguments at the same time", func(t *testing.T, s *stand, kind clientKind, transport, order string) (first, second *result) {
			a, b := s.agent(kind, transport), s.agent(kind, transport)
			s.target.plan(ledger.Hold, ledger.Hold)
			r := request{tool: "charge_once", args: args(order)}
			x, y := a.call(r), b.call(r)
			s.target.nextEffect()
			s.target.nextEffect()
			s.target.release()
			return must(t, x()), must(t, y())
		}},
		{"two keys as an argument", func(t *testing.T, s *stand, kind clientKind, transport, order string) (first, second *result) {
			a := s.agent(kind, transport)
			call := func(key string) *result {
				withKey := args(order)
				withKey["intent_key"] = key
				return a.mustCall(request{tool: "charge_once", args: withKey})
			}
			return call(order + " once"), call(order + " again")
		}},
		{"two keys in _meta", func(t *testing.T, s *stand, kind clientKind, transport, order string) (first, second *result) {
			a := s.agent(kind, transport)
			call := func(key string) *result {
				return a.mustCall(request{tool: "charge_once", args: args(order), meta: map[string]any{"dev.singlepass/idempotency-key": key}})
			}
			return call(order + " once"), call(order + " again")
		}},
		{"the same JSON-RPC id with other arguments", func(t *testing.T, s *stand, kind clientKind, transport, order string) (first, second *result) {
			a := s.agent(kind, transport)
			first = a.mustCall(request{tool: "charge_once", args: args(order)})
			a.order("close", nil)()
			// A new connection counts its ids from the start: a first call of another tool puts the second charge where the first one was.
			a.connect(s.server(transport))
			a.mustCall(request{tool: "balance", args: map[string]any{}})
			second = a.mustCall(request{tool: "charge_once", args: args(order + "-other")})
			if ids := a.callIDs(); len(ids) != 4 || ids[1] != ids[3] {
				t.Errorf("the two charges did not have the same JSON-RPC id: %v", ids)
			}
			return first, second
		}},
	}
	for _, kind := range clientKinds {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(kind.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, option{})
				s.agreeable()
				for i, c := range cases {
					t.Run(c.name, func(t *testing.T) {
						s.about(t)
						order := fmt.Sprintf("A-%d", i)
						first, second := c.run(t, s, kind, transport, order)
						if got := len(s.target.effects(order)) + len(s.target.effects(order+"-other")); got != 2 {
							t.Errorf("the target acted %d times, want 2", got)
						}
						s.wantReceipt(first)
						s.wantReceipt(second)
						if first.receipt() == second.receipt() {
							t.Errorf("both calls got the receipt %s", first.receipt())
						}
					})
				}
			})
		}
	}
}

func TestTheSameKeyIsOneEffectInAnotherProcessOfTheSameAgent(t *testing.T) {
	s := newStand(t, option{})
	s.agreeable()
	r := request{tool: "charge_once", args: args("A-1"), meta: map[string]any{"dev.singlepass/idempotency-key": "job-17"}}
	first := s.agent(clientKinds[0], "stdio").mustCall(r)
	second := s.agent(clientKinds[0], "stdio").mustCall(r)
	s.target.wantEffects(t, "A-1", 1)
	s.wantReceipt(second)
	if first.receipt() != second.receipt() || !second.meta(t).Recorded {
		t.Errorf("the second process did not get the recorded result: %s, then %s", first.raw, second.raw)
	}
}
