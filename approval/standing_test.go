package approval_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"singlepass.dev/approval"
)

var subject = approval.Subject{Tool: "pay", ContractDigest: "sha256:0b", Arguments: "sha256:0c"}

func program() approval.Program {
	return approval.Program{
		Actor: "deb:agent", Package: "deb:agent", Exe: "/usr/bin/agent", Digest: "sha256:0a", Via: "bridge", Through: []string{"/usr/local/bin/spctl"}, Chain: []string{"/usr/bin/bash", "user 0"},
	}
}

func given(t *testing.T, scope approval.Scope, lasts time.Duration) approval.Standing {
	t.Helper()
	_, s, err := card(approval.AskSession, "").Decide(approval.Decision{
		Answer: approval.ForRun, By: "operator", At: at, Scope: scope, For: lasts, Subject: subject, Standing: true, Grant: "grant_01K0000000000000000000000A",
	}, "deb:agent")
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Standing(program())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTheFrozenStandingGrantIsReadAndWrittenTheSame(t *testing.T) {
	b, err := os.ReadFile("testdata/standing-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.TrimSpace(b)
	g, err := approval.DecodeStanding(b)
	if err != nil {
		t.Fatal(err)
	}
	if want := given(t, approval.ScopeArguments, approval.MaxStanding); !reflect.DeepEqual(g, want) {
		t.Errorf("read %+v\nwant %+v", g, want)
	}
	if again, err := g.Encode(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("written as %s, %v", again, err)
	}
	for what, change := range map[string][2]string{
		"another version":    {`"v":1`, `"v":2`},
		"an unknown field":   {`"scope"`, `"only_on":"mondays","scope"`},
		"one within":         {`"tool"`, `"amount_below":5,"tool"`},
		"the whole run":      {`"scope":"arguments"`, `"scope":"run"`},
		"no scope":           {`"scope":"arguments"`, `"scope":""`},
		"no arguments":       {`,"arguments":"sha256:0c"`, ``},
		"no end":             {`"until":"2026-08-21T14:00:00Z"`, `"until":"0001-01-01T00:00:00Z"`},
		"an end too far":     {`"until":"2026-08-21`, `"until":"2026-08-22`},
		"no digest":          {`"digest":"sha256:0a"`, `"digest":""`},
		"no contract":        {`"contract_digest":"sha256:0b"`, `"contract_digest":""`},
		"something after it": {`14:00:00Z"}`, `14:00:00Z"}{}`},
	} {
		changed := strings.Replace(string(b), change[0], change[1], 1)
		if what == "something after it" {
			changed = string(b) + "{}"
		}
		if changed == string(b) {
			t.Fatalf("%s: nothing was changed", what)
		}
		if _, err := approval.DecodeStanding([]byte(changed)); err == nil {
			t.Errorf("%s: it is read", what)
		}
	}
}

func TestAStandingGrantCoversOneProgramOneActionAndItsTime(t *testing.T) {
	for scope, others := range map[approval.Scope]bool{approval.ScopeAction: true, approval.ScopeArguments: false, "": true} {
		g := given(t, scope, time.Hour)
		now := at.Add(time.Minute)
		if !g.Covers(program(), subject, now) {
			t.Fatalf("%q: it does not cover what it was given for", scope)
		}
		other := subject
		other.Arguments = "sha256:ff"
		if g.Covers(program(), other, now) != others {
			t.Errorf("%q: other arguments: %v", scope, !others)
		}
		for what, s := range map[string]approval.Subject{"tool": {Tool: "wipe", ContractDigest: subject.ContractDigest, Arguments: subject.Arguments}, "contract": {Tool: "pay", ContractDigest: "sha256:ff", Arguments: subject.Arguments}} {
			if g.Covers(program(), s, now) {
				t.Errorf("%q: it covers another %s", scope, what)
			}
		}
		// Whatever differs in the program, it is another one.
		v := reflect.TypeFor[approval.Program]()
		for i := range v.NumField() {
			p := program()
			f := reflect.ValueOf(&p).Elem().Field(i)
			if f.Kind() == reflect.String {
				f.SetString(f.String() + "x")
			} else {
				f.Set(reflect.ValueOf([]string{f.Index(0).String(), "/usr/bin/more"}))
				if v.Field(i).Name == "Chain" {
					f.Set(reflect.ValueOf([]string{"user 0", "/usr/bin/bash"}))
				}
			}
			if g.Covers(p, subject, now) {
				t.Errorf("%q: it covers a program with another %s", scope, v.Field(i).Name)
			}
		}
		for _, when := range []time.Time{at.Add(-time.Second), g.Until, g.Until.Add(time.Hour)} {
			if g.Covers(program(), subject, when) || g.InForce(when) {
				t.Errorf("%q: it is in force at %s", scope, when)
			}
		}
		s := g.Session("run_2", now)
		if s.Run != "run_2" || s.Grant != g.ID || !s.Until.Equal(g.Until) || s.Whole(now) || s.Card != "" {
			t.Errorf("%q: the session is %+v", scope, s)
		}
	}
}

func TestWhatNoStandingGrantIsGivenFor(t *testing.T) {
	right := approval.Decision{Answer: approval.ForRun, By: "operator", At: at, For: time.Hour, Subject: subject, Standing: true, Grant: "grant_1"}
	if _, _, err := card(approval.AskSessionAndUse, "").Decide(right, "a"); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*approval.Decision){
		"one use":           func(d *approval.Decision) { d.Answer = approval.Once },
		"the whole run":     func(d *approval.Decision) { d.Scope = approval.ScopeRun },
		"without an end":    func(d *approval.Decision) { d.For = 0 },
		"for too long":      func(d *approval.Decision) { d.For = approval.MaxStanding + time.Second },
		"for no time":       func(d *approval.Decision) { d.For = time.Second },
		"without an id":     func(d *approval.Decision) { d.Grant = "" },
		"without an action": func(d *approval.Decision) { d.Subject = approval.Subject{} },
	} {
		d := right
		change(&d)
		if _, _, err := card(approval.AskSession, "").Decide(d, "a"); err == nil {
			t.Errorf("%s: it is given", what)
		}
	}
	// Without it, a session is bounded as ever.
	if _, _, err := card(approval.AskSession, "").Decide(approval.Decision{Answer: approval.ForRun, By: "operator", At: at, For: 25 * time.Hour}, "a"); err == nil {
		t.Error("a session of more than a day is given")
	}
	for _, q := range []approval.Question{approval.AskUse, approval.AskAgain} {
		if _, _, err := card(q, "act_0").Decide(right, "a"); err == nil {
			t.Errorf("%s: it is given", q)
		}
	}
}
