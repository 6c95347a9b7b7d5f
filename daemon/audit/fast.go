package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"singlepass.dev/daemon/chain"
)

// chunk is the lines that begin in a range of a file. One worker reads and verifies it, so that the bytes
// stay in that processor's cache. Chunks are used again.
type chunk struct {
	file     int
	from, to int64
	store    []byte

	bad      bool
	start    int64 // where the first line begins
	end      int64 // where the last one ends
	over     bool  // the content of the file ends here
	count    uint64
	first    chain.Line
	lines    [2]chain.Line // the last one and the one before
	hashes   []chain.Hash
	head     *chain.Hash
	payloads []Finding
	withheld []uint64
	own      []chain.Line // entries of the journal itself
	story    []told
	payload  []byte
	err      error

	verified chan struct{}
	hearers  atomic.Int32
}

func (c *chunk) reset(file int, from, to int64) {
	c.file, c.from, c.to = file, from, to
	c.bad, c.over, c.count, c.head, c.err = false, false, 0, nil, nil
	c.hashes, c.payloads, c.withheld, c.own, c.story = c.hashes[:0], c.payloads[:0], c.withheld[:0], c.own[:0], c.story[:0]
	c.verified = make(chan struct{})
}

// chunkSize is small enough for a second-level cache and large enough for what handing it on costs.
const chunkSize = 256 << 10

// fast verifies with Workers goroutines. It returns false at the first line that is not as it should be.
// Chunks are verified in any order, joined in order, and then heard by the tellers in order.
func (v *verification) fast(ctx context.Context, wantLeaves bool) (clean bool, err error) {
	for i := range v.files {
		if len(v.files[i].missing) > 0 {
			return false, nil
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open, err := v.open()
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	if err != nil {
		return false, err
	}
	n := 4*v.opts.Workers + 4
	free, todo, ordered := make(chan *chunk, n), make(chan *chunk, n), make(chan *chunk, n)
	for range n {
		free <- &chunk{}
	}
	var running sync.WaitGroup
	var planErr error
	running.Go(func() {
		defer close(todo)
		defer close(ordered)
		planErr = plan(ctx, open, free, func(c *chunk) {
			ordered <- c
			todo <- c
		})
	})
	for range v.opts.Workers {
		running.Go(func() {
			for c := range todo {
				if ctx.Err() == nil {
					v.check(open[c.file], c, wantLeaves)
				}
				close(c.verified)
			}
		})
	}
	hear := v.startTellers(&running, free)
	join := joint{v: v, files: open}
	for c := range ordered {
		<-c.verified
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = join.add(c)
		}
		if err != nil {
			cancel() // and let the others run empty
			continue
		}
		hear.say(c)
	}
	hear.stop()
	running.Wait()
	if err == nil {
		err = planErr
	}
	if err == nil {
		err = join.end()
	}
	if err == errNotClean {
		return false, nil
	}
	v.Findings = append(v.Findings, hear.findings()...)
	return err == nil, err
}

func (v *verification) open() (open []*os.File, err error) {
	for i := range v.files {
		f, err := os.Open(v.files[i].path)
		if err != nil {
			return open, err
		}
		open = append(open, f)
	}
	return open, nil
}

// plan divides the files.
func plan(ctx context.Context, open []*os.File, free <-chan *chunk, give func(*chunk)) error {
	for i, f := range open {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		for from := int64(0); from < info.Size(); from += chunkSize {
			select {
			case c := <-free:
				c.reset(i, from, min(from+chunkSize, info.Size()))
				give(c)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// errNotClean ends the fast way.
var errNotClean = errors.New("does not verify")

// window is the bytes of a chunk that were read.
type window struct {
	f    *os.File
	c    *chunk
	at   int64 // offset of buf in the file
	buf  []byte
	last bool // the file ends with buf
}

// more reads n bytes behind those that are there.
func (w *window) more(n int64) error {
	have := len(w.buf)
	if need := have + int(n); cap(w.c.store) < need {
		w.c.store = append(make([]byte, 0, need), w.buf...)
	}
	w.buf = w.c.store[:have+int(n)]
	got, err := w.f.ReadAt(w.buf[have:], w.at+int64(have))
	w.buf = w.buf[:have+got]
	if err == io.EOF {
		w.last, err = true, nil
	}
	return err
}

// check reads one chunk and verifies it in itself.
func (v *verification) check(f *os.File, c *chunk, wantLeaves bool) {
	w := window{f: f, c: c, at: max(c.from-1, 0)}
	if c.err = w.more(c.to - w.at + 4096); c.err != nil {
		return
	}
	at := 0
	if c.from > 0 {
		at = bytes.IndexByte(w.buf, '\n') + 1
		if at == 0 || w.at+int64(at) >= c.to {
			c.start, c.end = c.to, c.to // No line begins here.
			return
		}
	}
	c.start = w.at + int64(at)
	for w.at+int64(at) < c.to {
		n := bytes.IndexByte(w.buf[at:], '\n')
		if n < 0 {
			if w.last || at < len(w.buf) && w.buf[at] == 0 {
				c.over = true
				break
			}
			if len(w.buf)-at > chain.MaxLine {
				c.bad = true
				return
			}
			// Lines that were split point into the old buffer, which stays as it is.
			if c.err = w.more(int64(len(w.buf))); c.err != nil {
				return
			}
			continue
		}
		if w.buf[at] == 0 {
			c.over = true // Whether something is hidden there is looked at later.
			break
		}
		if !v.checkLine(c, w.buf[at:at+n], w.at+int64(at), wantLeaves) {
			c.bad = true
			return
		}
		at += n + 1
	}
	c.end = w.at + int64(at)
}

func (v *verification) checkLine(c *chunk, raw []byte, offset int64, wantLeaves bool) bool {
	// The two lines take turns, in the chunk, so that none is allocated or copied.
	l, before := &c.lines[c.count&1], &c.lines[c.count&1^1]
	if l.Split(raw) != nil {
		return false
	}
	hash, ok := l.Verify()
	if !ok || c.count > 0 && !l.FollowsLine(before) {
		return false
	}
	if c.count == 0 {
		c.first = *l
	}
	if wantLeaves {
		c.hashes = append(c.hashes, hash)
	}
	if v.opts.Head != nil && v.opts.Head.Seq == l.Seq {
		known := hash
		c.head = &known
	}
	if l.PayloadState() != chain.PayloadNone {
		var f *Finding
		if f, c.payload = v.checkPayload(l, c.payload); f != nil {
			f.Segment, f.Offset = v.files[c.file].name, offset
			c.payloads = append(c.payloads, *f)
			if l.PayloadState() == chain.PayloadWithheld {
				c.withheld = append(c.withheld, l.Seq)
			}
		}
	}
	if chain.OwnKind(l.Kind) {
		c.own = append(c.own, *l)
	}
	if v.opts.Story != nil {
		c.story = v.tell(c.story, l, offset)
	}
	c.count++
	return true
}

// last is the last line of a chunk that has one.
func (c *chunk) last() *chain.Line { return &c.lines[(c.count-1)&1] }

// checkPayload looks at a payload, with a buffer that is used again.
func (v *verification) checkPayload(l *chain.Line, buf []byte) (*Finding, []byte) {
	what, detail := chain.WhatErased, ""
	switch state := l.PayloadState(); state {
	case chain.PayloadNone:
		return nil, buf
	case chain.PayloadPresent:
		out, err := l.Payload(buf[:0])
		if err == nil {
			return nil, out
		}
		what, detail = chain.WhatPayload, err.Error()
	default:
		detail = "the payload is " + string(state) + " and no entry records its erasure"
	}
	return &Finding{Entries: 1, Detail: detail, Break: chain.Break{What: what, Seq: l.Seq, Length: int64(l.Size())}}, buf
}

// audience lets the tellers hear the chunks, each in order. Who hears a chunk last sets it free.
type audience struct {
	seats []chan *chunk
	found [][]Finding
	free  chan<- *chunk
}

func (v *verification) startTellers(running *sync.WaitGroup, free chan<- *chunk) *audience {
	a := &audience{free: free}
	if v.opts.Story == nil {
		return a
	}
	t := newTellers(v)
	a.found = make([][]Finding, v.opts.Workers)
	for w := range v.opts.Workers {
		seat := make(chan *chunk, cap(free))
		a.seats = append(a.seats, seat)
		running.Go(func() {
			for c := range seat {
				a.found[w] = append(a.found[w], t.listen(w, v.files[c.file].name, c.story)...)
				if c.hearers.Add(-1) == 0 {
					free <- c
				}
			}
		})
	}
	return a
}

func (a *audience) say(c *chunk) {
	if len(a.seats) == 0 {
		a.free <- c
		return
	}
	c.hearers.Store(int32(len(a.seats)))
	for _, seat := range a.seats {
		seat <- c
	}
}

func (a *audience) stop() {
	for _, seat := range a.seats {
		close(seat)
	}
}

func (a *audience) findings() []Finding {
	all := slices.Concat(a.found...)
	slices.SortFunc(all, func(x, y Finding) int { return cmp.Compare(x.Seq, y.Seq) })
	return all
}
