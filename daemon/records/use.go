package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
	"singlepass.dev/daemon/journal"
	"singlepass.dev/daemon/payload"
	"singlepass.dev/vault"
)

// commit makes a journal's Commit the engine's.
type commit struct{ *journal.Commit }

// Seq may be asked for once the entries are durable.
func (c commit) Seq() uint64 {
	if !isDone(c) || c.Err() != nil {
		return 0
	}
	return c.Last().Seq
}

func isDone(c engine.Commit) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// Err marks what is wrong with the entries themselves.
func (c commit) Err() error {
	if err := c.Commit.Err(); errors.Is(err, journal.ErrTooLarge) {
		return fmt.Errorf("%w: %w", engine.ErrEntry, err)
	} else {
		return err
	}
}

// Wait writes at once what nobody else is writing.
func (c commit) Wait() error {
	_ = c.Commit.Wait(context.Background()) // Err says the same, and more
	return c.Err()
}

type failed struct {
	done chan struct{}
	err  error
}

func (f failed) Done() <-chan struct{} { return f.done }
func (f failed) Err() error            { return f.err }
func (f failed) Seq() uint64           { return 0 }
func (f failed) Wait() error           { return f.err }

func failedCommit(err error) engine.Commit {
	f := failed{make(chan struct{}), err}
	close(f.done)
	return f
}

// Barred says whether the person took a session from a run, and gave it none since. The newest of each is known, and the end of a session says whether one was taken before it.
func (r *Records) Barred(run string) (bool, error) {
	v, found, err := r.index.Run(run)
	if err != nil || !found || v.Revoked.Seq == 0 || v.Authorized.Seq > v.Revoked.Seq {
		return false, err
	}
	var ended engine.RunEvent
	if err := json.Unmarshal(v.Revoked.Event, &ended); err != nil {
		return false, fmt.Errorf("reading how the session of %s ended: %w", run, err)
	}
	return ended.Revoked, nil
}

// payloadKind says as what a payload of an event is sealed.
func payloadKind(kind string) (payload.Kind, error) {
	switch execution.Kind(kind) {
	case execution.KindAccepted:
		return payload.Arguments, nil
	case execution.KindObserved:
		return payload.Result, nil
	case execution.KindAwaited:
		return payload.Awaited, nil
	}
	return "", fmt.Errorf("an event of kind %q has no payload", kind)
}

// note goes with an event to the journal and back, so that it need not be parsed when it is durable.
type note struct {
	decoded *execution.Event
	sealed  bool
}

// Append seals and appends. The engine calls it from its single writer, so the order of calls is the order of events.
func (r *Records) Append(entries ...engine.Entry) engine.Commit {
	out := make([]journal.Entry, len(entries))
	notes := make([]note, len(entries))
	for i, e := range entries {
		out[i] = journal.Entry{Event: e.Event, Lazy: e.Lazy, Outcome: e.Outcome}
		if e.Decoded != nil {
			notes[i] = note{e.Decoded, e.Payload != nil}
			out[i].Note = &notes[i]
		}
		if c, ok := e.After.(commit); ok {
			out[i].After = c.Commit
		}
		if e.Payload != nil {
			sealed, err := r.seal(e)
			if err != nil {
				return failedCommit(err)
			}
			out[i].Sealed = sealed
		}
	}
	if len(entries) > 0 {
		r.stamp.Store(entries[0].At.UnixNano())
		defer r.stamp.Store(0)
	}
	return commit{r.journal.Append(out...)}
}

func (r *Records) seal(e engine.Entry) ([]byte, error) {
	kind, err := payloadKind(e.Kind)
	if err != nil {
		return nil, err
	}
	if len(e.Payload) > payload.MaxSize {
		return nil, fmt.Errorf("%w: its payload of %d bytes is larger than %d", engine.ErrEntry, len(e.Payload), payload.MaxSize)
	}
	r.mu.Lock()
	s := r.sealer
	r.mu.Unlock()
	if s == nil {
		return nil, errors.New("sealing a payload: there is no vault yet; run spctl init")
	}
	b, err := s.Seal(e.ID, kind, e.Payload)
	if errors.Is(err, payload.ErrWiped) {
		// A lock began another epoch meanwhile.
		r.mu.Lock()
		s = r.sealer
		r.mu.Unlock()
		if s == nil {
			return nil, err
		}
		return s.Seal(e.ID, kind, e.Payload)
	}
	return b, err
}

// Resume goes on after a failed write.
func (r *Records) Resume() error { return r.journal.Resume() }

var errRemaking = errors.New("the index of the records is being made anew; try again in a moment")

// whole asks the index, and believes the answer only if nobody was making the index anew meanwhile.
func (r *Records) whole(ask func() error) error {
	before := r.remakes.Load()
	if before%2 == 1 {
		return errRemaking
	}
	if err := ask(); err != nil {
		return err
	}
	if r.remakes.Load() != before {
		return errRemaking
	}
	return nil
}

// Find returns an execution.
func (r *Records) Find(id string) (x execution.Execution, ok bool, err error) {
	err = r.whole(func() (err error) { x, ok, err = r.index.Get(id); return err })
	return x, ok && err == nil, err
}

// Match returns the executions of an actor, scope and fingerprint, newest first.
func (r *Records) Match(actor, scope, fingerprint string) (found []execution.Execution, err error) {
	err = r.whole(func() (err error) { found, err = r.index.Match(actor, scope, fingerprint); return err })
	return found, err
}

// MatchKey returns the newest execution of an actor under a client's key, whatever its fingerprint.
func (r *Records) MatchKey(actor, scope string) (x execution.Execution, ok bool, err error) {
	err = r.whole(func() (err error) { x, ok, err = r.index.MatchKey(actor, scope); return err })
	return x, ok && err == nil, err
}

// Unfinished returns what is accepted, authorized, dispatched or unknown; nothing while the index is not to be believed.
//
// It does not wait for what is not folded yet: the engine calls it under its lock, which Config.Folded takes, and has what is not folded at hand itself.
func (r *Records) Unfinished() ([]execution.Execution, error) {
	if !r.index.Verified() {
		return nil, nil
	}
	var open []execution.Execution
	err := r.whole(func() (err error) { open, err = r.index.OpenExecutions(index.Filter{}); return err })
	return open, err
}

// OpenOf returns what a run has open; nothing while the index is not to be believed.
func (r *Records) OpenOf(run string) ([]execution.Execution, error) {
	if !r.index.Verified() {
		return nil, nil
	}
	return r.index.OpenExecutions(index.Filter{Run: run})
}

// Recent returns the newest executions of an actor.
func (r *Records) Recent(actor string, limit int) ([]execution.Execution, error) {
	return r.index.List(index.Query{Actor: actor, Limit: limit})
}

// Prunable returns executions whose retention has passed.
func (r *Records) Prunable(now time.Time, limit int) ([]execution.Execution, error) {
	if !r.index.Verified() {
		return nil, nil
	}
	return r.index.Prunable(now, limit)
}

// Erase overwrites the payloads of an execution.
func (r *Records) Erase(ctx context.Context, id string) error {
	var at []journal.Position
	for _, kind := range []execution.Kind{execution.KindAccepted, execution.KindAwaited, execution.KindObserved} {
		p, ok, err := r.index.Payload(id, kind)
		if err != nil {
			return err
		}
		if ok {
			at = append(at, journalPosition(p))
		}
	}
	return r.journal.Erase(ctx, at...)
}

// Payload opens what was sealed with an event.
func (r *Records) Payload(id string, kind execution.Kind) ([]byte, error) {
	pk, err := payloadKind(string(kind))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	opener := r.opener
	r.mu.Unlock()
	if opener == nil {
		return nil, fmt.Errorf("opening the %s of %s: %w", pk, id, vault.ErrLocked)
	}
	at, ok, err := r.index.Payload(id, kind)
	if err == nil && !ok {
		// It may be durable and not folded yet.
		r.Settle()
		at, ok, err = r.index.Payload(id, kind)
	}
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("the %s of %s is not kept", pk, id)
	}
	var plain []byte
	err = r.journal.ReadAt(journalPosition(at), func(d journal.Durable) error {
		l, err := chain.Split(d.Line)
		if err != nil {
			return err
		}
		sealed, err := l.Payload(nil)
		if err != nil {
			return err
		}
		plain, err = opener.Open(id, pk, sealed)
		return err
	})
	return plain, err
}
