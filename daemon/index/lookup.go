package index

import (
	"slices"

	"singlepass.dev/daemon/execution"
)

// A lookup takes what is in memory under the lock, and reads the file without it. What leaves memory is in the file by then, so looking there second misses nothing. Records in memory are
// changed in place by Fold, so they are copied; what an execution points to never is.

// record returns a copy, or nil when there is none.
func (ix *Index) record(id string) (*record, error) {
	ix.mu.RLock()
	st := ix.s.store
	if r := ix.s.heldID(id); r != nil {
		mine := *r
		ix.mu.RUnlock()
		return &mine, nil
	}
	ix.mu.RUnlock()
	return st.byID(id)
}

// at returns a copy of the record at an ordinal, which must exist.
func (ix *Index) at(n uint64) (*record, error) {
	ix.mu.RLock()
	st := ix.s.store
	if r := ix.s.heldAt(n); r != nil {
		mine := *r
		ix.mu.RUnlock()
		return &mine, nil
	}
	ix.mu.RUnlock()
	return st.at(n)
}

// newest returns a copy of the newest record that a place of the directory finds, or nil.
func (ix *Index) newest(at func(*store) place) (*record, error) {
	ix.mu.RLock()
	st := ix.s.store
	ix.mu.RUnlock()
	p := at(st)
	for {
		ix.mu.RLock()
		n, found := ix.s.heldPlace(p)
		flushes := ix.s.flushes
		ix.mu.RUnlock()
		if found {
			return ix.at(n)
		}
		var r *record
		err := st.view(func(v *view) (err error) {
			if n, found, err = v.ordinal(p); err == nil && found {
				r, err = v.at(n)
			}
			return err
		})
		if err != nil || !found {
			return nil, err
		}
		if r == nil {
			return nil, errMissing
		}
		// The record may be newer in memory, unless it was written from there since the file was read.
		ix.mu.RLock()
		s := ix.s
		current := s.store == st && s.flushes == flushes
		if held := s.heldAt(n); current && held != nil {
			mine := *held
			r = &mine
		}
		ix.mu.RUnlock()
		switch {
		case s.store != st:
			return ix.newest(at)
		case current:
			return r, nil
		}
	}
}

// Get returns one execution.
func (ix *Index) Get(id string) (execution.Execution, bool, error) {
	r, err := ix.record(id)
	if err != nil || r == nil {
		return execution.Execution{}, false, err
	}
	return r.X, true, nil
}

// Payload returns the entry that carries a sealed payload of an execution, by that entry's kind: KindAccepted has the arguments, KindAwaited what the target answered when it took them, and
// KindObserved the result.
func (ix *Index) Payload(id string, kind execution.Kind) (Position, bool, error) {
	r, err := ix.record(id)
	if err != nil || r == nil {
		return Position{}, false, err
	}
	switch {
	case kind == execution.KindAccepted && r.Arguments:
		return r.Accepted, true, nil
	case kind == execution.KindObserved && r.HasResult:
		return r.Result, true, nil
	case kind == execution.KindAwaited && r.HasAwaited:
		return r.Awaited, true, nil
	}
	return Position{}, false, nil
}

// Changed returns the entries that accepted an execution and that changed it last.
func (ix *Index) Changed(id string) (accepted, last Position, found bool, err error) {
	r, err := ix.record(id)
	if err != nil || r == nil {
		return Position{}, Position{}, false, err
	}
	return r.Accepted, r.Last, true, nil
}

// Match returns the executions with this actor, scope and fingerprint, newest first: the last eight, and any older one that is still open.
func (ix *Index) Match(actor, scope, fingerprint string) ([]execution.Execution, error) {
	r, err := ix.newest(func(s *store) place { return s.matchPlace(actor, scope, fingerprint) })
	if err != nil || r == nil {
		return nil, err
	}
	found := append(make([]execution.Execution, 0, 1+len(r.Earlier)), r.X)
	for i, n := range slices.Backward(r.Earlier) {
		earlier, err := ix.at(n)
		if err != nil {
			return nil, err
		}
		if i > len(r.Earlier)-maxMatches || earlier.X.State.Open() {
			found = append(found, earlier.X)
		}
	}
	return found, nil
}

// MatchKey returns the newest execution with this actor and a scope that comes from a client's key, whatever its fingerprint.
func (ix *Index) MatchKey(actor, scope string) (execution.Execution, bool, error) {
	if !keyed(scope) {
		return execution.Execution{}, false, nil
	}
	r, err := ix.newest(func(s *store) place { return s.keyPlace(actor, scope) })
	if err != nil || r == nil {
		return execution.Execution{}, false, err
	}
	return r.X, true, nil
}

// Filter chooses open executions. Empty fields choose all.
type Filter struct {
	Run   string
	Actor string
}

// OpenExecutions returns the accepted, authorized, dispatched and unknown executions, oldest first.
func (ix *Index) OpenExecutions(f Filter) ([]execution.Execution, error) {
	ix.mu.RLock()
	var ordinals []uint64
	for n, ref := range ix.s.open {
		if (f.Run == "" || f.Run == ref.run) && (f.Actor == "" || f.Actor == ref.actor) {
			ordinals = append(ordinals, n)
		}
	}
	ix.mu.RUnlock()
	slices.Sort(ordinals)
	var found []execution.Execution
	for _, n := range ordinals {
		r, err := ix.at(n)
		if err != nil {
			return nil, err
		}
		if r.X.State.Open() { // it may have been completed between the two looks
			found = append(found, r.X)
		}
	}
	return found, nil
}

// Counts returns how many executions stand in each state.
func (ix *Index) Counts() map[execution.State]int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	counts := make(map[execution.State]int)
	for _, state := range execution.States() {
		counts[state] = ix.s.counts[state]
	}
	return counts
}

// Run returns one run.
func (ix *Index) Run(id string) (Run, bool, error) {
	r, err := ix.run(id)
	if err != nil || r == nil {
		return Run{}, false, err
	}
	return *r, true, nil
}

func (ix *Index) run(id string) (*Run, error) {
	ix.mu.RLock()
	st, r := ix.s.store, ix.s.heldRun(id)
	ix.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	return stored(st, runKey(id), decodeRun)
}
