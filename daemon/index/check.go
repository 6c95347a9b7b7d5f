package index

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"singlepass.dev/daemon/execution"
)

// Check reads everything and says what does not fit together. It is for tests and for a doctor: it takes time in proportion to the file, and Fold waits meanwhile.
func (ix *Index) Check() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	s := ix.s
	all, err := s.all()
	if err != nil {
		return err
	}
	return s.check(all)
}

// everything is all that the index knows.
type everything struct {
	records  []*record
	heads    []head
	runs     map[string]*Run
	runList  []string
	refusals []Fact
	ordinals map[place]uint64
}

// all puts what is in memory over what is in the file.
func (s *state) all() (*everything, error) {
	rows, all, err := s.store.all()
	if err != nil {
		return nil, err
	}
	var one summary
	for n := uint64(0); n*perPage < s.executions; n++ {
		heads, err := decodeHeads(rows[numbered(listPages, n)])
		if p := s.heldPage(n); p != nil {
			heads, err = p.heads, nil
		} else if !one.decode(rows[numbered(listSummaries, n/perSummary)], n%perSummary) || one != summarize(heads) {
			return nil, fmt.Errorf("page %d is not what its summary says", n)
		}
		if err != nil {
			return nil, err
		}
		all.heads = append(all.heads, heads...)
	}
	groups := make(map[uint64][]*record)
	for n := range s.executions {
		r := s.heldAt(n)
		if r == nil {
			if groups[n/perGroup] == nil {
				if groups[n/perGroup], err = decodeRecords(rows[numbered(listGroups, n/perGroup)]); err != nil {
					return nil, fmt.Errorf("group of the execution %d: %w", n, err)
				}
			}
			if uint64(len(groups[n/perGroup])) <= n%perGroup {
				return nil, errMissing
			}
			r = groups[n/perGroup][n%perGroup]
		}
		all.records = append(all.records, r)
		if n >= s.filed {
			all.ordinals[s.store.idPlace(r.X.ID)] = n
		}
	}
	for n := uint64(0); n*perRunList < s.runs; n++ {
		ids, err := decodeRunList(rows[numbered(listRuns, n)])
		if held := s.heldRunList(n); held != nil {
			ids, err = held, nil
		}
		if err != nil {
			return nil, err
		}
		all.runList = append(all.runList, ids...)
	}
	for n := uint64(0); n*perRefusals < s.refusals; n++ {
		row := s.heldRefusals(n)
		if row == nil {
			if row, err = decodeRefusals(rows[numbered(listRefusals, n)]); err != nil {
				return nil, err
			}
		}
		all.refusals = append(all.refusals, row...)
	}
	if uint64(len(all.refusals)) != s.refusals {
		return nil, fmt.Errorf("%d refused calls are listed and %d were counted", len(all.refusals), s.refusals)
	}
	for key, row := range rows {
		if key[0] == 'r' {
			if all.runs[key[1:]], err = decodeRun(row); err != nil {
				return nil, err
			}
		}
	}
	for _, o := range []*overlay{s.flushing, s.active} {
		if o != nil {
			maps.Copy(all.runs, o.runs)
			maps.Copy(all.ordinals, o.found)
		}
	}
	return all, nil
}

// all reads every row and the directory of the file, checking that they match the bins, and the bins the table, in both directions.
func (s *store) all() (map[string][]byte, *everything, error) {
	rows := make(map[string][]byte)
	all := &everything{runs: make(map[string]*Run), ordinals: make(map[place]uint64)}
	err := s.view(func(v *view) error {
		listed := 0
		for n := range binCount {
			bin, err := v.binOf(n, nil)
			if err != nil {
				return err
			}
			size := tagSize + valueSize(n)
			if n >= directoryBins {
				listed += len(bin) / size
				continue
			}
			for l := range slices.Chunk(bin, size) {
				all.ordinals[place{uint16(n), [tagSize]byte(l)}] = ordinalOf(l[tagSize:])
			}
		}
		err := v.rows.ForEach(func(key, _ []byte) error {
			value, err := v.row(string(key))
			if err != nil {
				return err
			}
			if value == nil {
				return fmt.Errorf("%w: a row was added", ErrNotAuthentic)
			}
			rows[string(key)] = bytes.Clone(value)
			return nil
		})
		if err != nil {
			return err
		}
		if listed != len(rows) {
			return fmt.Errorf("%w: %d rows where %d are listed", ErrNotAuthentic, len(rows), listed)
		}
		for i := range chunks {
			want := v.generation.table.chunk(i)
			got := v.tx.Bucket(bucketTable).Get(chunkKey(i))
			if got == nil {
				got = make([]byte, len(want))
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%w: the table was changed", ErrNotAuthentic)
			}
		}
		return nil
	})
	return rows, all, err
}

// check compares the parts with each other, and with what is kept beside them.
func (s *state) check(all *everything) error {
	counts := make(map[execution.State]int)
	open := 0
	places := make(map[place]uint64)
	for n, r := range all.records {
		if err := s.checkRecord(all, uint64(n), r); err != nil {
			return fmt.Errorf("%s: %w", r.X.ID, err)
		}
		x := &r.X
		counts[x.State]++
		if x.State.Open() {
			open++
		}
		places[s.store.idPlace(x.ID)] = r.Ordinal
		places[s.store.matchPlace(x.Actor, x.Scope, x.Fingerprint)] = r.Ordinal
		if keyed(x.Scope) {
			places[s.store.keyPlace(x.Actor, x.Scope)] = r.Ordinal
		}
	}
	for n, id := range all.runList {
		if r := all.runs[id]; r == nil || r.ID != id || r.Ordinal != uint64(n) {
			return fmt.Errorf("run %s is not in its place in the list", id)
		}
	}
	switch {
	case len(all.heads) != len(all.records):
		return fmt.Errorf("%d executions are in the activity and %d exist", len(all.heads), len(all.records))
	case !maps.Equal(places, all.ordinals):
		return errors.New("the directory does not find the newest of each")
	case uint64(len(all.runList)) != s.runs || len(all.runs) != len(all.runList):
		return fmt.Errorf("%d runs are listed, %d exist and there should be %d", len(all.runList), len(all.runs), s.runs)
	case !maps.Equal(counts, s.counts):
		return fmt.Errorf("states are counted as %v and are %v", s.counts, counts)
	case open != len(s.open):
		return fmt.Errorf("%d executions are open and %d are kept as open", open, len(s.open))
	}
	return nil
}

func (s *state) checkRecord(all *everything, n uint64, r *record) error {
	x := &r.X
	if r.Ordinal != n || n >= uint64(len(all.heads)) || all.heads[n] != headOf(x) {
		return errors.New("its place in the activity shows something else")
	}
	if ref, ok := s.open[n]; ok != x.State.Open() || ok && ref != (openRef{x.Run, x.Actor}) {
		return fmt.Errorf("it is %s and kept as open: %v", x.State, ok)
	}
	if x.ID > s.newest {
		return fmt.Errorf("it is newer than the newest, %s", s.newest)
	}
	for _, earlier := range r.Earlier {
		if earlier >= n {
			return errors.New("it was compared with a later one")
		}
		y := &all.records[earlier].X
		if x.Actor != y.Actor || x.Scope != y.Scope || x.Fingerprint != y.Fingerprint {
			return fmt.Errorf("it was compared with %s", y.ID)
		}
	}
	// What is open is found from the newest, whatever came after it.
	if newest := all.ordinals[s.store.matchPlace(x.Actor, x.Scope, x.Fingerprint)]; x.State.Open() && newest != n && !slices.Contains(all.records[newest].Earlier, n) {
		return errors.New("its fingerprint does not find it")
	}
	return nil
}
