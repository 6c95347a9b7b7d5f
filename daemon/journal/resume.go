package journal

import (
	"fmt"

	"singlepass.dev/daemon/chain"
)

// failure is a write or sync whose outcome is unknown.
type failure struct {
	cause   error
	reason  string // failed_write or failed_sync
	segment string
	offset  int64
	length  int64
	digest  string
}

func (f *failure) Error() string   { return ErrStopped.Error() + ": " + f.cause.Error() }
func (f *failure) Unwrap() []error { return []error{ErrStopped, f.cause} }

// Resume goes on after ErrStopped. What the failed batch may have left is overwritten with zeros and
// that is synced; what was cut is recorded in a tail_cut entry. When Resume fails the journal is still
// stopped, and the caller tries again later. It does nothing when the journal is not stopped.
//
// After a failed sync nothing that is read back proves anything: Linux keeps the pages, marks them clean
// and reports the error once (the fsyncgate problem), so another sync of the same pages succeeds without
// writing them. Therefore every page of the failed batch, the one that it shares with acknowledged
// entries included, is made dirty again before the sync that is believed; the end of what was acknowledged
// is read past the page cache where the file system can; and the journal goes on in a new segment, so that
// a bad place on the disk is not written again.
func (j *Journal) Resume() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.takeLocked()
	defer j.giveLocked()
	if j.stopped == nil || j.closing {
		if j.closing {
			return ErrClosed
		}
		return nil
	}
	j.mu.Unlock()
	err := j.resume(j.stopped)
	j.mu.Lock()
	if err != nil {
		return fmt.Errorf("resuming journal: %w", err)
	}
	j.log.Info("journal resumed", "cut", j.stopped.length, "reason", j.stopped.reason)
	j.stopped = nil
	return nil
}

func (j *Journal) resume(failed *failure) error {
	name := chain.SegmentName(j.segment)
	if err := j.wipe(failed); err != nil {
		return fmt.Errorf("overwriting the failed batch in %s: %w", name, err)
	}
	if err := j.proveHead(); err != nil {
		return fmt.Errorf("reading back %s: %w", name, err)
	}
	c := chain.TailCut{
		Kind: chain.KindTailCut, Segment: failed.segment, Offset: failed.offset,
		Length: failed.length, Digest: failed.digest, Reason: failed.reason,
	}
	if failed.reason == "failed_sync" {
		if err := j.rotate(chain.Opened{Kind: chain.KindSegmentOpened}, 0); err != nil {
			return err
		}
	}
	return j.cut(&c)
}

// wipe makes the region of the failed batch zeros again, and a little more for a Resume that failed at its
// own entry. It begins with the acknowledged line before the region, which is written again as it was.
func (j *Journal) wipe(failed *failure) error {
	line := make([]byte, j.synced-j.durable.Offset)
	if _, err := j.file.ReadAt(line, j.durable.Offset); err != nil {
		return err
	}
	if err := j.checkHead(line); err != nil {
		return err
	}
	line = append(line, make([]byte, min(failed.length+8<<10, j.alloc-j.synced))...)
	if _, err := j.file.WriteAt(line, j.durable.Offset); err != nil {
		return err
	}
	return j.file.Datasync()
}

func (j *Journal) checkHead(line []byte) error {
	l, err := chain.Split(line[:len(line)-1])
	if err != nil {
		return fmt.Errorf("acknowledged entry %d: %w", j.durable.Seq, err)
	}
	if hash, ok := l.Verify(); !ok || hash != j.durable.Hash || l.Seq != j.durable.Seq {
		return fmt.Errorf("acknowledged entry %d is not in the file any more", j.durable.Seq)
	}
	return nil
}
