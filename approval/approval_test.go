package approval_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"singlepass.dev/approval"
)

var at = time.Date(2026, 7, 22, 14, 0, 0, 0, time.UTC)

func card(q approval.Question, earlier string) approval.Card {
	return approval.Card{
		ID: "card_1", Question: q, Earlier: earlier, Created: at, Expires: at.Add(10 * time.Minute),
		Binding: approval.Binding{Execution: "act_1", Fingerprint: "f", EffectDigest: "e", Run: "run_1", ContractDigest: "c"},
	}
}

func TestEveryAnswerToEveryQuestion(t *testing.T) {
	for _, q := range []approval.Question{approval.AskSession, approval.AskUse, approval.AskSessionAndUse, approval.AskAgain} {
		for _, earlier := range []string{"", "act_0"} {
			for _, a := range []approval.Answer{"", "yes", approval.Once, approval.ForRun, approval.Deny, approval.Recorded} {
				t.Run(fmt.Sprintf("%s/%s/%s", q, earlier, a), func(t *testing.T) {
					grant, session, err := card(q, earlier).Decide(approval.Decision{Answer: a, By: "operator", At: at}, "exe:/usr/bin/agent")
					wantGrant := a == approval.Once || a == approval.ForRun && q != approval.AskUse && q != approval.AskAgain
					wantSession := a == approval.ForRun && wantGrant
					wantErr := !wantGrant && a != approval.Deny && (a != approval.Recorded || earlier == "")
					if (grant != nil) != wantGrant || (session != nil) != wantSession || (err != nil) != wantErr {
						t.Errorf("grant %v, session %v, error %v", grant != nil, session != nil, err)
					}
					if session != nil && (session.Run != "run_1" || session.Actor != "exe:/usr/bin/agent" || session.Card != "card_1") {
						t.Errorf("the session is %+v", session)
					}
				})
			}
		}
	}
}

func TestACardIsNotAnsweredAfterItExpiredNorByNobody(t *testing.T) {
	c := card(approval.AskSession, "")
	if _, _, err := c.Decide(approval.Decision{Answer: approval.Once, By: "operator", At: c.Expires}, ""); !errors.Is(err, approval.ErrExpired) {
		t.Errorf("at its end: %v", err)
	}
	if _, _, err := c.Decide(approval.Decision{Answer: approval.Once, At: at}, ""); err == nil {
		t.Error("nobody answered it")
	}
}

func TestAnApprovalIsUsedOnceForWhatWasShownBeforeItExpires(t *testing.T) {
	c := card(approval.AskUse, "")
	g, _, err := c.Decide(approval.Decision{Answer: approval.Once, By: "operator", At: at}, "")
	if err != nil {
		t.Fatal(err)
	}
	// Any other execution, fingerprint, effect, run or contract is another approval.
	b := reflect.ValueOf(&c.Binding).Elem()
	for i := range b.NumField() {
		old := b.Field(i).String()
		b.Field(i).SetString(old + "x")
		if _, err := g.Use(c.Binding, at); !errors.Is(err, approval.ErrMismatch) {
			t.Errorf("another %s: %v", b.Type().Field(i).Name, err)
		}
		b.Field(i).SetString(old)
	}
	if _, err := g.Use(c.Binding, g.Expires); !errors.Is(err, approval.ErrExpired) {
		t.Errorf("at its end: %v", err)
	}
	spent, err := g.Use(c.Binding, at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spent.Use(c.Binding, at); !errors.Is(err, approval.ErrUsed) {
		t.Errorf("a second time: %v", err)
	}
	if g.Used {
		t.Error("using it changed the value that was used")
	}
}

func TestASessionCoversItsScopeUntilItsTime(t *testing.T) {
	subject := approval.Subject{Tool: "pay", ContractDigest: "sha256:01", Arguments: "sha256:02"}
	decide := func(change func(*approval.Decision)) (*approval.Session, error) {
		d := approval.Decision{Answer: approval.ForRun, By: "operator", At: at, Subject: subject}
		change(&d)
		_, s, err := card(approval.AskSession, "").Decide(d, "exe:/usr/bin/agent")
		return s, err
	}
	others := []func(*approval.Subject){
		func(s *approval.Subject) { s.Arguments = "sha256:03" },
		func(s *approval.Subject) { s.ContractDigest = "sha256:04" },
		func(s *approval.Subject) { s.Tool = "look" },
	}
	for scope, covered := range map[approval.Scope]int{"": 3, approval.ScopeRun: 3, approval.ScopeAction: 1, approval.ScopeArguments: 0} {
		s, err := decide(func(d *approval.Decision) { d.Scope = scope })
		if err != nil {
			t.Fatal(err)
		}
		if !s.Covers(subject, at) || !s.Covers(subject, at.Add(1000*time.Hour)) || s.Whole(at) != (covered == 3) {
			t.Errorf("scope %q does not cover what the card showed, or is whole: %v", scope, s.Whole(at))
		}
		n := 0
		for _, other := range others {
			what := subject
			other(&what)
			if s.Covers(what, at) {
				n++
			}
		}
		if n != covered {
			t.Errorf("scope %q covers %d of 3 others, want %d", scope, n, covered)
		}
	}
	s, err := decide(func(d *approval.Decision) { d.For = 15 * time.Minute })
	if err != nil || !s.Covers(subject, at.Add(15*time.Minute-1)) || s.Covers(subject, at.Add(15*time.Minute)) || s.Whole(at.Add(15*time.Minute)) {
		t.Errorf("15 minutes: %+v, %v", s, err)
	}
	if (approval.Session{Scope: "later"}).Covers(subject, at) {
		t.Error("a scope that is not known covers something")
	}
	for name, change := range map[string]func(*approval.Decision){
		"an unknown scope":      func(d *approval.Decision) { d.Scope = "host" },
		"a negative time":       func(d *approval.Decision) { d.For = -time.Minute },
		"less than a minute":    func(d *approval.Decision) { d.For = time.Second },
		"more than a day":       func(d *approval.Decision) { d.For = approval.MaxFor + 1 },
		"no subject":            func(d *approval.Decision) { d.Scope, d.Subject = approval.ScopeAction, approval.Subject{} },
		"no arguments to match": func(d *approval.Decision) { d.Scope, d.Subject.Arguments = approval.ScopeArguments, "" },
	} {
		if s, err := decide(change); err == nil {
			t.Errorf("%s made %+v", name, s)
		}
	}
}
