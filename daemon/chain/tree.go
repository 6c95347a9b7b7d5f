package chain

import (
	"crypto/sha256"
	"errors"
	"math/bits"
)

// Tree is the RFC 6962 Merkle tree over the entries' hashes, grown leaf by leaf. It keeps one hash for
// each complete subtree, so it stays below 2 KiB. The zero value is the empty tree. It is not safe for
// concurrent use.
type Tree struct {
	size  uint64
	stack []Hash // roots of the complete subtrees, the largest first
}

// LostLeaf is the leaf for the number of an entry that was lost in an accepted break: the RFC 6962 leaf
// hash of no bytes. It keeps the leaf of entry N at index N-1.
var LostLeaf = LeafHash(nil)

// Size is the number of leaves.
func (t *Tree) Size() uint64 { return t.size }

// Append adds the next leaf.
func (t *Tree) Append(leaf Hash) {
	for n := t.size; n&1 == 1; n >>= 1 {
		leaf = nodeHash(t.stack[len(t.stack)-1], leaf)
		t.stack = t.stack[:len(t.stack)-1]
	}
	t.stack = append(t.stack, leaf)
	t.size++
}

// Root is the tree head: SHA-256 of nothing for the empty tree.
func (t *Tree) Root() Hash {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	root := t.stack[len(t.stack)-1]
	for i := len(t.stack) - 2; i >= 0; i-- {
		root = nodeHash(t.stack[i], root)
	}
	return root
}

func nodeHash(left, right Hash) Hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// Root is the tree head over leaves.
func Root(leaves []Hash) Hash {
	var t Tree
	for _, leaf := range leaves {
		t.Append(leaf)
	}
	return t.Root()
}

// Prove returns the audit path of leaf index (from 0) in the tree over leaves, RFC 6962 section 2.1.1.
func Prove(leaves []Hash, index uint64) ([]Hash, error) {
	if index >= uint64(len(leaves)) {
		return nil, errors.New("entry is not in this tree")
	}
	var path []Hash
	for len(leaves) > 1 {
		k := uint64(1) << (bits.Len(uint(len(leaves)-1)) - 1)
		if index < k {
			path = append(path, Root(leaves[k:]))
			leaves = leaves[:k]
		} else {
			path = append(path, Root(leaves[:k]))
			leaves, index = leaves[k:], index-k
		}
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path, nil
}

// CheckProof tells whether path proves that leaf is leaf number index (from 0) of the tree with this
// size and root, RFC 9162 section 2.1.3.2.
func CheckProof(path []Hash, size uint64, root Hash, index uint64, leaf Hash) bool {
	if index >= size {
		return false
	}
	fn, sn, r := index, size-1, leaf
	for _, p := range path {
		if sn == 0 {
			return false
		}
		if fn&1 == 1 || fn == sn {
			r = nodeHash(p, r)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			r = nodeHash(r, p)
		}
		fn, sn = fn>>1, sn>>1
	}
	return sn == 0 && r == root
}
