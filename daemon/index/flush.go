package index

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxHeld is how many rows are kept in memory for want of a key before the file is written without a root after all, which costs a rebuild if the daemon then crashes while locked.
const maxHeld = 1 << 16

// Pending returns how many executions and runs wait for Flush.
func (ix *Index) Pending() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	n := ix.s.active.size()
	if ix.s.flushing != nil {
		n += ix.s.flushing.size()
	}
	return n
}

// Flush writes what was folded, in one transaction that is synced. It is called every second or so, and when Pending has grown past some ten thousand rows; lookups and Fold go on meanwhile. It
// does nothing while the file has to stay as it is: before Authenticate, and while locked (see the package documentation). After an error the rows stay in memory.
func (ix *Index) Flush() error {
	ix.mu.Lock()
	s, mac := ix.s, ix.mac
	rows := s.active.size()
	switch {
	case s.flushing != nil:
		ix.mu.Unlock()
		return nil // another Flush is at it
	case !s.verified,
		mac == nil && !s.rootless && rows < maxHeld,
		rows == 0 && !s.dirty && (mac == nil || !s.rootless):
		ix.mu.Unlock()
		return nil
	}
	description, err := s.encodeMeta()
	if err != nil {
		ix.mu.Unlock()
		return fmt.Errorf("flushing index: %w", err)
	}
	batch, executions, filed := s.active, s.executions, s.filed
	s.active, s.flushing, s.dirty = newOverlay(min(len(batch.ids), 1<<15)), batch, false // the next batch is like this one
	ix.mu.Unlock()

	err = s.store.flush(batch, filed, executions, description, mac)

	ix.mu.Lock()
	defer ix.mu.Unlock()
	s.flushing = nil
	if err != nil {
		// What was folded meanwhile is newer.
		batch.add(s.active)
		s.active, s.dirty = batch, true
		return fmt.Errorf("flushing index: %w", err)
	}
	s.rootless, s.filed = mac == nil, executions
	s.flushes++
	return nil
}

// flush writes a batch, which nobody changes any more. The file has filed executions so far, and executions afterwards.
func (s *store) flush(batch *overlay, filed, executions uint64, description []byte, mac MAC) error {
	var rows []row
	a := arena{left: 512 * len(batch.ids)}
	listings := make([]listing, 0, len(batch.ids)+len(batch.found)+len(batch.pages)*(2+perPage/perGroup)+2*len(batch.runs)+8)
	summaries := make(map[uint64][]byte)
	for _, n := range slices.Sorted(maps.Keys(batch.pages)) {
		p := batch.pages[n]
		for g := range uint64(perPage / perGroup) {
			first := n*perPage + g*perGroup
			group, err := s.group(p.records[g*perGroup:(g+1)*perGroup], first, executions)
			if err != nil {
				return err
			}
			if group != nil {
				rows = append(rows, row{numbered(listGroups, first/perGroup), a.keep(encodeGroup(a.room(), group))})
			}
		}
		rows = append(rows, row{numbered(listPages, n), a.keep(encodeHeads(a.room(), p.heads))})
		if err := s.summarize(summaries, n, p.heads); err != nil {
			return err
		}
	}
	for n, b := range summaries {
		rows = append(rows, row{numbered(listSummaries, n), b})
	}
	for id, r := range batch.ids {
		if r.Ordinal >= filed {
			listings = append(listings, listOrdinal(s.idPlace(id), r.Ordinal))
		}
	}
	for p, n := range batch.found {
		listings = append(listings, listOrdinal(p, n))
	}
	for id, r := range batch.runs {
		b, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encoding run: %w", err)
		}
		rows = append(rows, row{runKey(id), b})
	}
	for n, ids := range batch.runLists {
		rows = append(rows, row{numbered(listRuns, n), encodeRunList(nil, ids)})
	}
	for n, refused := range batch.refusals {
		b, err := json.Marshal(refused)
		if err != nil {
			return fmt.Errorf("encoding refused calls: %w", err)
		}
		rows = append(rows, row{numbered(listRefusals, n), b})
	}
	for id, g := range batch.grants {
		b, err := json.Marshal(g)
		if err != nil {
			return fmt.Errorf("encoding standing grant: %w", err)
		}
		rows = append(rows, row{grantKey(id), b})
	}
	return s.commit(rows, listings, description, mac)
}

// group returns the whole of a group of which some records were changed, or nil if none was. The others are in the file, unless they come after the last.
func (s *store) group(changed []*record, first, executions uint64) ([]*record, error) {
	size := int(min(perGroup, executions-min(first, executions)))
	missing := 0
	for _, r := range changed[:size] {
		if r == nil {
			missing++
		}
	}
	if missing == size {
		return nil, nil
	}
	group := slices.Clone(changed[:size])
	if missing == 0 {
		return group, nil
	}
	filed, err := stored(s, numbered(listGroups, first/perGroup), decodeRecords)
	for i := range min(size, len(filed)) {
		if group[i] == nil {
			group[i] = filed[i]
			missing--
		}
	}
	if err == nil && missing > 0 {
		err = errMissing
	}
	return group, err
}

// summarize puts a page's summary into the row of summaries that it belongs to.
func (s *store) summarize(rows map[uint64][]byte, n uint64, heads []head) error {
	b, known := rows[n/perSummary]
	if !known {
		var err error
		if b, err = stored(s, numbered(listSummaries, n/perSummary), cloned); err != nil {
			return err
		}
	}
	at := int(n%perSummary) * summarySize
	if len(b) < at {
		return malformedRow()
	}
	one := summarize(heads)
	if tail := at + summarySize; len(b) < tail {
		b = one.encode(b)
	} else {
		one.encode(b[: at : at+summarySize])
	}
	rows[n/perSummary] = b
	return nil
}

// arena keeps many small slices in few large ones.
type arena struct {
	free []byte
	left int // what is expected to come
}

// room returns an empty slice to append one row to; it moves by itself if the row is larger than what is left.
func (a *arena) room() []byte {
	if cap(a.free)-len(a.free) < 8<<10 {
		a.free = make([]byte, 0, min(max(a.left, 16<<10), 1<<20))
	}
	return a.free[len(a.free):]
}

func (a *arena) keep(b []byte) []byte {
	if n := len(a.free) + len(b); n <= cap(a.free) && len(b) > 0 && &b[0] == &a.free[:n][len(a.free)] {
		a.free = a.free[:n]
	}
	a.left -= len(b)
	return b[:len(b):len(b)]
}
