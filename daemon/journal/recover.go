package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"singlepass.dev/daemon/chain"
)

// Recovery is what Open found.
type Recovery struct {
	Head       Position       // the last entry, those that Open wrote included
	Clean      bool           // the journal is new or was closed
	Cut        *chain.TailCut // not nil when a torn tail was cut
	Quarantine *Quarantine    // not nil when the journal does not verify
}

// Quarantine is why nothing may be written.
type Quarantine struct {
	Breaks []chain.Break
}

func (q *Quarantine) String() string {
	var s []string
	for _, b := range q.Breaks {
		s = append(s, b.String())
	}
	return strings.Join(s, "; ")
}

// recover finds the end of the journal and makes it ready to be written, or begins one, or finds a reason
// for quarantine. It reads the segments' first and last lines, and all lines that follow the trusted
// position, or else those of the last segment.
func (j *Journal) recover() (*Recovery, error) {
	segments, err := j.list()
	if err != nil {
		return nil, err
	}
	if len(segments) == 0 && j.cfg.Trusted == nil {
		return j.begin()
	}
	s := survey{j: j, segments: segments, trusted: j.cfg.Trusted}
	if err := s.run(); err != nil {
		return nil, err
	}
	j.seq, j.head, j.durable, j.segment = s.at.Seq, s.at.Hash, s.at, s.last()
	if t := j.cfg.Trusted; t != nil {
		j.segment = max(j.segment, t.Segment) // No name is used twice.
	}
	if len(s.breaks) > 0 {
		j.quarant = &Quarantine{Breaks: s.breaks}
		j.end, j.synced = s.end, s.end
		j.log.Error("journal is in quarantine", "found", j.quarant.String())
		return &Recovery{Head: s.at, Quarantine: j.quarant}, nil
	}
	return j.reopen(&s)
}

// list returns the segments' numbers in order and removes what was never finished.
func (j *Journal) list() ([]int, error) {
	entries, err := os.ReadDir(j.cfg.Dir)
	if err != nil {
		return nil, err
	}
	var segments []int
	for _, e := range entries {
		name := e.Name()
		if base, ok := strings.CutSuffix(name, ".tmp"); ok {
			if _, ok := chain.ParseSegmentName(base); ok {
				if err := j.fs.Remove(filepath.Join(j.cfg.Dir, name)); err != nil {
					return nil, err
				}
			}
			continue
		}
		n, ok := chain.ParseSegmentName(name)
		if !ok {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", name)
		}
		if checkModes && info.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("%s has mode %#o: run chmod 600 %s", name, info.Mode().Perm(), filepath.Join(j.cfg.Dir, name))
		}
		segments = append(segments, n) // ReadDir sorts by name; six digits sort like numbers.
	}
	return segments, nil
}

// begin makes the first segment.
func (j *Journal) begin() (*Recovery, error) {
	opened := chain.Opened{Kind: chain.KindSegmentOpened}
	line, at, err := j.openingLine(&opened)
	if err != nil {
		return nil, err
	}
	end := int64(len(line))
	alloc := end + j.cfg.Reserve + 256<<10
	if j.file, err = j.create(at.Segment, line, alloc); err != nil {
		return nil, fmt.Errorf("creating %s: %w", opened.Segment, err)
	}
	j.segment, j.end, j.opened, j.alloc, j.synced = at.Segment, end, end, alloc, end
	j.seq, j.head, j.durable = at.Seq, at.Hash, at
	return &Recovery{Head: at, Clean: true}, nil
}

// openingLine completes opened and makes the line that begins the segment after this one.
func (j *Journal) openingLine(opened *chain.Opened) ([]byte, Position, error) {
	at := Position{Segment: j.segment + 1, Seq: j.seq + 1}
	opened.Segment = chain.SegmentName(at.Segment)
	opened.TreeSize = at.Seq - 1
	if at.Segment > 1 {
		opened.Previous, opened.Head = chain.SegmentName(at.Segment-1), &j.head
	}
	event, err := json.Marshal(opened)
	if err != nil {
		return nil, at, err
	}
	if err := chain.CheckEvent(event); err != nil {
		return nil, at, err
	}
	line, hash := chain.AppendLine(nil, at.Seq, j.cfg.Now(), j.head, event, nil)
	at.Hash = hash
	return line, at, nil
}

// reopen makes the last segment ready to be written. Nothing that was found is believed to be durable
// before it is: a process that was killed may have left a batch in the page cache only.
func (j *Journal) reopen(s *survey) (*Recovery, error) {
	f, err := j.fs.OpenFile(j.path(j.segment), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	j.file = f
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	j.opened, j.end, j.synced = s.opened, s.end, s.end
	r := &Recovery{Clean: size == s.end}
	if !r.Clean {
		if err := j.settle(f, s); err != nil {
			return nil, fmt.Errorf("settling %s: %w", chain.SegmentName(j.segment), err)
		}
	}
	j.alloc = size
	if len(s.tail) > 0 {
		r.Cut = &chain.TailCut{
			Kind: chain.KindTailCut, Segment: chain.SegmentName(j.segment), Offset: s.end,
			Length: int64(len(s.tail)), Digest: chain.Digest(s.tail), Reason: "torn",
		}
		if err := j.cut(r.Cut); err != nil {
			return nil, fmt.Errorf("cutting the torn tail of %s: %w", chain.SegmentName(j.segment), err)
		}
		j.log.Warn("cut a torn tail that was never acknowledged", "segment", r.Cut.Segment, "offset", r.Cut.Offset, "length", r.Cut.Length)
	}
	r.Head = j.durable
	return r, nil
}

// settle writes the end of the content again, and syncs it. After a failed fdatasync Linux marks pages as
// clean that never reached the disk, so a later sync alone would promise nothing about what was just
// read (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). What lies before the
// trusted position, or one batch back, was acknowledged.
func (j *Journal) settle(f File, s *survey) error {
	from := max(s.checked, s.end-chain.MaxBatch)
	b := make([]byte, s.end-from)
	if _, err := f.ReadAt(b, from); err != nil {
		return err
	}
	if _, err := f.WriteAt(b, from); err != nil {
		return err
	}
	if err := f.Datasync(); err != nil {
		return err
	}
	return j.fs.SyncDir(j.cfg.Dir)
}

// cut puts the entry that records the cut over the bytes that are cut, in one write, so that there is no
// moment in which they are gone and that is not recorded.
func (j *Journal) cut(c *chain.TailCut) error {
	event, err := json.Marshal(c)
	if err != nil {
		return err
	}
	b := batch{offset: j.end}
	at := Position{Segment: j.segment, Offset: j.end, Seq: j.seq + 1}
	b.buf, at.Hash = chain.AppendLine(nil, at.Seq, j.cfg.Now(), j.head, event, nil)
	b.entries, b.ends = []Durable{{Position: at}}, []int{len(b.buf) - 1}
	end := j.end + int64(len(b.buf))
	if c.Segment == chain.SegmentName(j.segment) {
		if more := c.Offset + c.Length - end; more > 0 {
			b.buf = append(b.buf, make([]byte, more)...)
		}
	}
	if failed := j.write(&b); failed != nil {
		return failed.cause
	}
	if j.started {
		j.publish(&b)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.alloc = max(j.alloc, j.end+int64(len(b.buf)))
	j.seq, j.head, j.durable, j.end, j.synced = at.Seq, at.Hash, at, end, end
	return nil
}

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
