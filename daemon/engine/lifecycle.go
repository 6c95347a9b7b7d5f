package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
)

// errStopping is the cause of the end of what still runs when the daemon stops.
var errStopping = errors.New("the daemon is stopping")

// Recover settles what an earlier daemon left open: what was dispatched without an outcome is unknown, what was not sent has expired. It never sends anything. It is called
// at start, and again when the records had to be rebuilt, since they may know more than before.
func (e *Engine) Recover() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	open, err := e.cfg.Records.Unfinished()
	if err != nil {
		return fmt.Errorf("reading what was left open: %w", err)
	}
	for _, x := range open {
		if l, ok := e.live[x.ID]; ok {
			if l.action != nil || l.busy {
				continue // this daemon has accepted or sent it
			}
			if x = l.x; l.owed {
				x = l.durable
			}
		}
		e.recoverOneLocked(x)
	}
	return nil
}

// recoverOneLocked settles an execution that nobody carries out, as the records have it. While the journal takes nothing, memory says how it is and the journal is owed it.
func (e *Engine) recoverOneLocked(x execution.Execution) {
	ev := execution.Event{ID: x.ID, At: e.cfg.Now()}
	switch x.State {
	case execution.Dispatched:
		if x.Awaits() {
			return // the target has it, whatever became of us: it is asked once the vault is open
		}
		ev.Kind, ev.Attempt = execution.KindUnknown, x.LastAttempt().Number
		ev.Reason = "the daemon stopped while the request was under way"
	case execution.Accepted, execution.Authorized:
		ev.Kind, ev.Code, ev.Reason = execution.KindExpired, string(api.CodeExpired), "the daemon was restarted before it was sent"
	default:
		return
	}
	l := e.reviveLocked(x)
	l.x, l.owed = x, false
	if _, err := e.stepLocked(l, change{ev: ev}); err != nil {
		e.cfg.Logger.Error("recovering an execution", "execution_id", x.ID, "error", err)
		if settled, err := execution.Apply(x, ev); err == nil {
			l.x, l.owed = settled, true
		}
	}
	l.wakeLocked()
	e.retireLocked(l)
}

// Unlocked says that the vault is open and the records are authenticated. Calls can be judged from now on.
func (e *Engine) Unlocked() error {
	if err := e.Recover(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.locked = false
	if len(e.actions.Load().shared.resources) > 0 {
		e.sharedChangedLocked()
	}
	e.noteLocked(statusEvent{Kind: "vault_unlocked"}, true)
	e.resumeAskingLocked()
	e.publishStatusLocked()
	return nil
}

// Locked is called before the vault's keys are wiped: nothing new starts, waiting cards are void. What is dispatched finishes with its own copy of what it needs.
func (e *Engine) Locked(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locked {
		return
	}
	e.locked = true
	for _, c := range e.cardsOf(nil) {
		if c.l == nil {
			e.closeCardLocked(c, "void", "the vault was locked")
		}
	}
	for _, l := range e.liveOf(func(*live) bool { return true }) {
		e.endLocked(l, execution.KindExpired, api.CodeVaultLocked, "the vault was locked before it was sent")
		if l.inquiry != nil && l.inquiry.next != nil {
			e.stopAskingLocked(l)
			l.wakeLocked()
			e.retireLocked(l)
		}
		// What was opened is not kept: it is read again, once the vault is.
		if l.x.State.Completed() && len(l.waiters) == 0 {
			l.result = nil
		}
	}
	clear(e.recorded)
	clear(e.standing) // what was opened is not kept
	e.grants.Store(0)
	e.noteLocked(statusEvent{Kind: "vault_locked", Reason: reason}, true)
	e.publishStatusLocked()
}

type statusEvent struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason,omitempty"`
}

func (e *Engine) cardsOf(r *run) []*card {
	var out []*card
	for _, c := range e.cards {
		if r == nil || c.run == r {
			out = append(out, c)
		}
	}
	return out
}

// SetQuarantine says whether the journal verifies. While it does not, only read_only works.
func (e *Engine) SetQuarantine(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quarant = on
	if on {
		for _, l := range e.liveOf(func(l *live) bool { return l.x.Class != execution.ReadOnly }) {
			e.endLocked(l, execution.KindExpired, api.CodeQuarantine, "the journal does not verify")
		}
	} else {
		e.catchUpLocked()
		e.resumeAskingLocked()
	}
	e.publishStatusLocked()
}

// Close stops accepting calls and ends what was not sent. It waits until what is dispatched is finished or ctx is done, whichever is first; what is still under way then
// ends as unknown.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closing = true
	for _, l := range e.liveOf(func(*live) bool { return true }) {
		e.endLocked(l, execution.KindExpired, api.CodeShuttingDown, "the daemon stopped before it was sent")
	}
	for _, c := range e.cardsOf(nil) {
		e.closeCardLocked(c, "void", "the daemon is stopping")
	}
	e.mu.Unlock()
	// Recovery of runs and timers ends with the base context; dispatches are given their time first.
	idle := make(chan struct{})
	go func() {
		e.dispatches.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("stopping while requests are under way: their outcomes will be unknown: %w", context.Cause(ctx))
	}
	e.stop(errStopping)
	e.work.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watchers {
		w.close()
	}
	return err
}

// Counts are what the status shows.
type Counts struct {
	Cards    int
	Sessions int
	Grants   int // standing ones in force
	Actions  int
	Waiting  int // live executions that wait for a person or a target
	Down     bool
	Quarant  bool
	Locked   bool
}

// Counts returns what the status shows.
func (e *Engine) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.countsLocked()
	for _, l := range e.live {
		if l.x.State.Open() && l.x.State != execution.Unknown {
			c.Waiting++
		}
	}
	return c
}

func (e *Engine) countsLocked() Counts {
	c := Counts{Cards: len(e.cards), Actions: len(e.actions.Load().current), Down: e.down, Quarant: e.quarant, Locked: e.locked}
	c.Grants = e.inForceLocked()
	for _, r := range e.runs {
		c.Sessions += len(r.sessions)
	}
	return c
}

// Execution returns one, as it stands now.
func (e *Engine) Execution(id string) (execution.Execution, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byIDLocked(id)
}

// Note appends an event of the operator's, and returns when it is durable.
func (e *Engine) Note(event any) error {
	b, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	e.mu.Lock()
	commit := e.cfg.Journal.Append(Entry{Event: b, At: e.cfg.Now()})
	e.mu.Unlock()
	<-commit.Done()
	if err := commit.Err(); err != nil {
		return fmt.Errorf("recording the change: %w", err)
	}
	return nil
}

// CredentialsOfActions says which credential each accepted action uses.
func (e *Engine) CredentialsOfActions() map[string]string {
	out := map[string]string{}
	for name, a := range e.actions.Load().current {
		if c := a.Contract().Credential; c != "" {
			out[name] = c
		}
	}
	e.actions.Load().sharedCredentials(out)
	return out
}
