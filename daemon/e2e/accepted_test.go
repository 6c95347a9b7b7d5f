package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

// deployed is an action whose target answers 202 and says where it is asked how that ends.
var deployed = map[string]string{"balance": usualActions["balance"], "deploy": `action: deploy
title: Deploy a release
description: Deploys one order.
channel: http
input:
  type: object
  properties:
    order: {type: string}
    amount: {type: integer, minimum: 1}
  required: [order, amount]
  additionalProperties: false
credential: ledger
approval: session
http:
  method: POST
  url: "{target}/ignores/deploy"
  json: {order: "{order}", amount: "{amount}"}
replay:
  class: status_query
  attach_window: 1h
  after_delivery: return
  accepted: [202]
  status:
    method: GET
    url: "{answer:Location}"
    within: "{target}/jobs"
    done: status == 200 && body.state == "done"
    running: status == 200 && body.state == "running"
  wait: {poll: 1s}
`}

// jobsAsked lists the addresses at which the target was asked how its jobs end.
func (tg *target) jobsAsked() []string {
	tg.t.Helper()
	var paths []string
	for _, e := range tg.entries(ledger.Read) {
		if strings.HasPrefix(e.Path, "/jobs/") {
			paths = append(paths, e.Path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func TestALongActionIsAskedForWhateverBecomesOfTheDaemon(t *testing.T) {
	t.Parallel()
	s := newStand(t, option{actions: deployed, config: "answer_within: 2s\n"})
	s.agreeable()
	c := s.agent(clientKinds[0], "stdio")
	s.target.plan(ledger.Accept)
	call := request{tool: "deploy", args: args("A-1")}
	first := c.mustCall(call)
	id := first.meta(t).ExecutionID
	if first.IsError || first.meta(t).State != "dispatched" || first.body(t).State != "dispatched" || !strings.Contains(string(first.raw), "the target took it and is not done") {
		t.Fatalf("the agent is told %s", first.raw)
	}
	s.target.nextQuestion()
	for range 2 { // between the 202 and the end, twice
		s.killDaemon()
		s.restart()
		s.agreeable()
		if r := s.recordOf(id); r.State != "dispatched" || len(r.Attempts) != 1 || r.Attempts[0].AwaitedSince.IsZero() {
			t.Fatalf("after the daemon was killed the record is %+v", r)
		}
		s.target.nextQuestion()
	}
	again := c.mustCall(call)
	if again.meta(t).ExecutionID != id || again.meta(t).State != "dispatched" {
		t.Errorf("the retry is told %s", again.raw)
	}
	s.target.release()
	done := c.mustCall(request{tool: "execution_wait", args: map[string]any{"execution_id": id, "timeout_seconds": 60}})
	if done.meta(t).State != "completed_result_not_delivered" && done.meta(t).State != "completed_result_delivered" {
		t.Errorf("execution_wait says %s", done.raw)
	}
	s.wantReceipt(done)
	s.wantReceipt(c.mustCall(call))
	s.target.wantEffects(t, "A-1", 1)
	if jobs := s.target.jobsAsked(); len(jobs) != 1 {
		t.Errorf("asked at %v", jobs)
	} else if r := s.recordOf(id); r.OutcomeSource != "status_query" || r.TargetStatus != 200 || strings.Contains(strings.Join([]string{r.Reason, r.Checks[len(r.Checks)-1].Evidence}, " "), jobs[0]) {
		t.Errorf("the record is %+v", r)
	}
	s.spctl("audit", "verify")
}

func TestALongActionWhoseAddressIsDownEndsWithItsTrueResult(t *testing.T) {
	t.Parallel()
	s := newStand(t, option{actions: deployed, config: "answer_within: 2s\n"})
	s.agreeable()
	c := s.agent(clientKinds[0], "stdio")
	s.target.plan(ledger.Accept)
	s.target.status(ledger.Down)
	first := c.mustCall(request{tool: "deploy", args: args("A-1")})
	id := first.meta(t).ExecutionID
	s.target.nextQuestion()
	s.spctl("lock") // nobody asks meanwhile
	s.target.release()
	s.target.status("")
	s.spctl("unlock")
	done := c.mustCall(request{tool: "execution_wait", args: map[string]any{"execution_id": id, "timeout_seconds": 60}})
	s.wantReceipt(done)
	s.target.wantEffects(t, "A-1", 1)
}

func TestALostAnswerOfALongActionIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	s := newStand(t, option{actions: deployed, config: "answer_within: 2s\n"})
	s.agreeable()
	c := s.agent(clientKinds[0], "stdio")
	s.target.plan(ledger.Cut)
	call := request{tool: "deploy", args: args("A-1")}
	first, second := c.mustCall(call), c.mustCall(call)
	if first.meta(t).State != "unknown" || second.meta(t).State != "unknown" || second.meta(t).ExecutionID != first.meta(t).ExecutionID {
		t.Errorf("the agent is told %s, then %s", first.raw, second.raw)
	}
	s.target.wantEffects(t, "A-1", 1)
	if jobs := s.target.jobsAsked(); len(jobs) != 0 {
		t.Errorf("asked at %v", jobs)
	}
}
