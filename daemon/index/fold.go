package index

import (
	"bytes"
	"encoding/json"
	"fmt"

	"singlepass.dev/daemon/execution"
)

// The kinds of events about runs. Their JSON names the run in the member "run".
const (
	RunSeen           = "run_seen"
	SessionAuthorized = "session_authorized"
	SessionEnded      = "session_ended"
	RunEnded          = "run_ended"
)

// executionKinds are the kinds that execution.Apply knows. A kind of neither list only moves the position.
var executionKinds = func() map[string]bool {
	m := make(map[string]bool)
	for _, k := range execution.Kinds() {
		m[string(k)] = true
	}
	return m
}()

// Fold takes entries in, in the journal's order, each following the one before by its number. Entries must be durable. An error says that an event is impossible
// (execution.ErrIllegal: the journal does not tell a true story), that an entry is not the next one, or that the file is damaged (ErrNotAuthentic); what came before
// the entry at fault stays folded, and Position tells how far that is.
func (ix *Index) Fold(batch []Entry) error {
	for i := range batch {
		if err := ix.fold(&batch[i]); err != nil {
			return fmt.Errorf("folding entry %d: %w", batch[i].Seq, err)
		}
	}
	return nil
}

// Skip moves the position on to p without folding anything: for an entry that tells nothing because an accepted break has taken what it follows. Nothing else may be skipped.
func (ix *Index) Skip(p Position) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if p.Seq <= ix.s.position.Seq {
		return fmt.Errorf("skipping to entry %d: the index stands at entry %d", p.Seq, ix.s.position.Seq)
	}
	ix.s.position, ix.s.dirty = p, true
	return nil
}

func (ix *Index) fold(e *Entry) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s := ix.s
	if !e.Evidence && e.Seq != s.position.Seq+1 && !(e.Gap && e.Seq > s.position.Seq) {
		return fmt.Errorf("the index stands at entry %d", s.position.Seq)
	}
	kind, err := kindOf(e)
	if err != nil {
		return err
	}
	switch {
	case executionKinds[kind]:
		err = s.foldExecution(e)
	case kind == RunSeen || kind == SessionAuthorized || kind == SessionEnded || kind == RunEnded:
		err = s.foldRun(e, kind)
	}
	if err != nil {
		return err
	}
	if s.dirty = true; !e.Evidence {
		s.position = e.Position
	}
	return nil
}

func kindOf(e *Entry) (string, error) {
	if e.Decoded != nil {
		return string(e.Decoded.Kind), nil
	}
	if rest, ok := bytes.CutPrefix(e.Event, []byte(`{"kind":"`)); ok {
		if end := bytes.IndexByte(rest, '"'); end > 0 && bytes.IndexByte(rest[:end], '\\') < 0 {
			return string(rest[:end]), nil
		}
	}
	var v struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(e.Event, &v); err != nil {
		return "", fmt.Errorf("reading the event's kind: %w", err)
	}
	return v.Kind, nil
}

// foldExecution changes nothing unless it succeeds, apart from bringing rows into memory.
func (s *state) foldExecution(e *Entry) error {
	ev := e.Decoded
	if ev == nil {
		ev = new(execution.Event)
		if err := json.Unmarshal(e.Event, ev); err != nil {
			return fmt.Errorf("reading event: %w", err)
		}
	}
	at := *ev
	at.At = e.Time
	if len(at.ID) > 255 {
		return fmt.Errorf("execution id has %d bytes, 255 at most", len(at.ID))
	}
	r, found, err := s.own(at.ID)
	if err != nil {
		return err
	}
	if !found {
		r = &record{Ordinal: s.executions, Accepted: e.Position}
	}
	x, err := execution.Apply(r.X, at)
	if err != nil {
		return err
	}
	h, err := s.head(listExecutions, r.Ordinal)
	if err != nil {
		return err
	}
	if found {
		h.update(&x)
		s.count(r.X.State, -1)
	} else {
		if err := s.addMatch(&x); err != nil {
			return err
		}
		*h = headOf(&x)
		s.executions++
		s.active[recordKey(x.ID)] = r
	}
	s.count(x.State, +1)
	r.X, r.Last = x, e.Position
	switch {
	case x.Pruned:
		r.Arguments, r.Result = false, nil
	case e.Sealed && at.Kind == execution.KindAccepted:
		r.Arguments = true
	case e.Sealed && at.Kind == execution.KindObserved:
		r.Result = new(e.Position)
	}
	if x.State.Open() {
		s.open[x.ID] = openRef{x.Run, x.Actor}
	} else {
		delete(s.open, x.ID)
	}
	return nil
}

// own returns a record that may be changed in place.
func (s *state) own(id string) (*record, bool, error) {
	key := recordKey(id)
	if v, ok := s.active[key]; ok {
		return v.(*record), true, nil
	}
	r, found, err := resolve(s, key, decodeJSON[record])
	if err != nil || !found {
		return nil, false, err
	}
	mine := *r
	s.active[key] = &mine
	return &mine, true, nil
}

func (s *state) count(state execution.State, by int) {
	if s.counts[state] += by; s.counts[state] == 0 {
		delete(s.counts, state)
	}
}

func (s *state) addMatch(x *execution.Execution) error {
	key := matchKey(x.Actor, x.Scope, x.Fingerprint)
	ids, _, err := resolve(s, key, decodeMatches)
	if err != nil {
		return err
	}
	// What is closed never opens again, so what falls out here is never missed.
	older := max(0, len(ids)+1-maxMatches)
	kept := make(matches, 0, maxMatches+1)
	for i, id := range ids {
		if _, open := s.open[id]; open || i >= older {
			kept = append(kept, id)
		}
	}
	ids = append(kept, x.ID)
	s.active[key] = ids
	if keyed(x.Scope) {
		s.active[keyedKey(x.Actor, x.Scope)] = matches{x.ID}
	}
	return nil
}

func (s *state) foldRun(e *Entry, kind string) error {
	var v struct {
		Run string `json:"run"`
	}
	if err := json.Unmarshal(e.Event, &v); err != nil {
		return fmt.Errorf("reading event: %w", err)
	}
	if v.Run == "" || len(v.Run) > 255 {
		return fmt.Errorf("event %s names no run in its member run", kind)
	}
	before, found, err := resolve(s, runKey(v.Run), decodeJSON[Run])
	if err != nil {
		return err
	}
	after := Run{ID: v.Run, Ordinal: s.runs}
	if found {
		after = *before
	} else if h, err := s.head(listRuns, after.Ordinal); err != nil {
		return err
	} else {
		h.id = v.Run
		s.runs++
	}
	fact := Fact{At: e.Time, Seq: e.Seq, Event: bytes.Clone(e.Event)}
	switch kind {
	case RunSeen:
		after.Seen = fact
	case SessionAuthorized:
		after.Authorized = fact
	case SessionEnded:
		after.Revoked = fact
	case RunEnded:
		after.Ended = fact
	}
	after.Last = e.Seq
	s.active[runKey(v.Run)] = &after
	return nil
}
