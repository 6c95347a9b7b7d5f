package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// SegmentName is the name of the journal's n-th file, counted from 1: journal-000001.jsonl.
func SegmentName(n int) string { return fmt.Sprintf("journal-%06d.jsonl", n) }

// ParseSegmentName returns the n of SegmentName(n).
func ParseSegmentName(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "journal-")
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, ".jsonl"); !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || SegmentName(n) != name {
		return 0, false
	}
	return n, true
}

// The kinds of entry that the journal writes by itself. Nobody else may append them.
const (
	KindSegmentOpened      = "segment_opened"      // Opened; the first entry of a segment
	KindQuarantineAccepted = "quarantine_accepted" // Opened with Breaks; the first entry of the segment after a quarantine
	KindTailCut            = "tail_cut"            // TailCut
	KindPayloadErased      = "payload_erased"      // Erasure
)

// OwnKind tells whether entries of this kind are written by the journal alone.
func OwnKind[T []byte | string](kind T) bool {
	switch string(kind) {
	case KindSegmentOpened, KindQuarantineAccepted, KindTailCut, KindPayloadErased:
		return true
	}
	return false
}

// Opened is the first event of a segment. It names the segment before, so that a segment that was
// removed, renamed or put elsewhere is located.
type Opened struct {
	Kind     string          `json:"kind"`
	Segment  string          `json:"segment"`
	Previous string          `json:"previous,omitempty"` // absent in the first segment
	Head     *Hash           `json:"head,omitempty"`     // the last entry's hash before this one, as in prev
	TreeSize uint64          `json:"tree_size"`          // leaves before this entry: its seq - 1
	Reason   string          `json:"reason,omitempty"`   // the operator's, for quarantine_accepted
	Breaks   []Break         `json:"breaks,omitempty"`   // what was found, for quarantine_accepted
	Details  json.RawMessage `json:"details,omitempty"`  // the caller's, for quarantine_accepted
}

// TailCut is the event that records bytes behind the last entry which were cut off: they belonged to a
// batch that was never acknowledged.
type TailCut struct {
	Kind    string `json:"kind"`
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	Length  int64  `json:"length"`
	Digest  string `json:"digest"` // of the bytes that were cut, or that a failed write was to write
	Reason  string `json:"reason"` // torn, failed_write, failed_sync
}

// Erasure is the event that must be durable before payloads are overwritten.
type Erasure struct {
	Kind string   `json:"kind"`
	Seqs []uint64 `json:"seqs"`
}

// What says how something fails to verify.
type What string

// What can be found. Located means: Segment, Offset and Seq of a Break say where.
const (
	WhatChanged   What = "changed"           // the bytes of an entry are not those that were written
	WhatRemoved   What = "removed"           // one or more entries are missing before this one
	WhatReordered What = "reordered"         // the entry stands at another place than it was written to
	WhatDuplicate What = "duplicated"        // the entry is there a second time
	WhatGarbage   What = "not_a_line"        // bytes that are no line
	WhatTruncated What = "truncated"         // the journal ends before an entry that is known to have been there
	WhatForked    What = "forked"            // another entry than the known one has this number
	WhatPayload   What = "payload_changed"   // the payload does not match the digest in its entry
	WhatErased    What = "payload_missing"   // the payload is gone and no entry records that
	WhatSegment   What = "segment_missing"   // a segment file is missing
	WhatLink      What = "segment_misplaced" // a segment does not follow the one before it
	WhatEvent     What = "event_malformed"   // the event is no event of the journal
)

// Break is one place where a journal does not verify.
type Break struct {
	What    What   `json:"what"`
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"` // in bytes, in the segment
	Length  int64  `json:"length"` // in bytes; may be 0 where something is missing
	Seq     uint64 `json:"seq"`    // of the first entry that is affected
	Digest  string `json:"digest"` // Digest of the Length bytes that are there
}

func (b Break) String() string {
	return fmt.Sprintf("%s at entry %d (%s, byte %d)", b.What, b.Seq, b.Segment, b.Offset)
}

// Covers tells whether b's bytes include the place.
func (b Break) Covers(segment string, offset int64) bool {
	return b.Segment == segment && offset >= b.Offset && (offset < b.Offset+b.Length || offset == b.Offset)
}

// Digest is how digests of other bytes than entries are written: sha256: and 64 hexadecimal digits.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Sector is what a disk writes as a whole or not at all.
const Sector = 512

// MaxBatch is how many bytes may be written between two syncs.
const MaxBatch = MaxLine + 1<<20

// Torn tells whether tail, the bytes of a file from the end of its last good line at offset on, can be
// the remains of one batch that was being written when the machine or the process stopped. Such a batch
// was never acknowledged. It is the only thing that may be cut; all else is kept as evidence.
//
// Unused bytes of a segment are zeros, and no line has a zero in it. So a tail is torn when it is
//
//   - the beginning of a line that was not written to its end, and then only zeros or nothing; or
//   - that, and then zeros that begin and end at sector boundaries (or begin where the batch began),
//     and then other parts of the same batch: a disk may write the sectors of a batch in any order.
//
// A line that is complete and wrong is never torn, and neither is one that lacks only its line break.
// The caller's known position, if there is one, lies at or before offset: what is known to have been
// acknowledged is never cut.
func Torn(tail []byte, offset int64) bool {
	tail = bytes.TrimRight(tail, "\x00")
	first := bytes.IndexByte(tail, 0)
	if first < 0 {
		return startsLine(tail)
	}
	if len(tail) > MaxBatch || !startsLine(tail[:first]) || first > 0 && (offset+int64(first))%Sector != 0 {
		return false
	}
	for i := first; i < len(tail); {
		if tail[i] != 0 {
			next := bytes.IndexByte(tail[i:], 0)
			if next < 0 {
				return true
			}
			if i += next; (offset+int64(i))%Sector != 0 {
				return false
			}
		}
		for tail[i] == 0 {
			i++
		}
		if (offset+int64(i))%Sector != 0 {
			return false
		}
	}
	return true
}

// startsLine tells whether b can be a line that ends too early.
func startsLine(b []byte) bool {
	head := lineHead + entryHead
	if bytes.IndexByte(b, '\n') >= 0 || string(b[:min(len(b), len(head))]) != head[:min(len(b), len(head))] {
		return false
	}
	if len(b) == 0 {
		return true
	}
	l, err := Split(b[:len(b)-1])
	if err != nil {
		return true
	}
	_, whole := l.Verify() // Then the last byte was a line break once.
	return !whole
}

// LineSize is at least the length of the line that AppendLine makes of these.
func LineSize(event, payload []byte) int {
	n := len(event) + 400
	if len(payload) > 0 {
		n += (len(payload)+2)/3*4 + len(sealedHead) + len(digestHead) + hashText
	}
	return n
}
