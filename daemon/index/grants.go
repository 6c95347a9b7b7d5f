package index

import (
	"encoding/json"
	"fmt"
)

// Grant is what the journal says of one standing grant: the entry that gave it and the one that ended it; 0 where there is none.
type Grant struct {
	ID    string `json:"grant"`
	Given uint64 `json:"given,omitempty"` // seq; the first, should somebody have written two
	Ended uint64 `json:"ended,omitempty"` // seq
}

func grantKey(id string) string { return "a" + id } // g is taken, by the groups of records

func decodeGrant(b []byte) (*Grant, error) {
	g := new(Grant)
	if err := json.Unmarshal(b, g); err != nil {
		return nil, malformedRow()
	}
	return g, nil
}

// Grant returns what the journal says of a standing grant, and whether it counts: it was given, was not ended, and no quarantine was accepted since. What a break took from the journal may have been
// the grant's end, so none outlives one.
func (ix *Index) Grant(id string) (g Grant, counts bool, err error) {
	ix.mu.RLock()
	st, held, mended := ix.s.store, ix.s.heldGrant(id), ix.s.mended
	ix.mu.RUnlock()
	if held == nil {
		if held, err = stored(st, grantKey(id), decodeGrant); err != nil || held == nil {
			return Grant{ID: id}, false, err
		}
	}
	return *held, held.Given > mended && held.Ended == 0, nil
}

func (s *state) heldGrant(id string) *Grant {
	if g := s.active.grants[id]; g != nil || s.flushing == nil {
		return g
	}
	return s.flushing.grants[id]
}

func (s *state) foldGrant(e *Entry, kind string) error {
	var v struct {
		Grant string `json:"grant"`
	}
	if err := json.Unmarshal(e.Event, &v); err != nil {
		return fmt.Errorf("reading event: %w", err)
	}
	if v.Grant == "" || len(v.Grant) > 255 {
		return fmt.Errorf("event %s names no grant in its member grant", kind)
	}
	before := s.heldGrant(v.Grant)
	if before == nil {
		var err error
		if before, err = stored(s.store, grantKey(v.Grant), decodeGrant); err != nil {
			return err
		}
	}
	after := Grant{ID: v.Grant}
	if before != nil {
		after = *before
	}
	switch {
	case kind == GrantEnded:
		after.Ended = e.Seq
	case after.Given == 0:
		after.Given = e.Seq
	}
	s.active.grants[v.Grant] = &after
	return nil
}
