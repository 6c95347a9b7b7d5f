package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"singlepass.dev/daemon/chain"
)

// run is the one goroutine that writes. What it finds in forming it writes and syncs; when nothing is
// forming it makes room for what did not fit.
func (j *Journal) run() {
	defer close(j.finished)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.quarant == nil {
		// The first append need not wait for this. If it fails now, that append will say so.
		j.takeLocked()
		j.mu.Unlock()
		j.grow(0) //nolint:errcheck
		j.mu.Lock()
		j.giveLocked()
	}
	gathered := false
	for {
		switch {
		case j.busy:
			j.work.Wait()
		case j.stopped != nil || j.quarant != nil:
			if j.closing {
				return
			}
			j.work.Wait()
		case len(j.forming.entries) > 0 && (j.forming.urgent || j.flush || j.closing || len(j.waiting) > 0):
			if !gathered {
				gathered = true
				j.mu.Unlock()
				j.gather()
				j.mu.Lock()
				continue
			}
			gathered = false
			j.commitLocked()
		case len(j.waiting) > 0:
			j.admitLocked()
		case j.closing:
			return
		default:
			j.flush = false
			j.work.Wait()
		}
	}
}

// take waits until nobody uses what the writer owns, and takes it; give gives it back. Resume and
// AcceptQuarantine use them while the writer may not write.
func (j *Journal) takeLocked() {
	j.takers++
	for j.busy {
		j.work.Wait()
	}
	j.takers--
	j.busy = true
}

func (j *Journal) giveLocked() {
	j.busy = false
	if j.takers > 0 || j.closing || j.flush || j.forming.urgent || len(j.waiting) > 0 {
		j.work.Broadcast()
	}
}

// commitLocked writes the forming batch and lets the next one form meanwhile.
func (j *Journal) commitLocked() {
	b := j.forming
	j.forming, j.spare = j.spare, batch{}
	j.company.Store(len(b.commits) > 1)
	j.flush, j.busy = false, true
	if j.lazy != nil {
		j.lazy.Stop()
		j.lazy = nil
	}
	j.mu.Unlock()
	failed := j.write(&b)
	if failed == nil {
		j.publish(&b)
	}
	j.mu.Lock()
	if failed != nil {
		j.stopLocked(failed, b.commits)
		j.giveLocked()
	} else {
		j.giveLocked()
		j.durableLocked(&b)
		// Waking the waiters needs no lock, and they are about to want it.
		j.mu.Unlock()
		for _, c := range b.commits {
			close(c.done)
		}
		j.mu.Lock()
	}
	b.reset()
	j.spare = b
}

// write makes a batch durable: one write, one sync.
func (j *Journal) write(b *batch) *failure {
	f := &failure{segment: chain.SegmentName(j.segment), offset: b.offset, length: int64(len(b.buf)), reason: "failed_write"}
	if _, err := j.file.WriteAt(b.buf, b.offset); err != nil {
		f.cause = fmt.Errorf("writing %s: %w", chain.SegmentName(j.segment), err)
	} else if err := j.file.Datasync(); err != nil {
		f.cause, f.reason = fmt.Errorf("syncing %s: %w", chain.SegmentName(j.segment), err), "failed_sync"
	} else {
		return nil
	}
	f.digest = chain.Digest(b.buf)
	return f
}

// publish hands a durable batch to the subscriber.
func (j *Journal) publish(b *batch) {
	if j.cfg.OnDurable == nil {
		return
	}
	from := 0
	for i, end := range b.ends {
		b.entries[i].Line = b.buf[from:end:end]
		from = end + 1
	}
	j.cfg.OnDurable(b.entries)
}

func (j *Journal) durableLocked(b *batch) {
	j.durable = b.entries[len(b.entries)-1].Position
	j.synced = b.offset + int64(len(b.buf))
}

// stopLocked ends every Commit that is under way: what was to follow the lost batch names its hash.
func (j *Journal) stopLocked(f *failure, commits []*Commit) {
	j.stopped = f
	j.log.Error("journal stopped", "error", f.cause, "segment", chain.SegmentName(j.segment), "offset", f.offset)
	for _, c := range commits {
		c.fail(f)
	}
	j.dropLocked(f)
	j.seq, j.head, j.end = j.durable.Seq, j.durable.Hash, j.synced
}

// dropLocked ends the commits that were never written.
func (j *Journal) dropLocked(err error) {
	for _, c := range j.forming.commits {
		c.fail(err)
	}
	j.forming.reset()
	for _, p := range j.waiting {
		p.commit.fail(err)
	}
	j.waiting = nil
}

// admitLocked makes room and moves what waits into the forming batch, in order. It is called while
// nothing is forming; nothing will be, because new entries wait behind these.
func (j *Journal) admitLocked() {
	first := j.waiting[0]
	var full error
	if !j.fitsLocked(&first) {
		j.takeLocked()
		j.mu.Unlock()
		full = j.makeRoom(first.size)
		j.mu.Lock()
		j.giveLocked()
	}
	now := j.cfg.Now()
	n := 0
	for ; n < len(j.waiting); n++ {
		p := &j.waiting[n]
		if err := p.orphaned(); err != nil {
			p.commit.fail(err)
			continue
		}
		// The first one fits after makeRoom, but perhaps only beyond SegmentSize.
		switch fits := j.fitsLocked(p) || full == nil && n == 0; {
		case fits, full != nil && p.outcome && j.end+p.size <= j.alloc:
			j.encodeLocked(p, now)
			continue
		case full != nil:
			p.commit.fail(fmt.Errorf("appending to journal: %w", &fullError{full}))
			continue
		}
		break
	}
	j.waiting = append(j.waiting[:0:0], j.waiting[n:]...)
	if len(j.forming.entries) > 0 && !j.forming.urgent && j.lazy == nil {
		j.lazy = time.AfterFunc(j.cfg.LazyDelay, j.Flush)
	}
}

type fullError struct{ cause error }

func (e *fullError) Error() string   { return ErrFull.Error() + ": " + e.cause.Error() }
func (e *fullError) Unwrap() []error { return []error{ErrFull, e.cause} }

// makeRoom lets size more bytes fit in front of the reserve, in this segment or in a new one. When no new
// segment can be made this one is used beyond SegmentSize for as long as it can grow. The caller owns the
// file, and j.end does not move meanwhile.
func (j *Journal) makeRoom(size int64) error {
	if j.end > j.opened && j.end+size > j.cfg.SegmentSize {
		err := j.rotate(chain.Opened{Kind: chain.KindSegmentOpened}, size)
		if err == nil {
			return nil
		}
		j.log.Warn("cannot begin a new segment", "error", err)
		if full := j.grow(size); full != nil {
			return errors.Join(err, full)
		}
		return nil
	}
	return j.grow(size)
}

// grow allocates ahead. A larger step makes growing rare; a small one may still succeed on a disk that is
// nearly full.
func (j *Journal) grow(size int64) error {
	j.mu.Lock()
	end, alloc := j.end, j.alloc
	j.mu.Unlock()
	need := end + size + j.cfg.Reserve
	if need <= alloc {
		return nil
	}
	step := min(max(end, 256<<10), 4<<20)
	if room := j.cfg.SegmentSize + j.cfg.Reserve - need; room > 0 {
		step = min(step, room)
	}
	err := allocate(j.file, alloc, need+step)
	if err == nil {
		need += step
	} else if err = allocate(j.file, alloc, need); err != nil {
		return fmt.Errorf("allocating %s: %w", chain.SegmentName(j.segment), err)
	}
	j.mu.Lock()
	j.alloc = need
	j.mu.Unlock()
	return nil
}

var zeros [256 << 10]byte

// allocate writes zeros from..to and syncs them. Writing into blocks that hold zeros already changes no
// metadata, so a later fdatasync has only the data to write; fallocate leaves blocks to be marked as
// written by that later sync, which nearly doubles it. A full disk is met here, not inside of an entry.
func allocate(f File, from, to int64) error {
	for at := from; at < to; {
		n := min(to-at, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:n], at); err != nil {
			return err
		}
		at += n
	}
	return f.Datasync()
}

// rotate begins the next segment, with opened as its first entry and room for size bytes behind it, and
// then ends the present one. The caller owns the file and nothing is forming. The file appears under
// its name only when its first entry is durable.
func (j *Journal) rotate(opened chain.Opened, size int64) error {
	line, entry, err := j.openingLine(&opened)
	if err != nil {
		return err
	}
	end := int64(len(line))
	alloc := end + size + j.cfg.Reserve + 256<<10
	f, err := j.create(entry.Segment, line, alloc)
	if err != nil {
		return fmt.Errorf("creating %s: %w", opened.Segment, err)
	}
	old, oldEnd := j.file, j.synced
	j.file = f
	b := batch{offset: 0, buf: line, entries: []Durable{{Position: entry}}, ends: []int{len(line) - 1}}
	j.publish(&b)
	j.mu.Lock()
	j.segment, j.end, j.opened, j.alloc = entry.Segment, end, end, alloc
	j.seq, j.head = entry.Seq, entry.Hash
	j.durableLocked(&b)
	j.mu.Unlock()
	if old != nil {
		// Not cutting the zeros off costs space and nothing else.
		if err := errors.Join(j.trim(old, oldEnd), old.Close()); err != nil {
			j.log.Warn("cannot end segment", "segment", chain.SegmentName(entry.Segment-1), "error", err)
		}
	}
	return nil
}

// create makes a segment with its first line and alloc bytes.
func (j *Journal) create(segment int, line []byte, alloc int64) (File, error) {
	tmp := j.path(segment) + ".tmp"
	f, err := j.fs.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := j.fill(f, segment, line, alloc); err != nil {
		f.Close()
		j.fs.Remove(tmp) //nolint:errcheck // It holds no entry, and Open removes it too.
		return nil, err
	}
	return f, nil
}

func (j *Journal) fill(f File, segment int, line []byte, alloc int64) error {
	name := j.path(segment)
	tmp := name + ".tmp"
	if _, err := f.WriteAt(line, 0); err != nil {
		return err
	}
	if err := allocate(f, int64(len(line)), alloc); err != nil {
		return err
	}
	err := j.fs.Rename(tmp, name)
	if err == nil {
		err = j.fs.SyncDir(j.cfg.Dir)
	}
	if err != nil {
		// Whether the name is there, and durable, is unknown. The entry in it was never acknowledged, so it
		// is taken back; if that fails too, it stands there at the next try and is replaced.
		if err := j.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.log.Warn("cannot remove a segment that was not finished", "error", err)
		}
	}
	return err
}
