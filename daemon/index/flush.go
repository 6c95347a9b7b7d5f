package index

import (
	"bytes"
	"fmt"
	"maps"
)

// maxHeld is how many rows are kept in memory for want of a key before the file is written without a root after all, which costs a rebuild if the daemon then crashes while locked.
const maxHeld = 1 << 16

// Pending returns how many rows wait for Flush.
func (ix *Index) Pending() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return len(ix.s.active) + len(ix.s.flushing)
}

// Flush writes what was folded, in one transaction that is synced. It is called every second or so, and when Pending has grown past some ten thousand rows; lookups and Fold go on meanwhile. It
// does nothing while the file has to stay as it is: before Authenticate, and while locked (see the package documentation). After an error the rows stay in memory.
func (ix *Index) Flush() error {
	ix.mu.Lock()
	s, mac := ix.s, ix.mac
	rows := len(s.active)
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
	batch := s.active
	s.active, s.flushing, s.dirty = make(overlay), batch, false
	ix.mu.Unlock()

	err = s.write(batch, description, mac)

	ix.mu.Lock()
	defer ix.mu.Unlock()
	s.flushing = nil
	if err != nil {
		// What was folded meanwhile is newer.
		newer := s.active
		s.active, s.dirty = batch, true
		maps.Copy(s.active, newer)
		return fmt.Errorf("flushing index: %w", err)
	}
	s.rootless = mac == nil
	return nil
}

// write reads batch, which nobody changes any more.
func (s *state) write(batch overlay, description []byte, mac MAC) error {
	rows := make([]row, 0, len(batch))
	ends := make([]int, 0, len(batch))
	var values bytes.Buffer // one for all: a flush of many rows is felt by everybody else
	values.Grow(len(batch) * 512)
	for key, v := range batch {
		if err := appendRow(&values, v); err != nil {
			return fmt.Errorf("encoding row: %w", err)
		}
		rows, ends = append(rows, row{key: []byte(key)}), append(ends, values.Len())
	}
	start := 0
	for i, end := range ends {
		rows[i].value = values.Bytes()[start:end:end]
		start = end
	}
	return s.store.commit(rows, description, mac)
}
