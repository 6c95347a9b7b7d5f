package policy_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestAConditionAsksExactlyWhenItHolds(t *testing.T) {
	for _, c := range []struct{ condition, arguments, why string }{
		{"args.weight > 100", `{"to":"a","weight":100.5}`, "weight = 100.5"},
		{"args.weight > 100", `{"to":"a","weight":100}`, ""},
		{"args.count >= 3 && args.to.startsWith('x')", `{"to":"xy","count":3}`, `count = 3, to = "xy"`},
		{"args.count >= 3 && args.to.startsWith('x')", `{"to":"y","count":3}`, ""},
		{"args.count == 1", `{"to":"a"}`, "count = 1"}, // a default counts
		{"has(args.express) && args.express", `{"to":"a"}`, ""},
		{"has(args.express) && args.express", `{"to":"a","express":true}`, "express = true"},
		{"'fragile' in args.labels", `{"to":"a","labels":["x","fragile"]}`, `labels = ["x","fragile"]`},
		{"size(args.labels) > 1", `{"to":"a","labels":["x"]}`, ""},
		{"has(args.pin)", `{"to":"a","pin":"canary-not-a-secret"}`, "pin is secret"},
		{"args.to.matches('^[a-c]+$')", `{"to":"abc"}`, `to = "abc"`},
	} {
		a := compile(t, edit(t, plain, "approval: session", `approval: {per_use_if: "`+c.condition+`"}`))
		ask, why, err := a.PerUse(prepare(t, a, c.arguments))
		if err != nil || ask != (c.why != "") || !strings.Contains(why.Text, c.why) || ask && (!strings.Contains(why.Text, c.condition) || why.Condition != c.condition || why.Values != c.why || why.Untold) || strings.Contains(fmt.Sprint(why), "canary") {
			t.Errorf("%s of %s: %v, %+v, %v", c.condition, c.arguments, ask, why, err)
		}
	}
}

func TestApprovalWithoutACondition(t *testing.T) {
	if ask, _, err := compile(t, plain).PerUse(prepare(t, compile(t, plain), `{"to":"a"}`)); ask || err != nil {
		t.Errorf("session asks: %v, %v", ask, err)
	}
	a := compile(t, edit(t, plain, "approval: session", "approval: per_use"))
	if ask, why, err := a.PerUse(prepare(t, a, `{"to":"a"}`)); !ask || why.Text == "" || why.Condition != "" || err != nil {
		t.Errorf("per_use: %v, %+v, %v", ask, why, err)
	}
}

func TestAConditionThatCannotBeToldAsks(t *testing.T) {
	long := `["` + strings.Repeat(`x","`, 3000) + `x"]`
	for _, c := range []struct{ condition, arguments string }{
		{"args.weight > 100", `{"to":"a"}`},                                                    // an absent argument
		{"10 / (args.count - 1) > 1", `{"to":"a"}`},                                            // a division by zero
		{"args.labels.all(x, args.labels.all(y, x == y))", `{"to":"a","labels":` + long + `}`}, // beyond the cost limit
		{"args.labels[3] == 'x'", `{"to":"a","labels":["x"]}`},
	} {
		a := compile(t, edit(t, plain, "approval: session", `approval: {per_use_if: "`+c.condition+`"}`))
		ask, why, err := a.PerUse(prepare(t, a, c.arguments))
		if !ask || err == nil || why.Text == "" || len(why.Text) > 1000 || !why.Untold {
			t.Errorf("%s: %v, %+v, %v", c.condition, ask, why, err)
		}
	}
}

func BenchmarkPerUse(b *testing.B) {
	a := compile(b, edit(b, plain, "approval: session", `approval: {per_use_if: "args.weight > 100 && args.to.startsWith('x')"}`))
	p := prepare(b, a, `{"to":"y","weight":200}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := a.PerUse(p); err != nil {
			b.Fatal(err)
		}
	}
}
