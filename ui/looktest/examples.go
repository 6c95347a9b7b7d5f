package looktest

import (
	"fmt"
	"time"

	"singlepass.dev/daemon/api"
)

// Request is a request with a credential.
func Request() api.Effect {
	return api.Effect{
		Channel: "http", Method: "POST", URL: "https://deploy-api.internal.example/v1/releases",
		Header: []api.Field{
			{Name: "Content-Type", Value: "application/json"}, {Name: "Idempotency-Key", Value: "act_01KKQ4V8Z0000000000000000A"}, {Name: "Authorization", Value: "Bearer ‹credential deploy-service›"},
		},
		Body: `{"service":"billing","version":"2026.3.1","region":"us-east-1"}`, Size: 63,
	}
}

// Card is a card for that request, of a process that was not allowed yet.
func Card() api.Card {
	return api.Card{
		Card: "card_01KKQ4V8Z0000000000000000B", Question: "session_and_use", ExecutionID: "act_01KKQ4V8Z0000000000000000A", Fingerprint: "hmac-sha256:5a", Tool: "deploy_release", Action: "deploy_release",
		Target: "https://deploy-api.internal.example/v1/releases", Effect: Request(), Credential: "deploy-service", Class: "irreversible",
		Why: []string{"a process that has not been allowed to act yet asks", `the action asks when args.region == "us-east-1", and it is so: region = "us-east-1"`},
		WhySaid: []api.Said{
			api.Say(api.WhyNewProcess), api.Say(api.WhyCondition, "condition", `args.region == "us-east-1"`, "values", `region = "us-east-1"`),
		},
		Actor: "exe:/usr/bin/claude", Run: "run_7f3a", Via: "bridge", Agent: api.Process{PID: 4242, UID: 1000, Exe: "/usr/bin/claude", Began: Now.Add(-12 * time.Minute)},
		Chain:     []api.Process{{PID: 4100, Exe: "/usr/bin/bash"}, {PID: 4000, Exe: "/usr/bin/gnome-terminal-server"}, {PID: 1200, Exe: "/usr/lib/systemd/systemd"}},
		Assurance: "yours, and seen for the first time", Level: api.AssuranceFirst, Since: Now.Add(-3 * time.Minute), CallsBefore: 2, Created: Now.Add(-20 * time.Second), Expires: Now.Add(9*time.Minute + 40*time.Second),
		Answers: []string{"once", "session", "deny"},
	}
}

// Record is an execution in a state, ten minutes before Now, with so many callers.
func Record(state string, callers int) api.Record {
	at := Now.Add(-10 * time.Minute)
	r := api.Record{
		ExecutionID: "act_01KKQ4V8Z0000000000000000A", Fingerprint: "hmac-sha256:5a", Tool: "deploy_release", Action: "deploy_release", Actor: "exe:/usr/bin/claude", Run: "run_7f3a",
		IntentScope: "run:run_7f3a", Channel: "http", Target: "https://deploy-api.internal.example/v1/releases", Credential: "deploy-service", Class: "irreversible", State: state, AcceptedAt: at,
	}
	step := func(d time.Duration, what, text string, said api.Said) {
		s := api.Step{At: at.Add(d), What: what, Text: text, Said: said}
		if n := len(r.Timeline); n > 0 {
			s.AfterMS = s.At.Sub(r.Timeline[n-1].At).Milliseconds()
		}
		r.Timeline, r.ChangedAt = append(r.Timeline, s), s.At
	}
	step(0, "accepted", "accepted: deploy_release", api.Say(api.StepAccepted, "tool", r.Tool))
	for i := range callers {
		r.Callers = append(r.Callers, api.Caller{
			Call: fmt.Sprint(i + 1), Run: "run_7f3a", Transport: "stdio", RequestID: fmt.Sprint(7 + 4*i), Protocol: "2025-11-25", Client: "claude-code 2.1", At: at.Add(time.Duration(i) * 4 * time.Minute),
		})
	}
	reached := func(states ...string) bool {
		for _, s := range states {
			if s == state {
				return true
			}
		}
		return false
	}
	if reached("accepted", "rejected", "expired", "withdrawn") {
		return r
	}
	r.AuthorizedAt, r.AuthorizedBy = at.Add(8200*time.Millisecond), "operator"
	step(8200*time.Millisecond, "authorized", "authorized by operator", api.Say(api.StepAuthorized, "by", "operator"))
	if reached("authorized") {
		return r
	}
	r.DispatchedAt = at.Add(8214 * time.Millisecond)
	step(8214*time.Millisecond, "dispatched", "attempt 1 sent to "+r.Target, api.Say(api.StepSent, "number", "1", "target", r.Target))
	r.Attempts = []api.Attempt{{Number: 1, DispatchedAt: r.DispatchedAt}}
	if reached("dispatched") {
		return r
	}
	if reached("unknown", "not_done", "not_sent") {
		r.Attempts[0].EndedAt, r.Attempts[0].Reason = at.Add(38*time.Second), "the connection was closed before an answer came"
		r.Reason = r.Attempts[0].Reason
		step(38*time.Second, "attempt_ended", "attempt 1: the answer was lost (the connection was closed before an answer came)", api.Say(api.StepLost, "number", "1", "reason", r.Reason))
		return r
	}
	r.Outcome, r.TargetStatus, r.OutcomeSource, r.CompletedAt = "success", 201, "target", at.Add(9900*time.Millisecond)
	r.Attempts[0].EndedAt, r.Attempts[0].Outcome = r.CompletedAt, "success"
	r.Result = "result_01KKQ4V8Z0000000000000000A"
	step(9900*time.Millisecond, "completed", "done (status 201)", api.Say(api.StepCompleted, "outcome", "success", "status", "201", "source", "target"))
	if reached("completed_result_delivered") {
		r.DeliveredAt = at.Add(9912 * time.Millisecond)
		step(9912*time.Millisecond, "delivered", "delivered to the agent", api.Say(api.StepDelivered))
		r.Callers[0].Delivered = "the agent took it from its pipe"
	}
	return r
}
