package index

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"singlepass.dev/daemon/execution"
)

// perPage is how many executions one page lists, in the order of their acceptance; a page's groups share its cluster.
const perPage = 16 * perGroup

// page is a stretch of the activity in short form, so that a view can pass over what it does not show without decoding it. In memory it carries the records that were
// changed since the last Flush; every such record has its page in memory.
type page struct {
	heads   []head
	records [perPage]*record
}

// head is the short form of an execution. The texts are there as hashes: equal ones may still be different texts.
type head struct {
	state      byte  // its place in execution.States() plus 1
	acceptedAt int64 // nanoseconds
	pruneAt    int64 // when its retention passes; 0 for never
	tool       uint32
	run        uint32
	actor      uint32
	credential uint32
}

const headSize = 1 + 2*8 + 4*4

var stateCodes = func() map[execution.State]byte {
	m := make(map[execution.State]byte)
	for i, s := range execution.States() {
		m[s] = byte(i + 1)
	}
	return m
}()

// short is FNV-1a.
func short(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

func headOf(x *execution.Execution) head {
	h := head{
		acceptedAt: x.AcceptedAt.UnixNano(),
		tool:       short(x.Tool), run: short(x.Run), actor: short(x.Actor), credential: short(x.Credential),
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

func encodeHeads(b []byte, heads []head) []byte {
	for _, h := range heads {
		b = append(b, h.state)
		b = binary.BigEndian.AppendUint64(b, uint64(h.acceptedAt))
		b = binary.BigEndian.AppendUint64(b, uint64(h.pruneAt))
		for _, v := range [...]uint32{h.tool, h.run, h.actor, h.credential} {
			b = binary.BigEndian.AppendUint32(b, v)
		}
	}
	return b
}

func decodeHeads(b []byte) ([]head, error) {
	if len(b)%headSize != 0 || len(b) > perPage*headSize {
		return nil, malformedRow()
	}
	heads := make([]head, 0, perPage)
	for ; len(b) > 0; b = b[headSize:] {
		u32 := binary.BigEndian.Uint32
		heads = append(heads, head{
			b[0], int64(binary.BigEndian.Uint64(b[1:])), int64(binary.BigEndian.Uint64(b[9:])), u32(b[17:]), u32(b[21:]), u32(b[25:]), u32(b[29:]),
		})
	}
	return heads, nil
}

// perSummary is how many pages one row of summaries describes, so that a search passes over thousands of executions at once.
const perSummary = 64

// summary says what a page may hold. Where it says no, the page needs no reading.
type summary struct {
	states   uint16 // a bit for each state
	oldest   int64  // acceptedAt
	newest   int64
	pruneAt  int64      // the earliest; math.MaxInt64 for never
	mentions [128]uint8 // a Bloom filter of tools, runs, actors and credentials
}

const summarySize = 2 + 3*8 + 128

// The fields that a summary mentions.
const (
	mentionTool = iota
	mentionRun
	mentionActor
	mentionCredential
)

// bits calls f with the three bits of a field's value.
func bits(field int, value uint32, f func(at uint32, bit uint8)) {
	h := (uint64(value)<<2 | uint64(field)) * 0x9e3779b97f4a7c15 // Fibonacci hashing; the high bits are the good ones
	for i := range 3 {
		n := uint32(h>>(34+10*i)) & 1023
		f(n/8, 1<<(n%8))
	}
}

func summarize(heads []head) summary {
	s := summary{oldest: math.MaxInt64, newest: math.MinInt64, pruneAt: math.MaxInt64}
	var last head
	for i := range heads {
		h := &heads[i]
		s.states |= 1 << h.state
		s.oldest, s.newest = min(s.oldest, h.acceptedAt), max(s.newest, h.acceptedAt)
		if h.pruneAt != 0 {
			s.pruneAt = min(s.pruneAt, h.pruneAt)
		}
		for field, v := range [...][2]uint32{{h.tool, last.tool}, {h.run, last.run}, {h.actor, last.actor}, {h.credential, last.credential}} {
			if i == 0 || v[0] != v[1] {
				bits(field, v[0], func(at uint32, bit uint8) { s.mentions[at] |= bit })
			}
		}
		last = *h
	}
	return s
}

func (s *summary) mention(field int, value uint32) bool {
	all := true
	bits(field, value, func(at uint32, bit uint8) { all = all && s.mentions[at]&bit != 0 })
	return all
}

func (s *summary) encode(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, s.states)
	for _, v := range [...]int64{s.oldest, s.newest, s.pruneAt} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return append(b, s.mentions[:]...)
}

// decode reads the nth summary of a row of them, if it is there.
func (s *summary) decode(row []byte, n uint64) bool {
	if uint64(len(row)) < (n+1)*summarySize {
		return false
	}
	b := row[n*summarySize:]
	u64 := binary.BigEndian.Uint64
	s.states, s.oldest, s.newest, s.pruneAt = binary.BigEndian.Uint16(b), int64(u64(b[2:])), int64(u64(b[10:])), int64(u64(b[18:]))
	copy(s.mentions[:], b[26:])
	return true
}

// The lists that have rows by number.
const (
	listGroups    byte = 'g' // of records
	listPages     byte = 'p'
	listSummaries byte = 's'
	listRuns      byte = 'q'
	listRefusals  byte = 'c'
)

// cluster names the rows that share a bin: a page and its groups.
func cluster(key string) string {
	if key[0] == listGroups {
		return numbered(listPages, binary.BigEndian.Uint64([]byte(key[1:]))/(perPage/perGroup))
	}
	return key
}

func numbered(list byte, n uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{list}, n))
}

// perRunList is how many ids of runs, in the order in which they were first seen, one row lists.
const perRunList = 128

func encodeRunList(b []byte, ids []string) []byte {
	for _, id := range ids {
		b = append(append(b, byte(len(id))), id...)
	}
	return b
}

func decodeRunList(b []byte) ([]string, error) {
	var ids []string
	for len(b) > 0 {
		n := int(b[0])
		if n >= len(b) {
			return nil, malformedRow()
		}
		ids, b = append(ids, string(b[1:1+n])), b[1+n:]
	}
	return slices.Clip(ids), nil
}
