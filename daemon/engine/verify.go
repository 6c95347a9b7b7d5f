package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// Verification: what became of an attempt whose answer was lost, where the action's contract has a way to ask (class status_query). The agent's retry, the operator's check
// and the polling by itself all come here: inquireLocked asks once, concludeLocked takes in what was found. At most one question about an execution is under way; whoever
// asks meanwhile joins it. A question that comes back when the outcome was settled in another way decides nothing any more.

// inquiry is the asking about one execution. Everything in it is guarded by Engine.mu.
type inquiry struct {
	under   bool        // a question is under way
	next    func() bool // stops the next question by itself; nil when there is none
	by      string      // who has the question under way asked
	turn    int         // numbers them, so that one which was stopped too late asks nothing
	quiet   int         // answers with the recorded finding that were not recorded themselves
	results []chan<- Asked
}

// active says that a question is under way or will be asked by itself.
func (q *inquiry) active() bool { return q.under || q.next != nil }

// Asked is what one question came to.
type Asked struct {
	Finding  execution.Finding
	Reason   string
	Evidence string          // what was asked and what was answered
	Answer   json.RawMessage // the answer as the operator may see it; may be nil
	Believed bool            // it decided the outcome
	At       time.Time
}

// Who has a question asked. The operator stands by name.
const (
	byDaemon = "daemon"
	byAgent  = "agent"
)

// ErrCannotAsk is wrapped where no question was asked at all; the text says why.
var ErrCannotAsk = errors.New("the target cannot be asked")

var errContractGone = errors.New("the contract under which it was accepted is not in the vault any more")

// asked says whether a target can be asked about an execution in its state: nobody knows what became of it, or the target has it.
func asked(x execution.Execution) bool { return x.State == execution.Unknown || x.Awaits() }

// maxInquiries bounds the questions under way at once, and maxResumed the executions that are asked about by themselves after an unlock.
const (
	maxInquiries = 8
	maxResumed   = 512
)

// mayAskLocked says why nobody can be asked now, or nil.
func (e *Engine) mayAskLocked(l *live) error {
	switch {
	case l.x.Class != execution.StatusQuery:
		return fmt.Errorf("%w: the action's contract has no way to ask it", ErrCannotAsk)
	case e.locked:
		return fmt.Errorf("%w: the vault is locked", ErrCannotAsk)
	case e.closing:
		return fmt.Errorf("%w: the daemon is stopping", ErrCannotAsk)
	case e.quarant:
		return fmt.Errorf("%w: the journal does not verify", ErrCannotAsk)
	case e.down:
		return fmt.Errorf("%w: the journal cannot be written", ErrCannotAsk)
	case e.contractLocked(l.x) == nil:
		return fmt.Errorf("%w: %w", ErrCannotAsk, errContractGone)
	case e.answerLostLocked(l.x):
		return fmt.Errorf("%w: %w", ErrCannotAsk, policy.ErrAnswerLost)
	}
	return nil
}

// contractLocked returns the very contract under which an execution was accepted.
func (e *Engine) contractLocked(x execution.Execution) *boundAction {
	for _, a := range e.actions.Load().forTool(x.Tool) {
		if a.digest == x.ContractDigest && a.Contract().Replay.Class == x.Class {
			return a
		}
	}
	return nil
}

// inquireLocked asks now, unless a question is under way already. It reports whether one is.
func (e *Engine) inquireLocked(l *live, by string) bool {
	if !asked(l.x) || l.busy || e.mayAskLocked(l) != nil {
		return false
	}
	if l.inquiry == nil {
		l.inquiry = &inquiry{}
	}
	q := l.inquiry
	if q.next != nil {
		q.next()
		q.next = nil
	}
	if q.under {
		if by != byDaemon {
			q.by = by
		}
		return true
	}
	q.under, q.by = true, by
	id, a, attempt := l.x.ID, e.contractLocked(l.x), l.x.LastAttempt()
	e.work.Add(1)
	go func() {
		defer e.work.Done()
		select {
		case e.inquiries <- struct{}{}:
			defer func() { <-e.inquiries }()
		case <-e.base.Done():
		}
		began := e.cfg.Now()
		f, source, err := e.verify(id, attempt, a)
		e.conclude(l, a, attempt.Number, began, f, source, err)
	}()
	return true
}

// verify asks once. It takes no lock.
func (e *Engine) verify(id string, attempt execution.Attempt, a *boundAction) (f channel.Finding, source execution.Source, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("a channel panicked", "execution_id", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			f = channel.Finding{Word: channel.CannotTell, Reason: "a fault in the daemon while the target was asked"}
		}
	}()
	if e.base.Err() != nil {
		return f, "", fmt.Errorf("%w: the daemon is stopping", ErrCannotAsk)
	}
	eff, args, err := e.sealedEffect(id)
	if err != nil {
		return f, "", fmt.Errorf("%w: what was sent cannot be read: %w", ErrCannotAsk, err)
	}
	v, ok := e.cfg.Channels[eff.Channel].(channel.Verifier)
	if !ok {
		return f, "", fmt.Errorf("%w: channel %q has no way to ask", ErrCannotAsk, eff.Channel)
	}
	q := channel.Query{ExecutionID: id, Attempt: attempt.Number, Dispatched: attempt.DispatchedAt, Effect: eff, Limits: a.limits, Private: a.private, Awaited: attempt.Awaited()}
	source = execution.FromMarker
	auth := eff.Auth
	if err := e.pinAgain(q.Effect.SSH); err != nil {
		return f, source, fmt.Errorf("%w: %w", ErrCannotAsk, err)
	}
	if a.Contract().Replay.Status != nil {
		source = execution.FromQuery
		var learned policy.Learned
		if q.Awaited {
			if learned, err = e.learned(id); err != nil {
				return f, source, fmt.Errorf("%w: what the target answered cannot be read: %w", ErrCannotAsk, err)
			}
		}
		if auth, err = e.statusQuestion(&q, a, args, learned); err != nil {
			return f, source, err
		}
	}
	if auth != nil {
		own, err := e.accessFor(*auth)
		if err != nil {
			return f, source, fmt.Errorf("%w: %w", ErrCannotAsk, err)
		}
		defer own.secret.Wipe()
		q.Secret, q.Permitted, q.Private = own.secret, own.permitted, q.Private || own.private
	}
	return v.Verify(e.base, q), source, nil
}

// statusQuestion puts the status request into the question, as the contract in the vault makes it of the arguments that were recorded, and returns the place of its
// credential, which is the one of today: a credential that was changed since is no reason not to ask.
func (e *Engine) statusQuestion(q *channel.Query, a *boundAction, args []byte, learned policy.Learned) (*effect.Auth, error) {
	p, err := a.Prepare(args)
	if err != nil {
		return nil, fmt.Errorf("%w: the recorded arguments do not fit the contract: %w", ErrCannotAsk, err)
	}
	own, err := a.Render(p, q.ExecutionID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCannotAsk, err)
	}
	s := own.Status
	if s == nil || q.Effect.Status == nil || !sameRequest(s.HTTP, q.Effect.Status.HTTP) || s.Within != q.Effect.Status.Within || !slices.Equal(s.Fields, q.Effect.Status.Fields) {
		return nil, fmt.Errorf("%w: the status request that was recorded is not what the contract makes of the call", ErrCannotAsk)
	}
	if s.Auth != nil {
		c, err := e.cfg.Vault.Credential(s.Auth.Credential)
		if err != nil {
			return nil, fmt.Errorf("%w: the credential %q cannot be used: %w", ErrCannotAsk, s.Auth.Credential, err)
		}
		s.Auth = authOf(c)
	}
	if len(s.Fields) > 0 {
		filled, err := a.StatusRequest(p, q.ExecutionID, learned)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCannotAsk, err)
		}
		q.Shown = shownRequest(*s)
		s = &effect.StatusRequest{HTTP: filled, Auth: s.Auth}
	}
	q.Effect.Status, q.Limits, q.Private = s, a.statusLimits, a.Contract().Replay.Status.Private
	q.Judge = func(r channel.Reading) (channel.Word, string) {
		return a.JudgeStatus(p, q.ExecutionID, policy.Reading(r))
	}
	return s.Auth, nil
}

func sameRequest(a, b effect.HTTPRequest) bool {
	one, err := effect.Effect{Channel: effect.HTTP, HTTP: &a}.Digest()
	two, wrong := effect.Effect{Channel: effect.HTTP, HTTP: &b}.Digest()
	return err == nil && wrong == nil && one == two
}

// conclude takes in what a question came to.
func (e *Engine) conclude(l *live, a *boundAction, attempt int, began time.Time, f channel.Finding, source execution.Source, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := l.inquiry
	q.under = false
	told := Asked{Finding: f.Word, Reason: f.Reason, Evidence: f.Evidence, Answer: f.Answer, At: e.cfg.Now()}
	if err != nil {
		told.Finding, told.Reason = execution.FoundCannotTell, err.Error()
	}
	defer func() {
		for _, ch := range q.results {
			ch <- told // has room for one
		}
		q.results = nil
		l.wakeLocked()
		e.retireLocked(l)
	}()
	wait := a.Contract().Replay.Wait
	switch last := l.x.LastAttempt(); {
	case !asked(l.x) || last.Number != attempt:
		return // settled in another way meanwhile, and that stands
	case l.busy:
		e.askLaterLocked(l, wait, 0) // whoever has it may not get it written
		return
	case last.Awaited():
		told.Believed = e.concludeAwaitedLocked(l, wait, f, source, &told, err)
		return
	case isLocked(err):
		e.askAfterLockLocked(l, wait)
		return
	case err != nil:
		e.stopAskingLocked(l)
		if e.base.Err() == nil {
			e.inconclusiveLocked(l, execution.Event{ID: l.x.ID, By: q.by, Source: source, Finding: told.Finding, Reason: bounded(told.Reason)}, false)
		}
		return
	}
	ev := execution.Event{ID: l.x.ID, By: q.by, Source: source, Finding: f.Word, Evidence: bounded(f.Evidence), Reason: bounded(f.Reason)}
	switch f.Word {
	case channel.Done, channel.Failed:
		told.Believed = e.observedLocked(l, ev, f)
	case channel.NotDone:
		if !f.Certain && wait.NotDoneAfter == 0 {
			ev.Reason = bounded(f.Reason + "; that is not believed, since the contract does not say from when on it may be")
			told.Reason = ev.Reason
			e.inconclusiveLocked(l, ev, e.askLaterLocked(l, wait, f.After))
			return
		}
		if from := believedFrom(l.x, wait); !f.Certain && began.Before(from) {
			ev.Reason = bounded(fmt.Sprintf("%s; that is not believed before %s, since what was done may not show yet", f.Reason, from.UTC().Format(time.RFC3339)))
			told.Reason = ev.Reason
			e.inconclusiveLocked(l, ev, e.askLaterLocked(l, wait, f.After))
			return
		}
		told.Believed = e.notDoneLocked(l, ev)
	default:
		if f.Word != channel.Running {
			ev.Finding, told.Finding = execution.FoundCannotTell, execution.FoundCannotTell
		}
		if e.base.Err() == nil { // else it was cut short by our own end
			e.inconclusiveLocked(l, ev, e.askLaterLocked(l, wait, f.After))
		}
		return
	}
	if !told.Believed {
		e.askLaterLocked(l, wait, f.After)
	}
}

// maxEvidence bounds what a verification writes into the journal in clear.
const maxEvidence = 2048

func bounded(s string) string { return clip(s, maxEvidence) }

// doubtSince is when the last byte of the attempt in doubt can have left. A daemon that died in between has found it later, which only makes the doubt last longer.
func doubtSince(x execution.Execution) time.Time {
	last := x.LastAttempt()
	if last.Awaited() {
		return last.AwaitedSince
	}
	if last.EndedAt.After(last.DispatchedAt) {
		return last.EndedAt
	}
	return last.DispatchedAt
}

func believedFrom(x execution.Execution, w policy.Wait) time.Time {
	return doubtSince(x).Add(w.NotDoneAfter)
}

// observedLocked records that the target told the outcome. It reports whether that is durable.
func (e *Engine) observedLocked(l *live, ev execution.Event, f channel.Finding) bool {
	ev.Kind, ev.Outcome, ev.Status, ev.Result = execution.KindObserved, execution.Success, f.Status, "result_"+l.x.ID[len("act_"):]
	if f.Word == channel.Failed {
		ev.Outcome = execution.TargetError
	}
	if l.x.Awaits() {
		ev.Attempt = l.x.LastAttempt().Number
	}
	result := f.Result
	commit, err := e.stepLocked(l, change{ev: ev, payload: sealedResult{result, f.Answer}.encode()})
	if errors.Is(err, ErrEntry) {
		result = toolResult("the target told the outcome, but its answer is too large to be kept", nil, f.Word == channel.Failed)
		commit, err = e.stepLocked(l, change{ev: ev, payload: sealedResult{Result: result}.encode()})
	}
	if err != nil || !e.durableLocked(l, commit) {
		return false
	}
	l.result = result
	e.stopAskingLocked(l)
	e.leaveCountLocked(l)
	return true
}

// notDoneLocked records that the target did nothing. Where a caller still waits it is sent once more, as another attempt of the same execution, in the same commit; else that is
// the end of it. It reports whether that is recorded.
func (e *Engine) notDoneLocked(l *live, ev execution.Event) bool {
	ev.Kind = execution.KindNotDone
	if e.maySendAgainLocked(l) {
		n := len(l.x.Attempts) + 1
		ev.Waiting = true
		commit, err := e.stepLocked(l, change{ev: ev, lazy: true}, change{ev: execution.Event{Kind: execution.KindDispatched, ID: l.x.ID, Attempt: n}, lazy: true})
		if err != nil {
			return false
		}
		e.stopAskingLocked(l)
		l.busy = true
		e.launchLocked(l, n, commit)
		return true
	}
	commit, err := e.stepLocked(l, change{ev: ev})
	if err != nil || !e.durableLocked(l, commit) {
		return false
	}
	e.stopAskingLocked(l)
	e.leaveCountLocked(l)
	return true
}

// maySendAgainLocked says whether an execution that provably did nothing may be sent once more by itself. What is sent must come from a call of this daemon's life and not from
// a record alone (see recoverLocked).
func (e *Engine) maySendAgainLocked(l *live) bool {
	if l.action == nil || l.action.digest != l.x.ContractDigest || l.effect.Channel == "" || l.over || l.attemptsInDoubt() >= l.maxAttempts() {
		return false
	}
	if e.locked || e.down || e.closing || e.quarant || !e.attachedLocked(l) {
		return false
	}
	return e.stillAllowedLocked(l)
}

// durableLocked waits for a commit, with the execution busy, and takes it back where the journal fails. It unlocks meanwhile.
func (e *Engine) durableLocked(l *live, commit Commit) bool {
	l.busy = true
	e.mu.Unlock()
	err := commit.Wait()
	e.mu.Lock()
	l.busy = false
	if err != nil {
		e.journalDownLocked(err)
		e.takeBackLocked(l)
	}
	return err == nil
}

// inconclusiveLocked records an answer that decides nothing. The same finding again is only counted while it is asked on: a target that works for an hour is asked often. What
// somebody asked for, and the last word, are always recorded.
func (e *Engine) inconclusiveLocked(l *live, ev execution.Event, goesOn bool) {
	q := l.inquiry
	last := l.x.LastCheck()
	if goesOn && ev.By == byDaemon && last.Finding == ev.Finding && last.Reason == ev.Reason && last.At.After(doubtSince(l.x)) {
		q.quiet++
		return
	}
	ev.Kind = execution.KindInconclusive
	if q.quiet > 0 {
		ev.Times = q.quiet + 1
	}
	if _, err := e.stepLocked(l, change{ev: ev, lazy: true}); err != nil {
		e.cfg.Logger.Error("recording what the target was asked", "execution_id", l.x.ID, "error", err)
		return
	}
	q.quiet = 0
	if !goesOn {
		e.cfg.Notify(Notice{Kind: "unknown_outcome", Run: l.x.Run, Tool: l.x.Tool, ID: l.x.ID, Text: ev.Reason})
	}
}

// askLaterLocked has the next question asked by itself, while the wait contract says so. It reports whether there will be one.
func (e *Engine) askLaterLocked(l *live, wait policy.Wait, after time.Duration) bool {
	now, since := e.cfg.Now(), doubtSince(l.x)
	passed := now.Sub(since)
	if passed >= wait.GiveUpAfter || e.closing || e.locked {
		e.stopAskingLocked(l)
		return false
	}
	pause := max(wait.Poll, passed/10)
	if l.x.LastAttempt().Awaited() {
		pause = max(wait.Poll, min(passed/10, mostAwaitedPause))
	} else if left := believedFrom(l.x, wait).Sub(now); left > 0 {
		pause = min(pause, left) // "not done" can be believed from then on
	}
	pause = max(pause, after)
	q := l.inquiry
	if q.next != nil {
		q.next()
	}
	id := l.x.ID
	q.turn++
	turn := q.turn
	q.next = e.cfg.After(pause, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if l := e.live[id]; l == nil || l.inquiry != q || q.next == nil || q.turn != turn {
			return
		}
		q.next = nil
		if !e.inquireLocked(l, byDaemon) {
			if asked(l.x) && e.mayAskLocked(l) == nil {
				e.askLaterLocked(l, wait, 0) // a commit is under way
			} else if l.x.Awaits() {
				e.resumeAwaitedLocked(l)
			}
			l.wakeLocked()
			e.retireLocked(l)
		}
	})
	return true
}

// stopAskingLocked ends the asking by itself.
func (e *Engine) stopAskingLocked(l *live) {
	if l.inquiry != nil && l.inquiry.next != nil {
		l.inquiry.next()
		l.inquiry.next = nil
	}
}

// resumeAskingLocked asks about everything that is unknown and can be asked about: after an unlock, and when the journal can be written again.
func (e *Engine) resumeAskingLocked() {
	open, err := e.cfg.Records.Unfinished()
	if err != nil {
		e.cfg.Logger.Error("reading what is open", "error", err)
	}
	resumed := 0
	ask := func(l *live) {
		if resumed < maxResumed && (l.inquiry == nil || !l.inquiry.active()) && e.inquireLocked(l, byDaemon) {
			resumed++
		}
	}
	for _, l := range e.liveOf(func(l *live) bool { return asked(l.x) && l.x.Class == execution.StatusQuery }) {
		if l.x.Awaits() {
			e.resumeAwaitedLocked(l)
		} else {
			ask(l)
		}
	}
	for _, x := range open {
		if asked(x) && x.Class == execution.StatusQuery && e.live[x.ID] == nil {
			l := e.reviveLocked(x)
			if l.x.Awaits() {
				e.resumeAwaitedLocked(l)
			} else {
				ask(l)
			}
			e.retireLocked(l)
		}
	}
}

// Check asks the target what became of an execution whose outcome is unknown, on the operator's word. It never sends the action: what the target is found not to have done is
// sent only for a caller that waits for it.
func (e *Engine) Check(ctx context.Context, id, by string) (Asked, execution.Execution, error) {
	e.mu.Lock()
	x, ok, err := e.byIDLocked(id)
	if err != nil || !ok {
		e.mu.Unlock()
		if err == nil {
			err = ErrUnknown
		}
		return Asked{}, x, fmt.Errorf("checking %q: %w", id, err)
	}
	l := e.reviveLocked(x)
	result := make(chan Asked, 1)
	switch {
	case !asked(l.x):
		err = fmt.Errorf("checking %s: %w: it is %s", id, ErrSettled, l.x.State)
	case e.mayAskLocked(l) != nil:
		err = fmt.Errorf("checking %s: %w", id, e.mayAskLocked(l))
	case !e.inquireLocked(l, by):
		err = fmt.Errorf("checking %s: a verdict is being written; try again", id)
	default:
		l.inquiry.results = append(l.inquiry.results, result)
	}
	e.retireLocked(l)
	e.mu.Unlock()
	if err != nil {
		return Asked{}, x, err
	}
	select {
	case asked := <-result:
		e.mu.Lock()
		defer e.mu.Unlock()
		return asked, l.x, nil
	case <-ctx.Done():
		return Asked{}, x, fmt.Errorf("checking %s: %w", id, context.Cause(ctx))
	}
}
