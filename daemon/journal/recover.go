package journal

import (
	"encoding/json"
	"fmt"
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
