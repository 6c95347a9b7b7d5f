package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// Targets that are not done when they answer. What such an answer says is durable, as outcome_awaited, before anything rests on it: from then on the execution stays dispatched, whatever becomes
// of the daemon, and the target is asked until it tells the end or the contract's time is over. An answer that never became durable was lost. Nothing is ever sent again: the target said that it took
// it, so that a later "I know nothing of it" is no proof that it did nothing.

// mostAwaitedPause bounds how the pauses between questions grow. A target that wants longer ones says Retry-After.
const mostAwaitedPause = time.Minute

// sealedAnswer is the payload of outcome_awaited: what the status request needs of the answer, and the answer as the operator may see it.
type sealedAnswer struct {
	Learned json.RawMessage `json:"learned"`
	Answer  json.RawMessage `json:"answer,omitempty"`
}

func (a sealedAnswer) encode() []byte {
	if !json.Valid(a.Answer) {
		a.Answer = nil
	}
	b, err := json.Marshal(a)
	if err != nil { // what was learned is made by us
		return []byte(`{"learned":null}`)
	}
	return b
}

// learned reads what was kept of the answer by which the target took an execution.
func (e *Engine) learned(id string) (policy.Learned, error) {
	b, err := e.cfg.Records.Payload(id, execution.KindAwaited)
	if err != nil {
		return nil, err
	}
	var kept struct {
		Learned policy.Learned `json:"learned"`
	}
	if err := json.Unmarshal(b, &kept); err != nil {
		return nil, fmt.Errorf("reading what the target answered to %s: %w", id, err)
	}
	return kept.Learned, nil
}

// answerJudge says by the contract what an answer is, or is nil where every answer is the outcome. Where the target cannot be asked by what it answered, that is no answer that anything could rest on.
func answerJudge(a *boundAction, id string, args []byte) func(channel.Reading) (channel.Word, json.RawMessage, string) {
	if a.Contract().Replay.Accepted == nil {
		return nil
	}
	return func(r channel.Reading) (channel.Word, json.RawMessage, string) {
		p, err := a.Prepare(args)
		if err != nil { // it was prepared before
			return channel.CannotTell, nil, fmt.Sprintf("the target answered %d, and what that means could not be told", r.Status)
		}
		word, why := a.JudgeAnswer(p, id, policy.Reading(r))
		if word != channel.Running {
			return word, nil, why
		}
		learned, err := a.Learn(policy.Reading(r))
		if err == nil {
			_, err = a.StatusRequest(p, id, learned)
		}
		var kept json.RawMessage
		if err == nil {
			kept, err = json.Marshal(learned)
		}
		if err != nil {
			return channel.CannotTell, nil, why + "; it cannot be asked how that ends: " + err.Error()
		}
		return channel.Running, kept, why
	}
}

// answerLostLocked says whether the status request of an execution needs an answer that was lost.
func (e *Engine) answerLostLocked(x execution.Execution) bool {
	a := e.contractLocked(x)
	if a == nil || x.LastAttempt().Awaited() {
		return false
	}
	s := a.Contract().Replay.Status
	return s != nil && len(s.Fields) > 0
}

// shownRequest is what the journal calls a status request that has the target's own words in it: the request as the contract writes it.
func shownRequest(s effect.StatusRequest) string {
	where, _, _ := strings.Cut(s.HTTP.URL, "?")
	if s.Within != "" {
		where += " within " + s.Within
	}
	return s.HTTP.Method + " " + where
}

// awaitLocked begins to ask about an execution that the target has just taken.
func (e *Engine) awaitLocked(l *live) {
	if l.inquiry == nil {
		l.inquiry = &inquiry{}
	}
	switch err := e.mayAskLocked(l); {
	case errors.Is(err, errContractGone): // while the request was under way
		e.giveUpLocked(l, execution.Event{By: byDaemon}, err.Error())
	case err == nil:
		e.askLaterLocked(l, e.contractLocked(l.x).Contract().Replay.Wait, l.x.LastAttempt().AskAfter)
	}
}

// resumeAwaitedLocked goes on asking about an execution that the target has: after an unlock, and when the journal can be written again. What the target asked for when it took it holds across a
// restart too. Nobody is left waiting where nobody can ask any more.
func (e *Engine) resumeAwaitedLocked(l *live) {
	if l.busy || l.inquiry != nil && l.inquiry.active() {
		return
	}
	err := e.mayAskLocked(l)
	switch {
	case errors.Is(err, errContractGone):
		e.giveUpLocked(l, execution.Event{By: byDaemon}, err.Error())
	case err == nil:
		if l.inquiry == nil {
			l.inquiry = &inquiry{}
		}
		last := l.x.LastAttempt()
		if left := last.AwaitedSince.Add(last.AskAfter).Sub(e.cfg.Now()); left > 0 && left <= last.AskAfter {
			if e.askLaterLocked(l, e.contractLocked(l.x).Contract().Replay.Wait, left) {
				return
			}
		}
		e.inquireLocked(l, byDaemon)
	}
}

// concludeAwaitedLocked takes in what a question about something that the target took came to. It reports whether that decided the outcome.
func (e *Engine) concludeAwaitedLocked(l *live, wait policy.Wait, f channel.Finding, source execution.Source, told *Asked, err error) bool {
	q := l.inquiry
	ev := execution.Event{ID: l.x.ID, By: q.by, Source: source, Finding: told.Finding, Evidence: bounded(f.Evidence), Reason: bounded(told.Reason)}
	switch {
	case e.base.Err() != nil, isLocked(err): // cut short by our own end; asked again when there is somebody to ask
		e.askAfterLockLocked(l, wait)
		return false
	case err == nil && (f.Word == channel.Done || f.Word == channel.Failed):
		if e.observedLocked(l, ev, f) {
			return true
		}
		e.askLaterLocked(l, wait, f.After)
		return false
	case f.Word == channel.NotDone:
		ev.Reason = bounded(f.Reason + "; that is not believed, since the target itself said that it took it")
	case f.Word != channel.Running:
		ev.Finding = execution.FoundCannotTell
	}
	told.Finding, told.Reason = ev.Finding, ev.Reason
	goesOn := e.askLaterLocked(l, wait, f.After)
	switch {
	case goesOn, e.locked, e.closing, !l.x.Awaits():
		e.inconclusiveLocked(l, ev, goesOn || l.x.Awaits())
	default:
		e.giveUpLocked(l, ev, fmt.Sprintf("the target took it and did not tell within %s how it ended: %s", wait.GiveUpAfter, ev.Reason))
	}
	return false
}

// askAfterLockLocked has a question that met a locked vault asked again. The unlock does that, but for one that came while the question was under way: it found it asked.
func (e *Engine) askAfterLockLocked(l *live, wait policy.Wait) {
	if e.mayAskLocked(l) != nil || !e.askLaterLocked(l, wait, 0) {
		e.stopAskingLocked(l)
	}
}

// giveUpLocked ends the waiting: the target took it, and what became of it is not known.
func (e *Engine) giveUpLocked(l *live, ev execution.Event, reason string) {
	e.stopAskingLocked(l)
	ev.Kind, ev.ID, ev.Attempt, ev.Reason = execution.KindUnknown, l.x.ID, l.x.LastAttempt().Number, bounded(reason)
	if l.inquiry != nil && l.inquiry.quiet > 0 {
		ev.Times, l.inquiry.quiet = l.inquiry.quiet+1, 0
	}
	if _, err := e.stepLocked(l, change{ev: ev}); err != nil {
		e.cfg.Logger.Error("recording that an outcome is unknown", "execution_id", l.x.ID, "error", err)
		return // it is awaited still, and looked at again when the journal can be written
	}
	e.leaveCountLocked(l)
	e.cfg.Notify(Notice{Kind: "unknown_outcome", Run: l.x.Run, Tool: l.x.Tool, ID: l.x.ID, Text: l.x.Reason})
	l.wakeLocked()
	e.retireLocked(l)
}
