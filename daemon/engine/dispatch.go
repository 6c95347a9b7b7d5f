package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/vault/secret"
)

// proceedLocked dispatches an authorized execution if everything that it needs is there: an approval or a session, an attached caller, an open vault, a journal that works.
func (e *Engine) proceedLocked(l *live) {
	if l.busy || l.x.State != execution.Authorized || e.locked || e.down || e.closing || !e.attachedLocked(l) {
		return
	}
	if e.quarant && l.x.Class != execution.ReadOnly {
		return
	}
	r := e.actingRunLocked(l)
	if r == nil {
		e.endLocked(l, execution.KindExpired, api.CodeRunEnded, "the process that asked has ended or has become another program")
		return
	}
	if l.grant != nil {
		if r.id != l.x.Run {
			e.endLocked(l, execution.KindExpired, api.CodeRunEnded, "the process that it was approved for has ended or has become another program")
			return
		}
		spent, err := l.grant.Use(l.binding(), e.cfg.Now())
		if err != nil {
			e.endLocked(l, execution.KindExpired, api.CodeExpired, err.Error())
			return
		}
		l.grant = &spent
	} else if l.perUse || !e.coveredLocked(r, l.x.Tool, l.x.ContractDigest, l.args) {
		if l.bySession && r.id == l.x.Run {
			e.endLocked(l, execution.KindExpired, api.CodeExpired, "the session that let it through is over")
		}
		return
	}
	e.sendLocked(l)
}

// actingRunLocked returns the run on whose behalf the execution would be sent now, checked again: its own, or one that attached and lives.
func (e *Engine) actingRunLocked(l *live) *run {
	if r := e.runs[l.x.Run]; r != nil && r.check() == nil {
		return r
	}
	for w := range l.waiters {
		if w.run.check() == nil {
			return w.run
		}
	}
	return nil
}

// sendLocked records the next attempt and starts it.
func (e *Engine) sendLocked(l *live) {
	if l.over {
		return
	}
	n := len(l.x.Attempts) + 1
	commit, err := e.stepLocked(l, change{ev: execution.Event{Kind: execution.KindDispatched, ID: l.x.ID, Attempt: n}, lazy: true})
	if err != nil {
		return
	}
	l.busy = true
	e.launchLocked(l, n, commit)
}

// launchLocked starts the goroutine that carries an attempt out once the commit that says "dispatched" is durable.
func (e *Engine) launchLocked(l *live, attempt int, commit Commit) {
	e.work.Add(1)
	e.dispatches.Add(1)
	r := channel.Request{ExecutionID: l.x.ID, Attempt: attempt, SideEffect: l.x.Class != execution.ReadOnly, Effect: l.effect}
	if l.action != nil {
		r.Limits, r.Private = l.action.limits, l.action.private
		r.JudgeAnswer = answerJudge(l.action, l.x.ID, l.args)
	}
	if l.effect.Channel == effect.MCP { // the only one whose targets say something meanwhile
		r.Progress = func(p channel.Progress) { e.pass(l, p) }
	}
	e.crew.Go(func() {
		defer e.work.Done()
		defer e.dispatches.Done()
		e.attempt(l, r, commit)
	})
}

// pass tells everybody who waits for an execution what its target says.
func (e *Engine) pass(l *live, p channel.Progress) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range l.waiters {
		if w.progress != nil {
			w.progress(call.Progress{Message: p.Message, Progress: p.Done, Total: p.Total})
		}
	}
}

// Lend prepares a request of the daemon's own, which no call asked for and which has no effect: it gives the place of a credential, its secret, and the check of where it may go. Whoever
// asks for it makes sure of the first two, and calls release.
func (e *Engine) Lend(credential string) (r channel.Request, release func(), err error) {
	cred, err := e.cfg.Vault.Credential(credential)
	if err != nil {
		return r, nil, fmt.Errorf("the credential %q cannot be used: %w", credential, err)
	}
	r.Effect.Auth = authOf(cred)
	own, err := e.accessFor(*r.Effect.Auth)
	if err != nil {
		return channel.Request{}, nil, err
	}
	r.Secret, r.Permitted, r.Private = own.secret, own.permitted, own.private
	return r, own.secret.Wipe, nil
}

// attempt is one dispatch, from the durable word to the observed outcome.
func (e *Engine) attempt(l *live, r channel.Request, commit Commit) {
	// The secret is fetched while the disk syncs. If that fails, the attempt provably sent nothing.
	var own access
	var refused error
	if r.Effect.Auth != nil {
		if own, refused = e.accessFor(*r.Effect.Auth); refused == nil {
			refused = e.stillPinned(r.Effect)
		}
		if own.secret != nil {
			defer own.secret.Wipe()
		}
	}
	if r.SideEffect {
		if err := commit.Wait(); err != nil {
			e.mu.Lock()
			l.busy = false
			e.journalDownLocked(err)
			e.takeBackLocked(l)
			l.wakeLocked()
			e.retireLocked(l)
			e.mu.Unlock()
			return
		}
	}
	out := channel.Outcome{Verdict: channel.NotSent, Reason: "the credential cannot be used"}
	if refused != nil {
		out.Reason = refused.Error()
	} else {
		r.Secret, r.Permitted, r.Private = own.secret, own.permitted, r.Private || own.private
		if out = e.carryOut(r); out.Status == unauthorized && own.secret != nil {
			e.cfg.Vault.CredentialRefused(r.Effect.Auth.Credential, own.secret)
		}
	}
	e.finish(l, r.Attempt, out)
}

// unauthorized is "Unauthorized" (RFC 9110, section 15.5.2). It is a known outcome, and nothing is sent again for it by itself: the target may have acted before it refused, and the agent or the person
// decides. Only what was cached of the credential goes.
const unauthorized = 401

// carryOut asks the channel, and turns its panic into an unknown outcome: whether something was sent before it cannot be told.
func (e *Engine) carryOut(r channel.Request) (out channel.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("a channel panicked", "execution_id", r.ExecutionID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			out = channel.Outcome{Verdict: channel.Unknown, Reason: "a fault in the daemon while the request was under way"}
		}
	}()
	if r.Effect.Channel == effect.Person && r.Effect.Ask != nil {
		return yes(*r.Effect.Ask)
	}
	ch, ok := e.cfg.Channels[r.Effect.Channel]
	if !ok {
		return channel.Outcome{Verdict: channel.NotSent, Reason: fmt.Sprintf("channel %q is not available in this version", r.Effect.Channel)}
	}
	return ch.Do(e.base, r)
}

// access is what a credential gives one request.
type access struct {
	secret    *secret.Bytes // the caller wipes it
	permitted func(rawURL string) error
	private   bool // the credential's leave for private networks
}

// accessFor fetches a credential for one request, with the check of its binding.
func (e *Engine) accessFor(auth effect.Auth) (access, error) {
	cred, held, err := e.cfg.Vault.UseCredential(e.base, auth.Credential)
	if err != nil {
		return access{}, fmt.Errorf("the credential %q cannot be used: %w", auth.Credential, err)
	}
	if *authOf(cred) != auth {
		held.Wipe()
		return access{}, fmt.Errorf("the credential %q was changed after this was accepted", cred.Name)
	}
	return access{held, func(rawURL string) error { return bindingAllows(cred, rawURL) }, cred.AllowPrivate}, nil
}

// finish records what an attempt came to, and decides whether another one follows.
func (e *Engine) finish(l *live, attempt int, out channel.Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.busy = true
	commit, err := e.stepLocked(l, outcomeChange(l.x, attempt, out))
	if errors.Is(err, ErrEntry) {
		// The outcome counts, whatever came with it.
		out.Result, out.Answer = toolResult(fmt.Sprintf("the target answered (status %d), but its answer is too large to be kept", out.Status), nil, out.Verdict != channel.Success), nil
		commit, err = e.stepLocked(l, outcomeChange(l.x, attempt, out))
	}
	if errors.Is(err, errUnwritten) {
		e.holdLocked(l, out)
		return
	}
	if err == nil && l.x.Class != execution.ReadOnly {
		e.mu.Unlock()
		err := commit.Wait()
		e.mu.Lock()
		if err != nil {
			e.journalDownLocked(err)
			e.takeBackLocked(l)
			e.holdLocked(l, out)
			return
		}
	}
	l.busy = false
	if l.x.State == execution.NotDelivered {
		l.result = out.Result
	}
	e.afterLocked(l)
	l.wakeLocked()
	e.retireLocked(l)
}

// holdLocked keeps an outcome that cannot be written yet, so that it is never lost silently.
func (e *Engine) holdLocked(l *live, out channel.Outcome) {
	l.busy = true
	l.held = &out
	l.holds++
	e.cfg.Logger.Error("an outcome is held until the journal can be written", "execution_id", l.x.ID, "verdict", string(out.Verdict))
}

func outcomeChange(x execution.Execution, attempt int, out channel.Outcome) change {
	c := change{ev: execution.Event{ID: x.ID, Attempt: attempt, Reason: out.Reason}, lazy: true}
	switch out.Verdict {
	case channel.NotSent:
		c.ev.Kind = execution.KindSendFailed
	case channel.Success, channel.TargetError:
		c.ev.Kind, c.ev.Outcome, c.ev.Status, c.ev.Source = execution.KindObserved, execution.Outcome(out.Verdict), out.Status, execution.FromTarget
		c.ev.Result = "result_" + strings.TrimPrefix(x.ID, "act_")
		c.payload = sealedResult{out.Result, out.Answer}.encode()
	case channel.Taken:
		c.ev.Kind, c.ev.Status, c.ev.AskAfter = execution.KindAwaited, out.Status, out.After
		c.payload = sealedAnswer{out.Kept, out.Answer}.encode()
	default:
		c.ev.Kind = execution.KindUnknown
		if out.Verdict != channel.Unknown {
			c.ev.Reason = fmt.Sprintf("the channel gave a verdict that is not known: %q", out.Verdict)
		}
	}
	return c
}

// afterLocked decides what follows an attempt: nothing, another one of the same execution where that is allowed, or the end.
func (e *Engine) afterLocked(l *live) {
	switch l.x.State {
	case execution.Authorized:
		// Proof that nothing was sent: it may be tried again, a bounded number of times, for as long as somebody waits.
		l.sends++
		if l.sends < maxSends && e.attachedLocked(l) && e.stillAllowedLocked(l) && !e.locked && !e.down && !e.closing && (!e.quarant || l.x.Class == execution.ReadOnly) {
			e.againLocked(l)
			return
		}
		if _, err := e.stepLocked(l, change{ev: execution.Event{Kind: execution.KindGaveUp, ID: l.x.ID, Code: string(api.CodeNotSent), Reason: l.x.Reason}}); err == nil {
			e.leaveCountLocked(l)
		}
	case execution.Unknown:
		if l.x.LastAttempt().Outcome == execution.NothingSent {
			l.sends++
		}
		if e.mayRepeatLocked(l) == nil && l.sends < maxSends && l.attemptsInDoubt() < l.maxAttempts() && e.attachedLocked(l) && e.stillAllowedLocked(l) {
			e.againLocked(l)
			return
		}
		e.leaveCountLocked(l)
		if e.inquireLocked(l, byDaemon) {
			return // the target tells, or the person is told later
		}
		e.cfg.Notify(Notice{Kind: "unknown_outcome", Run: l.x.Run, Tool: l.x.Tool, ID: l.x.ID, Text: l.x.Reason})
	default:
		if l.x.Awaits() {
			e.awaitLocked(l) // it keeps its place among those of its run that wait
			return
		}
		e.leaveCountLocked(l)
	}
}

// stillAllowedLocked says whether another attempt may be made without asking, by itself or for a repeat of the call, as far as the person is concerned: the process lives, and what let it through was not ended meanwhile.
func (e *Engine) stillAllowedLocked(l *live) bool {
	r := e.actingRunLocked(l)
	return r != nil && !r.revoked && (!l.bySession || e.coveredLocked(r, l.x.Tool, l.x.ContractDigest, l.args))
}

// maxSends bounds the attempts of which provably nothing was sent, for each call that asks for some.
const maxSends = 3

func (l *live) attemptsInDoubt() int {
	n := 0
	for _, a := range l.x.Attempts {
		if a.Outcome == "" {
			n++
		}
	}
	return n
}

func (l *live) maxAttempts() int {
	if l.action == nil {
		return 1
	}
	return l.action.attempts
}

// againLocked makes another attempt of the same execution after a pause. The execution counts as busy until then, so nobody is told an outcome that is about to change.
func (e *Engine) againLocked(l *live) {
	l.busy = true
	e.work.Add(1)
	timer := time.NewTimer(e.cfg.RetryDelay)
	go func() {
		defer e.work.Done()
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-e.base.Done():
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		l.busy = false
		ok := !e.closing && !e.locked && !e.down && e.attachedLocked(l) && e.stillAllowedLocked(l)
		switch {
		case ok && l.x.State == execution.Authorized, ok && l.x.State == execution.Unknown && e.mayRepeatLocked(l) == nil:
			e.sendLocked(l)
		case l.x.State == execution.Authorized:
			l.sends = maxSends
			e.afterLocked(l)
		case l.x.State == execution.Unknown:
			e.leaveCountLocked(l)
			e.cfg.Notify(Notice{Kind: "unknown_outcome", Run: l.x.Run, Tool: l.x.Tool, ID: l.x.ID, Text: l.x.Reason})
		}
		l.wakeLocked()
		e.retireLocked(l)
	}()
}

var (
	errNeverAgain = errors.New("this action is never sent again without proof that the first attempt did nothing")
	errKeyExpired = errors.New("the target no longer remembers the idempotency key, so it is never sent again")
)

// mayRepeatLocked says whether the class allows another attempt of an execution whose outcome is unknown.
func (e *Engine) mayRepeatLocked(l *live) error {
	switch l.x.Class {
	case execution.ReadOnly:
		return nil
	case execution.Idempotent:
		// The key's life counts from the first attempt that the target may have seen.
		if e.cfg.Now().Sub(l.x.DispatchedAt) >= l.x.KeyLifetime {
			return errKeyExpired
		}
		if e.quarant {
			return errors.New("the journal is in quarantine, so nothing with a side effect is sent")
		}
		return nil
	}
	return errNeverAgain
}

// recoverLocked handles a call that belongs to an execution whose outcome is unknown: where the class allows it, another attempt of the same execution, or the question to the
// target what became of it.
//
// The journal's chain has no key: whoever can write the files can add lines that verify. Sending again therefore never rests on a record alone. The call in hand was prepared
// under the very contract that the record names, which lies in the vault, so the class and the effect are taken from there, and the sealed effect must be the same to the byte.
func (e *Engine) recoverLocked(l *live, rd reading) {
	a := rd.action
	if l.busy || l.x.State != execution.Unknown || e.locked || e.down || e.closing || e.mayRepeatLocked(l) != nil && e.mayAskLocked(l) != nil {
		return
	}
	if a == nil || a.digest != l.x.ContractDigest || a.Contract().Replay.Class != l.x.Class {
		return
	}
	l.sends = 0
	l.action = a
	if l.effect.Channel == "" {
		own, err := a.render(rd.prepared, l.x.ID, rd.cred, rd.statusCred, rd.hosts)
		if err != nil {
			return
		}
		// Reading what was sealed takes the disk, so it is done outside the lock.
		l.busy = true
		e.work.Add(1)
		id := l.x.ID
		go func() {
			defer e.work.Done()
			eff, args, err := e.sealedEffect(id)
			e.mu.Lock()
			defer e.mu.Unlock()
			l.busy = false
			if err == nil {
				err = sameEffect(own, eff, l.x.EffectDigest)
			}
			if err != nil {
				e.cfg.Logger.Error("not sending again", "execution_id", id, "error", err)
			} else {
				l.effect, l.args = eff, args
				if l.x.State == execution.Unknown && !e.locked && !e.down && !e.closing && e.attachedLocked(l) && e.mayRepeatLocked(l) == nil && e.stillAllowedLocked(l) {
					e.sendLocked(l)
				}
			}
			e.inquireLocked(l, byAgent)
			l.wakeLocked()
			e.retireLocked(l)
		}()
		return
	}
	if e.mayRepeatLocked(l) == nil && e.stillAllowedLocked(l) {
		e.sendLocked(l)
		return
	}
	e.inquireLocked(l, byAgent)
}

// sameEffect checks that what was sealed is what the contract makes of the call, and what the record says was accepted.
func sameEffect(own, sealed effect.Effect, digest string) error {
	for _, eff := range []effect.Effect{own, sealed} {
		d, err := digestOf(eff)
		if err != nil {
			return err
		}
		if d != digest {
			return errors.New("what was recorded as accepted is not what the contract makes of this call")
		}
	}
	return nil
}
