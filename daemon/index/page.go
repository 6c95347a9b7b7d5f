package index

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"singlepass.dev/daemon/execution"
)

// The lists that have pages.
const (
	listExecutions byte = 'p'
	listRuns       byte = 'q'
)

// perPage is how many executions or runs one page lists, in the order in which they came.
const perPage = 128

// page is a stretch of the activity in short form, so that a view can pass over what it does not show without decoding it.
type page struct{ heads []head }

// head is the short form of an execution or, with nothing but the id, of a run.
type head struct {
	id         string
	state      byte // its place in execution.States() plus 1; 0 for a run
	acceptedAt int64
	pruneAt    int64 // when its retention passes; 0 for never
	tool       uint64
	run        uint64
	actor      uint64
	credential uint64
}

const headSize = 1 + 6*8

var stateCodes = func() map[execution.State]byte {
	m := make(map[execution.State]byte)
	for i, s := range execution.States() {
		m[s] = byte(i + 1)
	}
	return m
}()

func short(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

func headOf(x *execution.Execution) head {
	h := head{
		id: x.ID, acceptedAt: x.AcceptedAt.UnixNano(),
		tool: short(x.Tool), run: short(x.Run), actor: short(x.Actor), credential: short(x.Credential),
	}
	h.update(x)
	return h
}

// update sets what changes in the life of an execution.
func (h *head) update(x *execution.Execution) {
	h.state, h.pruneAt = stateCodes[x.State], 0
	if at, ok := pruneAt(x); ok {
		h.pruneAt = at.UnixNano()
	}
}

// pruneAt says when an execution's retention passes. No retention means that it is kept.
func pruneAt(x *execution.Execution) (time.Time, bool) {
	if x.State.Open() || x.Pruned || x.Retention <= 0 {
		return time.Time{}, false
	}
	return x.ChangedAt.Add(x.Retention), true
}

func (p *page) encode() []byte {
	b := make([]byte, 0, len(p.heads)*(headSize+32))
	for _, h := range p.heads {
		b = append(append(b, byte(len(h.id))), h.id...)
		b = append(b, h.state)
		for _, v := range []uint64{uint64(h.acceptedAt), uint64(h.pruneAt), h.tool, h.run, h.actor, h.credential} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	return b
}

func decodePage(b []byte) (*page, error) {
	p := new(page)
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n+headSize {
			return nil, ErrNotAuthentic
		}
		h := head{id: string(b[1 : 1+n]), state: b[1+n]}
		b = b[1+n+1:]
		var v [6]uint64
		for i := range v {
			v[i], b = binary.BigEndian.Uint64(b), b[8:]
		}
		h.acceptedAt, h.pruneAt = int64(v[0]), int64(v[1])
		h.tool, h.run, h.actor, h.credential = v[2], v[3], v[4], v[5]
		p.heads = append(p.heads, h)
	}
	return p, nil
}

// page returns a page that may be changed in place.
func (s *state) page(list byte, n uint64) (*page, error) {
	key := pageKey(list, n)
	if v, ok := s.active[key]; ok {
		return v.(*page), nil
	}
	p := new(page)
	if v, ok := s.flushing[key]; ok {
		p.heads = append(make([]head, 0, perPage), v.(*page).heads...)
	} else if q, found, err := stored(s.store, key, decodePage); err != nil {
		return nil, err
	} else if found {
		p = q
	}
	s.active[key] = p
	return p, nil
}

// head returns the place of the nth execution or run in its page, for writing. The one after the last is made.
func (s *state) head(list byte, ordinal uint64) (*head, error) {
	p, err := s.page(list, ordinal/perPage)
	if err != nil {
		return nil, err
	}
	i := int(ordinal % perPage)
	if i > len(p.heads) {
		return nil, fmt.Errorf("%w: a page of the activity is too short", ErrNotAuthentic)
	}
	if i == len(p.heads) {
		p.heads = append(p.heads, head{})
	}
	return &p.heads[i], nil
}

// heads returns a copy of a page's list.
func (s *state) heads(list byte, n uint64) ([]head, error) {
	key := pageKey(list, n)
	if v, ok := s.overlaid(key); ok {
		return slices.Clone(v.(*page).heads), nil
	}
	p, _, err := stored(s.store, key, decodePage)
	if err != nil || p == nil {
		return nil, err
	}
	return p.heads, nil
}
