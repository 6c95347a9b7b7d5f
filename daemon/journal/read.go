package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"singlepass.dev/daemon/chain"
)

// BreakError is what Read ends with where the journal does not verify and nobody has accepted that.
type BreakError struct{ chain.Break }

func (e *BreakError) Error() string { return "reading journal: " + e.Break.String() }

// ErrNotFound means that the journal has no such entry at that place.
var ErrNotFound = errors.New("journal has no such entry there")

// lines calls f for every whole line of a segment from offset to end, or to the file's end when end is
// negative. A segment that is not there has no lines.
func (j *Journal) lines(segment int, offset, end int64, f func(raw []byte, offset int64) error) error {
	file, err := j.fs.OpenFile(j.path(segment), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer file.Close()
	if end < 0 {
		if end, err = file.Size(); err != nil {
			return err
		}
	}
	in := scanner{r: file, offset: offset, end: end}
	for {
		at := in.offset
		raw, err := in.next()
		if err == errTail {
			return nil
		} else if err != nil {
			return err
		}
		if err := f(raw, at); err != nil {
			return err
		}
	}
}

// Read calls f for every durable entry behind from, in order, until it has reached the entry that was the
// last one when Read was called, or f returns an error, which Read then returns. Each entry is
// verified before f sees it. Inside of breaks that were accepted f gets the entries that are still whole,
// marked as Evidence. It ends with a *BreakError at a break that was not accepted, and with
// ErrNotFound when from is not in the journal.
func (j *Journal) Read(from Position, f func(Durable) error) error {
	j.mu.Lock()
	last, end := j.durable, j.synced
	j.mu.Unlock()
	accepted, err := j.accepted(max(from.Segment, 1), last.Segment)
	if err != nil {
		return err
	}
	r := reader{f: f, accepted: accepted, seq: from.Seq, head: from.Hash}
	first := from.Segment
	if from.Seq > 0 {
		if err := j.ReadAt(from, func(d Durable) error {
			from.Offset += int64(len(d.Line)) + 1
			return nil
		}); err != nil {
			return err
		}
	} else {
		first, from.Offset = 1, 0
	}
	for n := first; n <= last.Segment; n++ {
		r.segment, r.offset = n, 0
		if n == first {
			r.offset = from.Offset
		}
		stop := int64(-1)
		if n == last.Segment {
			stop = end
		}
		if err := j.lines(n, r.offset, stop, r.line); err != nil {
			return err
		}
		// A break at the end of a segment, or instead of it, has no line that tells of it.
		for _, b := range accepted {
			r.lost = r.lost || b.Segment == chain.SegmentName(n) && b.Offset+b.Length >= r.offset
		}
	}
	if r.seq < last.Seq {
		return r.broken(chain.WhatTruncated, nil, r.offset)
	}
	return nil
}

// accepted collects the breaks that were accepted, from the segments' first entries.
func (j *Journal) accepted(first, last int) ([]chain.Break, error) {
	var breaks []chain.Break
	stop := errors.New("only the first line")
	for n := first; n <= last; n++ {
		err := j.lines(n, 0, -1, func(raw []byte, _ int64) error {
			if l, err := chain.Split(raw); err == nil && string(l.Kind) == chain.KindQuarantineAccepted {
				var o chain.Opened
				if _, ok := l.Verify(); ok && json.Unmarshal(l.AppendEvent(nil), &o) == nil {
					breaks = append(breaks, o.Breaks...)
				}
			}
			return stop
		})
		if err != nil && err != stop {
			return nil, err
		}
	}
	return breaks, nil
}

type reader struct {
	f        func(Durable) error
	accepted []chain.Break
	segment  int
	offset   int64 // of the next line
	seq      uint64
	head     chain.Hash
	lost     bool // in or behind an accepted break: what the next good line follows is not there
}

func (r *reader) line(raw []byte, offset int64) error {
	r.offset = offset + int64(len(raw)) + 1
	l, hash, what := follow(raw, r.seq, r.head)
	d := Durable{Position: Position{Segment: r.segment, Offset: offset, Seq: l.Seq, Hash: hash}, Line: raw}
	name := chain.SegmentName(r.segment)
	inside := false
	for _, b := range r.accepted {
		inside = inside || b.Covers(name, offset)
	}
	whole := what != chain.WhatGarbage && what != chain.WhatChanged
	switch {
	case what == "":
	case inside:
		r.lost = true
		if !whole {
			return nil
		}
		d.Evidence = true
		return r.f(d)
	case r.lost && whole, l.Seq > 0 && whole && string(l.Kind) == chain.KindQuarantineAccepted:
	default:
		return r.broken(what, raw, offset)
	}
	r.lost = false
	r.seq, r.head = d.Seq, d.Hash
	return r.f(d)
}

func (r *reader) broken(what chain.What, raw []byte, offset int64) error {
	return &BreakError{chain.Break{
		What: what, Segment: chain.SegmentName(r.segment), Offset: offset,
		Length: int64(len(raw)), Seq: r.seq + 1, Digest: chain.Digest(raw),
	}}
}

// ReadAt calls f with the entry at a position, for example to get its payload. The entry's number and
// hash are those of the position, or ReadAt returns ErrNotFound.
func (j *Journal) ReadAt(at Position, f func(Durable) error) error {
	j.mu.Lock()
	end := int64(-1)
	if at.Segment == j.durable.Segment {
		end = j.synced
	}
	j.mu.Unlock()
	found := false
	stop := errors.New("only this line")
	err := j.lines(at.Segment, at.Offset, end, func(raw []byte, _ int64) error {
		l, err := chain.Split(raw)
		if err != nil || l.Seq != at.Seq {
			return stop
		}
		if hash, ok := l.Verify(); !ok || hash != at.Hash {
			return stop
		}
		found = true
		if err := f(Durable{Position: at, Line: raw}); err != nil {
			return err
		}
		return stop
	})
	if err != nil && err != stop {
		return err
	}
	if !found {
		return fmt.Errorf("entry %d in %s at byte %d: %w", at.Seq, chain.SegmentName(at.Segment), at.Offset, ErrNotFound)
	}
	return nil
}
