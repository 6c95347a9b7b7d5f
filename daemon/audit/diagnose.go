package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"singlepass.dev/daemon/chain"
)

// diagnosis is the slow way: one line after the other, telling what is wrong and going on behind it.
type diagnosis struct {
	v    *verification
	tell *tellers

	segment string
	any     bool
	seq     uint64     // the highest entry so far, in the chain
	head    chain.Hash // its hash
	known   bool       // head is known; it is not behind a changed entry
	gone    bool       // a whole segment is missing before this line, and that is said

	bad      *Finding // bad lines in a row, not yet put down to anything
	accepted []chain.Break
}

// maxGap bounds by how much numbers may jump: what stands in a broken file is not to be believed.
const maxGap = 1 << 22

func (v *verification) diagnose(ctx context.Context) error {
	d := &diagnosis{v: v}
	if v.whole() {
		d.any, d.known, v.First = true, true, 1
	}
	if v.opts.Story != nil {
		d.tell = newTellers(v)
	}
	for i := range v.files {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		f := &v.files[i]
		for _, name := range f.missing {
			d.segment = name
			d.found(chain.WhatSegment, 0, nil, d.seq+1, "")
			d.gone = true
		}
		b, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		d.file(f, b, i == len(v.files)-1)
	}
	d.end()
	v.Head = Head{Seq: d.seq, Hash: d.head}
	return d.accept()
}

// found notes a finding, or makes the one before it longer when it is the same.
func (d *diagnosis) found(what chain.What, offset int64, line []byte, seq uint64, detail string) {
	n := len(d.v.Findings) - 1
	if n >= 0 && len(line) > 0 {
		last := &d.v.Findings[n]
		if last.What == what && last.Segment == d.segment && last.Offset+last.Length == offset {
			last.Length += int64(len(line))
			last.Entries++
			return
		}
	}
	d.v.Findings = append(d.v.Findings, Finding{Entries: 1, Detail: detail, Break: chain.Break{
		What: what, Segment: d.segment, Offset: offset, Length: int64(len(line)), Seq: seq,
	}})
}

// file goes through one segment.
func (d *diagnosis) file(f *file, b []byte, isLast bool) {
	d.segment = f.name
	content := bytes.TrimRight(b, "\x00")
	first := true
	at := 0
	for at < len(content) {
		n := bytes.IndexByte(content[at:], '\n')
		if n < 0 {
			break
		}
		raw := content[at : at+n+1]
		l, err := chain.Split(raw[:n])
		whole := err == nil
		if whole {
			_, whole = l.Verify()
		}
		if !whole && isLast && d.bad == nil && chain.Torn(content[at:], int64(at)) {
			break
		}
		if first && f.number > 0 && whole && !opens(&l, f.name) {
			d.found(chain.WhatLink, int64(at), raw, l.Seq, "this is not the first entry of "+f.name)
		}
		first = false
		if whole && (d.any && l.Seq > d.seq+maxGap) {
			whole = false
		}
		if !whole {
			d.badLine(int64(at), raw)
		} else {
			d.line(&l, int64(at), raw)
		}
		at += n + 1
	}
	if first && f.number > 0 && at == len(content) {
		d.found(chain.WhatGarbage, 0, nil, d.seq+1, "the segment is empty")
		d.gone = true
	}
	d.v.Bytes += int64(at)
	d.v.lastEnd = int64(at)
	if tail := content[at:]; len(tail) > 0 {
		if isLast && d.bad == nil && chain.Torn(tail, int64(at)) {
			d.v.Torn = &chain.Break{
				What: chain.WhatTruncated, Segment: f.name, Offset: int64(at),
				Length: int64(len(tail)), Seq: d.seq + 1, Digest: chain.Digest(tail),
			}
			return
		}
		d.badLine(int64(at), tail)
	}
	// A bad end of a segment stays where it is, and the next segment tells what it was.
}

func (d *diagnosis) badLine(offset int64, raw []byte) {
	if d.bad != nil && d.bad.Segment == d.segment && d.bad.Offset+d.bad.Length == offset {
		d.bad.Length += int64(len(raw))
		d.bad.Entries++
		return
	}
	d.settle(nil)
	d.bad = &Finding{Entries: 1, Break: chain.Break{Segment: d.segment, Offset: offset, Length: int64(len(raw)), Seq: d.seq + 1}}
}

// settle puts bad lines down to what they were, now that the next whole line is known, or that there is
// none.
func (d *diagnosis) settle(next *chain.Line) {
	if d.bad == nil {
		return
	}
	f := *d.bad
	d.bad = nil
	f.What, f.Detail = chain.WhatChanged, "not the bytes that were written"
	switch {
	case next != nil && d.any && d.known && next.Follows(d.seq, d.head):
		f.What, f.Detail = chain.WhatGarbage, "not an entry of this journal"
	case next != nil && next.Seq > d.seq+1:
		// The entry behind names the hash that the last of the changed ones had.
		d.leaf(next.Seq-1, next.Prev())
		d.seq, d.head, d.known = next.Seq-1, next.Prev(), true
	case next == nil:
		d.known = false
	}
	d.v.Findings = append(d.v.Findings, f)
}

// leaf notes the hash of an entry. Entries before it that have none yet count as lost.
func (d *diagnosis) leaf(seq uint64, hash chain.Hash) {
	if !d.any {
		return
	}
	at := seq - d.v.First
	for uint64(len(d.v.leaves)) <= at {
		d.v.leaves = append(d.v.leaves, chain.LostLeaf)
	}
	d.v.leaves[at] = hash
}

// lost tells whether an entry has not been seen.
func (d *diagnosis) lost(seq uint64) bool {
	at := seq - d.v.First
	return at >= uint64(len(d.v.leaves)) || d.v.leaves[at] == chain.LostLeaf
}

// line takes a line whose own hash is right.
func (d *diagnosis) line(l *chain.Line, offset int64, raw []byte) {
	d.settle(l)
	hash := l.Hash()
	gone := d.gone
	d.gone = false
	switch {
	case !d.any:
		// A single file may begin anywhere.
		d.any, d.v.First = true, l.Seq
	case l.Follows(d.seq, d.head):
	case string(l.Kind) == chain.KindQuarantineAccepted && l.Seq > d.seq:
		// It follows the last entry that was good when the break was found.
		if !slices.Contains(d.v.leaves, l.Prev()) && l.Prev() != (chain.Hash{}) {
			d.found(chain.WhatForked, offset, raw, l.Seq, "it follows no entry of this journal")
		}
	case l.Seq == d.seq+1:
		if d.known && !gone {
			d.found(chain.WhatForked, offset, raw, l.Seq, "it follows another entry than the one before it")
		}
	case l.Seq > d.seq+1:
		if !gone {
			d.found(chain.WhatRemoved, offset, nil, d.seq+1, fmt.Sprintf("entries %d to %d are not here", d.seq+1, l.Seq-1))
			d.v.Findings[len(d.v.Findings)-1].until = l.Seq
		}
	case l.Seq < d.v.First:
		d.found(chain.WhatReordered, offset, raw, l.Seq, "it stands behind later entries")
		return
	case d.lost(l.Seq):
		d.found(chain.WhatReordered, offset, raw, l.Seq, "it stands behind later entries")
		d.leaf(l.Seq, hash)
		d.take(l, offset)
		return
	case d.v.leaves[l.Seq-d.v.First] == hash:
		d.found(chain.WhatDuplicate, offset, raw, l.Seq, "it is there a second time")
		return
	default:
		d.found(chain.WhatForked, offset, raw, l.Seq, "another entry has this number")
		return
	}
	d.seq, d.head, d.known = l.Seq, hash, true
	d.leaf(l.Seq, hash)
	d.take(l, offset)
}

// take counts an entry and looks into it.
func (d *diagnosis) take(l *chain.Line, offset int64) {
	v := d.v
	v.Entries++
	if v.opts.Head != nil && v.opts.Head.Seq == l.Seq {
		h := l.Hash()
		v.headHash = &h
	}
	if f, _ := v.checkPayload(l, nil); f != nil {
		f.Segment, f.Offset = d.segment, offset
		v.payloads = append(v.payloads, *f)
		if l.PayloadState() == chain.PayloadWithheld {
			v.withheld[l.Seq] = true
		}
	}
	v.note(l)
	if string(l.Kind) == chain.KindQuarantineAccepted {
		var o chain.Opened
		if json.Unmarshal(l.AppendEvent(nil), &o) == nil {
			d.accepted = append(d.accepted, o.Breaks...)
		}
	}
	if d.tell != nil {
		for _, t := range v.tell(nil, l, offset) {
			v.Findings = append(v.Findings, d.tell.listen(t.bucket, d.segment, []told{t})...)
		}
	}
}

func (d *diagnosis) end() {
	d.settle(nil)
	// Entries that turned up later were not removed, only moved, and that is said where they are.
	d.v.Findings = slices.DeleteFunc(d.v.Findings, func(f Finding) bool {
		for seq := f.Seq; seq < f.until; seq++ {
			if d.lost(seq) {
				return false
			}
		}
		return f.until > 0
	})
}

// accept puts findings aside that the operator has accepted and that are still the same.
func (d *diagnosis) accept() error {
	same := map[chain.Break]bool{}
	for _, b := range d.accepted {
		if _, done := same[b]; done {
			continue
		}
		ok, err := d.v.unchanged(b)
		if err != nil {
			return err
		}
		same[b] = ok
	}
	var left []Finding
	for _, f := range d.v.Findings {
		covered := false
		for b, ok := range same {
			covered = covered || ok && b.Covers(f.Segment, f.Offset)
		}
		if covered {
			d.v.Accepted = append(d.v.Accepted, f)
		} else {
			left = append(left, f)
		}
	}
	d.v.Findings = left
	return nil
}

// unchanged tells whether the bytes of an accepted break are still those that were found.
func (v *verification) unchanged(b chain.Break) (bool, error) {
	if b.Length == 0 {
		return true, nil
	}
	for _, f := range v.files {
		if f.name != b.Segment {
			continue
		}
		all, err := os.ReadFile(f.path)
		if err != nil {
			return false, err
		}
		if b.Offset < 0 || b.Length < 0 || b.Offset+b.Length > int64(len(all)) {
			return false, nil
		}
		return chain.Digest(all[b.Offset:b.Offset+b.Length]) == b.Digest, nil
	}
	return false, nil
}
