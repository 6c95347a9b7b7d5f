package index

import (
	"fmt"

	"singlepass.dev/daemon/execution"
)

// lookup reads a row without holding the lock while it reads the file. A row leaves memory only when it is in the file, so looking there second misses nothing.
func lookup[T any](ix *Index, key string, decode func([]byte) (T, error)) (T, error) {
	ix.mu.RLock()
	st := ix.s.store
	v, ok := ix.s.overlaid(key)
	ix.mu.RUnlock()
	if ok {
		return v.(T), nil
	}
	t, _, err := stored(st, key, decode)
	return t, err
}

// record returns a copy, or nil when there is none. Records in memory are changed in place by Fold; what an execution points to never is.
func (ix *Index) record(id string) (*record, error) {
	key := recordKey(id)
	ix.mu.RLock()
	st := ix.s.store
	if v, ok := ix.s.overlaid(key); ok {
		r := *v.(*record)
		ix.mu.RUnlock()
		return &r, nil
	}
	ix.mu.RUnlock()
	r, _, err := stored(st, key, decodeJSON[record])
	return r, err
}

// listed returns an execution that another row names.
func (ix *Index) listed(id string) (execution.Execution, error) {
	r, err := ix.record(id)
	if err != nil {
		return execution.Execution{}, err
	}
	if r == nil {
		return execution.Execution{}, missing(id)
	}
	return r.X, nil
}

func missing(id string) error {
	return fmt.Errorf("%w: %s is listed and has no row", ErrNotAuthentic, id)
}

// heads copies a page's list. Pages in memory are changed in place by Fold, hence the lock.
func (ix *Index) heads(list byte, n uint64) ([]head, error) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.s.heads(list, n)
}

// backward goes through a list from the one before end to the first, until f says no.
func (ix *Index) backward(list byte, end uint64, f func(head) (more bool, err error)) error {
	for end > 0 {
		n := (end - 1) / perPage
		heads, err := ix.heads(list, n)
		if err != nil {
			return err
		}
		if uint64(len(heads)) < end-n*perPage {
			return fmt.Errorf("%w: a page of the activity is too short", ErrNotAuthentic)
		}
		for i := int(end - n*perPage); i > 0; i-- {
			more, err := f(heads[i-1])
			if err != nil || !more {
				return err
			}
		}
		end = n * perPage
	}
	return nil
}
