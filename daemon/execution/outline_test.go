package execution_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
)

// An outline must let exactly those events come that may come to the whole execution, or the verification of a journal would miss a story that cannot be.
func TestAnOutlineLetsTheSameEventsCome(t *testing.T) {
	outlined, refused, came := map[execution.State]int{}, 0, map[execution.Kind]int{}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 11))
		var whole, brief execution.Execution
		var told []string
		for i := range 60 {
			ev := anyEvent(r, whole, start.Add(time.Duration(i)*time.Second))
			if whole.State == "" {
				ev.Kind, ev.Acceptance = execution.KindAccepted, acceptance(execution.Classes()[r.IntN(4)])
			}
			if !whole.State.Open() && r.IntN(2) == 0 {
				ev.Kind = []execution.Kind{execution.KindDelivered, execution.KindDisputed, execution.KindAttached}[r.IntN(3)]
			}
			told = append(told, string(ev.Kind))
			next, want := execution.Apply(whole, ev)
			if o, ok := brief.Outline(); ok {
				brief = o.Execution(id)
				outlined[brief.State]++
				came[ev.Kind]++
			}
			after, got := execution.Apply(brief, ev)
			if fmt.Sprint(got) != fmt.Sprint(want) || after.State != next.State {
				t.Fatalf("seed %d: the whole came to %s (%v) and the outline to %s (%v) after %s", seed, next.State, want, after.State, got, strings.Join(told, " "))
			}
			if want != nil {
				refused++
			}
			whole, brief = next, after
		}
	}
	for _, s := range execution.States() {
		if got := outlined[s]; got == 0 != s.Open() {
			t.Errorf("%s was outlined %d times", s, got)
		}
	}
	if refused == 0 || came[execution.KindDisputed] == 0 || came[execution.KindPruned] == 0 {
		t.Errorf("%d events were refused, and to outlines came %v", refused, came)
	}
}
