package policy_test

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

var dispositions = []execution.Disposition{
	"", execution.StartNew, execution.Attach, execution.Recover, execution.HandOut, execution.SameNo, execution.AskAgain, execution.KeyReused,
}

// everyCombination calls f with every combination of facts.
func everyCombination(f func(policy.Facts)) {
	var walk func(policy.Facts, int)
	walk = func(facts policy.Facts, i int) {
		v := reflect.ValueOf(&facts).Elem()
		if i == v.NumField() {
			f(facts)
			return
		}
		if v.Field(i).Kind() == reflect.String {
			for _, d := range dispositions {
				v.Field(i).SetString(string(d))
				walk(facts, i+1)
			}
			return
		}
		for _, b := range []bool{false, true} {
			v.Field(i).SetBool(b)
			walk(facts, i+1)
		}
	}
	walk(policy.Facts{}, 0)
}

// The whole table, 2^11 times 8 rows, is folded: a fact on which nothing depends, given the facts before it, is left out, and values with the same consequences share
// their lines.
func TestTheDecisionForEveryCombinationOfFacts(t *testing.T) {
	fields := reflect.TypeFor[policy.Facts]()
	var fold func(policy.Facts, int) string
	fold = func(facts policy.Facts, i int) string {
		if i == fields.NumField() {
			d := policy.Decide(facts)
			return strings.TrimSpace(fmt.Sprintf("-> %s %s", d.Step, d.Code)) + "\n"
		}
		type group struct {
			labels []string
			text   string
		}
		var groups []group
		add := func(label, text string) {
			for g := range groups {
				if groups[g].text == text {
					groups[g].labels = append(groups[g].labels, label)
					return
				}
			}
			groups = append(groups, group{[]string{label}, text})
		}
		if v := reflect.ValueOf(&facts).Elem().Field(i); v.Kind() == reflect.String {
			for _, d := range dispositions {
				v.SetString(string(d))
				add(cmp.Or(string(d), "none"), fold(facts, i+1))
			}
		} else {
			for _, value := range []bool{true, false} {
				v.SetBool(value)
				add(map[bool]string{false: "not ", true: ""}[value]+fields.Field(i).Name, fold(facts, i+1))
			}
		}
		if len(groups) == 1 {
			return groups[0].text
		}
		var b strings.Builder
		for _, g := range groups {
			for line := range strings.Lines(g.text) {
				separator := ", "
				if strings.HasPrefix(line, "->") {
					separator = " "
				}
				b.WriteString(strings.Join(g.labels, "|") + separator + line)
			}
		}
		return b.String()
	}
	golden(t, "decide.golden", fold(policy.Facts{}, 0))
}

func TestTheOrderOfTheDecision(t *testing.T) {
	rows := 0
	everyCombination(func(f policy.Facts) {
		rows++
		d := policy.Decide(f)
		matched := f.Earlier != "" && f.Earlier != execution.StartNew
		sends := d.Step == policy.Dispatch
		asks := d.Step == policy.AskSession || d.Step == policy.AskUse || d.Step == policy.AskBoth
		for rule, broken := range map[string]bool{
			"there is always a step":                                            d.Step == "",
			"a locked vault denies before everything else":                      f.VaultLocked != (d.Step == policy.DenyLocked),
			"an earlier execution comes before the contract's refusals":         !f.VaultLocked && matched && d.Step == policy.Reject && d.Code != api.CodeKeyReused,
			"a reused key is always said":                                       !f.VaultLocked && f.Earlier == execution.KeyReused && d.Code != api.CodeKeyReused,
			"a matched call never dispatches by itself":                         matched && sends,
			"a denied call's repeat gets no card":                               f.Earlier == execution.SameNo && asks,
			"no result without a session in a run that did not ask for it":      matched && f.EarlierOfOtherRun && !f.HasSession && d.Step == policy.UseEarlier && f.Earlier != execution.SameNo,
			"nothing with a side effect is sent in quarantine":                  f.Quarantined && !f.ReadOnly && sends,
			"nobody is asked for what quarantine forbids":                       f.Quarantined && !f.ReadOnly && !matched && asks,
			"no recovery in quarantine":                                         f.Quarantined && !f.ReadOnly && f.Earlier == execution.Recover && d.Step == policy.UseEarlier && d.Code != api.CodeQuarantine,
			"read_only works in quarantine":                                     f.ReadOnly && d.Code == api.CodeQuarantine,
			"only an accepted contract with valid arguments is sent or asked":   (sends || asks && !matched) && !(f.ActionKnown && f.ContractAccepted && f.ArgumentsValid && f.CredentialPresent && f.TargetBound),
			"only a run with a session sends":                                   sends && !f.HasSession,
			"what asks per use is never sent without asking":                    sends && f.PerUse,
			"a refusal has a code":                                              (d.Step == policy.Reject || d.Step == policy.DenyLocked) && d.Code == "",
			"a card has none":                                                   (asks || sends) && d.Code != "",
			"one card settles both questions":                                   d.Step == policy.AskBoth && (f.HasSession || !f.PerUse),
			"no earlier execution and one that leads to a new one are the same": f.Earlier == execution.StartNew && d != policy.Decide(without(f)),
		} {
			if broken {
				t.Errorf("%s: %+v gives %+v", rule, f, d)
			}
		}
	})
	if rows != 2048*len(dispositions) {
		t.Errorf("%d rows", rows)
	}
}

func without(f policy.Facts) policy.Facts {
	f.Earlier = ""
	return f
}

func TestTheCautiousZeroFactsSendNothing(t *testing.T) {
	if d := policy.Decide(policy.Facts{}); d != (policy.Decision{Step: policy.Reject, Code: api.CodeActionUnknown}) {
		t.Errorf("no facts give %+v", d)
	}
}
