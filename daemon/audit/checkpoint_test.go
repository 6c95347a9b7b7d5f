package audit_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

// testKey is derived from text so that nothing in the repository looks like a real key.
func testKey() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("canary-not-a-secret-signing-key"))
	return ed25519.NewKeyFromSeed(seed[:])
}

func signed(t *testing.T, c audit.Checkpoint) (checkpoint []byte, key string) {
	t.Helper()
	k := testKey()
	signer, err := audit.NewSigner("singlepass.test", k)
	if err != nil {
		t.Fatal(err)
	}
	if checkpoint, err = c.Sign(signer); err != nil {
		t.Fatal(err)
	}
	if key, err = audit.VerifierKey("singlepass.test", k.Public().(ed25519.PublicKey)); err != nil {
		t.Fatal(err)
	}
	return checkpoint, key
}

func TestACheckpointIsAC2SPTlogCheckpoint(t *testing.T) {
	c := audit.Checkpoint{Origin: "singlepass.test/journal", Size: 12, Root: chain.LeafHash([]byte("root"))}
	text, key := signed(t, c)
	if !strings.HasPrefix(string(text), "singlepass.test/journal\n12\n") || !strings.Contains(string(text), "\n\n— singlepass.test ") {
		t.Fatalf("%s", text)
	}
	verifier, err := note.NewVerifier(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open(text, note.VerifierList(verifier)); err != nil {
		t.Fatal(err)
	}
	if got, err := audit.OpenCheckpoint(text, key); err != nil || got != c {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range text {
		changed := slices.Clone(text)
		changed[i] ^= 1
		if got, err := audit.OpenCheckpoint(changed, key); err == nil && got != c {
			t.Fatalf("byte %d changed and accepted", i)
		}
	}
}

func TestTheJournalIsHeldAgainstASignedCheckpoint(t *testing.T) {
	dir, _ := written(t, 12)
	head, root, err := audit.TreeHead(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	note, key := signed(t, audit.Checkpoint{Origin: "test", Size: head.Seq, Root: root})
	if err := os.WriteFile(filepath.Join(dir, audit.CheckpointFile), note, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, audit.Options{Key: key}); !r.OK() || r.AgainstCheckpoint == nil || r.SelfConsistentOnly() {
		t.Fatalf("%+v", r)
	}
	j, _, err := journal.Open(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(entry(1), entry(2)).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, audit.Options{Key: key}); !r.OK() {
		t.Fatalf("after it has grown: %s", describe(r))
	}
	later, root, err := audit.TreeHead(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	note, key = signed(t, audit.Checkpoint{Origin: "test", Size: later.Seq + 1, Root: root})
	if r := verify(t, dir, audit.Options{Key: key, Checkpoint: note}); r.OK() || r.Findings[0].What != chain.WhatTruncated {
		t.Fatalf("a checkpoint of more entries: %s", describe(r))
	}
	note, _ = signed(t, audit.Checkpoint{Origin: "test", Size: later.Seq - 1, Root: root})
	if r := verify(t, dir, audit.Options{Key: key, Checkpoint: note}); r.OK() || r.Findings[0].What != audit.WhatRefuted {
		t.Fatalf("another root: %s", describe(r))
	}
	if _, err := audit.Verify(t.Context(), dir, audit.Options{Checkpoint: note}); err == nil {
		t.Fatal("a checkpoint without a key was accepted")
	}
}

func TestTheTreeIsTheOneOfRFC6962AndEveryEntryCanBeProven(t *testing.T) {
	dir, at := written(t, 25)
	f := load(t, dir)
	var leaves []chain.Hash
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, _ error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	var tree chain.Tree
	for n := 1; n <= len(f); n++ {
		for l := range chain.Lines(f[chain.SegmentName(n)]) {
			hashes, err := tlog.StoredHashes(int64(len(leaves)), l.Entry, reader)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, hashes...)
			leaves = append(leaves, l.Hash())
			tree.Append(l.Hash())
			want, err := tlog.TreeHash(int64(len(leaves)), reader)
			if err != nil || chain.Hash(want) != tree.Root() {
				t.Fatalf("tree of %d entries differs from tlog's, %v", len(leaves), err)
			}
		}
	}
	for _, size := range []uint64{0, uint64(len(leaves)) - 3} {
		for seq := uint64(1); seq <= uint64(len(leaves))-3; seq++ {
			p, err := audit.ProveInclusion(t.Context(), dir, seq, size)
			if err != nil {
				t.Fatal(err)
			}
			if size == 0 {
				size = uint64(len(leaves))
			}
			c := audit.Checkpoint{Size: size, Root: chain.Root(leaves[:size])}
			if !p.Check(c) {
				t.Fatalf("the proof of entry %d does not hold", seq)
			}
			var theirs tlog.RecordProof
			for _, h := range p.Path {
				theirs = append(theirs, tlog.Hash(h))
			}
			if err := tlog.CheckRecord(theirs, int64(size), tlog.Hash(c.Root), int64(seq)-1, tlog.RecordHash([]byte(p.Entry))); err != nil {
				t.Fatalf("tlog refuses the proof of entry %d: %v", seq, err)
			}
			forged := p
			forged.Entry = strings.Replace(forged.Entry, `"seq"`, `"Seq"`, 1)
			if forged.Check(c) {
				t.Fatal("a forged entry was proven")
			}
		}
	}
	if _, err := audit.ProveInclusion(t.Context(), dir, at[len(at)-1].Seq+1, 0); err == nil {
		t.Fatal("an entry that does not exist was proven")
	}
}

func TestAHeadIsReadBackAsItWasPrinted(t *testing.T) {
	h := audit.Head{Seq: 123, Hash: chain.LeafHash(nil)}
	if got, err := audit.ParseHead(h.String()); err != nil || got != h {
		t.Fatalf("%v, %v", got, err)
	}
	for _, s := range []string{"", "1", "0:" + h.Hash.String(), "01:" + h.Hash.String(), "1:" + strings.ToUpper(h.Hash.String()), "-1:" + h.Hash.String()} {
		if _, err := audit.ParseHead(s); err == nil {
			t.Fatalf("%q was accepted", s)
		}
	}
}
