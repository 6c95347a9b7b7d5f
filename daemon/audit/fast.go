package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"sync"

	"singlepass.dev/daemon/chain"
)

// chunk is a piece of a file, whole lines only, that one worker verifies.
type chunk struct {
	file   int
	offset int64 // of buf in the file
	store  []byte
	buf    []byte // the lines, in store

	bad         bool
	count       uint64
	first, last chain.Line
	hashes      []chain.Hash
	head        *chain.Hash
	payloads    []Finding
	withheld    []uint64
	own         []chain.Line // entries of the journal itself
	story       []told

	verified chan struct{}
	hearing  sync.WaitGroup
}

const chunkSize = 1 << 20

// fast verifies with Workers goroutines. It returns false at the first line that is not as it should be.
// Three stages run at once: reading; verifying, in any order; and joining, in order, with the tellers
// hearing what was joined.
func (v *verification) fast(ctx context.Context, wantLeaves bool) (clean bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := v.opts.Workers
	todo, ordered := make(chan *chunk, 2*workers), make(chan *chunk, 2*workers)
	pool := sync.Pool{New: func() any { return &chunk{store: make([]byte, chunkSize)} }}
	var readErr error
	var running sync.WaitGroup
	running.Go(func() {
		defer close(todo)
		defer close(ordered)
		readErr = v.read(ctx, &pool, func(c *chunk) bool {
			select {
			case ordered <- c:
				todo <- c
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	for range workers {
		running.Go(func() {
			for c := range todo {
				if ctx.Err() == nil {
					v.check(c, wantLeaves)
				}
				close(c.verified)
			}
		})
	}
	hear := v.startTellers(&running)
	join := joint{v: v, clean: true}
	for c := range ordered {
		<-c.verified
		if ctx.Err() != nil {
			continue
		}
		if join.add(c); !join.clean {
			cancel()
			continue
		}
		hear.say(c, func() { pool.Put(c) })
	}
	hear.stop()
	running.Wait()
	if !join.clean {
		return false, nil
	}
	if readErr == errNotClean {
		return false, nil
	}
	if readErr == nil {
		readErr = context.Cause(ctx)
	}
	v.Findings = append(v.Findings, hear.findings()...)
	return join.end(), readErr
}

type notClean struct{}

func (notClean) Error() string { return "not clean" }

var errNotClean error = notClean{}

// read cuts the files into chunks. It also looks at what is behind the last line.
func (v *verification) read(ctx context.Context, pool *sync.Pool, give func(*chunk) bool) error {
	for i := range v.files {
		if len(v.files[i].missing) > 0 {
			return errNotClean
		}
		if err := v.readFile(ctx, i, pool, give); err != nil {
			return err
		}
	}
	return nil
}

func (v *verification) readFile(ctx context.Context, i int, pool *sync.Pool, give func(*chunk) bool) error {
	f, err := os.Open(v.files[i].path)
	if err != nil {
		return err
	}
	defer f.Close()
	var carry []byte
	offset := int64(0)
	for {
		c := pool.Get().(*chunk)
		*c = chunk{file: i, offset: offset, store: c.store, hashes: c.hashes[:0], story: c.story[:0], verified: make(chan struct{})}
		if len(c.store) < len(carry)+chunkSize/2 {
			c.store = make([]byte, len(carry)+chunkSize)
		}
		n := copy(c.store, carry)
		got, err := io.ReadFull(f, c.store[n:])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		data := c.store[:n+got]
		cut := bytes.LastIndexByte(data, '\n') + 1
		c.buf = data[:cut]
		carry = append(carry[:0:0], data[cut:]...)
		offset += int64(cut)
		if cut > 0 && !give(c) {
			return context.Cause(ctx)
		}
		// Zeros are unused space. All of it is looked at: something may be hidden behind it.
		if unused := bytes.TrimRight(carry, "\x00"); len(unused) == 0 && len(carry) > 0 {
			if only, err := onlyZeros(f); err != nil || only {
				return v.tail(i, offset, nil, err)
			}
			return errNotClean
		}
		if got == 0 || err != nil {
			return v.tail(i, offset, carry, nil)
		}
		if len(carry) > chain.MaxLine {
			return errNotClean
		}
	}
}

func onlyZeros(r io.Reader) (bool, error) {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if len(bytes.TrimRight(buf[:n], "\x00")) > 0 {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// tail notes what is behind the last line of a file.
func (v *verification) tail(i int, offset int64, tail []byte, err error) error {
	if err != nil {
		return err
	}
	v.lastEnd = offset
	v.Bytes += offset
	if tail = bytes.TrimRight(tail, "\x00"); len(tail) == 0 {
		return nil
	}
	if i != len(v.files)-1 || !chain.Torn(tail, offset) {
		return errNotClean
	}
	v.Torn = &chain.Break{
		What: chain.WhatTruncated, Segment: v.files[i].name, Offset: offset,
		Length: int64(len(tail)), Digest: chain.Digest(tail),
	}
	return nil
}

// check verifies one chunk in itself.
func (v *verification) check(c *chunk, wantLeaves bool) {
	var before chain.Line
	var payload []byte
	for at := 0; at < len(c.buf); {
		n := bytes.IndexByte(c.buf[at:], '\n')
		l, err := chain.Split(c.buf[at : at+n])
		if err != nil {
			c.bad = true
			return
		}
		hash, ok := l.Verify()
		if !ok || c.count > 0 && !l.FollowsLine(&before) {
			c.bad = true
			return
		}
		if c.count == 0 {
			c.first = l
		}
		if wantLeaves {
			c.hashes = append(c.hashes, hash)
		}
		if v.opts.Head != nil && v.opts.Head.Seq == l.Seq {
			c.head = &hash
		}
		var f *Finding
		if f, payload = v.checkPayload(&l, payload); f != nil {
			f.Segment, f.Offset = v.files[c.file].name, c.offset+int64(at)
			c.payloads = append(c.payloads, *f)
			if l.PayloadState() == chain.PayloadWithheld {
				c.withheld = append(c.withheld, l.Seq)
			}
		}
		if chain.OwnKind(l.Kind) {
			c.own = append(c.own, l)
		}
		if v.opts.Story != nil {
			c.story = v.tell(c.story, &l, c.offset+int64(at))
		}
		before = l
		c.count++
		at += n + 1
	}
	c.last = before
}

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

// joint joins the chunks in order.
type joint struct {
	v     *verification
	clean bool
	any   bool
	file  int
	seq   uint64
	hash  chain.Hash
}

func (j *joint) add(c *chunk) {
	v := j.v
	if c.bad {
		j.clean = false
		return
	}
	begins := !j.any || c.file != j.file
	if c.file > j.file+1 || !j.any && c.file != 0 {
		j.clean = false // a file without any entry
		return
	}
	switch {
	case !j.any:
		v.First = c.first.Seq
		// A single file may begin anywhere; a journal begins with entry 1.
		if v.whole() && !c.first.Follows(0, chain.Hash{}) {
			j.clean = false
			return
		}
	case !c.first.Follows(j.seq, j.hash):
		j.clean = false
		return
	}
	if begins && v.files[c.file].number > 0 && !opens(&c.first, v.files[c.file].name) {
		j.clean = false
		return
	}
	j.any, j.file, j.seq, j.hash = true, c.file, c.last.Seq, c.last.Hash()
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
}

func (j *joint) end() bool {
	j.v.Head = Head{Seq: j.seq, Hash: j.hash}
	// A segment without any entry is not clean.
	return j.any && j.file == len(j.v.files)-1
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

// audience lets the tellers hear the chunks, each in order.
type audience struct {
	v     *verification
	seats []chan *chunk
	found [][]Finding
	done  []func()
}

func (v *verification) startTellers(running *sync.WaitGroup) *audience {
	a := &audience{v: v}
	if v.opts.Story == nil {
		return a
	}
	t := newTellers(v)
	a.found = make([][]Finding, v.opts.Workers)
	for w := range v.opts.Workers {
		seat := make(chan *chunk, 4)
		a.seats = append(a.seats, seat)
		running.Go(func() {
			for c := range seat {
				a.found[w] = append(a.found[w], t.listen(w, v.files[c.file].name, c.story)...)
				c.hearing.Done()
			}
		})
	}
	return a
}

// say gives a chunk to all tellers, and calls done when all have heard it.
func (a *audience) say(c *chunk, done func()) {
	if len(a.seats) == 0 {
		done()
		return
	}
	c.hearing.Add(len(a.seats))
	for _, seat := range a.seats {
		seat <- c
	}
	// Letting go of chunks some turns later costs no goroutine.
	a.done = append(a.done, func() { c.hearing.Wait(); done() })
	if len(a.done) > 8 {
		a.done[0]()
		a.done = slices.Delete(a.done, 0, 1)
	}
}

func (a *audience) stop() {
	for _, seat := range a.seats {
		close(seat)
	}
}

func (a *audience) findings() []Finding {
	all := slices.Concat(a.found...)
	slices.SortFunc(all, func(x, y Finding) int { return int(int64(x.Seq) - int64(y.Seq)) })
	return all
}
