package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"singlepass.dev/daemon/chain"
)

// Erase overwrites the payloads of the entries at these positions, which must have one. First it makes an
// entry durable that says so; therefore an Erase that failed or was killed can be repeated, and audit
// tells an erased payload from one that somebody removed. The chain still verifies. What a disk or a file
// system keeps beneath the file is beyond reach: the payload is sealed, and its key in the vault.
func (j *Journal) Erase(ctx context.Context, at ...Position) error {
	if len(at) == 0 {
		return nil
	}
	erasure := chain.Erasure{Kind: chain.KindPayloadErased}
	for _, p := range at {
		if err := j.ReadAt(p, func(d Durable) error {
			if l, err := chain.Split(d.Line); err != nil || l.PayloadState() == chain.PayloadNone {
				return fmt.Errorf("erasing payload of entry %d: %w", p.Seq, chain.ErrNoPayload)
			}
			return nil
		}); err != nil {
			return err
		}
		erasure.Seqs = append(erasure.Seqs, p.Seq)
	}
	event, err := json.Marshal(erasure)
	if err != nil {
		return err
	}
	p := pending{entries: []Entry{{Event: event, Lazy: true}}, commit: &Commit{j: j, done: make(chan struct{})}}
	if err := p.check(); err != nil {
		return fmt.Errorf("erasing payloads: %w", err)
	}
	if err := j.append(p).Wait(ctx); err != nil {
		return fmt.Errorf("erasing payloads: %w", err)
	}
	bySegment := slices.SortedFunc(slices.Values(at), func(a, b Position) int { return a.Segment - b.Segment })
	j.mu.Lock()
	defer j.mu.Unlock()
	j.takeLocked()
	defer j.giveLocked()
	if err := j.refusalLocked(); err != nil {
		return fmt.Errorf("erasing payloads: %w", err)
	}
	j.mu.Unlock()
	defer j.mu.Lock()
	for len(bySegment) > 0 {
		n := 1
		for n < len(bySegment) && bySegment[n].Segment == bySegment[0].Segment {
			n++
		}
		if err := j.overwrite(bySegment[:n]); err != nil {
			return fmt.Errorf("erasing payloads in %s: %w", chain.SegmentName(bySegment[0].Segment), err)
		}
		bySegment = bySegment[n:]
	}
	return nil
}

// overwrite replaces the payloads in one segment. The caller owns the file.
func (j *Journal) overwrite(at []Position) error {
	f, err := j.fs.OpenFile(j.path(at[0].Segment), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range at {
		in := scanner{r: f, offset: p.Offset}
		if in.end, err = f.Size(); err != nil {
			return err
		}
		raw, err := in.next()
		if err != nil {
			return err
		}
		l, err := chain.Split(raw)
		if err != nil {
			return err
		}
		from, n := l.SealedRange()
		if _, err := f.WriteAt(bytes.Repeat([]byte("-"), n), p.Offset+int64(from)); err != nil {
			return err
		}
	}
	return f.Datasync()
}
