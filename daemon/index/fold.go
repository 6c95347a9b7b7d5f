package index

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/execution"
)

// The kinds of events about runs. Their JSON names the run in the member "run".
const (
	RunSeen           = "run_seen"
	SessionAuthorized = "session_authorized"
	SessionEnded      = "session_ended"
	RunEnded          = "run_ended"
)

// The kinds of events about standing grants. Their JSON names the grant in the member "grant".
const (
	GrantGiven = "grant_given"
	GrantEnded = "grant_ended"
)

// CallRefused is the kind of an event about a call that was not accepted. Its JSON names tool, run and code.
const CallRefused = "call_refused"

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
	case kind == CallRefused:
		err = s.foldRefusal(e)
	case kind == GrantGiven || kind == GrantEnded:
		err = s.foldGrant(e, kind)
	case kind == chain.KindQuarantineAccepted:
		s.mended = e.Seq
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
	var ev execution.Event
	if e.Decoded != nil {
		ev = *e.Decoded
	} else {
		var err error
		if ev, err = execution.DecodeEvent(e.Event); err != nil {
			return err
		}
	}
	ev.At = e.Time.Round(0).UTC()
	if len(ev.ID) > 255 {
		return fmt.Errorf("execution id has %d bytes, 255 at most", len(ev.ID))
	}
	r, err := s.own(ev.ID)
	if err != nil {
		return err
	}
	if r == nil {
		r, err = s.accept(e, ev)
	} else {
		err = s.change(r, ev)
	}
	if err != nil {
		return err
	}
	r.Last = e.Position
	switch {
	case r.X.Pruned:
		r.Arguments, r.HasResult, r.Result, r.HasAwaited, r.Awaited = false, false, Position{}, false, Position{}
	case e.Sealed && ev.Kind == execution.KindAccepted:
		r.Arguments = true
	case e.Sealed && ev.Kind == execution.KindObserved:
		r.HasResult, r.Result = true, e.Position
	case e.Sealed && ev.Kind == execution.KindAwaited:
		r.HasAwaited, r.Awaited = true, e.Position
	}
	return nil
}

func (s *state) accept(e *Entry, ev execution.Event) (*record, error) {
	x, err := execution.Apply(execution.Execution{}, ev)
	if err != nil {
		return nil, err
	}
	r := &record{X: x, Ordinal: s.executions, Accepted: e.Position}
	place := s.store.matchPlace(x.Actor, x.Scope, x.Fingerprint)
	if r.Earlier, err = s.earlier(place); err != nil {
		return nil, err
	}
	p, err := s.page(r.Ordinal / perPage)
	if err != nil {
		return nil, err
	}
	if uint64(len(p.heads)) != r.Ordinal%perPage {
		return nil, errShortPage
	}
	p.heads = append(p.heads, headOf(&x))
	p.records[r.Ordinal%perPage] = r
	s.active.ids[x.ID] = r
	s.active.found[place] = r.Ordinal
	if keyed(x.Scope) {
		s.active.found[s.store.keyPlace(x.Actor, x.Scope)] = r.Ordinal
	}
	s.executions++
	s.newest = max(s.newest, x.ID)
	s.counts[x.State]++
	s.open[r.Ordinal] = openRef{x.Run, x.Actor} // as everything is that was just accepted
	return r, nil
}

// earlier returns what a repeat is compared with: what the newest execution at a place was compared with, and that one.
func (s *state) earlier(p place) ([]uint64, error) {
	n, found := s.heldPlace(p)
	if !found {
		var err error
		if n, found, err = s.store.ordinal(p); err != nil || !found {
			return nil, err
		}
	}
	r, err := s.at(n)
	if err != nil {
		return nil, err
	}
	// What is closed never opens again, so what falls out here is never missed.
	older := len(r.Earlier) + 2 - maxMatches
	kept := make([]uint64, 0, maxMatches)
	for i, n := range r.Earlier {
		if _, open := s.open[n]; open || i >= older {
			kept = append(kept, n)
		}
	}
	return append(kept, n), nil
}

func (s *state) change(r *record, ev execution.Event) error {
	x, err := execution.Apply(r.X, ev)
	if err != nil {
		return err
	}
	before := r.X.State
	r.X = x
	s.active.pages[r.Ordinal/perPage].heads[r.Ordinal%perPage].update(&x)
	if x.State == before {
		return nil
	}
	s.counts[x.State]++
	if s.counts[before]--; s.counts[before] == 0 {
		delete(s.counts, before)
	}
	if !x.State.Open() {
		delete(s.open, r.Ordinal)
	}
	return nil
}

// own returns a record that may be changed in place, or nil when there is none.
func (s *state) own(id string) (*record, error) {
	if r := s.active.ids[id]; r != nil {
		return r, nil
	}
	if id > s.newest {
		return nil, nil
	}
	r := s.heldID(id)
	if r == nil {
		var err error
		if r, err = s.store.byID(id); err != nil || r == nil {
			return nil, err
		}
	}
	p, err := s.page(r.Ordinal / perPage)
	if err != nil {
		return nil, err
	}
	if uint64(len(p.heads)) <= r.Ordinal%perPage {
		return nil, errShortPage
	}
	mine := *r
	p.records[r.Ordinal%perPage], s.active.ids[id] = &mine, &mine
	return &mine, nil
}

var errShortPage = fmt.Errorf("%w: a page of the activity is too short", ErrNotAuthentic)

// page returns a page that may be changed in place.
func (s *state) page(n uint64) (*page, error) {
	if p := s.active.pages[n]; p != nil {
		return p, nil
	}
	p := new(page)
	if q := s.heldPage(n); q != nil {
		p.heads = append(make([]head, 0, perPage), q.heads...)
	} else if n*perPage < s.filed {
		var err error
		if p.heads, err = stored(s.store, numbered(listPages, n), decodeHeads); err != nil {
			return nil, err
		}
	} else {
		p.heads = make([]head, 0, perPage)
	}
	s.active.pages[n] = p
	return p, nil
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
	before := s.heldRun(v.Run)
	if before == nil {
		var err error
		if before, err = stored(s.store, runKey(v.Run), decodeRun); err != nil {
			return err
		}
	}
	after := Run{ID: v.Run, Ordinal: s.runs}
	if before != nil {
		after = *before
	} else if err := s.listRun(v.Run); err != nil {
		return err
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
	s.active.runs[v.Run] = &after
	return nil
}

// foldRefusal lists a refused call behind the others, as it stands in the journal.
func (s *state) foldRefusal(e *Entry) error {
	if !json.Valid(e.Event) {
		return errors.New("the event of a refused call is not JSON")
	}
	n := s.refusals / perRefusals
	row := s.heldRefusals(n)
	if row == nil && s.refusals%perRefusals > 0 {
		var err error
		if row, err = stored(s.store, numbered(listRefusals, n), decodeRefusals); err != nil {
			return err
		}
	}
	s.active.refusals[n] = append(slices.Clip(row), Fact{At: e.Time, Seq: e.Seq, Event: bytes.Clone(e.Event)})
	s.refusals++
	return nil
}

func (s *state) listRun(id string) error {
	n := s.runs / perRunList
	ids := s.heldRunList(n)
	if ids == nil {
		var err error
		if ids, err = stored(s.store, numbered(listRuns, n), decodeRunList); err != nil {
			return err
		}
	}
	s.active.runLists[n] = append(slices.Clip(ids), id)
	s.runs++
	return nil
}
