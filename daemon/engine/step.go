package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
)

// change is one event with what is sealed beside it.
type change struct {
	ev      execution.Event
	payload []byte
	lazy    bool
}

// errUnwritten is wrapped by stepLocked's error when the journal does not take the events. The execution is then as it was before.
var errUnwritten = errors.New("the journal cannot be written")

// stepLocked applies the changes to the execution and gives them to the journal, in one commit. It is the only place where a live execution changes.
//
// An event that Apply refuses is a fault of ours: nothing is appended, and the caller stops what it was about to do. Nor is anything appended behind an event that the journal
// did not take: what stands there must be a possible story whatever fails. Only a read goes on without the journal.
func (e *Engine) stepLocked(l *live, changes ...change) (Commit, error) {
	l.trimPending()
	if i := slices.IndexFunc(l.pending, pendingCommit.failed); i >= 0 {
		err := l.pending[i].commit.Err()
		e.journalDownLocked(err)
		e.takeBackLocked(l)
		if !l.unrecorded {
			return nil, fmt.Errorf("%w: %w", errUnwritten, err)
		}
	}
	if l.owed {
		return nil, errUnwritten
	}
	now := e.cfg.Now()
	after := new(execution.Execution)
	*after = l.x
	entries, text := e.entries[:0], e.text[:0]
	defer func() {
		clear(entries)
		e.entries, e.text = entries, text
	}()
	loose := true
	for i := range changes {
		c := &changes[i]
		c.ev.At = now
		next, err := execution.Apply(*after, c.ev)
		if err != nil {
			e.cfg.Logger.Error("refusing an event", "error", err)
			return nil, err
		}
		*after = next
		from := len(text)
		text = c.ev.AppendJSON(text)
		entries = append(entries, Entry{
			Event: text[from:len(text):len(text)], Decoded: &c.ev, ID: c.ev.ID, Kind: string(c.ev.Kind), Payload: c.payload, At: now, Lazy: c.lazy,
			Outcome: after.Class != execution.ReadOnly && (c.ev.Kind == execution.KindObserved || c.ev.Kind == execution.KindUnknown || c.ev.Kind == execution.KindAwaited),
		})
		loose = loose && c.ev.Kind == execution.KindAttached
	}
	commit := Commit(recordedNowhere{})
	if !l.unrecorded {
		for i := range l.pending {
			if !l.pending[i].loose {
				entries[0].After = l.pending[i].commit
			}
		}
		commit = e.cfg.Journal.Append(entries...)
		if err := commit.Err(); isDone(commit) && err != nil {
			if !errors.Is(err, ErrEntry) {
				e.journalDownLocked(err)
			}
			if after.Class != execution.ReadOnly {
				return nil, fmt.Errorf("%w: %w", errUnwritten, err)
			}
			l.unrecorded, l.pending, commit = true, nil, recordedNowhere{}
		} else {
			l.pending = append(l.pending, pendingCommit{commit, after, loose})
		}
	}
	l.x = *after
	e.publishLocked(l)
	return commit, nil
}

// recordedNowhere is the commit of an event that only memory holds.
type recordedNowhere struct{}

func (recordedNowhere) Done() <-chan struct{} { return closedChannel }
func (recordedNowhere) Err() error            { return nil }
func (recordedNowhere) Seq() uint64           { return 0 }
func (recordedNowhere) Wait() error           { return nil }

// trimPending forgets the commits that were acknowledged, and those that nothing needs.
func (l *live) trimPending() {
	n := 0
	for _, p := range l.pending {
		if !isDone(p.commit) || p.failed() {
			break
		}
		if p.commit.Err() == nil {
			l.durable, l.seq = *p.after, p.commit.Seq()
		}
		n++
	}
	l.pending = slices.Delete(l.pending, 0, n) // rather than cut off in front, so that its room is used again
}

func isDone(c Commit) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// wakeLocked makes everybody who waits for the execution look again.
func (l *live) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// attachedLocked says whether a caller is attached: one that waits, or one that was answered "pending" and whose run still lives.
func (e *Engine) attachedLocked(l *live) bool {
	if len(l.waiters) > 0 {
		return true
	}
	for id := range l.away {
		if r := e.runs[id]; r != nil && !r.ended {
			return true
		}
	}
	return false
}

// addLiveLocked makes an execution known to claims.
func (e *Engine) addLiveLocked(l *live) {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	l.waiters, l.away = map[*waiter]struct{}{}, map[string]bool{}
	e.live[l.x.ID] = l
	for _, k := range claimKeys(l.x) {
		e.claims[k] = append(e.claims[k], l)
	}
}

func (e *Engine) dropLiveLocked(l *live) {
	if e.live[l.x.ID] == l {
		delete(e.live, l.x.ID)
	}
	for _, k := range claimKeys(l.x) {
		list := e.claims[k]
		if i := slices.Index(list, l); i >= 0 {
			list = slices.Delete(list, i, i+1)
		}
		if len(list) == 0 {
			delete(e.claims, k)
		} else {
			e.claims[k] = list
		}
	}
}

// retireLocked lets go of an execution that nobody waits for, as soon as the records have what happened to it.
func (e *Engine) retireLocked(l *live) {
	if l.parked || l.owed || l.wantedLocked() || l.card != nil {
		return
	}
	if l.trimPending(); l.seq == 0 && len(l.pending) == 0 && !l.unrecorded {
		e.dropLiveLocked(l) // revived, and nothing happened to it
		return
	}
	switch l.x.State {
	case execution.Accepted, execution.Authorized, execution.Dispatched:
		return
	}
	if l.unrecorded {
		e.dropLiveLocked(l)
		return
	}
	l.parked = true
	e.idle = append(e.idle, l)
	e.sweepLocked()
}

func (l *live) wantedLocked() bool {
	return l.busy || l.held != nil || len(l.waiters) > 0 || l.readers > 0 || l.inquiry != nil && l.inquiry.active()
}

// Folded says that the records hold everything up to the sequence number.
func (e *Engine) Folded(seq uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seq > e.folded {
		e.folded = seq
	}
	e.sweepLocked()
}

// sweepLocked lets go of what the records have. What they do not have yet stays: a claim that found neither would send a second time.
func (e *Engine) sweepLocked() {
	n := 0
	for _, l := range e.idle {
		l.trimPending()
		switch i := slices.IndexFunc(l.pending, pendingCommit.failed); {
		case i >= 0:
			e.journalDownLocked(l.pending[i].commit.Err())
			e.takeBackLocked(l)
			l.parked = false // mend looks at it again
		case l.wantedLocked():
			l.parked = false
		case len(l.pending) > 0 || l.seq > e.folded:
			e.idle = e.idle[n:]
			return
		default:
			e.dropLiveLocked(l)
		}
		n++
	}
	e.idle = nil
}

// reviveLocked returns the live form of an execution that the records know.
func (e *Engine) reviveLocked(x execution.Execution) *live {
	if l, ok := e.live[x.ID]; ok {
		return l
	}
	l := &live{x: x, durable: x}
	e.addLiveLocked(l)
	return l
}

// byIDLocked finds an execution, live or recorded.
func (e *Engine) byIDLocked(id string) (execution.Execution, bool, error) {
	if l, ok := e.live[id]; ok {
		return l.x, true, nil
	}
	return e.cfg.Records.Find(id)
}

// journalDownLocked is what follows a commit that the journal did not acknowledge: nothing new starts, what was not durable is taken back, and a goroutine tries to go on.
func (e *Engine) journalDownLocked(cause error) {
	if e.down || e.quarant {
		return
	}
	e.down = true
	e.cfg.Logger.Error("the journal cannot be written; nothing with a side effect starts until it can", "error", cause)
	e.cfg.Notify(Notice{Kind: "journal_down", Text: "the journal cannot be written: " + cause.Error()})
	defer e.publishStatusLocked()
	for _, l := range e.live {
		e.takeBackLocked(l)
	}
	if !e.mending {
		e.mending = true
		e.work.Add(1)
		go e.mend()
	}
}

// takeBackLocked sets an execution back to before the first event that the journal did not take. What is still on its way to the disk is left alone: it may get there. An
// attempt that is under way stays dispatched: its outcome is held until it can be written.
func (e *Engine) takeBackLocked(l *live) {
	l.trimPending()
	i := slices.IndexFunc(l.pending, pendingCommit.failed)
	if i < 0 {
		return
	}
	if l.x.Class == execution.ReadOnly {
		l.unrecorded, l.pending = true, nil // a read waits for no record: it ends as it would
		return
	}
	before := l.durable
	if i > 0 {
		before = *l.pending[i-1].after
	}
	l.pending = l.pending[:i:i]
	if before.State == "" {
		e.voidCardLocked(l, "the journal cannot be written")
		e.leaveCountLocked(l)
		e.dropLiveLocked(l)
		l.x.State, l.x.Code = "", string(api.CodeJournal)
	} else {
		l.x = before
	}
	l.wakeLocked()
}

// mend brings the journal back and then writes what was held. It believes the journal once an entry of its own is durable.
func (e *Engine) mend() {
	defer e.work.Done()
	last := false
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := e.cfg.Journal.Resume()
		if err == nil {
			err = e.Note(statusEvent{Kind: "journal_resumed"})
		}
		if err == nil {
			break
		}
		if last {
			e.cfg.Logger.Error("the daemon stops while the journal cannot be written; what was held will be unknown", "error", err)
			return
		}
		e.cfg.Logger.Warn("the journal still cannot be written", "error", err, "next_try_in", pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-e.base.Done():
			t.Stop()
			last = true // once more for what is held
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down, e.mending = false, false
	defer e.publishStatusLocked()
	e.cfg.Logger.Info("the journal can be written again")
	e.catchUpLocked()
	e.resumeAskingLocked()
}

// catchUpLocked writes what could not be written before, and ends what waited meanwhile.
func (e *Engine) catchUpLocked() {
	for _, l := range e.liveOf(func(*live) bool { return true }) {
		switch {
		case l.owed:
			e.recoverOneLocked(l.durable)
		case l.held != nil:
			o, attempt := *l.held, l.x.LastAttempt().Number
			l.held = nil
			// The first try is at once. What fails although the journal works, for whatever reason, must not be tried in a loop.
			pause := time.NewTimer(min(time.Duration(l.holds-1)*time.Second, 30*time.Second))
			e.work.Add(1)
			go func() {
				defer e.work.Done()
				defer pause.Stop()
				select {
				case <-pause.C:
				case <-e.base.Done():
				}
				e.finish(l, attempt, o)
			}()
		case l.over || !l.busy && !l.unrecorded:
			e.endLocked(l, execution.KindExpired, api.CodeJournal, "the journal could not be written, so nothing was sent")
			e.retireLocked(l)
		}
	}
}

// endLocked ends an execution of which nothing was sent.
func (e *Engine) endLocked(l *live, kind execution.Kind, code api.Code, reason string) {
	if l.x.State != execution.Accepted && l.x.State != execution.Authorized {
		return
	}
	e.voidCardLocked(l, reason)
	l.grant = nil
	// Whatever the journal says, it is not sent any more.
	_, err := e.stepLocked(l, change{ev: execution.Event{Kind: kind, ID: l.x.ID, Code: string(code), Reason: reason}})
	if l.over = err != nil; l.over {
		e.cfg.Logger.Error("ending an execution", "execution_id", l.x.ID, "error", err)
	}
	e.leaveCountLocked(l)
	l.wakeLocked()
	e.retireLocked(l)
}
