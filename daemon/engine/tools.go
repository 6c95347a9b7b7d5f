package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/fingerprint"
)

// ownTool is one of our own tools. They read, and never start anything.
type ownTool struct {
	call.Tool
	run func(e *Engine, ctx context.Context, q *request, in ownInput) call.Answer
}

type ownInput struct {
	ExecutionID string   `json:"execution_id"`
	IntentKey   string   `json:"intent_key"`
	Timeout     *float64 `json:"timeout_seconds"`
}

// maxWait bounds execution_wait, in seconds.
const maxWait = 300

var ownTools = map[string]*ownTool{}

func init() {
	readOnly := json.RawMessage(`{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`)
	which := `"execution_id":{"type":"string","description":"the act_… id from an earlier answer"},"intent_key":{"type":"string","description":"the key that the call was made with"}`
	for _, t := range []*ownTool{
		{call.Tool{
			Name: "execution_status", Title: "State of an execution",
			Description: "Tells where an earlier call stands: waiting for the person, under way, done, or not known. Give execution_id or intent_key. Sends nothing to any target.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{` + which + `},"additionalProperties":false}`), Annotations: readOnly,
		}, (*Engine).toolStatus},
		{call.Tool{
			Name: "execution_wait", Title: "Wait for an execution",
			Description: "Waits until an earlier call has a result, and returns that result. Give execution_id or intent_key. Sends nothing to any target. " +
				"When the time is up it answers with the state, and may be called again.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{` + which + `,"timeout_seconds":{"type":"number","minimum":0,"maximum":300}},"additionalProperties":false}`), Annotations: readOnly,
		}, (*Engine).toolWait},
		{call.Tool{
			Name: "executions_recent", Title: "Recent executions",
			Description: "Lists the recent calls of this process and where each stands, the newest first. Look here before repeating a call whose answer was lost.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`), Annotations: readOnly,
		}, (*Engine).toolRecent},
	} {
		ownTools[t.Name] = t
	}
}

func (e *Engine) callOwn(ctx context.Context, t *ownTool, c call.Call) call.Answer {
	q := &request{Call: c}
	if refused := e.enter(q); refused != nil {
		return *refused
	}
	var in ownInput
	raw := c.Arguments
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	if err := fingerprint.Strict(raw); err != nil {
		return refusal(api.CodeArguments, fmt.Sprintf("the arguments of %s are not valid: %v", t.Name, err), "correct them and call again", nil)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return refusal(api.CodeArguments, fmt.Sprintf("the arguments of %s are not valid: %v", t.Name, err), "see the tool's input schema", nil)
	}
	if t.Name != "executions_recent" && (in.ExecutionID == "") == (in.IntentKey == "") {
		return refusal(api.CodeArguments, t.Name+" needs exactly one of execution_id and intent_key", "give the id from the earlier answer", nil)
	}
	return t.run(e, ctx, q, in)
}

// mayReadLocked says whether a run may see an execution: its own, and its actor's keyed and durable ones once it has a session for all that it asks for.
func (e *Engine) mayReadLocked(r *run, x execution.Execution) bool {
	if x.Run == r.id {
		return true
	}
	return x.Actor == r.identity.Actor && e.wholeLocked(r) && !strings.HasPrefix(x.Scope, "run:")
}

// findLocked finds the execution that an own tool asks about. What the run may not see does not exist for it.
func (e *Engine) findLocked(q *request, in ownInput) (execution.Execution, *call.Answer) {
	var found execution.Execution
	ok := false
	if in.ExecutionID != "" {
		x, there, err := e.byIDLocked(in.ExecutionID)
		found, ok = x, there && err == nil
		if l := e.live[in.ExecutionID]; l != nil {
			found = l.toldLocked()
		}
	} else {
		k := claimKey{q.Peer.Actor, keyScope + in.IntentKey, ""}
		if l := e.claims[k]; len(l) > 0 {
			found, ok = l[len(l)-1].toldLocked(), true
		} else if x, there, err := e.cfg.Records.MatchKey(k.actor, k.scope); err == nil {
			found, ok = x, there
		}
	}
	if ok && e.mayReadLocked(q.run, found) {
		return found, nil
	}
	a := refusal(api.CodeNotFound, "there is no such execution that this process may see", "list your own with executions_recent", nil)
	return found, &a
}

// toldLocked is the execution as an agent may know it: without an outcome that is not durable yet.
func (l *live) toldLocked() execution.Execution {
	if l.trimPending(); l.busy && l.x.State.Completed() && l.durable.State != "" {
		return l.durable
	}
	return l.x
}

// agentRecord is what an agent may know of an execution.
type agentRecord struct {
	ID           string            `json:"execution_id"`
	Tool         string            `json:"tool"`
	State        execution.State   `json:"state"`
	Outcome      execution.Outcome `json:"outcome,omitempty"`
	TargetStatus int               `json:"target_status,omitempty"`
	AcceptedAt   time.Time         `json:"accepted_at"`
	DispatchedAt time.Time         `json:"dispatched_at,omitzero"`
	CompletedAt  time.Time         `json:"completed_at,omitzero"`
	Reason       string            `json:"reason,omitempty"`
	LastCheck    *lastCheck        `json:"last_check,omitempty"` // what the target said when it was asked
	Next         string            `json:"next,omitempty"`
}

type lastCheck struct {
	At      time.Time         `json:"at"`
	Finding execution.Finding `json:"finding"`
	Reason  string            `json:"reason,omitempty"`
}

func recordFor(x execution.Execution, h hope) agentRecord {
	r := agentRecord{
		ID: x.ID, Tool: x.Tool, State: x.State, Outcome: x.Outcome, TargetStatus: x.TargetStatus, AcceptedAt: x.AcceptedAt.UTC(),
		DispatchedAt: x.DispatchedAt.UTC(), CompletedAt: x.CompletedAt.UTC(), Reason: x.Reason,
	}
	if c := x.LastCheck(); c.Finding != "" {
		r.LastCheck = &lastCheck{c.At.UTC(), c.Finding, c.Reason}
	}
	switch {
	case x.State.Completed():
		r.Next = "execution_wait returns its result"
	case x.State == execution.Unknown:
		r.Next = h.next()
	case x.State.Open():
		r.Next = "wait with execution_wait"
	case x.State == execution.NotDone:
		r.Next = "it was sent, and it was verified that the target did nothing"
	default:
		r.Next = "nothing was sent"
	}
	return r
}

func (e *Engine) toolStatus(_ context.Context, q *request, in ownInput) call.Answer {
	e.mu.Lock()
	x, refused := e.findLocked(q, in)
	h := e.hopeLocked(x)
	e.mu.Unlock()
	if refused != nil {
		return *refused
	}
	return ownAnswer(x, recordFor(x, h))
}

func ownAnswer(x execution.Execution, v any) call.Answer {
	b, err := json.Marshal(v)
	if err != nil {
		return refusal(api.CodeInternal, "the record cannot be shown: "+err.Error(), "", nil)
	}
	return call.Answer{ExecutionID: x.ID, State: x.State, Result: toolResult(string(b), b, false)}
}

func (e *Engine) toolWait(ctx context.Context, q *request, in ownInput) call.Answer {
	patience := e.cfg.AnswerWithin
	if in.Timeout != nil {
		if *in.Timeout < 0 || *in.Timeout > maxWait {
			return refusal(api.CodeArguments, "timeout_seconds is between 0 and 300", "call again with a shorter time", nil)
		}
		patience = time.Duration(*in.Timeout * float64(time.Second))
	}
	e.mu.Lock()
	x, refused := e.findLocked(q, in)
	if refused != nil {
		e.mu.Unlock()
		return *refused
	}
	l := e.reviveLocked(x)
	l.readers++
	timer := time.NewTimer(patience)
	defer timer.Stop()
	over := false
	for {
		if e.answerableLocked(l) && (l.x.State != execution.Unknown || over) {
			l.readers--
			if !l.x.State.Completed() {
				x, h := l.x, e.hopeLocked(l.x)
				e.retireLocked(l)
				e.mu.Unlock()
				if x.State == execution.Unknown {
					return pendingAnswer(x, h)
				}
				return refusalFor(x)
			}
			// A result that is handed out makes this call one of the execution's callers.
			w := e.attachLocked(l, q, reading{key: in.IntentKey})
			return e.answerLocked(q, l, w, true) // unlocks
		}
		if over {
			l.readers--
			a := e.pendingLocked(l)
			e.retireLocked(l)
			e.mu.Unlock()
			return a
		}
		changed := l.changed
		e.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-e.base.Done():
			over = true
		case <-ctx.Done():
			e.mu.Lock()
			l.readers--
			e.retireLocked(l)
			e.mu.Unlock()
			return call.Answer{}
		}
		e.mu.Lock()
	}
}

// recentLimit bounds executions_recent.
const recentLimit = 50

func (e *Engine) toolRecent(_ context.Context, q *request, _ ownInput) call.Answer {
	e.mu.Lock()
	seen := map[string]bool{}
	var list []execution.Execution
	for _, l := range e.live {
		if e.mayReadLocked(q.run, l.x) {
			list, seen[l.x.ID] = append(list, l.toldLocked()), true
		}
	}
	old, err := e.cfg.Records.Recent(q.Peer.Actor, recentLimit)
	if err != nil {
		e.mu.Unlock()
		return refusal(api.CodeInternal, "the records could not be read", "call again later", nil)
	}
	for _, x := range old {
		if !seen[x.ID] && e.mayReadLocked(q.run, x) {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b execution.Execution) int { return strings.Compare(b.ID, a.ID) })
	if len(list) > recentLimit {
		list = list[:recentLimit]
	}
	out := struct {
		Executions []agentRecord `json:"executions"`
	}{make([]agentRecord, 0, len(list))}
	for _, x := range list {
		out.Executions = append(out.Executions, recordFor(x, e.hopeLocked(x)))
	}
	e.mu.Unlock()
	return ownAnswer(execution.Execution{}, out)
}
