package control

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
)

// LostAnswer says in one sentence what a contract's class means when the answer is lost.
func LostAnswer(c execution.Class) string {
	switch c {
	case execution.ReadOnly:
		return "It only reads: if the answer is lost, it is simply asked again."
	case execution.Idempotent:
		return "The target recognizes a repeat: if the answer is lost, the same request is sent again under the same key and acts once."
	case execution.StatusQuery:
		return "If the answer is lost, the target is asked what became of it; it is sent again only if it did nothing, and only while somebody waits for it."
	}
	return "If the answer is lost, it is never sent again: you decide whether it was done."
}

// sentence asks the card's question plainly. Everything in it comes from the contract, the operating system and the effect, never from the agent's words.
func sentence(v CardView) string {
	who := cmp.Or(v.Peer.Actor, v.Execution.Actor, "a program")
	what := fmt.Sprintf("%s at %s", v.Execution.Tool, v.Execution.Target)
	with := ""
	if v.Execution.Credential != "" {
		with = fmt.Sprintf(" with the credential %s", v.Execution.Credential)
	}
	if v.Effect.Ask != nil {
		return fmt.Sprintf("%s asks you to add a credential for %s. Add it first, then approve; the agent learns yes or no, and no secret.", who, v.Effect.Ask.Target)
	}
	switch v.Card.Question {
	case approval.AskSession, approval.AskSessionAndUse:
		return fmt.Sprintf("%s wants to run %s%s. It has no session yet.", who, what, with)
	case approval.AskAgain:
		return fmt.Sprintf("%s asks for %s again. It was done before, and the result was delivered. Run it again, or hand out the recorded result?", who, what)
	}
	return fmt.Sprintf("%s wants to run %s%s.", who, what, with)
}

// summary says in one sentence what an execution came to.
func summary(x execution.Execution) string {
	switch x.State {
	case execution.Accepted:
		return "waiting for you; nothing was sent"
	case execution.Authorized:
		return "authorized, not sent yet"
	case execution.Dispatched:
		if x.Awaits() {
			return "sent, and the target took it; it is asked until it is done"
		}
		return "sent, the answer is awaited"
	case execution.Unknown:
		unknown := "sent, and the answer was lost: whether the target acted is not known"
		if x.LastAttempt().Awaited() {
			unknown = "sent, and the target took it: how that ended is not known"
		}
		switch x.LastCheck().Finding {
		case execution.FoundRunning:
			return unknown + "; asked, it said that it is under way"
		case execution.FoundNotDone:
			if x.LastAttempt().Awaited() {
				return unknown + "; asked, it knew nothing of it, which is not believed"
			}
			return unknown + "; asked, it knew nothing of it, which is too early to believe"
		case execution.FoundCannotTell:
			return unknown + "; it was asked, and that could not be told"
		}
		return unknown
	case execution.NotDelivered:
		return outcome(x) + "; no agent is known to have the result"
	case execution.Delivered:
		return outcome(x) + "; the result was delivered"
	case execution.Rejected:
		return "refused; nothing was sent"
	case execution.Expired:
		return "nobody answered in time, or it was cut short; nothing was sent"
	case execution.Withdrawn:
		if x.Code == string(api.RecordedInstead) {
			return "answered with the recorded result of an earlier one; nothing was sent"
		}
		return "withdrawn before it was sent"
	case execution.NotSent:
		return "the target could not be reached; nothing was sent"
	case execution.NotDone:
		if x.Source == execution.FromOperator {
			return "sent, and the target did nothing, by the word of the operator"
		}
		return "sent, and it is established that the target did nothing"
	}
	return string(x.State)
}

func outcome(x execution.Execution) string {
	text := "done"
	if x.Outcome == execution.TargetError {
		text = "the target answered with an error"
	}
	if x.TargetStatus != 0 {
		text += fmt.Sprintf(" (status %d)", x.TargetStatus)
	}
	if x.Source != "" && x.Source != execution.FromTarget {
		text += fmt.Sprintf(", by the word of the %s", map[execution.Source]string{
			execution.FromLate: "target's late answer", execution.FromQuery: "target's status query", execution.FromMarker: "marker on the host", execution.FromOperator: "operator",
		}[x.Source])
	}
	return text
}

// timeline orders what is known of an execution's life and says how long each step took.
func timeline(x execution.Execution) []api.Step {
	var steps []api.Step
	add := func(at time.Time, what string, said api.Said, format string, args ...any) {
		if !at.IsZero() {
			steps = append(steps, api.Step{At: utc(at), What: what, Text: fmt.Sprintf(format, args...), Said: said})
		}
	}
	add(x.AcceptedAt, "accepted", api.Say(api.StepAccepted, "tool", x.Tool), "accepted: %s", x.Tool)
	for i, c := range x.Callers {
		// The first caller made the execution; it is news only where another run or another request came after it.
		if i > 0 {
			request, transport := cmp.Or(c.RequestID, "?"), cmp.Or(c.Transport, "?")
			said := api.Say(api.StepAttached, "number", strconv.Itoa(i+1), "request", request, "transport", transport)
			add(c.At, "caller_attached", said, "call %d attached (request %s over %s): nothing new was sent", i+1, request, transport)
		}
	}
	by := cmp.Or(x.AuthorizedBy, "?")
	add(x.AuthorizedAt, "authorized", api.Say(api.StepAuthorized, "by", by), "authorized by %s", by)
	for i, a := range x.Attempts {
		number := strconv.Itoa(a.Number)
		add(a.DispatchedAt, "dispatched", api.Say(api.StepSent, "number", number, "target", x.Target), "attempt %d sent to %s", a.Number, x.Target)
		add(a.AwaitedSince, "awaited", api.Say(api.StepTaken, "number", number), "attempt %d: the target took it, and is asked how it ends", a.Number)
		if i == len(x.Attempts)-1 && x.State.Completed() && x.Source == execution.FromTarget && a.Outcome == x.Outcome {
			continue // "completed" says the same
		}
		text, said := ended(a)
		add(a.EndedAt, "attempt_ended", said, "%s", text)
	}
	for _, c := range x.Checks {
		text := "asked the target (" + cmp.Or(c.By, "?") + ")"
		if c.Times > 1 {
			text = fmt.Sprintf("asked the target %d times (%s)", c.Times, cmp.Or(c.By, "?"))
		}
		said := api.Say(api.StepAsked, "by", cmp.Or(c.By, "?"), "times", strconv.Itoa(max(1, c.Times)), "finding", string(c.Finding), "reason", c.Reason)
		add(c.At, "asked", said, "%s: %s", text, cmp.Or(c.Reason, string(c.Finding)))
	}
	if x.State.Completed() {
		status := ""
		if x.TargetStatus != 0 {
			status = strconv.Itoa(x.TargetStatus)
		}
		add(x.CompletedAt, "completed", api.Say(api.StepCompleted, "outcome", string(x.Outcome), "status", status, "source", string(x.Source)), "%s", outcome(x))
		add(x.DeliveredAt, "delivered", api.Say(api.StepDelivered), "delivered to the agent")
	}
	if x.State.Final() {
		add(x.ChangedAt, string(x.State), api.Say(last(x)), "%s", summary(x))
	}
	slices.SortStableFunc(steps, func(a, b api.Step) int { return a.At.Compare(b.At) })
	for i := 1; i < len(steps); i++ {
		steps[i].AfterMS = steps[i].At.Sub(steps[i-1].At).Milliseconds()
	}
	return steps
}

// ended says how an attempt ended.
func ended(a execution.Attempt) (string, api.Said) {
	number := strconv.Itoa(a.Number)
	text, said := fmt.Sprintf("attempt %d: the answer was lost", a.Number), api.Say(api.StepLost, "number", number, "reason", a.Reason)
	switch {
	case a.Outcome != "":
		text, said = fmt.Sprintf("attempt %d: %s", a.Number, a.Outcome), api.Say(api.StepAttempt, "number", number, "outcome", string(a.Outcome), "reason", a.Reason)
	case a.Awaited():
		text, said = fmt.Sprintf("attempt %d: how it ended is not known", a.Number), api.Say(api.StepEndUnknown, "number", number, "reason", a.Reason)
	}
	if a.Reason != "" {
		text += " (" + a.Reason + ")"
	}
	return text, said
}

// last is the step with which an execution ended at which nothing was done.
func last(x execution.Execution) api.Sentence {
	switch x.State {
	case execution.Rejected:
		return api.StepRejected
	case execution.Expired:
		return api.StepExpired
	case execution.NotSent:
		return api.StepNotSent
	case execution.NotDone:
		return api.StepNotDone
	}
	if x.Code == string(api.RecordedInstead) {
		return api.StepRecorded
	}
	return api.StepWithdrawn
}
