package execution_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/execution"
)

var update = flag.Bool("update", false, "write the tables under testdata anew")

// golden compares a table with the one that was agreed on. A difference is a change of the design, to be read before it is accepted.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	is, was := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(is), len(was)) {
		var a, b string
		if i < len(was) {
			a = was[i]
		}
		if i < len(is) {
			b = is[i]
		}
		if a != b {
			t.Errorf("%s:%d\n was %s\n is  %s", path, i+1, a, b)
		}
	}
}

type column struct {
	name string
	x    func(t testing.TB, class execution.Class) (execution.Execution, bool)
}

// columns are every state, and the ways of standing in it that matter.
func columns() []column {
	told := func(events ...execution.Event) func(testing.TB, execution.Class) (execution.Execution, bool) {
		return func(t testing.TB, class execution.Class) (execution.Execution, bool) {
			return begin(t, class).then(events...).x, true
		}
	}
	done := []execution.Event{authorized, dispatched(1), observed}
	return []column{
		{"(none)", func(testing.TB, execution.Class) (execution.Execution, bool) { return execution.Execution{}, true }},
		{"accepted", told()},
		{"authorized", told(authorized)},
		{"authorized, first attempt not done", told(authorized, dispatched(1), unknown, doItAgain)},
		{"dispatched", told(authorized, dispatched(1))},
		{"dispatched, first attempt in doubt", func(t testing.TB, class execution.Class) (execution.Execution, bool) {
			if class != execution.ReadOnly && class != execution.Idempotent {
				return execution.Execution{}, false
			}
			return begin(t, class).then(authorized, dispatched(1), unknown, dispatched(2)).x, true
		}},
		{"dispatched, awaited", func(t testing.TB, class execution.Class) (execution.Execution, bool) {
			if class != execution.StatusQuery {
				return execution.Execution{}, false
			}
			return begin(t, class).then(authorized, dispatched(1), awaited).x, true
		}},
		{"unknown", told(authorized, dispatched(1), unknown)},
		{"unknown, was awaited", func(t testing.TB, class execution.Class) (execution.Execution, bool) {
			if class != execution.StatusQuery {
				return execution.Execution{}, false
			}
			return begin(t, class).then(authorized, dispatched(1), awaited, unknown).x, true
		}},
		{"completed_result_not_delivered", told(done...)},
		{"completed_result_delivered", told(append(slices.Clone(done), delivered)...)},
		{"rejected", told(rejected)},
		{"expired", told(expired)},
		{"withdrawn", told(withdrawn)},
		{"not_sent", told(authorized, gaveUp)},
		{"not_done", told(authorized, dispatched(1), unknown, notDone)},
		{"completed_result_delivered, pruned", told(append(slices.Clone(done), delivered, pruned)...)},
		{"rejected, pruned", told(rejected, pruned)},
	}
}

type variant struct {
	name string
	ev   func(x execution.Execution) execution.Event
}

// variants are every kind of event, with the fields that change what it does.
func variants() []variant {
	plain := func(ev execution.Event) func(execution.Execution) execution.Event {
		return func(execution.Execution) execution.Event { return ev }
	}
	of := func(ev execution.Event, attempt func(last int) int) func(execution.Execution) execution.Event {
		return func(x execution.Execution) execution.Event {
			ev.Attempt = attempt(len(x.Attempts))
			return ev
		}
	}
	last := func(n int) int { return n }
	next := func(n int) int { return n + 1 }
	from := func(s execution.Source, o execution.Outcome) execution.Event {
		return execution.Event{Kind: execution.KindObserved, Source: s, Outcome: o}
	}
	v := []variant{
		{"accepted", plain(execution.Event{Kind: execution.KindAccepted, Acceptance: acceptance(execution.Irreversible)})},
		{"accepted without acceptance", plain(execution.Event{Kind: execution.KindAccepted})},
		{"caller_attached", plain(attached)},
		{"caller_attached without caller", plain(execution.Event{Kind: execution.KindAttached})},
		{"authorized", plain(authorized)},
		{"dispatched", of(dispatched(0), next)},
		{"dispatched with the last attempt's number", of(dispatched(0), last)},
		{"dispatched with a number left out", of(dispatched(0), func(n int) int { return n + 2 })},
		{"attempt_not_sent", of(sendFailed(0), last)},
		{"attempt_not_sent of another attempt", of(sendFailed(0), next)},
		{"not_sent", plain(gaveUp)},
		{"outcome_observed success", of(from("", execution.Success), last)},
		{"outcome_observed target_error", of(from(execution.FromTarget, execution.TargetError), last)},
		{"outcome_observed of another attempt", of(from("", execution.Success), next)},
		{"outcome_observed late_answer", of(from(execution.FromLate, execution.Success), last)},
		{"outcome_observed status_query", of(from(execution.FromQuery, execution.Success), last)},
		{"outcome_observed marker", of(from(execution.FromMarker, execution.Success), last)},
		{"outcome_observed operator", of(from(execution.FromOperator, execution.Success), last)},
		{"outcome_observed not_sent", of(from(execution.FromOperator, execution.NothingSent), last)},
		{"outcome_observed without outcome", of(from(execution.FromOperator, ""), last)},
		{"outcome_awaited", of(awaited, last)},
		{"outcome_awaited of another attempt", of(awaited, next)},
		{"outcome_unknown", of(unknown, last)},
		{"outcome_unknown of another attempt", of(unknown, next)},
		{"verification_no_proof", plain(noProof)},
		{"not_done_established", plain(notDone)},
		{"not_done_established, caller waiting", plain(doItAgain)},
		{"not_done_established by the operator", plain(execution.Event{Kind: execution.KindNotDone, Source: execution.FromOperator})},
		{"delivered", plain(delivered)},
		{"delivery_disputed", plain(disputed)},
		{"rejected", plain(rejected)},
		{"expired", plain(expired)},
		{"withdrawn", plain(withdrawn)},
		{"pruned", plain(pruned)},
		{"(no kind)", plain(execution.Event{})},
		{"(a kind of the future)", plain(execution.Event{Kind: "invented"})},
	}
	for i := range v {
		f := v[i].ev
		v[i].ev = func(x execution.Execution) execution.Event {
			ev := f(x)
			ev.ID, ev.At = id, start.Add(3600e9)
			return ev
		}
	}
	return v
}

func TestEveryStateAndEvent(t *testing.T) {
	states, kinds := map[execution.State]bool{}, map[execution.Kind]bool{}
	var table strings.Builder
	table.WriteString("What each event makes of each state. What is not listed is refused.\n")
	for _, c := range columns() {
		fmt.Fprintf(&table, "\n%s\n", c.name)
		for _, v := range variants() {
			byResult := map[string][]string{}
			var order []string
			for _, class := range execution.Classes() {
				x, possible := c.x(t, class)
				if !possible {
					continue
				}
				states[x.State] = true
				before := fingerprintOf(t, x)
				ev := v.ev(x)
				kinds[ev.Kind] = true
				next, err := execution.Apply(x, ev)
				if fingerprintOf(t, x) != before {
					t.Errorf("%s in %s changed its argument", v.name, c.name)
				}
				result := string(next.State)
				if next.InDoubt && next.State != execution.Unknown {
					result += ", in doubt"
				}
				if next.Pruned {
					result += ", pruned"
				}
				if err != nil {
					result = ""
					if !errors.Is(err, execution.ErrIllegal) {
						t.Errorf("%s in %s: %v is not ErrIllegal", v.name, c.name, err)
					}
					if fingerprintOf(t, next) != before {
						t.Errorf("%s in %s was refused and returned something else", v.name, c.name)
					}
				} else if changed := next.State != x.State; changed != next.ChangedAt.Equal(ev.At) {
					t.Errorf("%s in %s: changed %v, changed at %v", v.name, c.name, changed, next.ChangedAt)
				}
				if byResult[result] == nil {
					order = append(order, result)
				}
				byResult[result] = append(byResult[result], string(class))
			}
			for _, result := range order {
				if result == "" {
					continue
				}
				only := ""
				if len(order) > 1 {
					only = "  (" + strings.Join(byResult[result], ", ") + ")"
				}
				fmt.Fprintf(&table, "    %-38s -> %s%s\n", v.name, result, only)
			}
		}
	}
	for _, s := range execution.States() {
		if !states[s] {
			t.Errorf("no column for state %s", s)
		}
	}
	for _, k := range execution.Kinds() {
		if !kinds[k] {
			t.Errorf("no row for kind %s", k)
		}
	}
	golden(t, "testdata/transitions.txt", table.String())
}

func TestAStateIsOneOfOpenCompletedAndFinal(t *testing.T) {
	for _, s := range execution.States() {
		n := 0
		for _, is := range []bool{s.Open(), s.Completed(), s.Final()} {
			if is {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is %d of the three", s, n)
		}
	}
	var none execution.State
	if none.Open() || none.Completed() || none.Final() {
		t.Error("the zero value is a state")
	}
}
