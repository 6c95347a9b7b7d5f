package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"singlepass.dev/daemon/chain"
)

// joint joins the chunks in order.
type joint struct {
	v     *verification
	files []*os.File
	any   bool
	file  int   // of the last chunk
	next  int64 // where its last line ended
	over  bool  // the file's content has ended
	begun bool  // the file's first line has been seen
	seq   uint64
	hash  chain.Hash
}

func (j *joint) add(c *chunk) error {
	if c.err != nil {
		return c.err
	}
	if c.bad {
		return errNotClean
	}
	for j.file < c.file {
		if err := j.endFile(); err != nil {
			return err
		}
		j.file, j.next, j.over, j.begun = j.file+1, 0, false, false
	}
	if j.over || c.count == 0 && c.end == c.to && !c.over {
		return nil // zeros that were looked at, or the middle of a long line
	}
	if c.start != j.next {
		return errNotClean
	}
	if c.count > 0 {
		if err := j.link(c); err != nil {
			return err
		}
	}
	j.next = c.end
	if c.over {
		j.over = true
		return j.tail()
	}
	return nil
}

func (j *joint) link(c *chunk) error {
	v := j.v
	switch {
	case !j.any:
		// A single file may begin anywhere; a journal begins with entry 1.
		if v.First = c.first.Seq; v.whole() && !c.first.Follows(0, chain.Hash{}) {
			return errNotClean
		}
	case !c.first.Follows(j.seq, j.hash):
		return errNotClean
	}
	if !j.begun && v.files[c.file].number > 0 && !opens(&c.first, v.files[c.file].name) {
		return errNotClean
	}
	j.any, j.begun, j.seq, j.hash = true, true, c.last().Seq, c.last().Hash()
	v.Entries += c.count
	v.leaves = append(v.leaves, c.hashes...)
	if c.head != nil {
		v.headHash = c.head
	}
	v.payloads = append(v.payloads, c.payloads...)
	for _, seq := range c.withheld {
		v.withheld[seq] = true
	}
	for i := range c.own {
		v.note(&c.own[i])
	}
	return nil
}

// tail looks at everything behind the last line of a file: zeros, which are unused space, or a torn line.
func (j *joint) tail() error {
	b, err := io.ReadAll(io.NewSectionReader(j.files[j.file], j.next, 1<<62))
	if err != nil {
		return err
	}
	if b = bytes.TrimRight(b, "\x00"); len(b) == 0 {
		return nil
	}
	name := j.v.files[j.file].name
	if j.file != len(j.files)-1 || !chain.Torn(b, j.next) {
		return errNotClean
	}
	j.v.Torn = &chain.Break{
		What: chain.WhatTruncated, Segment: name, Offset: j.next,
		Length: int64(len(b)), Seq: j.seq + 1, Digest: chain.Digest(b),
	}
	return nil
}

// endFile refuses a file without any entry.
func (j *joint) endFile() error {
	if !j.begun {
		return errNotClean
	}
	j.v.Bytes += j.next
	j.v.lastEnd = j.next
	return nil
}

func (j *joint) end() error {
	for ; j.file < len(j.files); j.file++ {
		if err := j.endFile(); err != nil {
			return err
		}
		j.begun = false
	}
	j.v.Head = Head{Seq: j.seq, Hash: j.hash}
	return nil
}

// opens tells whether a line is the first one of a segment with this name.
func opens(l *chain.Line, name string) bool {
	var o chain.Opened
	return (string(l.Kind) == chain.KindSegmentOpened || string(l.Kind) == chain.KindQuarantineAccepted) &&
		json.Unmarshal(l.AppendEvent(nil), &o) == nil && o.Segment == name
}

// note keeps what the journal's own entries say.
func (v *verification) note(l *chain.Line) {
	switch string(l.Kind) {
	case chain.KindTailCut:
		var c chain.TailCut
		if json.Unmarshal(l.AppendEvent(nil), &c) == nil {
			v.Cuts = append(v.Cuts, c)
		}
	case chain.KindPayloadErased:
		var e chain.Erasure
		if json.Unmarshal(l.AppendEvent(nil), &e) == nil {
			for _, seq := range e.Seqs {
				v.erased[seq] = true
			}
		}
	}
}
