package index

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// perRefusals is how many refused calls, in the journal's order, one row holds.
const perRefusals = 32

func decodeRefusals(b []byte) ([]Fact, error) {
	var row []Fact
	if err := json.Unmarshal(b, &row); err != nil || len(row) > perRefusals {
		return nil, malformedRow()
	}
	return row, nil
}

// Refusals calls f with the calls that were refused since then, newest first, until f says no.
func (ix *Index) Refusals(since time.Time, f func(Fact) (more bool)) error {
	ix.mu.RLock()
	end := ix.s.refusals
	ix.mu.RUnlock()
	for end > 0 {
		n := (end - 1) / perRefusals
		row, err := ix.refusals(n)
		if err != nil {
			return err
		}
		if uint64(len(row)) < end-n*perRefusals {
			return fmt.Errorf("%w: a list of refused calls is too short", ErrNotAuthentic)
		}
		for _, fact := range slices.Backward(row[:end-n*perRefusals]) {
			if fact.At.Before(since) || !f(fact) {
				return nil
			}
		}
		end = n * perRefusals
	}
	return nil
}

func (ix *Index) refusals(n uint64) ([]Fact, error) {
	ix.mu.RLock()
	st, row := ix.s.store, ix.s.heldRefusals(n)
	ix.mu.RUnlock()
	if row != nil {
		return row, nil
	}
	return stored(st, numbered(listRefusals, n), decodeRefusals)
}
