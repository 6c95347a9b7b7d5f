package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"singlepass.dev/daemon/chain"
)

// survey is how recover looks at the files.
type survey struct {
	j        *Journal
	segments []int
	trusted  *Position
	breaks   []chain.Break

	at      Position // the last entry that verifies
	end     int64    // where it ends
	opened  int64    // where the first entry of the last segment ends
	checked int64    // from where on the last segment was checked
	tail    []byte   // a torn tail behind end

	unlinked bool // what the next segment should follow is not there
}

func (s *survey) last() int {
	if len(s.segments) == 0 {
		return 0
	}
	return s.segments[len(s.segments)-1]
}

// found notes a break. What comes after it has nothing to follow.
func (s *survey) found(what chain.What, segment int, offset int64, seq uint64, bytes []byte) {
	s.unlinked = true
	s.breaks = append(s.breaks, chain.Break{
		What: what, Segment: chain.SegmentName(segment), Offset: offset,
		Length: int64(len(bytes)), Seq: seq, Digest: chain.Digest(bytes),
	})
}

func (s *survey) run() error {
	first := 1
	switch t := s.trusted; {
	case t == nil || t.Seq == 0:
		s.trusted = nil
	case t.Segment > s.last():
		s.trusted = nil
		defer func() {
			for n := s.last() + 1; n <= t.Segment; n++ {
				s.found(chain.WhatSegment, n, 0, s.at.Seq+1, nil)
			}
		}()
	default:
		first = t.Segment
	}
	next := first
	for _, n := range s.segments {
		if n < first {
			continue
		}
		if n != next {
			s.found(chain.WhatSegment, next, 0, s.at.Seq+1, nil)
		}
		next = n + 1
		if err := s.segment(n, n == s.last()); err != nil {
			return fmt.Errorf("checking %s: %w", chain.SegmentName(n), err)
		}
	}
	return nil
}

var errRefused = errors.New("refused")

// segment looks at one segment: at its first line and its end, and at all of it behind the trusted
// position or when it is the last.
func (s *survey) segment(n int, isLast bool) error {
	f, err := s.j.fs.OpenFile(s.j.path(n), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		s.found(chain.WhatSegment, n, 0, s.at.Seq+1, nil)
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	trusted := s.trusted
	in := scanner{r: f, end: size}
	switch {
	case trusted != nil && n == trusted.Segment:
		if err := s.first(&in, n, true); err != nil {
			return s.ignoreRefused(err)
		}
		in = scanner{r: f, offset: trusted.Offset, end: size}
		raw, err := in.next()
		if err != nil && err != errTail {
			return err
		}
		l, splitErr := chain.Split(raw)
		if hash, ok := l.Verify(); err != nil || splitErr != nil || !ok || hash != trusted.Hash || l.Seq != trusted.Seq {
			what := chain.WhatForked
			if err == errTail {
				what = chain.WhatTruncated
			}
			return s.lostTrust(f, n, what)
		}
		s.at, s.end = *trusted, in.offset
	default:
		if err := s.first(&in, n, false); err != nil {
			return s.ignoreRefused(err)
		}
		if trusted == nil && !isLast {
			return s.skipToEnd(f, n)
		}
	}
	s.checked = s.at.Offset
	return s.follow(f, &in, n, isLast)
}

func (s *survey) ignoreRefused(err error) error {
	if err == errRefused {
		return nil
	}
	return err
}

// lostTrust: the entry that is known to have been there is not. The whole segment is looked at, so that
// the last entry that verifies can be named.
func (s *survey) lostTrust(f File, n int, what chain.What) error {
	t := s.trusted
	size, err := f.Size()
	if err != nil {
		return err
	}
	in := scanner{r: f, end: size}
	if err := s.first(&in, n, true); err != nil {
		return s.ignoreRefused(err)
	}
	before := len(s.breaks)
	if err := s.follow(f, &in, n, true); err != nil {
		return err
	}
	if len(s.breaks) == before {
		s.found(what, n, min(t.Offset, s.end), t.Seq, nil)
	}
	s.tail = nil
	return nil
}

// first reads a segment's first line and checks that it follows the segment before.
func (s *survey) first(in *scanner, n int, anchor bool) error {
	raw, err := in.next()
	if err != nil && err != errTail {
		return err
	}
	// A segment that is not what its name says is evidence as a whole.
	refuse := func(what chain.What) error {
		all, err := rest(in.r, 0)
		if err != nil {
			return err
		}
		s.found(what, n, 0, s.at.Seq+1, all)
		return errRefused
	}
	if err == errTail {
		return refuse(chain.WhatGarbage)
	}
	whole := raw[:len(raw):len(raw)]
	l, splitErr := chain.Split(raw)
	if splitErr != nil {
		return refuse(chain.WhatGarbage)
	}
	hash, ok := l.Verify()
	if !ok {
		return refuse(chain.WhatChanged)
	}
	var o chain.Opened
	if json.Unmarshal(l.AppendEvent(nil), &o) != nil || o.Segment != chain.SegmentName(n) ||
		o.Kind != chain.KindSegmentOpened && o.Kind != chain.KindQuarantineAccepted {
		return refuse(chain.WhatLink)
	}
	// Behind an accepted break there is nothing to follow; audit verify checks what was accepted.
	if !anchor && !s.unlinked && o.Kind == chain.KindSegmentOpened && !l.Follows(s.at.Seq, s.at.Hash) {
		s.found(chain.WhatLink, n, 0, s.at.Seq+1, append(whole, '\n'))
	}
	s.unlinked = false
	if o.Kind == chain.KindQuarantineAccepted {
		s.accept(o.Breaks)
	}
	s.at = Position{Segment: n, Seq: l.Seq, Hash: hash}
	s.end, s.opened = in.offset, in.offset
	return nil
}

// accept takes back what the operator has accepted.
func (s *survey) accept(accepted []chain.Break) {
	var left []chain.Break
	for _, b := range s.breaks {
		covered := false
		for _, a := range accepted {
			covered = covered || a.Covers(b.Segment, b.Offset)
		}
		if !covered {
			left = append(left, b)
		}
	}
	s.breaks = left
}

// follow checks the lines of a segment to its end.
func (s *survey) follow(f File, in *scanner, n int, isLast bool) error {
	for {
		offset := in.offset
		raw, err := in.next()
		if err != nil && err != errTail {
			return err
		}
		if err == nil {
			l, hash, what := follow(raw, s.at.Seq, s.at.Hash)
			if what == "" {
				s.at = Position{Segment: n, Offset: offset, Seq: l.Seq, Hash: hash}
				s.end = in.offset
				continue
			}
			tail, err := rest(f, offset)
			if err != nil {
				return err
			}
			if isLast && chain.Torn(tail, offset) {
				s.tail = tail
				return nil
			}
			s.found(what, n, offset, s.at.Seq+1, tail)
			return nil
		}
		tail, err := rest(f, offset)
		if err != nil {
			return err
		}
		if isLast && chain.Torn(tail, offset) {
			s.tail = tail
			return nil
		}
		if len(tail) > 0 {
			s.found(chain.WhatGarbage, n, offset, s.at.Seq+1, tail)
		}
		return nil
	}
}

// skipToEnd reads the last line of a segment that is not checked, for the next one to follow.
func (s *survey) skipToEnd(f File, n int) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	for back := int64(64 << 10); ; back *= 4 {
		from := max(size-back, 0)
		tail, err := rest(f, from)
		if err != nil {
			return err
		}
		start := strings.LastIndexByte(strings.TrimSuffix(string(tail), "\n"), '\n') + 1
		if (start == 0 || len(tail) == 0) && from > 0 {
			continue
		}
		if len(tail) == 0 || tail[len(tail)-1] != '\n' {
			s.found(chain.WhatGarbage, n, from+int64(start), s.at.Seq+1, tail[start:])
			return nil
		}
		raw := tail[start : len(tail)-1]
		l, err := chain.Split(raw)
		hash, ok := l.Verify()
		if err != nil || !ok {
			s.found(chain.WhatChanged, n, from+int64(start), l.Seq, tail[start:])
			return nil
		}
		s.at = Position{Segment: n, Offset: from + int64(start), Seq: l.Seq, Hash: hash}
		s.end = from + int64(len(tail))
		return nil
	}
}
