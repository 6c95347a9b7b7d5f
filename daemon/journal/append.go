package journal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"singlepass.dev/daemon/chain"
)

// Entry is what is to be recorded.
type Entry struct {
	Event  []byte // required: a JSON object, {"kind":…} first; see chain.CheckEvent
	Sealed []byte // optional: the payload; only its digest is part of the chain

	// Lazy entries do not start a write. They go with the next batch, or when somebody Waits for them, or
	// after Config.LazyDelay, or at Close. An entry whose Append is followed by Wait is fastest lazy, because
	// the writer's goroutine sleeps on and Wait writes.
	Lazy bool
	// Outcome entries may use the reserve when the disk is full: something was sent, and what came of it
	// must not be lost.
	Outcome bool
	// After, optional, is an earlier Append without which the entry tells nothing: if that one failed, so does this
	// one, even when there is room for it.
	After *Commit
	// Note, optional, comes back with the entry in Config.OnDurable, so that who appended it need not read it again. It is not
	// recorded, and must not change any more.
	Note any
}

// Commit is the fate of one Append.
type Commit struct {
	j           *Journal
	done        chan struct{}
	err         error
	first, last Position
}

// Done is closed when the entries are durable, or will never be.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Err is nil while Done is open and when the entries are durable. It wraps ErrStopped when it is not
// known whether they are in the file; with every other error they are not.
func (c *Commit) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Wait waits until the entries are durable, or will never be. A context that ends first ends the wait and
// not the Commit.
//
// When nothing is being written, Wait writes the batch itself, in this goroutine, lazy entries or not, and
// then returns when the disk does, whatever ctx says. That spares waking the writer's goroutine and being
// woken by it, about a quarter of the time that a commit takes for one writer.
func (c *Commit) Wait(ctx context.Context) error {
	c.j.gather()
	c.j.lead(c)
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// First is where the first entry of the Append is. It and Last may be called once Wait returned nil.
func (c *Commit) First() Position { return c.first }

// Last is where the last entry of the Append is.
func (c *Commit) Last() Position { return c.last }

// batch is what one write and one sync make durable. Its buffers are used again.
type batch struct {
	offset  int64 // in the segment
	buf     []byte
	entries []Durable // Line is set when the batch is durable: buf moves while it grows
	ends    []int     // of the lines, without their line breaks, in buf
	commits []*Commit
	urgent  bool
}

func (b *batch) reset() {
	const keep = 4 << 20
	if cap(b.buf) > keep {
		b.buf = nil
	}
	clear(b.commits)
	clear(b.entries)
	*b = batch{buf: b.buf[:0], entries: b.entries[:0], ends: b.ends[:0], commits: b.commits[:0]}
}

// pending is an Append that did not fit.
type pending struct {
	entries []Entry
	size    int64
	outcome bool
	urgent  bool
	commit  *Commit
}

// maxForming bounds a batch that is more than one Append.
const maxForming = 1 << 20

// Append records the entries, contiguous and in this order, behind those of every Append before it. It
// never waits for the disk and does not keep the slices. An Append nobody waits for is fine.
func (j *Journal) Append(entries ...Entry) *Commit {
	p := pending{entries: entries, commit: &Commit{j: j, done: make(chan struct{})}}
	err := p.check()
	for _, e := range entries {
		if kind := chain.EventKind(e.Event); err == nil && chain.OwnKind(kind) {
			err = fmt.Errorf("entries of kind %s are the journal's own", kind)
		}
	}
	if err != nil {
		return p.commit.fail(fmt.Errorf("appending to journal: %w", err))
	}
	return j.append(p)
}

func (j *Journal) append(p pending) *Commit {
	c := p.commit
	now := j.cfg.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.refusalLocked(); err != nil {
		return c.fail(fmt.Errorf("appending to journal: %w", err))
	}
	if err := p.orphaned(); err != nil {
		return c.fail(err)
	}
	if len(j.waiting) > 0 || !j.fitsLocked(&p) {
		p.keep()
		j.waiting = append(j.waiting, p)
		j.work.Broadcast()
		return c
	}
	j.encodeLocked(&p, now)
	switch {
	case p.urgent:
		if !j.busy { // Whoever is busy looks again when it is done.
			j.work.Broadcast()
		}
	case j.lazy == nil && !j.forming.urgent:
		j.lazy = time.AfterFunc(j.cfg.LazyDelay, j.Flush)
	}
	return c
}

// gather lets whoever is about to append do so before a batch is written, if the last one had company: fewer and larger
// batches cost each less. There is no timer in this: when nobody else can run it returns at once.
func (j *Journal) gather() {
	if j.company.Load() {
		runtime.Gosched()
	}
}

// lead writes the forming batch if nobody is writing. Otherwise whoever is writing has it written next.
func (j *Journal) lead(c *Commit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	for i := range j.waiting {
		if j.waiting[i].commit == c {
			j.waiting[i].urgent = true
		}
	}
	switch {
	case len(j.forming.entries) == 0:
	case j.busy:
		j.forming.urgent = true
	case j.stopped == nil && j.quarant == nil && len(j.waiting) == 0:
		j.commitLocked()
	}
}

// Flush makes the lazy entries be written now. It does not wait for them.
func (j *Journal) Flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flush = true
	j.work.Broadcast()
}

func (c *Commit) fail(err error) *Commit {
	c.err = err
	close(c.done)
	return c
}

func (p *pending) check() error {
	if len(p.entries) == 0 {
		return errors.New("no entries")
	}
	for _, e := range p.entries {
		if err := chain.CheckEvent(e.Event); err != nil {
			return err
		}
		p.size += int64(chain.LineSize(e.Event, e.Sealed))
		p.outcome = p.outcome || e.Outcome
		p.urgent = p.urgent || !e.Lazy
	}
	if p.size > chain.MaxLine {
		return ErrTooLarge
	}
	return nil
}

// orphaned says that an entry follows one that was not recorded. An earlier Append that is still under way is in front of this one, so the two fail together or in order.
func (p *pending) orphaned() error {
	for _, e := range p.entries {
		if e.After == nil {
			continue
		}
		if err := e.After.Err(); err != nil {
			return fmt.Errorf("appending to journal behind an entry that was not recorded: %w", err)
		}
	}
	return nil
}

// keep copies what the caller may overwrite after Append has returned.
func (p *pending) keep() {
	kept := make([]Entry, len(p.entries))
	for i, e := range p.entries {
		e.Event = append([]byte(nil), e.Event...)
		e.Sealed = append([]byte(nil), e.Sealed...)
		kept[i] = e
	}
	p.entries = kept
}

// fitsLocked tells whether p can be added to the forming batch.
func (j *Journal) fitsLocked(p *pending) bool {
	formed := int64(len(j.forming.buf))
	return j.end+p.size <= j.alloc-j.cfg.Reserve &&
		(formed == 0 || formed+p.size <= maxForming) &&
		(j.end+p.size <= j.cfg.SegmentSize || j.end == j.opened)
}

// encodeLocked adds p to the forming batch. Encoding here, in the callers' goroutines, overlaps with the
// sync of the batch before, which the writer's goroutine is waiting for.
func (j *Journal) encodeLocked(p *pending, now time.Time) {
	b := &j.forming
	if len(b.buf) == 0 {
		b.offset = j.end
	}
	for i, e := range p.entries {
		at := Position{Segment: j.segment, Offset: b.offset + int64(len(b.buf)), Seq: j.seq + 1}
		b.buf, at.Hash = chain.AppendLine(b.buf, at.Seq, now, j.head, e.Event, e.Sealed)
		j.seq, j.head = at.Seq, at.Hash
		b.entries = append(b.entries, Durable{Position: at, Time: now.UTC(), Note: e.Note})
		b.ends = append(b.ends, len(b.buf)-1)
		if i == 0 {
			p.commit.first = at
		}
		p.commit.last = at
	}
	j.end = b.offset + int64(len(b.buf))
	b.commits = append(b.commits, p.commit)
	b.urgent = b.urgent || p.urgent
}
