package audit

import (
	"context"
	"errors"
	"fmt"
	"os"

	"singlepass.dev/daemon/chain"
)

// ErrNotVerified means that there are findings, so that nothing is signed or proven; see Verify.
var ErrNotVerified = errors.New("journal does not verify: run spctl audit verify")

// TreeHead reads the whole journal in a directory, verifies it and returns its last entry and the tree over
// all entries: what is to be signed as a checkpoint. Accepted breaks are no obstacle.
func TreeHead(ctx context.Context, dir string) (Head, chain.Hash, error) {
	v, err := verify(ctx, dir, Options{}, true)
	if err != nil {
		return Head{}, chain.Hash{}, fmt.Errorf("reading journal head: %w", err)
	}
	if !v.OK() || !v.whole() {
		return Head{}, chain.Hash{}, fmt.Errorf("reading journal head: %w", ErrNotVerified)
	}
	return v.Head, chain.Root(v.leaves), nil
}

// Proof shows that one entry is in the tree with this size and root, without the other entries.
type Proof struct {
	Entry string       `json:"entry"` // the exact bytes; SHA-256(0x00 || Entry) is the leaf
	Index uint64       `json:"index"` // the leaf's, from 0: the entry's number - 1
	Size  uint64       `json:"size"`
	Root  chain.Hash   `json:"root"`
	Path  []chain.Hash `json:"path"` // RFC 6962 section 2.1.1
}

// Check tells whether the proof holds. Root and Size must come from a checkpoint that the checker trusts.
func (p *Proof) Check(c Checkpoint) bool {
	return p.Size == c.Size && p.Root == c.Root &&
		chain.CheckProof(p.Path, p.Size, p.Root, p.Index, chain.LeafHash([]byte(p.Entry)))
}

// ProveInclusion proves that entry seq is in the tree over the first size entries of the journal in a
// directory; size 0 means all.
func ProveInclusion(ctx context.Context, dir string, seq, size uint64) (Proof, error) {
	v, err := verify(ctx, dir, Options{}, true)
	if err != nil {
		return Proof{}, fmt.Errorf("proving entry %d: %w", seq, err)
	}
	if !v.OK() || !v.whole() {
		return Proof{}, fmt.Errorf("proving entry %d: %w", seq, ErrNotVerified)
	}
	if size == 0 {
		size = uint64(len(v.leaves))
	}
	if seq == 0 || seq > size || size > uint64(len(v.leaves)) {
		return Proof{}, fmt.Errorf("proving entry %d: the journal has %d entries", seq, len(v.leaves))
	}
	p := Proof{Index: seq - 1, Size: size, Root: chain.Root(v.leaves[:size])}
	if p.Path, err = chain.Prove(v.leaves[:size], p.Index); err != nil {
		return Proof{}, fmt.Errorf("proving entry %d: %w", seq, err)
	}
	p.Entry, err = v.entry(seq, v.leaves[seq-1])
	if err != nil {
		return Proof{}, fmt.Errorf("proving entry %d: %w", seq, err)
	}
	return p, nil
}

// entry finds the bytes of an entry.
func (v *verification) entry(seq uint64, hash chain.Hash) (string, error) {
	for i := len(v.files) - 1; i >= 0; i-- {
		b, err := os.ReadFile(v.files[i].path)
		if err != nil {
			return "", err
		}
		for l := range chain.Lines(b) {
			if l.Seq > seq {
				break
			}
			if h, ok := l.Verify(); ok && l.Seq == seq && h == hash {
				return string(l.Entry), nil
			}
		}
	}
	return "", errors.New("it was lost in an accepted break")
}
