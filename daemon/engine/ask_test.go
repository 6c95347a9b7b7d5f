package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/effect"
)

func asking(target, purpose string) string {
	return fmt.Sprintf(`{"target":%q,"purpose":%q}`, target, purpose)
}

func TestAnAgentThatAsksForACredentialLearnsYesOrNo(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	done := r.begin(background, a, "request_credential", asking("https://new.example/v1", "to list the orders"))
	c := r.card()
	if c.Card.Question != approval.AskUse || c.Effect.Channel != effect.Person || c.Effect.Ask.Target != "https://new.example/v1" || c.Effect.Ask.Purpose != "to list the orders" {
		t.Errorf("the card is %+v %+v", c, c.Effect)
	}
	r.answer(c, approval.Once)
	got := <-done
	r.want(got, "", 0)
	if !strings.Contains(string(got.Result), `{"answer":"yes"}`) {
		t.Errorf("the agent is told %s", got.Result)
	}
	// In other words it is the same question, and has its answer.
	again := r.call(background, a, "request_credential", asking("https://new.example/v1", "really"))
	if r.want(again, "", 0); again.ExecutionID != got.ExecutionID || string(again.Result) != string(got.Result) {
		t.Errorf("asked again: %s", again.Result)
	}

	done = r.begin(background, a, "request_credential", asking("ssh://root@host.example", "to restart it"))
	r.answer(r.card(), approval.Deny)
	r.want(<-done, api.CodeDenied, 0)
	r.want(r.call(background, a, "request_credential", asking("ssh://root@host.example", "please")), api.CodeDenied, 0) // no new card
	if n := len(r.Cards()); n != 0 {
		t.Errorf("%d cards", n)
	}
}

func TestAskingIsRationed(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	done := r.begin(background, a, "request_credential", asking("https://a.example/", "x"))
	c := r.card()
	r.want(r.call(background, a, "request_credential", asking("https://b.example/", "x")), api.CodeTooManyCalls, 0) // one at a time
	r.answer(c, approval.Deny)
	<-done
	for i := range 4 {
		done := r.begin(background, a, "request_credential", asking(fmt.Sprintf("https://c%d.example/", i), "x"))
		r.answer(r.card(), approval.Deny)
		r.want(<-done, api.CodeDenied, 0)
	}
	r.want(r.call(background, a, "request_credential", asking("https://d.example/", "x")), api.CodeTooManyCalls, 0)
	r.clock.add(time.Hour)
	done = r.begin(background, a, "request_credential", asking("https://d.example/", "x"))
	r.answer(r.card(), approval.Deny)
	r.want(<-done, api.CodeDenied, 0)
}

func TestAQuestionIsPlainOrRefused(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	for _, arguments := range []string{
		asking("https://a.example/?x=canary", "x"), asking("https://u:canary@a.example/", "x"), asking("a.example", "x"), asking("file:///etc/passwd", "x"), asking("ssh://u:canary@h.example", "x"),
		asking("https://a.example/", ""), asking("https://a.example/", "a\nb"), asking("https://a.example/", strings.Repeat("x", 301)),
		`{"target":"https://a.example/"}`, `{"target":"https://a.example/","purpose":"x","value":"y"}`,
	} {
		r.want(r.call(background, a, "request_credential", arguments), api.CodeArguments, 0)
	}
}
