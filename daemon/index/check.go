package index

import (
	"bytes"
	"fmt"
	"maps"

	"singlepass.dev/daemon/execution"
)

// Check reads everything and says what does not fit together. It is for tests and for a doctor: it takes time in proportion to the file, and Fold waits meanwhile.
func (ix *Index) Check() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s := ix.s
	all, err := s.store.all()
	if err != nil {
		return err
	}
	for _, o := range []overlay{s.flushing, s.active} {
		for key, v := range o {
			if all[key], err = encode(v); err != nil {
				return err
			}
		}
	}
	return s.check(all)
}

// all reads every row of the file, checking that bins and rows match each other and the table in both directions.
func (s *store) all() (map[string][]byte, error) {
	s.begin.Lock()
	defer s.begin.Unlock()
	rows := make(map[string][]byte)
	err := guard(func() error {
		tx, t, err := s.read()
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // a read transaction
		entries := 0
		for n := range binCount {
			bin, err := s.bin(tx, t, n)
			if err != nil {
				return err
			}
			entries += len(bin) / entrySize
		}
		err = tx.Bucket(bucketRows).ForEach(func(key, _ []byte) error {
			value, err := s.lookup(tx, t, key)
			if err != nil {
				return err
			}
			if value == nil {
				return fmt.Errorf("%w: a row was added", ErrNotAuthentic)
			}
			rows[string(key)] = value
			return nil
		})
		if err != nil {
			return err
		}
		if entries != len(rows) {
			return fmt.Errorf("%w: %d rows where %d are listed", ErrNotAuthentic, len(rows), entries)
		}
		for i := range chunks {
			var want []byte
			for j := range perChunk {
				want = append(want, t[i*perChunk+j][:]...)
			}
			got := tx.Bucket(bucketTable).Get(chunkKey(i))
			if got == nil {
				got = make([]byte, len(want))
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%w: the table was changed", ErrNotAuthentic)
			}
		}
		return nil
	})
	return rows, err
}

// check compares the rows with each other, and with what is kept beside them.
func (s *state) check(all map[string][]byte) error {
	counts := make(map[execution.State]int)
	records, runs := uint64(0), uint64(0)
	for key, value := range all {
		switch key[0] {
		case 'x':
			r, err := decodeJSON[record](value)
			if err != nil {
				return fmt.Errorf("row of %s: %w", key[1:], err)
			}
			records++
			counts[r.X.State]++
			if err := s.checkRecord(all, key[1:], r); err != nil {
				return fmt.Errorf("%s: %w", key[1:], err)
			}
		case 'r':
			r, err := decodeJSON[Run](value)
			if err != nil {
				return fmt.Errorf("row of %s: %w", key[1:], err)
			}
			runs++
			if h, ok := headIn(all, listRuns, r.Ordinal); !ok || h != (head{id: r.ID}) || key[1:] != r.ID {
				return fmt.Errorf("run %s is not in its place in the list", key[1:])
			}
		}
	}
	open := 0
	for _, state := range execution.States() {
		if state.Open() {
			open += counts[state]
		}
	}
	switch {
	case records != s.executions || runs != s.runs:
		return fmt.Errorf("%d executions and %d runs where there should be %d and %d", records, runs, s.executions, s.runs)
	case !maps.Equal(counts, s.counts):
		return fmt.Errorf("states are counted as %v and are %v", s.counts, counts)
	case open != len(s.open):
		return fmt.Errorf("%d executions are open and %d are kept as open", open, len(s.open))
	}
	return nil
}

func (s *state) checkRecord(all map[string][]byte, id string, r *record) error {
	x := &r.X
	if x.ID != id {
		return fmt.Errorf("its row holds %s", x.ID)
	}
	if h, ok := headIn(all, listExecutions, r.Ordinal); !ok || h != headOf(x) {
		return fmt.Errorf("its place in the activity shows something else")
	}
	if ref, ok := s.open[id]; ok != x.State.Open() || ok && ref != (openRef{x.Run, x.Actor}) {
		return fmt.Errorf("it is %s and kept as open: %v", x.State, ok)
	}
	ids, err := decodeMatches(all[matchKey(x.Actor, x.Scope, x.Fingerprint)])
	if err != nil {
		return err
	}
	listed := false
	for _, other := range ids {
		listed = listed || other == id
		if all[recordKey(other)] == nil {
			return fmt.Errorf("%s is listed with it and does not exist", other)
		}
	}
	if !listed && (len(ids) < maxMatches || x.State.Open()) {
		return fmt.Errorf("its fingerprint does not find it")
	}
	if keyed(x.Scope) {
		if ids, err := decodeMatches(all[keyedKey(x.Actor, x.Scope)]); err != nil || len(ids) != 1 {
			return fmt.Errorf("its key finds %d executions: %w", len(ids), err)
		}
	}
	return nil
}

func headIn(all map[string][]byte, list byte, ordinal uint64) (head, bool) {
	p, err := decodePage(all[pageKey(list, ordinal/perPage)])
	if err != nil || uint64(len(p.heads)) <= ordinal%perPage {
		return head{}, false
	}
	return p.heads[ordinal%perPage], true
}
