package engine

import (
	"context"
	"errors"
	"fmt"

	"singlepass.dev/daemon/execution"
)

// contradicts says whether a finding speaks against a verdict.
func contradicts(f execution.Finding, done bool) bool {
	switch f {
	case execution.FoundNotDone:
		return done
	case execution.FoundDone, execution.FoundFailed, execution.FoundRunning:
		return !done
	}
	return false
}

// Verdict is the operator's word on an outcome that nobody knows.
type Verdict struct {
	Done    bool
	Note    string
	Against execution.Finding // optional: what the target said when it was asked last, and the verdict is to stand against
}

// ErrContradicted is wrapped where the target was asked and said something else, and the verdict does not say that it is to stand against that: the operator may not have seen it.
var ErrContradicted = errors.New("the target said otherwise when it was asked")

// Settle is the operator's verdict on an unknown outcome: done, or not done. The evidence that was shown goes into the journal with it.
func (e *Engine) Settle(_ context.Context, id string, word Verdict, by string) (execution.Execution, error) {
	done := word.Done
	e.mu.Lock()
	x, ok, err := e.byIDLocked(id)
	if err != nil || !ok {
		e.mu.Unlock()
		if err == nil {
			err = ErrUnknown
		}
		return x, fmt.Errorf("settling %q: %w", id, err)
	}
	l := e.reviveLocked(x)
	if !asked(l.x) || l.busy {
		x = l.x
		e.retireLocked(l)
		e.mu.Unlock()
		return x, fmt.Errorf("settling %s: %w: it is %s", id, ErrSettled, x.State)
	}
	evidence := fmt.Sprintf("shown to the operator: %d attempt(s), first sent %s, %s", len(x.Attempts), x.DispatchedAt.UTC().Format("2006-01-02T15:04:05Z"), x.Reason)
	if c := x.LastCheck(); c.Finding != "" {
		evidence += fmt.Sprintf("; the target was last asked %s (%s): %s, %s", c.At.UTC().Format("2006-01-02T15:04:05Z"), c.By, c.Finding, c.Reason)
		if contradicts(c.Finding, done) {
			if word.Against != c.Finding {
				x = l.x
				e.retireLocked(l)
				e.mu.Unlock()
				return x, fmt.Errorf("settling %s: %w (%s, %s): look at its record again, and say so if your word is to stand against that", id, ErrContradicted, c.Finding, c.Reason)
			}
			evidence += "; the verdict goes against that"
		}
	}
	ev := execution.Event{ID: id, By: by, Source: execution.FromOperator, Evidence: evidence, Reason: word.Note}
	c := change{ev: ev}
	if done {
		c.ev.Kind, c.ev.Outcome, c.ev.Result = execution.KindObserved, execution.Success, "result_"+id[len("act_"):]
		verdict := toolResult("the operator established that this was carried out; the target's own answer was lost", []byte(`{"verdict":"done","by":"operator"}`), false)
		c.payload = sealedResult{Result: verdict}.encode()
	} else {
		// A verdict never sends anything by itself: whoever still wants the action calls again, and is asked about like anybody else.
		c.ev.Kind = execution.KindNotDone
	}
	changes := []change{c}
	if l.x.Awaits() { // the person knows more than the target says
		ended := execution.Event{Kind: execution.KindUnknown, ID: id, Attempt: x.LastAttempt().Number, By: by, Reason: "the operator did not wait for the target any longer: " + x.Reason}
		changes = []change{{ev: ended}, c}
	}
	commit, err := e.stepLocked(l, changes...)
	if err != nil {
		e.retireLocked(l)
		e.mu.Unlock()
		return x, fmt.Errorf("settling %s: the verdict could not be written: %w", id, err)
	}
	l.busy = true
	e.mu.Unlock()
	<-commit.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	l.busy = false
	if err := commit.Err(); err != nil {
		e.journalDownLocked(err)
		e.takeBackLocked(l)
		return l.x, fmt.Errorf("settling %s: the verdict could not be written: %w", id, err)
	}
	e.stopAskingLocked(l)
	e.leaveCountLocked(l)
	l.wakeLocked()
	e.retireLocked(l)
	return l.x, nil
}
