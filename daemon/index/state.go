package index

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/execution"
)

// state is everything that stands at one Position. Reset replaces it as a whole.
type state struct {
	store    *store
	verified bool
	rootless bool // the file has no root that a later process could check

	position   Position
	counts     map[execution.State]int
	open       map[uint64]openRef // every open execution, by its ordinal: few, since each waits for a person or a target
	executions uint64             // how many there are; also the ordinal of the next one
	filed      uint64             // how many of them are in the file
	runs       uint64
	refusals   uint64
	mended     uint64 // the newest entry that ended a quarantine
	newest     string // the greatest id of an execution: what is greater was never accepted, which needs no look into the file

	active   *overlay // folded and not being written. Its records and pages belong to it alone and are changed in place; everything else in it is replaced, not changed
	flushing *overlay // being written by Flush, or nil; read-only
	flushes  uint64   // how often flushing was written
	dirty    bool     // the position has moved since the last Flush
}

// overlay holds what is newer than the file.
type overlay struct {
	ids      map[string]*record // by execution
	pages    map[uint64]*page   // by number; they hold the same records
	found    map[place]uint64   // the newest execution with an actor, scope and fingerprint, or a key
	runs     map[string]*Run
	runLists map[uint64][]string
	refusals map[uint64][]Fact // rows by number, whole
	grants   map[string]*Grant
}

// newOverlay returns an empty one with room for so many executions.
func newOverlay(n int) *overlay {
	return &overlay{make(map[string]*record, n), make(map[uint64]*page), make(map[place]uint64, n), make(map[string]*Run), make(map[uint64][]string), make(map[uint64][]Fact), make(map[string]*Grant)}
}

func (o *overlay) size() int { return len(o.ids) + len(o.runs) + len(o.refusals) + len(o.grants) }

// add puts what is newer over o.
func (o *overlay) add(newer *overlay) {
	maps.Copy(o.ids, newer.ids)
	maps.Copy(o.found, newer.found)
	maps.Copy(o.runs, newer.runs)
	maps.Copy(o.runLists, newer.runLists)
	maps.Copy(o.refusals, newer.refusals)
	maps.Copy(o.grants, newer.grants)
	for n, p := range newer.pages {
		if old := o.pages[n]; old != nil {
			for i, r := range old.records {
				if p.records[i] == nil {
					p.records[i] = r
				}
			}
		}
		o.pages[n] = p
	}
}

type openRef struct{ run, actor string }

// meta is what the file says about itself. The root covers its bytes.
type meta struct {
	Format     int                     `json:"format"`
	Salt       [16]byte                `json:"salt"`
	Position   Position                `json:"position"`
	Counts     map[execution.State]int `json:"counts"`
	Open       []uint64                `json:"open"` // ordinals
	Executions uint64                  `json:"executions"`
	Runs       uint64                  `json:"runs"`
	Refusals   uint64                  `json:"refusals"`
	Mended     uint64                  `json:"mended,omitempty"`
	Newest     string                  `json:"newest"`
}

const format = 5

// maxMatches bounds what a repeat is compared with. Open executions are never dropped from it.
const maxMatches = 8

// Fact is one event that is no execution's: in the life of a run, or a call that was refused.
type Fact struct {
	At    time.Time       `json:"at,omitzero"`
	Seq   uint64          `json:"seq,omitempty"`
	Event json.RawMessage `json:"event,omitempty"` // as it stands in the journal
}

// Run is what the journal says of one run: the newest event of each kind.
type Run struct {
	ID         string `json:"run"`
	Ordinal    uint64 `json:"ordinal"`     // its place in the order of first sight
	Seen       Fact   `json:"seen"`        // run_seen
	Authorized Fact   `json:"authorized"`  // session_authorized
	Revoked    Fact   `json:"revoked"`     // session_ended
	Ended      Fact   `json:"ended"`       // run_ended
	Last       uint64 `json:"last_change"` // seq
}

func runKey(run string) string { return "r" + run }

// The keys of the directory.
func (s *store) idPlace(id string) place { return s.directory("execution", id) }

func (s *store) keyPlace(actor, scope string) place {
	return s.directory("key", actor, scope)
}

func (s *store) matchPlace(actor, scope, fingerprint string) place {
	return s.directory("match", actor, scope, fingerprint)
}

// keyed says whether a scope comes from a client's key: then the key finds the execution whatever its fingerprint.
func keyed(scope string) bool { return strings.HasPrefix(scope, "key:") }

func malformedRow() error { return fmt.Errorf("%w: a row is malformed", ErrNotAuthentic) }

func freshState(path string) (*state, error) {
	st, err := createStore(path)
	if err != nil {
		return nil, err
	}
	return &state{
		store: st, verified: true, rootless: true,
		counts: map[execution.State]int{}, open: map[uint64]openRef{}, active: newOverlay(0),
	}, nil
}

func openState(path string) (*state, error) {
	st, err := openStore(path)
	if err != nil {
		return nil, err
	}
	s := &state{store: st, active: newOverlay(0), open: map[uint64]openRef{}}
	if err := s.load(); err != nil {
		st.abandon()
		return nil, err
	}
	return s, nil
}

func (s *state) load() error {
	var m meta
	if err := json.Unmarshal(s.store.meta, &m); err != nil {
		return fmt.Errorf("%w: its description is malformed", ErrNotAuthentic)
	}
	if m.Format != format {
		return fmt.Errorf("%w: it has format %d and this program writes %d", ErrNotAuthentic, m.Format, format)
	}
	s.store.salt, s.position, s.counts, s.executions, s.runs, s.refusals, s.mended, s.newest = m.Salt, m.Position, m.Counts, m.Executions, m.Runs, m.Refusals, m.Mended, m.Newest
	s.filed = s.executions
	if s.counts == nil {
		s.counts = map[execution.State]int{}
	}
	for _, n := range m.Open {
		r, err := s.at(n)
		if err != nil {
			return err
		}
		s.open[n] = openRef{r.X.Run, r.X.Actor}
	}
	return nil
}

func (s *state) encodeMeta() ([]byte, error) {
	return json.Marshal(meta{
		format, s.store.salt, s.position, s.counts, slices.Sorted(maps.Keys(s.open)), s.executions, s.runs, s.refusals, s.mended, s.newest,
	})
}

// heldID returns the record of an execution if it is in memory, else nil.
func (s *state) heldID(id string) *record {
	if r := s.active.ids[id]; r != nil || s.flushing == nil {
		return r
	}
	return s.flushing.ids[id]
}

// heldAt returns the record at an ordinal if it is in memory, else nil.
func (s *state) heldAt(n uint64) *record {
	if p := s.active.pages[n/perPage]; p != nil && p.records[n%perPage] != nil {
		return p.records[n%perPage]
	}
	if s.flushing != nil {
		if p := s.flushing.pages[n/perPage]; p != nil {
			return p.records[n%perPage]
		}
	}
	return nil
}

// heldPlace returns what a match or a key finds in memory.
func (s *state) heldPlace(p place) (uint64, bool) {
	n, ok := s.active.found[p]
	if !ok && s.flushing != nil {
		n, ok = s.flushing.found[p]
	}
	return n, ok
}

// heldPage returns a page if it is in memory, else nil.
func (s *state) heldPage(n uint64) *page {
	if p := s.active.pages[n]; p != nil || s.flushing == nil {
		return p
	}
	return s.flushing.pages[n]
}

func (s *state) heldRun(id string) *Run {
	if r := s.active.runs[id]; r != nil || s.flushing == nil {
		return r
	}
	return s.flushing.runs[id]
}

func (s *state) heldRunList(n uint64) []string {
	if l := s.active.runLists[n]; l != nil || s.flushing == nil {
		return l
	}
	return s.flushing.runLists[n]
}

func (s *state) heldRefusals(n uint64) []Fact {
	if l := s.active.refusals[n]; l != nil || s.flushing == nil {
		return l
	}
	return s.flushing.refusals[n]
}

// at returns the record at an ordinal, which must exist.
func (s *state) at(n uint64) (*record, error) {
	if r := s.heldAt(n); r != nil {
		return r, nil
	}
	return s.store.at(n)
}

// What follows reads the file.

// at returns the record at an ordinal, which must exist.
func (s *store) at(n uint64) (*record, error) {
	var r *record
	err := s.view(func(v *view) (err error) {
		r, err = v.at(n)
		return err
	})
	if err == nil && r == nil {
		err = errMissing
	}
	return r, err
}

var errMissing = fmt.Errorf("%w: an execution is listed and has no row", ErrNotAuthentic)

// at returns the record at an ordinal, or nil.
func (v *view) at(n uint64) (*record, error) {
	b, err := v.row(numbered(listGroups, n/perGroup))
	if err != nil || b == nil {
		return nil, err
	}
	r, err := decodeRecord(b, int(n%perGroup))
	if err == nil && r.Ordinal != n {
		return nil, malformedRow()
	}
	return r, err
}

// byID returns an execution's record, or nil.
func (s *store) byID(id string) (*record, error) {
	p := s.idPlace(id)
	var r *record
	err := s.view(func(v *view) error {
		n, found, err := v.ordinal(p)
		if err != nil || !found {
			return err
		}
		if r, err = v.at(n); err == nil && (r == nil || r.X.ID != id) {
			return errMissing
		}
		return err
	})
	return r, err
}

func (s *store) ordinal(p place) (n uint64, found bool, err error) {
	err = s.view(func(v *view) error {
		n, found, err = v.ordinal(p)
		return err
	})
	return n, found, err
}

// stored returns a row of the file, decoded, or the zero value. What decode returns must not point into the row.
func stored[T any](s *store, key string, decode func([]byte) (T, error)) (T, error) {
	var t T
	err := s.view(func(v *view) error {
		b, err := v.row(key)
		if err == nil && b != nil {
			t, err = decode(b)
		}
		return err
	})
	return t, err
}

func decodeRun(b []byte) (*Run, error) {
	r := new(Run)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, malformedRow()
	}
	return r, nil
}

func cloned(b []byte) ([]byte, error) { return slices.Clone(b), nil }
