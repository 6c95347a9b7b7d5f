package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// request is a call on its way through the engine.
type request struct {
	call.Call
	run      *run
	number   string
	set      *actionSet
	again    int                 // how often it was read while the vault was locked
	awaited  execution.Execution // the earlier one whose result it gets once its run has a session
	secrets  uint64              // Engine.secrets before the call was read
	readings []reading           // the contract in force first, then withdrawn ones that still have open executions
}

// Call judges a call and carries it out, or attaches it to the execution that it belongs to.
func (e *Engine) Call(ctx context.Context, c call.Call) call.Answer {
	if own, ok := ownTools[c.Tool]; ok && c.Method == "" {
		return e.callOwn(ctx, own, c)
	}
	q := &request{Call: c}
	q.address()
	if refusal := e.enter(q); refusal != nil {
		return *refusal
	}
	for {
		e.read(q)
		e.inherit(q)
		done, answer := e.claim(ctx, q)
		if done == nil {
			return answer
		}
		// A card about the run's session is open; whatever it brings, the call is judged again from the start.
		if answer, over := e.waitCard(ctx, q, done); over {
			return answer
		}
	}
}

// waitCard waits for a card about the run's session. It reports whether the call ends here, with its answer.
func (e *Engine) waitCard(ctx context.Context, q *request, done <-chan struct{}) (call.Answer, bool) {
	patience := time.NewTimer(e.cfg.AnswerWithin)
	defer patience.Stop()
	select {
	case <-done:
		return call.Answer{}, false
	case <-ctx.Done():
		return call.Answer{}, true
	case <-e.base.Done():
	case <-patience.C:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q.run.asking == nil || q.awaited.ID == "" {
		return call.Answer{}, false
	}
	// The card may be about another one, since all calls of the run wait on it.
	x := q.awaited
	b, _ := json.Marshal(pendingCall{ // strings always encode
		State: x.State, ID: x.ID, Tool: x.Tool, WaitingFor: "approval",
		Next: "this belongs to an earlier execution, and its result waits for the person's consent to this process. Nothing is sent for it. Call again with the same arguments",
	})
	return call.Answer{ExecutionID: x.ID, State: x.State, Result: toolResult(string(b), b, false)}, true
}

// enter makes the run known and checks that the process behind it is still the one that connected.
func (e *Engine) enter(q *request) *call.Answer {
	if q.Peer.Check != nil {
		if err := q.Peer.Check(); err != nil {
			a := e.refuseUnread(q, api.CodeRunEnded, "the process that asked has ended or has become another program: "+err.Error())
			return &a
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		a := shuttingDown()
		return &a
	}
	q.run = e.runLocked(q.Peer)
	q.run.calls++
	q.run.last = e.cfg.Now()
	e.calls++
	q.number = q.run.id + "/" + e.epoch + "." + strconv.FormatUint(e.calls, 36)
	return nil
}

func shuttingDown() call.Answer {
	return refusal(api.CodeShuttingDown, "the daemon is stopping; nothing was sent for this call", "call again in a moment with the same arguments", nil)
}

// earlier is what a claim found.
type earlier struct {
	rd reading
	x  execution.Execution
	d  execution.Disposition
}

// lookupLocked finds the newest execution that decides about the call. An execution that had no effect (expired, withdrawn, …) decides nothing, so older ones are asked.
func (e *Engine) lookupLocked(q *request) (*earlier, error) {
	now := e.cfg.Now()
	var reused *earlier // another effect under the key; said only when no contract makes the call the one that was sent
	for _, rd := range q.readings {
		if rd.err != nil {
			continue
		}
		claim := execution.Claim{Actor: q.Peer.Actor, Scope: rd.scope, Fingerprint: rd.fingerprint, Keyed: rd.key != "", Now: now}
		look := claimKey{claim.Actor, claim.Scope, claim.Fingerprint}
		if claim.Keyed {
			look.fingerprint = "" // another effect under the key matters, too
		}
		live := e.claims[look]
		for i := len(live) - 1; i >= 0; i-- {
			found, err := e.judgeLocked(live[i].x, claim, rd)
			if err != nil {
				return nil, err
			}
			if found != nil && found.d == execution.KeyReused {
				reused = cmp.Or(reused, found)
			} else if found != nil {
				return found, nil
			}
		}
		if claim.Keyed {
			x, ok, err := e.cfg.Records.MatchKey(claim.Actor, claim.Scope)
			if err != nil {
				return nil, err
			}
			if ok && x.Fingerprint != claim.Fingerprint {
				reused = cmp.Or(reused, &earlier{rd, x, execution.KeyReused})
			}
		}
		old, err := e.cfg.Records.Match(claim.Actor, claim.Scope, claim.Fingerprint)
		if err != nil {
			return nil, err
		}
		for _, x := range old {
			if _, ok := e.live[x.ID]; ok {
				continue
			}
			if found, err := e.judgeLocked(x, claim, rd); err != nil || found != nil {
				return found, err
			}
		}
	}
	return reused, nil
}

// judgeLocked says what an execution means for the claim. A repeat that came to nothing leads back to what it would have repeated: the records keep only the newest of those
// that match, and the original must not fall out of sight behind cards that lapsed.
func (e *Engine) judgeLocked(x execution.Execution, c execution.Claim, rd reading) (*earlier, error) {
	if found := judge(x, c, rd); found != nil || x.Again == "" {
		return found, nil
	}
	original, ok, err := e.byIDLocked(x.Again)
	if err != nil || !ok {
		return nil, err
	}
	return judge(original, c, rd), nil
}

func judge(x execution.Execution, c execution.Claim, rd reading) *earlier {
	d := execution.Judge(x, c)
	if d == execution.StartNew {
		return nil
	}
	// A withdrawn contract speaks only for what it has open.
	if rd.action.retired && (!x.State.Open() || x.ContractDigest != rd.action.digest) {
		return nil
	}
	return &earlier{rd, x, d}
}

// claim is one judgement of the call, the atomic step in which exactly one of several identical calls becomes the dispatcher. It returns an answer, or a channel to wait on
// before judging again.
func (e *Engine) claim(ctx context.Context, q *request) (<-chan struct{}, call.Answer) {
	e.mu.Lock()
	switch {
	case e.closing:
		e.mu.Unlock()
		return nil, shuttingDown()
	case q.run.ended:
		a := e.refuseLocked(q, reading{}, api.CodeRunEnded)
		e.mu.Unlock()
		return nil, a
	case q.set != e.actions.Load() || q.secrets != e.secrets.Load():
		// The contracts or a credential changed since the call was read.
		e.mu.Unlock()
		return closedChannel, call.Answer{}
	}
	var rd reading
	if len(q.readings) > 0 {
		rd = q.readings[0]
	}
	facts := policy.Facts{VaultLocked: e.locked, HasSession: e.mayActLocked(q, rd), Quarantined: e.quarant}
	var found *earlier
	otherRun := false
	if !facts.VaultLocked && rd.err != nil && isLocked(rd.err) {
		if q.again++; q.again < 3 {
			// It was read while the vault was locked, and the vault is open now.
			e.mu.Unlock()
			return closedChannel, call.Answer{}
		}
		facts.VaultLocked = true // the vault has locked itself, and nobody has told us
	}
	if !facts.VaultLocked {
		var err error
		if found, err = e.lookupLocked(q); err != nil {
			e.mu.Unlock()
			e.cfg.Logger.Error("looking up earlier executions", "error", err)
			return nil, refusal(api.CodeInternal, "the records could not be read, so it is not known whether this was done before, and nothing was sent for this call", "call again in a moment with the same arguments, and do not make the same change in another way; the person sees what is wrong with spctl doctor", nil)
		}
		if found != nil && found.d == execution.AskAgain && e.recorded[found.x.ID] {
			found.d = execution.HandOut // the person has chosen that before
		}
		if found != nil {
			otherRun = found.x.Run != q.run.id && !q.run.once[found.x.ID]
			facts.Earlier, facts.EarlierOfOtherRun = found.d, otherRun
			if found.d != execution.AskAgain {
				found.rd = q.under(found.x.ContractDigest, found.rd)
				rd = found.rd
				// What is handed out is of the contract that it was accepted under, which a narrow session for another one does not cover.
				facts.HasSession = e.coversRecordLocked(q, found)
			}
		}
	}
	why := readFacts(&facts, rd)
	facts.ActionKnown = facts.ActionKnown || q.Method == "" && q.set.proposed[q.Tool]
	d := policy.Decide(facts)
	if d.Step == policy.UseEarlier && found.d == execution.AskAgain {
		// May it be run again at all? If not, the recorded result is all that there is to hand out.
		facts.Earlier, facts.EarlierOfOtherRun = "", false
		next := policy.Decide(facts)
		if next.Step != policy.Reject {
			return nil, e.startLocked(ctx, q, rd, next, found, why) // unlocks
		}
		found.d = execution.HandOut
		facts.Earlier, facts.EarlierOfOtherRun, facts.HasSession = found.d, otherRun, e.coversRecordLocked(q, found)
		d = policy.Decide(facts)
	}
	switch d.Step {
	case policy.UseEarlier:
		delete(q.run.once, found.x.ID)
		return nil, e.useEarlierLocked(ctx, q, found) // unlocks
	case policy.AskSession, policy.AskUse, policy.AskBoth, policy.Dispatch:
		if found == nil {
			return nil, e.startLocked(ctx, q, rd, d, nil, why) // unlocks
		}
		// Only the missing session of this run stands between the call and the earlier execution.
		if a := e.refuseRunLocked(q); a != nil {
			e.mu.Unlock()
			return nil, *a
		}
		q.awaited = found.x
		done := e.askSessionLocked(q, found)
		e.mu.Unlock()
		return done, call.Answer{}
	}
	if d.Code == api.CodeKeyReused {
		a := e.refuseKeyLocked(q, found)
		e.mu.Unlock()
		return nil, a
	}
	a := e.refuseLocked(q, rd, d.Code)
	e.mu.Unlock()
	return nil, a
}

// coversRecordLocked reports whether the person let the run have what was accepted then: the record's contract counts, and not the one that is in force by now.
func (e *Engine) coversRecordLocked(q *request, f *earlier) bool {
	return e.coveredLocked(q.run, f.x.Tool, f.x.ContractDigest, f.rd.prepared.Arguments)
}

// closedChannel is what a call waits on that is to be judged again at once.
var closedChannel = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// useEarlierLocked gives the call what the earlier execution has for it. It unlocks.
func (e *Engine) useEarlierLocked(ctx context.Context, q *request, f *earlier) call.Answer {
	l := e.reviveLocked(f.x)
	w := e.attachLocked(l, q, f.rd)
	switch f.d {
	case execution.Attach:
		e.proceedLocked(l)
	case execution.Recover:
		e.recoverLocked(l, f.rd)
	}
	e.mu.Unlock()
	return e.wait(ctx, q, l, w, true)
}

// attachLocked adds the call to the execution's callers.
func (e *Engine) attachLocked(l *live, q *request, rd reading) *waiter {
	w := &waiter{call: q.number, run: q.run, progress: q.Progress}
	l.waiters[w] = struct{}{}
	if l.x.Pruned {
		return w
	}
	c := q.caller(rd)
	if _, err := e.stepLocked(l, change{ev: execution.Event{Kind: execution.KindAttached, ID: l.x.ID, Caller: &c}, lazy: true}); err != nil {
		e.cfg.Logger.Error("recording a caller", "execution_id", l.x.ID, "error", err)
	}
	return w
}

func (q *request) caller(rd reading) execution.Caller {
	c := q.Correlation
	c.Call, c.Run = q.number, q.run.id
	switch {
	case q.Key != "":
		c.Key = q.KeySource
	case rd.key != "":
		c.Key = "intent_key"
	}
	return c
}

// startLocked accepts a new execution and, where nobody has to be asked, dispatches it in the same commit. It unlocks.
func (e *Engine) startLocked(ctx context.Context, q *request, rd reading, d policy.Decision, again *earlier, why reason) call.Answer {
	refused := api.Code("")
	switch {
	case e.counts[q.run.id] >= e.cfg.MaxOpenPerRun, e.bytes[q.run.id]+weight(rd) > maxOpenBytes:
		refused = api.CodeTooManyCalls
	case e.down:
		refused = api.CodeJournal
	case rd.action.Contract().Asks && !e.mayQuestionLocked(q.Peer.Actor):
		refused = api.CodeTooManyCalls
	}
	if refused != "" {
		ans := e.refuseLocked(q, rd, refused)
		e.mu.Unlock()
		return ans
	}
	a := rd.action
	acc, payload, err := a.accept(q, rd)
	if err != nil {
		e.mu.Unlock()
		return refusal(api.CodeInternal, "the call could not be recorded, so nothing was sent: "+err.Error(), "run spctl doctor", nil)
	}
	if again != nil {
		acc.Again = again.x.ID
	}
	l := &live{action: a, effect: rd.effect, args: rd.prepared.Arguments, counted: true, perUse: d.Step == policy.AskUse || d.Step == policy.AskBoth}
	c := q.caller(rd)
	changes := []change{{ev: execution.Event{Kind: execution.KindAccepted, ID: rd.id, Acceptance: &acc, Caller: &c}, payload: payload}}
	direct := d.Step == policy.Dispatch && again == nil
	if direct {
		changes = append(changes,
			change{ev: execution.Event{Kind: execution.KindAuthorized, ID: rd.id, By: e.directLocked(q, rd)}},
			change{ev: execution.Event{Kind: execution.KindDispatched, ID: rd.id, Attempt: 1}})
	}
	if direct || acc.Class == execution.ReadOnly {
		// Whoever needs it to be durable waits for it, which writes at once; a read waits for nothing.
		for i := range changes {
			changes[i].lazy = true
		}
	}
	commit, err := e.stepLocked(l, changes...)
	if errors.Is(err, errUnwritten) && !errors.Is(err, ErrEntry) {
		ans := e.refuseLocked(q, rd, api.CodeJournal)
		e.mu.Unlock()
		return ans
	}
	if err != nil {
		e.mu.Unlock()
		return refusal(api.CodeInternal, "the call could not be recorded, so nothing was sent", "run spctl doctor", nil)
	}
	l.bySession = direct
	e.addLiveLocked(l)
	e.counts[q.run.id]++
	l.weight = weight(rd)
	e.bytes[q.run.id] += l.weight
	w := &waiter{call: q.number, run: q.run, progress: q.Progress}
	l.waiters[w] = struct{}{}
	if direct {
		l.busy = true
		e.launchLocked(l, 1, commit)
	} else {
		e.askLocked(l, q, d, again, why)
	}
	e.mu.Unlock()
	return e.wait(ctx, q, l, w, false)
}

// maxOpenBytes bounds what the waiting calls of one run hold in memory.
const maxOpenBytes = 64 << 20

// weight is about what a call holds while it waits: its arguments as they came, in canonical form, and in what will be sent.
func weight(rd reading) int { return 4096 + 3*len(rd.prepared.Raw) }

// leaveCountLocked frees the execution's place among those of its run that wait.
func (e *Engine) leaveCountLocked(l *live) {
	if !l.counted {
		return
	}
	l.counted = false
	if e.bytes[l.x.Run] -= l.weight; e.bytes[l.x.Run] <= 0 {
		delete(e.bytes, l.x.Run)
	}
	if e.counts[l.x.Run]--; e.counts[l.x.Run] <= 0 {
		delete(e.counts, l.x.Run)
	}
}

// wait returns when there is something to tell this caller: an outcome, a refusal, an honest unknown, or after answer_within that it is pending.
func (e *Engine) wait(ctx context.Context, q *request, l *live, w *waiter, attached bool) call.Answer {
	var patience *time.Timer
	defer func() {
		if patience != nil {
			patience.Stop()
		}
	}()
	for {
		e.mu.Lock()
		if ctx.Err() == nil && e.answerableLocked(l) {
			return e.answerLocked(q, l, w, attached) // unlocks
		}
		changed := l.changed
		e.mu.Unlock()
		if patience == nil {
			patience = time.NewTimer(e.cfg.AnswerWithin)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			// The caller left; the effect goes on.
			e.mu.Lock()
			delete(l.waiters, w)
			e.retireLocked(l)
			e.publishLocked(l)
			e.mu.Unlock()
			return call.Answer{}
		case <-patience.C:
			e.mu.Lock()
			if e.answerableLocked(l) {
				return e.answerLocked(q, l, w, attached)
			}
			l.away[w.run.id] = true
			delete(l.waiters, w)
			a := e.pendingLocked(l)
			e.mu.Unlock()
			return a
		case <-e.base.Done():
			e.mu.Lock()
			if e.answerableLocked(l) {
				return e.answerLocked(q, l, w, attached)
			}
			delete(l.waiters, w)
			a := e.pendingLocked(l)
			e.mu.Unlock()
			return a
		}
	}
}

// answerableLocked says whether the execution has come to something that a caller can be told.
func (e *Engine) answerableLocked(l *live) bool {
	switch l.x.State {
	case execution.Accepted, execution.Authorized:
		return (e.down || l.over) && !l.busy
	case execution.Dispatched:
		return false
	case execution.Unknown:
		// While the target is being asked, the caller waits for what it says.
		return !l.busy && (l.inquiry == nil || !l.inquiry.active())
	}
	return !l.busy
}

// reason is why a card asks: in words, and for other languages.
type reason struct {
	text string
	said api.Said
}

// askWhy lists the reasons of a card.
func askWhy(d policy.Decision, perUse reason, again *earlier) []reason {
	var why []reason
	if d.Step == policy.AskSession || d.Step == policy.AskBoth {
		why = append(why, reason{"a process that has not been allowed to act yet asks", api.Say(api.WhyNewProcess)})
	}
	if perUse.text != "" {
		why = append(why, perUse)
	}
	if again != nil {
		why = append(why, reason{"the same call was carried out before, and its result was delivered", api.Say(api.WhyDoneBefore)})
	}
	return why
}

func question(d policy.Decision, again *earlier) approval.Question {
	switch {
	case again != nil && d.Step != policy.AskSession && d.Step != policy.AskBoth:
		return approval.AskAgain
	case d.Step == policy.AskSession:
		return approval.AskSession
	case d.Step == policy.AskBoth:
		return approval.AskSessionAndUse
	}
	return approval.AskUse
}

// readFacts adds what the reading says, and returns why the person is asked each time.
func readFacts(f *policy.Facts, rd reading) (why reason) {
	f.ActionKnown = rd.action != nil
	f.ContractAccepted = rd.action != nil && !rd.action.retired
	f.ArgumentsValid = rd.err == nil
	if rd.action == nil || rd.err != nil {
		return reason{}
	}
	f.ReadOnly = rd.action.Contract().Replay.Class == execution.ReadOnly
	f.CredentialPresent, f.TargetBound = rd.missing == "", rd.bound == nil
	ask, action, err := rd.action.PerUse(rd.prepared)
	why.text = action.Text
	switch {
	case err != nil:
		// A condition that cannot be evaluated asks.
		f.PerUse = true
		why = reason{"the contract's condition could not be evaluated: " + err.Error(), api.Say(api.WhyConditionUntold, "condition", action.Condition, "values", action.Values)}
	case ask && action.Condition != "":
		f.PerUse, why.said = true, api.Say(api.WhyCondition, "condition", action.Condition, "values", action.Values)
	case ask:
		f.PerUse, why.said = true, api.Say(api.WhyActionEachTime)
	case rd.cred != nil && rd.cred.PerUse:
		f.PerUse = true
		why = reason{"the credential " + quoteName(rd.cred.Name) + " asks at every use", api.Say(api.WhyCredential, "credential", rd.cred.Name)}
	}
	return why
}
