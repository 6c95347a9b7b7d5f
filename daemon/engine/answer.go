package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
)

// sealedCall is the payload of accepted: what came in, and what will be sent.
type sealedCall struct {
	Raw       json.RawMessage `json:"raw,omitempty"` // the bytes that the client sent
	Arguments json.RawMessage `json:"arguments"`     // canonical, defaults materialized
	Effect    json.RawMessage `json:"effect"`
}

// sealedResult is the payload of outcome_observed.
type sealedResult struct {
	Result json.RawMessage `json:"result"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

// encode joins the parts as they are: json.Marshal would compact and escape them, and a recorded result is handed out byte for byte.
func (r sealedResult) encode() []byte {
	if !json.Valid(r.Result) {
		r.Result = toolResult("the target answered, but its answer could not be kept", nil, true)
	}
	b := make([]byte, 0, len(r.Result)+len(r.Answer)+24)
	b = append(append(b, `{"result":`...), r.Result...)
	if json.Valid(r.Answer) {
		b = append(append(b, `,"answer":`...), r.Answer...)
	}
	return append(b, '}')
}

// result reads a recorded result.
func (e *Engine) recordedResult(id string) ([]byte, error) {
	b, err := e.cfg.Records.Payload(id, execution.KindObserved)
	if err != nil {
		return nil, err
	}
	var r sealedResult
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("reading the recorded result of %s: %w", id, err)
	}
	return r.Result, nil
}

// sealedEffect reads what was accepted.
func (e *Engine) sealedEffect(id string) (effect.Effect, []byte, error) {
	b, err := e.cfg.Records.Payload(id, execution.KindAccepted)
	if err != nil {
		return effect.Effect{}, nil, err
	}
	var c sealedCall
	if err := json.Unmarshal(b, &c); err != nil {
		return effect.Effect{}, nil, fmt.Errorf("reading what was accepted as %s: %w", id, err)
	}
	eff, err := effect.Decode(c.Effect)
	return eff, c.Arguments, err
}

// toolResult is a CallToolResult with our own words. structured is a JSON object or nil.
func toolResult(text string, structured []byte, isError bool) json.RawMessage {
	quoted, _ := json.Marshal(text) // a string always encodes
	var b bytes.Buffer
	b.WriteString(`{"content":[{"type":"text","text":`)
	b.Write(quoted)
	b.WriteString(`}]`)
	if structured != nil {
		b.WriteString(`,"structuredContent":`)
		b.Write(structured)
	}
	if isError {
		b.WriteString(`,"isError":true`)
	}
	b.WriteString(`}`)
	return b.Bytes()
}

// refusedCall is the structured part of a refusal.
type refusedCall struct {
	Code    api.Code      `json:"code"`
	Message string        `json:"message"`
	Next    string        `json:"next,omitempty"`
	ID      string        `json:"execution_id,omitempty"`
	State   string        `json:"state,omitempty"`
	Open    []openSummary `json:"open_executions,omitempty"`
}

// openSummary names an execution that was accepted before, so that a retry of something already sent is not told a bare "denied".
type openSummary struct {
	ID    string          `json:"execution_id"`
	Tool  string          `json:"tool"`
	State execution.State `json:"state"`
}

func refusal(code api.Code, message, next string, open []openSummary) call.Answer {
	return refusalOf(refusedCall{Code: code, Message: message, Next: next, Open: open})
}

func refusalOf(r refusedCall) call.Answer {
	structured, _ := json.Marshal(r) // strings and slices of strings always encode
	return call.Answer{
		ExecutionID: r.ID, State: execution.State(r.State), Code: r.Code,
		Result: toolResult(string(r.Code)+": "+string(structured), structured, true),
	}
}

// pendingCall is the structured part of an answer that is not final.
type pendingCall struct {
	State      execution.State `json:"state"`
	ID         string          `json:"execution_id"`
	Tool       string          `json:"tool"`
	WaitingFor string          `json:"waiting_for"` // approval, target, verification
	Reason     string          `json:"reason,omitempty"`
	Next       string          `json:"next"`
}

// pendingLocked is the honest answer for a call that has no outcome (yet). It is no error: a model that sees an invented failure tries again.
func (e *Engine) pendingLocked(l *live) call.Answer {
	return pendingAnswer(l.x, e.hopeLocked(l.x))
}

// hope says what can still become of an outcome that is not known.
type hope string

const (
	hopePerson hope = "person" // the person settles it
	hopeRepeat hope = "repeat" // calling again sends it again, under the same key
	hopeAsking hope = "asking" // the target is being asked
	hopeAsked  hope = "asked"  // it was asked, and a call has it asked again
	hopeUnlock hope = "unlock" // it can be asked once the vault is open
)

func (e *Engine) hopeLocked(x execution.Execution) hope {
	l := e.live[x.ID]
	switch {
	case x.State != execution.Unknown:
		return ""
	case e.mayRepeatLocked(&live{x: x}) == nil:
		return hopeRepeat
	case l != nil && l.inquiry != nil && l.inquiry.active():
		return hopeAsking
	case x.Class == execution.StatusQuery && e.answerLostLocked(x):
		return hopePerson
	case x.Class == execution.StatusQuery && e.locked:
		return hopeUnlock
	case x.Class == execution.StatusQuery && e.contractLocked(x) != nil:
		return hopeAsked
	}
	return hopePerson
}

// next says what an agent can do about an outcome that is not known.
func (h hope) next() string {
	const notInAnotherWay = " Do not make the same change in another way"
	switch h {
	case hopeRepeat:
		return "it was sent, and whether the target acted is not known. Call again with the same arguments: it is then sent again as the same execution with the same idempotency key, so that the target acts once"
	case hopeAsking:
		return "it was sent, and the answer was lost. The target is being asked what became of it: wait with execution_wait, or call again with the same arguments. It is sent once more only " +
			"if the target did nothing." + notInAnotherWay
	case hopeAsked:
		return "it was sent, and the answer was lost. The target was asked what became of it, and that could not be told. Call again later with the same arguments: it is asked again, and it is " +
			"sent once more only if the target did nothing. Or the person settles it." + notInAnotherWay
	case hopeUnlock:
		return "it was sent, and the answer was lost. The target can be asked what became of it once the person has unlocked Singlepass; ask for that, and then for execution_status." + notInAnotherWay
	}
	return "it was sent, and whether the target acted is not known. It is never sent again by itself; the person has to settle it. Do not make the same change in another way. Ask execution_status for news"
}

func pendingAnswer(x execution.Execution, h hope) call.Answer {
	p := pendingCall{State: x.State, ID: x.ID, Tool: x.Tool, Reason: x.Reason}
	switch x.State {
	case execution.Accepted:
		p.WaitingFor = "approval"
		p.Next = "wait with execution_wait, or call again with the same arguments: it attaches to this execution and is not asked about twice"
	case execution.Unknown:
		p.WaitingFor = "verification"
		p.Next = h.next()
	case execution.Dispatched:
		p.WaitingFor = "target"
		p.Next = "it is under way. Wait with execution_wait, or call again with the same arguments: it attaches to this execution and nothing is sent twice"
		if x.Awaits() {
			p.Next = "the target took it and is not done. It is asked until it is. Wait with execution_wait, or call again with the same arguments: it attaches to this execution and nothing is sent twice"
		}
	default:
		p.WaitingFor = "target"
		p.Next = "it is under way. Wait with execution_wait, or call again with the same arguments: it attaches to this execution and nothing is sent twice"
	}
	b, _ := json.Marshal(p) // strings always encode
	return call.Answer{ExecutionID: x.ID, State: x.State, Result: toolResult(string(b), b, false)}
}

// answerLocked tells a caller what the execution came to. It unlocks.
func (e *Engine) answerLocked(q *request, l *live, w *waiter, attached bool) call.Answer {
	x := l.x
	delete(l.waiters, w)
	instead := l.instead
	result := l.result
	h := e.hopeLocked(x)
	e.retireLocked(l)
	e.mu.Unlock()
	switch {
	case x.State.Completed():
		return e.handOut(x, w, result, attached)
	case x.State == execution.Unknown:
		return pendingAnswer(x, h)
	case x.State == execution.Withdrawn && instead != "":
		return e.handOutEarlier(instead, q)
	}
	return refusalFor(x)
}

// handOut gives a caller the result, with the means to say that it was delivered.
func (e *Engine) handOut(x execution.Execution, w *waiter, result []byte, recorded bool) call.Answer {
	if x.Pruned {
		return refusalOf(refusedCall{
			Code: api.CodeResultPruned, ID: x.ID, State: string(x.State), Message: "it was carried out, and its result is kept no longer",
			Next: "do not repeat it to get the result; to do it again on purpose, use a fresh intent_key",
		})
	}
	if result == nil {
		var err error
		if result, err = e.recordedResult(x.ID); err != nil {
			e.cfg.Logger.Error("reading a recorded result", "execution_id", x.ID, "error", err)
			return refusalOf(refusedCall{
				Code: api.CodeInternal, ID: x.ID, State: string(x.State), Message: "it was carried out, but its recorded result cannot be read now",
				Next: "do not repeat it; ask execution_wait for the result later",
			})
		}
	}
	id, number := x.ID, w.call
	return call.Answer{
		ExecutionID: id, State: x.State, Recorded: recorded, Result: result,
		Delivered: func(evidence string) {
			e.mark(id, execution.Event{Kind: execution.KindDelivered, ID: id, Call: number, Evidence: evidence})
		},
		Disputed: func() { e.mark(id, execution.Event{Kind: execution.KindDisputed, ID: id, Call: number}) },
	}
}

// handOutEarlier gives the result of the earlier execution that the person chose.
func (e *Engine) handOutEarlier(id string, q *request) call.Answer {
	e.mu.Lock()
	x, ok, err := e.byIDLocked(id)
	if err != nil || !ok {
		e.mu.Unlock()
		return refusal(api.CodeInternal, "the earlier execution cannot be read now", "ask execution_wait for "+id, nil)
	}
	l := e.reviveLocked(x)
	w := e.attachLocked(l, q, q.readings[0])
	delete(l.waiters, w)
	x, result := l.x, l.result
	e.retireLocked(l)
	e.mu.Unlock()
	return e.handOut(x, w, result, true)
}

// mark records a delivery or its dispute. It is evidence, so nothing waits for it.
func (e *Engine) mark(id string, ev execution.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok, err := e.byIDLocked(id)
	if err != nil || !ok || x.Pruned || e.down {
		return
	}
	if ev.Kind == execution.KindDisputed && x.State != execution.Delivered {
		return
	}
	l := e.reviveLocked(x)
	if _, err := e.stepLocked(l, change{ev: ev, lazy: true}); err != nil && !errors.Is(err, execution.ErrIllegal) {
		e.cfg.Logger.Error("recording a delivery", "execution_id", id, "error", err)
	}
	e.retireLocked(l)
}

// refusalFor words the end of an execution of which the target knows nothing.
func refusalFor(x execution.Execution) call.Answer {
	r := refusedCall{Code: api.Code(x.Code), ID: x.ID, State: string(x.State), Message: x.Reason + "; nothing was sent"}
	switch x.State {
	case execution.Rejected:
		r.Next = "do not repeat this call; tell the person what you wanted, or choose another way"
	case execution.NotSent:
		r.Next = "nothing reached the target, so calling again is safe"
	case execution.NotDone:
		r.Code, r.Message = api.CodeNotSent, "it was verified that the target did nothing: "+x.Reason
		r.Next = "calling again is safe"
	case "", execution.Accepted, execution.Authorized:
		r.Code, r.State, r.ID = api.CodeJournal, "", ""
		r.Message = "the journal cannot be written, so nothing was sent"
		r.Next = "call again later with the same arguments; the person sees what is wrong with spctl doctor"
	default:
		r.Next = "call again with the same arguments if it is still wanted; the person will be asked"
	}
	if r.Code == "" {
		r.Code = api.CodeExpired
	}
	return refusalOf(r)
}
