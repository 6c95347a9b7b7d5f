package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
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
	open       map[string]openRef // every open execution: few, since each waits for a person or a target
	executions uint64             // how many there are; also the ordinal of the next one
	runs       uint64

	active   overlay // folded and not being written. Its records and pages belong to it alone and are changed in place; everything else in it is replaced, not changed
	flushing overlay // being written by Flush; read-only
	dirty    bool    // the position has moved since the last Flush
}

type overlay map[string]any // by the key of the row: *record, matches, *page, *Run

type openRef struct{ run, actor string }

// meta is what the file says about itself. The root covers its bytes.
type meta struct {
	Format     int                     `json:"format"`
	Salt       [16]byte                `json:"salt"`
	Position   Position                `json:"position"`
	Counts     map[execution.State]int `json:"counts"`
	Open       []string                `json:"open"`
	Executions uint64                  `json:"executions"`
	Runs       uint64                  `json:"runs"`
}

const format = 1

// record is the row of an execution.
type record struct {
	X         execution.Execution `json:"execution"`
	Ordinal   uint64              `json:"ordinal"` // its place in the order of acceptance
	Last      Position            `json:"last"`    // the entry that changed it last
	Accepted  Position            `json:"accepted"`
	Arguments bool                `json:"arguments,omitempty"` // the entry at Accepted carries the sealed arguments
	Result    *Position           `json:"result,omitempty"`    // the entry that carries the sealed result
}

// matches are the ids of executions with one actor, scope and fingerprint, oldest first.
type matches []string

// maxMatches bounds what a repeat is compared with. Open executions are never dropped from it.
const maxMatches = 8

// Fact is one event in the life of a run.
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

// The keys of rows. Ids are cut from hashes by their first byte, and no id is empty.
func recordKey(id string) string { return "x" + id }
func runKey(run string) string   { return "r" + run }

func matchKey(actor, scope, fingerprint string) string {
	return "m" + hashed(actor, scope, fingerprint)
}
func keyedKey(actor, scope string) string { return "k" + hashed(actor, scope) }

func pageKey(list byte, n uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{list}, n))
}

func hashed(parts ...string) string {
	var size [4]byte
	h := sha256.New()
	for _, p := range parts {
		binary.BigEndian.PutUint32(size[:], uint32(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return string(h.Sum(nil))
}

// keyed says whether a scope comes from a client's key: then the key finds the execution whatever its fingerprint.
func keyed(scope string) bool { return strings.HasPrefix(scope, "key:") }

func freshState(path string) (*state, error) {
	st, err := createStore(path)
	if err != nil {
		return nil, err
	}
	return &state{
		store: st, verified: true, rootless: true,
		counts: map[execution.State]int{}, open: map[string]openRef{}, active: overlay{},
	}, nil
}

func openState(path string) (*state, error) {
	st, err := openStore(path)
	if err != nil {
		return nil, err
	}
	s := &state{store: st, active: overlay{}, open: map[string]openRef{}}
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
	s.store.salt, s.position, s.counts, s.executions, s.runs = m.Salt, m.Position, m.Counts, m.Executions, m.Runs
	if s.counts == nil {
		s.counts = map[execution.State]int{}
	}
	for _, id := range m.Open {
		r, err := s.record(id)
		if err != nil {
			return err
		}
		if r == nil {
			return fmt.Errorf("%w: an open execution is missing", ErrNotAuthentic)
		}
		s.open[id] = openRef{r.X.Run, r.X.Actor}
	}
	return nil
}

func (s *state) encodeMeta() ([]byte, error) {
	open := make([]string, 0, len(s.open))
	for id := range s.open {
		open = append(open, id)
	}
	slices.Sort(open)
	return json.Marshal(meta{format, s.store.salt, s.position, s.counts, open, s.executions, s.runs})
}

// overlaid returns a row that is in memory.
func (s *state) overlaid(key string) (any, bool) {
	if v, ok := s.active[key]; ok {
		return v, true
	}
	v, ok := s.flushing[key]
	return v, ok
}

// resolve reads a row from memory or, decoded, from the file.
func resolve[T any](s *state, key string, decode func([]byte) (T, error)) (T, bool, error) {
	if v, ok := s.overlaid(key); ok {
		return v.(T), true, nil
	}
	return stored(s.store, key, decode)
}

func stored[T any](st *store, key string, decode func([]byte) (T, error)) (T, bool, error) {
	var none T
	b, err := st.get([]byte(key))
	if err != nil || b == nil {
		return none, false, err
	}
	v, err := decode(b)
	if err != nil {
		return none, false, fmt.Errorf("%w: a row is malformed", ErrNotAuthentic)
	}
	return v, true, nil
}

func decodeJSON[T any](b []byte) (*T, error) {
	v := new(T)
	return v, json.Unmarshal(b, v)
}

// A list of ids is stored with a length byte before each; the daemon's ids have 30.
func decodeMatches(b []byte) (matches, error) {
	var m matches
	for len(b) > 0 {
		n := int(b[0])
		if n >= len(b) {
			return nil, ErrNotAuthentic
		}
		m, b = append(m, string(b[1:1+n])), b[1+n:]
	}
	return m, nil
}

// appendRow appends the stored form of a row.
func appendRow(to *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case matches:
		for _, id := range v {
			to.WriteByte(byte(len(id)))
			to.WriteString(id)
		}
		return nil
	case *page:
		to.Write(v.encode())
		return nil
	}
	if err := json.NewEncoder(to).Encode(v); err != nil {
		return err
	}
	to.Truncate(to.Len() - 1) // the encoder's line break
	return nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := appendRow(&b, v)
	return b.Bytes(), err
}

func (s *state) record(id string) (*record, error) {
	r, _, err := resolve(s, recordKey(id), decodeJSON[record])
	return r, err
}
