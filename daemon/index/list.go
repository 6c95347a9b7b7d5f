package index

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/execution"
)

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

// List returns executions in the order of their acceptance, newest first. What the query chooses by its other fields is found by summaries of 128 executions each; Text is looked for in every
// record that the others choose, which takes time in proportion to them.
func (ix *Index) List(q Query) ([]execution.Execution, error) {
	ix.mu.RLock()
	end := ix.s.executions
	possible := len(q.States) == 0
	for _, s := range q.States {
		possible = possible || ix.s.counts[s] > 0
	}
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
	if !possible || end == 0 {
		return nil, nil
	}
	limit := cmp.Or(max(q.Limit, 0), defaultLimit)
	pages, heads := q.tests()
	var found []execution.Execution
	for last := (end - 1) / perPage; ; {
		first := last / perSummary * perSummary
		candidates, err := ix.candidates(first, last, pages)
		if err != nil {
			return nil, err
		}
		for _, n := range slices.Backward(candidates) {
			more, err := ix.choose(n, min(end-n*perPage, perPage), heads, func(x *execution.Execution) bool {
				if q.chooses(x) {
					found = append(found, *x)
				}
				return len(found) < limit
			})
			if err != nil || !more {
				return found, err
			}
		}
		if first == 0 {
			return found, nil
		}
		last = first - 1
	}
}

// candidates returns the pages from first to last, all in one row of summaries, that may hold what is sought.
func (ix *Index) candidates(first, last uint64, may func(*summary) bool) ([]uint64, error) {
	// Which pages are in memory is seen before the file is read: then the file has all that was folded by now into the others.
	ix.mu.RLock()
	st := ix.s.store
	var held [perSummary]bool
	for n := first; n <= last; n++ {
		held[n-first] = ix.s.heldPage(n) != nil
	}
	ix.mu.RUnlock()
	row, err := stored(st, numbered(listSummaries, first/perSummary), cloned)
	if err != nil {
		return nil, err
	}
	var pages []uint64
	var s summary
	for n := first; n <= last; n++ {
		if held[n-first] || !s.decode(row, n-first) || may(&s) {
			pages = append(pages, n)
		}
	}
	return pages, nil
}

// choose goes backward through the first count executions of a page and calls f with those that the test of heads lets through, until f says no.
func (ix *Index) choose(n, count uint64, chosen func(*head) bool, f func(*execution.Execution) (more bool)) (more bool, err error) {
	heads, err := ix.heads(n)
	if err != nil {
		return false, err
	}
	if uint64(len(heads)) < count {
		return false, errShortPage
	}
	var group [perGroup]*record
	known := uint64(perPage) // the group that was read last, by its number in the page; none yet
	for i := count; i > 0; i-- {
		if !chosen(&heads[i-1]) {
			continue
		}
		if g := (i - 1) / perGroup; g != known {
			if group, err = ix.group(n*(perPage/perGroup) + g); err != nil {
				return false, err
			}
			known = g
		}
		r := group[(i-1)%perGroup]
		if r == nil {
			return false, errMissing
		}
		if !f(&r.X) {
			return false, nil
		}
	}
	return true, nil
}

// group returns copies of the records of a group.
func (ix *Index) group(g uint64) ([perGroup]*record, error) {
	var group [perGroup]*record
	ix.mu.RLock()
	st := ix.s.store
	whole := true
	for i := range group {
		if r := ix.s.heldAt(g*perGroup + uint64(i)); r != nil {
			mine := *r
			group[i] = &mine
		} else {
			whole = false
		}
	}
	ix.mu.RUnlock()
	if whole {
		return group, nil
	}
	filed, err := stored(st, numbered(listGroups, g), decodeRecords)
	for i, r := range filed {
		if group[i] == nil {
			group[i] = r
		}
	}
	return group, err
}

// heads copies a page's list, which Fold changes in place.
func (ix *Index) heads(n uint64) ([]head, error) {
	ix.mu.RLock()
	st := ix.s.store
	if p := ix.s.heldPage(n); p != nil {
		defer ix.mu.RUnlock()
		return slices.Clone(p.heads), nil
	}
	ix.mu.RUnlock()
	return stored(st, numbered(listPages, n), decodeHeads)
}

// tests returns the tests that pass over most of what the query does not choose.
func (q *Query) tests() (func(*summary) bool, func(*head) bool) {
	var states uint16
	for _, s := range q.States {
		states |= 1 << stateCodes[s]
	}
	tool, run, actor, credential := short(q.Tool), short(q.Run), short(q.Actor), short(q.Credential)
	pages := func(s *summary) bool {
		return (states == 0 || s.states&states != 0) &&
			(q.Tool == "" || s.mention(mentionTool, tool)) && (q.Run == "" || s.mention(mentionRun, run)) &&
			(q.Actor == "" || s.mention(mentionActor, actor)) && (q.Credential == "" || s.mention(mentionCredential, credential)) &&
			(q.Since.IsZero() || s.newest >= q.Since.UnixNano()) &&
			(q.Until.IsZero() || s.oldest < q.Until.UnixNano())
	}
	return pages, func(h *head) bool {
		return (states == 0 || states&(1<<h.state) != 0) &&
			(q.Tool == "" || h.tool == tool) && (q.Run == "" || h.run == run) &&
			(q.Actor == "" || h.actor == actor) && (q.Credential == "" || h.credential == credential) &&
			(q.Since.IsZero() || h.acceptedAt >= q.Since.UnixNano()) &&
			(q.Until.IsZero() || h.acceptedAt < q.Until.UnixNano())
	}
}

func (q *Query) chooses(x *execution.Execution) bool {
	// Since and Until need no second look: a head has the time itself.
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
	due, limit := now.UnixNano(), max(limit, 0)
	var found []execution.Execution
	for first := uint64(0); first*perPage < end; first += perSummary {
		pages, err := ix.candidates(first, min(first+perSummary-1, (end-1)/perPage), func(s *summary) bool { return s.pruneAt <= due })
		if err != nil {
			return nil, err
		}
		for _, n := range pages {
			var here []execution.Execution
			count := min(end-n*perPage, perPage)
			_, err := ix.choose(n, count, func(h *head) bool { return h.pruneAt != 0 && h.pruneAt <= due }, func(x *execution.Execution) bool {
				if at, ok := pruneAt(x); ok && !at.After(now) {
					here = append(here, *x)
				}
				return true
			})
			if err != nil {
				return nil, err
			}
			slices.Reverse(here)
			if found = append(found, here...); len(found) >= limit {
				return found[:limit], nil
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
		r, err := ix.run(before)
		if err != nil || r == nil {
			return nil, err
		}
		end = r.Ordinal
	}
	limit = cmp.Or(max(limit, 0), defaultLimit)
	var found []Run
	for end > 0 {
		n := (end - 1) / perRunList
		ids, err := ix.runList(n)
		if err != nil {
			return nil, err
		}
		if uint64(len(ids)) < end-n*perRunList {
			return nil, fmt.Errorf("%w: a list of runs is too short", ErrNotAuthentic)
		}
		for _, id := range slices.Backward(ids[:end-n*perRunList]) {
			r, err := ix.run(id)
			if err != nil {
				return nil, err
			}
			if r == nil {
				return nil, fmt.Errorf("%w: run %s is listed and has no row", ErrNotAuthentic, id)
			}
			if found = append(found, *r); len(found) == limit {
				return found, nil
			}
		}
		end = n * perRunList
	}
	return found, nil
}

func (ix *Index) runList(n uint64) ([]string, error) {
	ix.mu.RLock()
	st, ids := ix.s.store, ix.s.heldRunList(n)
	ix.mu.RUnlock()
	if ids != nil {
		return ids, nil
	}
	return stored(st, numbered(listRuns, n), decodeRunList)
}
