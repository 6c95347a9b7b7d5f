package engine

import (
	"errors"
	"maps"
	"strings"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// RefusedEvent is a call that was not accepted, as it stands in the journal.
type RefusedEvent struct {
	Kind   string            `json:"kind"` // call_refused
	Code   api.Code          `json:"code"`
	Tool   string            `json:"tool"`
	Run    string            `json:"run"`
	Actor  string            `json:"actor"`
	Reason string            `json:"reason,omitempty"`
	Caller *execution.Caller `json:"caller,omitempty"`
	Missed int               `json:"not_recorded_before,omitempty"` // refusals of this run that were only counted, because there were too many
	At     time.Time         `json:"-"`                             // the entry's own time
}

// refusalLimit keeps a run that is refused in a loop from filling the disk: so many records in a period, the rest is counted.
type refusalLimit struct {
	since  time.Time
	n      int
	missed int
}

const (
	refusalPeriod = time.Minute
	refusalMost   = 60
	refusalRuns   = 1024 // limits that are kept before they are looked through
)

// recordRefusalLocked journals a refusal, within the run's limit. It reports whether this one was recorded, which is also when the person is told.
func (e *Engine) recordRefusalLocked(q *request, code api.Code, reason string) bool {
	now := e.cfg.Now()
	lim := e.limits[q.Peer.Run]
	if lim == nil {
		if len(e.limits) >= refusalRuns {
			// Processes that were refused and never seen again.
			maps.DeleteFunc(e.limits, func(run string, l *refusalLimit) bool { return e.runs[run] == nil || now.Sub(l.since) >= refusalPeriod })
		}
		lim = &refusalLimit{since: now}
		e.limits[q.Peer.Run] = lim
	}
	if now.Sub(lim.since) >= refusalPeriod {
		lim.since, lim.n = now, 0
	}
	if lim.n >= refusalMost {
		lim.missed++
		return false
	}
	lim.n++
	c := q.Correlation
	c.Call, c.Run = q.number, q.Peer.Run
	ev := RefusedEvent{
		Kind: "call_refused", Code: code, Tool: clip(q.Tool, 128), Run: q.Peer.Run, Actor: q.Peer.Actor, Reason: clip(reason, 1024), Caller: &c, Missed: lim.missed,
	}
	e.refused = e.noteLocked(ev, true)
	ev.At = now
	e.tellLocked(Change{Kind: "refused", Refused: &ev})
	lim.missed = 0
	return true
}

// RecordRefusals makes durable what was refused until now, for somebody who is about to list it. Where the journal cannot be written it does nothing.
func (e *Engine) RecordRefusals() {
	e.mu.Lock()
	last := e.refused
	e.mu.Unlock()
	if last != nil {
		_ = last.Wait()
	}
}

// clip bounds what an agent wrote before it is recorded.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// refuseUnread refuses a call of which nothing was read yet.
func (e *Engine) refuseUnread(q *request, code api.Code, message string) call.Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recordRefusalLocked(q, code, message)
	return refusal(code, message+"; nothing was sent for this call", "connect again", nil)
}

// refuseLocked refuses a call with words for its code, and records that.
func (e *Engine) refuseLocked(q *request, rd reading, code api.Code) call.Answer {
	r := refusedCall{Code: code}
	switch code {
	case api.CodeVaultLocked:
		r.Message = "the vault is locked, so nothing was sent for this call"
		r.Next = "ask the person to unlock Singlepass, then call again with the same arguments"
		// A retry of something that was sent already must not read a bare "denied".
		r.Open = e.openOfLocked(q.run.id)
	case api.CodeActionUnknown:
		r.Message = "there is no tool with this name"
		r.Next = "list the tools again"
		if q.Method != "" {
			r.Message, r.Next = noSuch(q.Method)
		}
	case api.CodeNotAccepted:
		r.Message = "the person has not accepted the contract of this action"
		r.Next = "ask the person to accept it: spctl action accept"
	case api.CodeArguments:
		r.Message = "the arguments are not valid: " + argumentMessage(rd.err)
		r.Next = "correct the arguments and call again"
	case api.CodeTargetNotBound:
		r.Message = rd.bound.Error()
		r.Next = "ask the person to bind the credential to this target, or use another action"
	case api.CodeCredentialMissing:
		r.Message = "the credential " + quoteName(rd.missing) + " that this action needs is not in the vault"
		r.Next = "ask the person to add it: spctl credential add"
	case api.CodeTooManyCalls:
		r.Message = "too many calls of this process wait already"
		r.Next = "wait for some of them with execution_wait, then call again"
		if q.Tool == policy.AskTool {
			r.Message = "the person is asked one thing at a time, and a few an hour"
			r.Next = "wait for the answer, or do without"
		}
	case api.CodeJournal:
		r.Message = "the journal cannot be written"
		r.Next = "call again later with the same arguments; the person sees what is wrong with spctl doctor"
	case api.CodeRunEnded:
		r.Message = "the process that asked has ended"
		r.Next = "connect again"
	case api.CodeQuarantine:
		r.Message = "the journal does not verify, so only reading is allowed"
		r.Next = "ask the person to look: spctl audit verify"
	default:
		r.Message = "the call was refused"
	}
	if !strings.Contains(r.Message, "nothing was sent") {
		r.Message += "; nothing was sent for this call" // an earlier one like it may have been
	}
	if e.recordRefusalLocked(q, code, r.Message) && code == api.CodeVaultLocked {
		e.cfg.Notify(Notice{Kind: NoticeLockedCall, Run: q.run.id, Tool: q.Tool, Text: "an agent asked for " + q.Tool + " while the vault is locked"})
	}
	return refusalOf(r)
}

func quoteName(s string) string { return "\"" + s + "\"" }

// refuseKeyLocked refuses a key that stands for another effect already.
func (e *Engine) refuseKeyLocked(q *request, f *earlier) call.Answer {
	r := refusedCall{
		Code: api.CodeKeyReused, ID: f.x.ID, State: string(f.x.State),
		Message: "this idempotency key was used for a call with other arguments (" + f.x.ID + "); nothing was sent for this call",
		Next:    "use the same key for every try of the same intent, and a fresh key for another one",
	}
	e.recordRefusalLocked(q, api.CodeKeyReused, r.Message)
	e.cfg.Notify(Notice{Kind: "key_reused", Run: q.run.id, Tool: q.Tool, ID: f.x.ID, Text: r.Message})
	a := refusalOf(r)
	// The id names the earlier execution; this call has none.
	a.ExecutionID, a.State = "", ""
	return a
}

// refuseRunLocked repeats the answer to the last card about the run's session, so that a denied retry brings no new one.
func (e *Engine) refuseRunLocked(q *request) *call.Answer {
	r := q.run.refusal
	if r == nil || !e.cfg.Now().Before(r.until) {
		q.run.refusal = nil
		return nil
	}
	e.recordRefusalLocked(q, r.code, r.reason)
	a := refusal(r.code, r.reason+"; nothing was sent for this call", "do not repeat this call; tell the person what you wanted", nil)
	return &a
}

// openOfLocked lists what the run has open.
func (e *Engine) openOfLocked(run string) []openSummary {
	var out []openSummary
	seen := map[string]bool{}
	for _, l := range e.liveOf(func(l *live) bool { return l.x.Run == run && l.x.State.Open() }) {
		out, seen[l.x.ID] = append(out, openSummary{l.x.ID, l.x.Tool, l.x.State}), true
	}
	old, err := e.cfg.Records.OpenOf(run)
	if err != nil {
		return out
	}
	for _, x := range old {
		if !seen[x.ID] && e.live[x.ID] == nil && x.State.Open() {
			out = append(out, openSummary{x.ID, x.Tool, x.State})
		}
	}
	return out
}

// isLocked says that an error comes from a vault that was locked meanwhile.
func isLocked(err error) bool { return errors.Is(err, vault.ErrLocked) }
