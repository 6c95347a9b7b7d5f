package index

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/execution"
)

// Get returns one execution.
func (ix *Index) Get(id string) (execution.Execution, bool, error) {
	r, err := ix.record(id)
	if err != nil || r == nil {
		return execution.Execution{}, false, err
	}
	return r.X, true, nil
}

// Payload returns the entry that carries a sealed payload of an execution, by that entry's kind: KindAccepted has the arguments and KindObserved the result.
func (ix *Index) Payload(id string, kind execution.Kind) (Position, bool, error) {
	r, err := ix.record(id)
	if err != nil || r == nil {
		return Position{}, false, err
	}
	switch {
	case kind == execution.KindAccepted && r.Arguments:
		return r.Accepted, true, nil
	case kind == execution.KindObserved && r.Result != nil:
		return *r.Result, true, nil
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
	ids, err := lookup(ix, matchKey(actor, scope, fingerprint), decodeMatches)
	if err != nil {
		return nil, err
	}
	found := make([]execution.Execution, 0, len(ids))
	for i, id := range slices.Backward(ids) {
		x, err := ix.listed(id)
		if err != nil {
			return nil, err
		}
		if i >= len(ids)-maxMatches || x.State.Open() {
			found = append(found, x)
		}
	}
	return found, nil
}

// MatchKey returns the newest execution with this actor and a scope that comes from a client's key, whatever its fingerprint.
func (ix *Index) MatchKey(actor, scope string) (execution.Execution, bool, error) {
	ids, err := lookup(ix, keyedKey(actor, scope), decodeMatches)
	if err != nil || len(ids) == 0 {
		return execution.Execution{}, false, err
	}
	x, err := ix.listed(ids[len(ids)-1])
	return x, err == nil, err
}

// Filter chooses open executions. Empty fields choose all.
type Filter struct {
	Run   string
	Actor string
}

// OpenExecutions returns the accepted, authorized, dispatched and unknown executions, oldest first.
func (ix *Index) OpenExecutions(f Filter) ([]execution.Execution, error) {
	ix.mu.RLock()
	var ids []string
	for id, ref := range ix.s.open {
		if (f.Run == "" || f.Run == ref.run) && (f.Actor == "" || f.Actor == ref.actor) {
			ids = append(ids, id)
		}
	}
	ix.mu.RUnlock()
	var records []*record
	for _, id := range ids {
		r, err := ix.record(id)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, missing(id)
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b *record) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	var found []execution.Execution
	for _, r := range records {
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

// Query chooses executions. Empty fields choose all.
type Query struct {
	States     []execution.State
	Tool       string
	Run        string
	Actor      string
	Credential string
	Since      time.Time // accepted at or after
	Until      time.Time // accepted before
	Text       string    // in the id, tool, target, actor, credential or reason, whatever the case
	Before     string    // an execution id: the page after the one that ended with it
	Limit      int       // 100 when zero
}

const defaultLimit = 100

// List returns executions in the order of their acceptance, newest first.
func (ix *Index) List(q Query) ([]execution.Execution, error) {
	ix.mu.RLock()
	end := ix.s.executions
	ix.mu.RUnlock()
	if q.Before != "" {
		r, err := ix.record(q.Before)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, nil
		}
		end = r.Ordinal
	}
	limit := cmp.Or(max(q.Limit, 0), defaultLimit)
	chosen := q.heads()
	var found []execution.Execution
	err := ix.backward(listExecutions, end, func(h head) (bool, error) {
		if !chosen(h) {
			return true, nil
		}
		x, err := ix.listed(h.id)
		if err != nil {
			return false, err
		}
		if q.chooses(&x) {
			found = append(found, x)
		}
		return len(found) < limit, nil
	})
	return found, err
}

// heads returns the test that passes over most of what the query does not choose.
func (q *Query) heads() func(head) bool {
	states := make(map[byte]bool)
	for _, s := range q.States {
		states[stateCodes[s]] = true
	}
	tool, run, actor, credential := short(q.Tool), short(q.Run), short(q.Actor), short(q.Credential)
	return func(h head) bool {
		return (len(states) == 0 || states[h.state]) &&
			(q.Tool == "" || h.tool == tool) && (q.Run == "" || h.run == run) &&
			(q.Actor == "" || h.actor == actor) && (q.Credential == "" || h.credential == credential) &&
			(q.Since.IsZero() || h.acceptedAt >= q.Since.UnixNano()) &&
			(q.Until.IsZero() || h.acceptedAt < q.Until.UnixNano())
	}
}

func (q *Query) chooses(x *execution.Execution) bool {
	if len(q.States) > 0 && !slices.Contains(q.States, x.State) ||
		q.Tool != "" && x.Tool != q.Tool || q.Run != "" && x.Run != q.Run ||
		q.Actor != "" && x.Actor != q.Actor || q.Credential != "" && x.Credential != q.Credential {
		return false
	}
	if q.Text == "" {
		return true
	}
	text := strings.ToLower(q.Text)
	for _, s := range []string{x.ID, x.Tool, x.Target, x.Actor, x.Credential, x.Reason} {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

// Prunable returns up to limit executions whose retention has passed, oldest first. Pruning is an event that the caller journals and folds.
func (ix *Index) Prunable(now time.Time, limit int) ([]execution.Execution, error) {
	ix.mu.RLock()
	end := ix.s.executions
	ix.mu.RUnlock()
	var found []execution.Execution
	for n := uint64(0); n*perPage < end; n++ {
		heads, err := ix.heads(listExecutions, n)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			if len(found) >= limit {
				return found, nil
			}
			if h.pruneAt == 0 || h.pruneAt > now.UnixNano() {
				continue
			}
			x, err := ix.listed(h.id)
			if err != nil {
				return nil, err
			}
			if at, ok := pruneAt(&x); ok && !at.After(now) {
				found = append(found, x)
			}
		}
	}
	return found, nil
}

// Runs returns up to limit runs in the order in which they were first seen, newest first; with before, the ones that come after that run in this order.
func (ix *Index) Runs(before string, limit int) ([]Run, error) {
	ix.mu.RLock()
	end := ix.s.runs
	ix.mu.RUnlock()
	if before != "" {
		r, err := lookup(ix, runKey(before), decodeJSON[Run])
		if err != nil || r == nil {
			return nil, err
		}
		end = r.Ordinal
	}
	limit = cmp.Or(max(limit, 0), defaultLimit)
	var found []Run
	err := ix.backward(listRuns, end, func(h head) (bool, error) {
		r, err := lookup(ix, runKey(h.id), decodeJSON[Run])
		if err != nil {
			return false, err
		}
		if r == nil {
			return false, missing(h.id)
		}
		found = append(found, *r)
		return len(found) < limit, nil
	})
	return found, err
}

// Run returns one run.
func (ix *Index) Run(id string) (Run, bool, error) {
	r, err := lookup(ix, runKey(id), decodeJSON[Run])
	if err != nil || r == nil {
		return Run{}, false, err
	}
	return *r, true, nil
}
