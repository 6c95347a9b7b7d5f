// Package audit verifies a journal offline: from its files alone, while the daemon writes them or without
// it. It imports the line format (package chain) and neither the writer nor anything that knows what
// events mean.
//
// # Promises
//
//   - Every entry that was changed, removed, put elsewhere or added is found and located by segment, byte
//     and entry number. What is behind a finding is verified too.
//   - Verify only reads. What the daemon is just writing is not a finding: zeros at the end of a segment,
//     and a torn tail (chain.Torn) behind the last entry of the last segment.
//   - A journal whose end was cut off at an entry is consistent in itself. That is only found against
//     something kept elsewhere: a Head, or a checkpoint and the key it was signed with. Without one the
//     Report says that it is self-consistent only.
//
// # Frozen formats
//
// A checkpoint is a C2SP tlog-checkpoint (https://c2sp.org/tlog-checkpoint) as a signed note
// (https://c2sp.org/signed-note) with an Ed25519 signature, over the RFC 6962 tree in which entry N is the
// leaf with index N-1. An entry that was changed counts with the hash that the entry after it names, so
// that older checkpoints still hold; one that is lost counts as chain.LostLeaf. A head is N:HASH, the number
// and hash of an entry.
package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"singlepass.dev/daemon/chain"
)

// Options say what to hold the journal against. The zero value checks that it is consistent in itself.
type Options struct {
	Head       *Head  // optional; an entry that must be there
	Key        string // optional; the note verifier key of checkpoints
	Checkpoint []byte // optional; a signed checkpoint; with Key alone, the file CheckpointFile of the directory
	Story      *Story // optional; checks what the entries mean
	Workers    int    // optional; default GOMAXPROCS
	Withheld   bool   // optional; payloads may be left out, as in an export
}

// CheckpointFile is the name of the newest signed checkpoint in a journal's directory.
const CheckpointFile = "checkpoint"

// Head is the number and hash of an entry: what the person writes down.
type Head struct {
	Seq  uint64     `json:"seq"`
	Hash chain.Hash `json:"hash"`
}

func (h Head) String() string { return strconv.FormatUint(h.Seq, 10) + ":" + h.Hash.String() }

// ParseHead reads what Head's String returns.
func ParseHead(s string) (Head, error) {
	number, hash, ok := strings.Cut(s, ":")
	seq, err := strconv.ParseUint(number, 10, 63)
	if !ok || err != nil || seq == 0 || strconv.FormatUint(seq, 10) != number {
		return Head{}, fmt.Errorf("head %.80q is not NUMBER:HASH, as spctl audit head prints it", s)
	}
	h, err := chain.ParseHash(hash)
	if err != nil {
		return Head{}, fmt.Errorf("head %.80q: %w", s, err)
	}
	return Head{Seq: seq, Hash: h}, nil
}

// Finding is one place that does not verify.
type Finding struct {
	chain.Break
	Entries int    `json:"entries"` // lines in a row that this is about
	Detail  string `json:"detail,omitempty"`
	until   uint64 // the entry behind a gap
}

// WhatStory is a finding of Options.Story.
const WhatStory chain.What = "story"

// WhatRefuted is a checkpoint that the journal contradicts.
const WhatRefuted chain.What = "checkpoint_refuted"

// Report is what was verified and what was found.
type Report struct {
	Segments int    `json:"segments"`
	Entries  uint64 `json:"entries"` // whole lines
	Bytes    int64  `json:"bytes"`   // of content
	First    uint64 `json:"first"`   // number of the first entry; more than 1 only for a single file
	Head     Head   `json:"head"`    // the last entry

	Findings []Finding       `json:"findings"` // empty: it verifies
	Accepted []Finding       `json:"accepted"` // breaks that the operator has accepted, unchanged since
	Cuts     []chain.TailCut `json:"cuts"`     // torn tails that the journal has cut and recorded
	Torn     *chain.Break    `json:"torn"`     // not nil: the last line is not whole yet
	Erased   int             `json:"erased"`   // payloads erased on the record
	Withheld int             `json:"withheld"` // payloads left out

	// AgainstHead and AgainstCheckpoint say what the journal was held against. With neither it is
	// self-consistent only.
	AgainstHead       bool        `json:"against_head"`
	AgainstCheckpoint *Checkpoint `json:"against_checkpoint"`
}

// OK tells whether nothing was found.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

// SelfConsistentOnly tells that nothing kept elsewhere vouches for the journal's end.
func (r *Report) SelfConsistentOnly() bool { return !r.AgainstHead && r.AgainstCheckpoint == nil }

// Verify verifies the journal in a directory, or one file. The error is about reading and options; what
// does not verify is in the Report.
func Verify(ctx context.Context, path string, opts Options) (Report, error) {
	var checkpoint *Checkpoint
	if opts.Key != "" {
		signed := opts.Checkpoint
		if signed == nil {
			var err error
			if signed, err = os.ReadFile(filepath.Join(path, CheckpointFile)); err != nil {
				return Report{}, fmt.Errorf("reading checkpoint: %w", err)
			}
		}
		c, err := OpenCheckpoint(signed, opts.Key)
		if err != nil {
			return Report{}, err
		}
		checkpoint = &c
	} else if opts.Checkpoint != nil {
		return Report{}, fmt.Errorf("verifying journal: a checkpoint needs the key that it was signed with")
	}
	v, err := verify(ctx, path, opts, checkpoint != nil)
	if err != nil {
		return Report{}, fmt.Errorf("verifying journal %s: %w", path, err)
	}
	v.against(opts.Head, checkpoint)
	return v.Report, nil
}

// verification is a Report and what is kept while it is made.
type verification struct {
	Report
	opts     Options
	files    []file
	leaves   []chain.Hash // of entry First on, if wanted
	headHash *chain.Hash  // of entry opts.Head.Seq
	payloads []Finding    // payloads that are not there or do not match
	withheld map[uint64]bool
	erased   map[uint64]bool
	lastEnd  int64 // of the content of the last file
}

type file struct {
	path    string
	name    string // of the segment; the file's name
	number  int    // of the segment, 0 for another file
	missing []string
}

// verify first takes the fast way, which only knows yes and no, and on a no the slow way, which tells what
// is wrong and where.
func verify(ctx context.Context, path string, opts Options, wantLeaves bool) (*verification, error) {
	files, err := list(path)
	if err != nil {
		return nil, err
	}
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	fresh := func() *verification {
		return &verification{opts: opts, files: files, erased: map[uint64]bool{}, withheld: map[uint64]bool{}}
	}
	v := fresh()
	clean, err := v.fast(ctx, wantLeaves)
	if err != nil {
		return nil, err
	}
	if !clean {
		v = fresh()
		if err := v.diagnose(ctx); err != nil {
			return nil, err
		}
	}
	v.settlePayloads()
	v.Segments = len(files)
	return v, nil
}

// whole tells whether this is a journal from its beginning on, and not a single file of it.
func (v *verification) whole() bool {
	return len(v.files) > 1 || v.files[0].number == 1 || v.files[0].missing != nil
}

// list returns the files to verify, in order. Segments that are missing in between are noted.
func list(path string) ([]file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		n, _ := chain.ParseSegmentName(filepath.Base(path))
		return []file{{path: path, name: filepath.Base(path), number: n}}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []file
	next := 1
	for _, e := range entries {
		n, ok := chain.ParseSegmentName(e.Name())
		if !ok {
			continue
		}
		f := file{path: filepath.Join(path, e.Name()), name: e.Name(), number: n}
		// A file with a large number says that many are missing; a few of them tell as much.
		for i := next; i < n && i < next+1000; i++ {
			f.missing = append(f.missing, chain.SegmentName(i))
		}
		next = n + 1
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no %s", chain.SegmentName(1))
	}
	return files, nil
}

// settlePayloads keeps those findings about payloads that no entry explains.
func (v *verification) settlePayloads() {
	for _, f := range v.payloads {
		switch {
		case v.erased[f.Seq]:
			v.Erased++
		case v.opts.Withheld && v.withheld[f.Seq]:
			v.Withheld++
		default:
			v.Findings = append(v.Findings, f)
		}
	}
}

// against holds the journal against what was kept elsewhere.
func (v *verification) against(head *Head, checkpoint *Checkpoint) {
	end := func(what chain.What, seq uint64, detail string) {
		last := v.files[len(v.files)-1]
		v.Findings = append(v.Findings, Finding{
			Break: chain.Break{What: what, Segment: last.name, Offset: v.lastEnd, Seq: seq}, Detail: detail,
		})
	}
	if head != nil {
		v.AgainstHead = true
		switch {
		case head.Seq < v.First:
			end(WhatRefuted, head.Seq, "the head lies before the first entry of this file")
		case head.Seq > v.Head.Seq:
			end(chain.WhatTruncated, v.Head.Seq+1, fmt.Sprintf("the journal ends before entry %d of the given head", head.Seq))
		case v.headHash == nil || *v.headHash != head.Hash:
			end(chain.WhatForked, head.Seq, "another entry has the number of the given head")
		}
	}
	if checkpoint != nil {
		v.AgainstCheckpoint = checkpoint
		switch {
		case v.First != 1:
			end(WhatRefuted, v.First, "a checkpoint needs the whole journal")
		case checkpoint.Size > uint64(len(v.leaves)):
			end(chain.WhatTruncated, v.Head.Seq+1, fmt.Sprintf("the journal ends before entry %d of the checkpoint", checkpoint.Size))
		case chain.Root(v.leaves[:checkpoint.Size]) != checkpoint.Root:
			end(WhatRefuted, checkpoint.Size, "the entries up to here are not those that the checkpoint was signed for")
		}
	}
}
