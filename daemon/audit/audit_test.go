package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

func clock() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func config(dir string) journal.Config {
	return journal.Config{Dir: dir, Now: clock, Reserve: 16 << 10, SegmentSize: 2200}
}

func entry(n int) journal.Entry {
	e := journal.Entry{Event: fmt.Appendf(nil, `{"kind":"dispatched","execution_id":"act_%d","n":%d}`, n%3, n)}
	if n%4 == 1 {
		e.Sealed = fmt.Appendf(nil, "sealed bytes %d", n)
	}
	return e
}

// written is a closed journal with n entries of entry.
func written(t testing.TB, n int) (dir string, at []journal.Position) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "journal")
	j, _, err := journal.Open(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c := j.Append(entry(i))
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		at = append(at, c.Last())
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, at
}

func verify(t testing.TB, path string, opts audit.Options) audit.Report {
	t.Helper()
	r, err := audit.Verify(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// files is a journal's content, to be damaged.
type files map[string][]byte

func load(t testing.TB, dir string) files {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "journal-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	f := files{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f[filepath.Base(name)] = b
	}
	return f
}

func (f files) clone() files {
	c := files{}
	for name, b := range f {
		c[name] = bytes.Clone(b)
	}
	return c
}

func (f files) store(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	f.storeIn(t, dir)
	return dir
}

func (f files) storeIn(t testing.TB, dir string) {
	t.Helper()
	old, _ := filepath.Glob(filepath.Join(dir, "journal-*.jsonl"))
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range f {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// place is a line of a journal.
type place struct {
	segment    string
	start, end int // in the segment
	seq        uint64
}

func (f files) places(t testing.TB) (all []place) {
	t.Helper()
	for n := 1; n <= len(f); n++ {
		name := chain.SegmentName(n)
		at := 0
		for l := range chain.Lines(f[name]) {
			all = append(all, place{name, at, at + l.Size(), l.Seq})
			at += l.Size()
		}
	}
	return all
}

func describe(r audit.Report) string {
	var s []string
	for _, f := range r.Findings {
		s = append(s, f.String()+": "+f.Detail)
	}
	return strings.Join(s, "\n")
}

func TestAJournalVerifiesClosedOpenAndKilled(t *testing.T) {
	dir, at := written(t, 20)
	last := at[len(at)-1]
	r := verify(t, dir, audit.Options{})
	if !r.OK() || r.Head != (audit.Head{Seq: last.Seq, Hash: last.Hash}) || r.Entries != last.Seq || r.First != 1 || !r.SelfConsistentOnly() {
		t.Fatalf("%+v", r)
	}
	j, _, err := journal.Open(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Append(entry(20)).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = verify(t, dir, audit.Options{})
	if !r.OK() || r.Entries <= last.Seq || r.Torn != nil {
		t.Fatalf("while it is open: %+v", r)
	}
	f := load(t, dir)
	name := chain.SegmentName(last.Segment)
	f[name] = bytes.TrimRight(f[name], "\x00")
	f[name] = append(f[name][:len(f[name])-20], make([]byte, 3000)...)
	r = verify(t, f.store(t), audit.Options{})
	if !r.OK() || r.Torn == nil {
		t.Fatalf("with a torn tail: %+v", r)
	}
	one := verify(t, filepath.Join(dir, chain.SegmentName(2)), audit.Options{})
	if !one.OK() || one.First == 1 || one.Segments != 1 {
		t.Fatalf("one segment: %+v\n%s", one, describe(one))
	}
}

func TestVerifyingBesideTheWriterFindsNothing(t *testing.T) {
	dir, _ := written(t, 3)
	j, _, err := journal.Open(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for i := range 400 {
			if err := j.Append(entry(i), entry(i+1)).Wait(t.Context()); err != nil {
				done <- err
				return
			}
		}
		done <- j.Close()
	}()
	rounds := 0
	for {
		r := verify(t, dir, audit.Options{})
		if !r.OK() {
			t.Fatalf("round %d:\n%s", rounds, describe(r))
		}
		rounds++
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if r := verify(t, dir, audit.Options{}); !r.OK() || r.Entries < 800 {
				t.Fatalf("%+v", r)
			}
			return
		default:
		}
	}
}

func TestEveryFlippedBitIsFoundAndLocated(t *testing.T) {
	dir, _ := written(t, 9)
	f := load(t, dir)
	scratch := t.TempDir()
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, p := range f.places(t) {
		for i := p.start; i < p.end; i += step {
			damaged := f.clone()
			damaged[p.segment][i] ^= 1 << (i % 8)
			damaged.storeIn(t, scratch)
			r := verify(t, scratch, audit.Options{})
			if len(r.Findings) == 0 {
				t.Fatalf("%s byte %d (entry %d): nothing found", p.segment, i, p.seq)
			}
			if first := r.Findings[0]; first.Seq != p.seq || first.Segment != p.segment || first.Offset != int64(p.start) {
				t.Fatalf("%s byte %d: entry %d at byte %d was changed, found:\n%s", p.segment, i, p.seq, p.start, describe(r))
			}
		}
	}
}

func TestEachLineRemovedDoubledOrSwappedIsFoundAndLocated(t *testing.T) {
	dir, _ := written(t, 14)
	f := load(t, dir)
	scratch := t.TempDir()
	all := f.places(t)
	check := func(what string, damaged files, want chain.What, seq uint64) {
		t.Helper()
		damaged.storeIn(t, scratch)
		r := verify(t, scratch, audit.Options{})
		if !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.What == want && f.Seq == seq }) {
			t.Fatalf("%s: want %s at entry %d, found:\n%s", what, want, seq, describe(r))
		}
	}
	for i, p := range all[:len(all)-1] {
		b := f[p.segment]
		line := b[p.start:p.end]
		removed := f.clone()
		removed[p.segment] = slices.Concat(b[:p.start], b[p.end:])
		check(fmt.Sprintf("entry %d removed", p.seq), removed, chain.WhatRemoved, p.seq)

		doubled := f.clone()
		doubled[p.segment] = slices.Concat(b[:p.end], line, b[p.end:])
		check(fmt.Sprintf("entry %d doubled", p.seq), doubled, chain.WhatDuplicate, p.seq)

		if next := all[i+1]; next.segment == p.segment {
			swapped := f.clone()
			swapped[p.segment] = slices.Concat(b[:p.start], b[next.start:next.end], line, b[next.end:])
			check(fmt.Sprintf("entries %d and %d swapped", p.seq, next.seq), swapped, chain.WhatReordered, p.seq)
		}
		inserted := f.clone()
		inserted[p.segment] = slices.Concat(b[:p.end], []byte("something else\n"), b[p.end:])
		check(fmt.Sprintf("a line behind entry %d", p.seq), inserted, chain.WhatGarbage, p.seq+1)

		// Somebody who knows the format also puts the new hash right; then the next entry disagrees.
		l, err := chain.Split(line[:len(line)-1])
		if err != nil {
			t.Fatal(err)
		}
		event := bytes.Replace(l.AppendEvent(nil), []byte(`"n":`), []byte(`"m":`), 1)
		event = bytes.Replace(event, []byte(`"tree_size":`), []byte(`"head_size":`), 1)
		payload, _ := l.Payload(nil)
		forged, _ := chain.AppendLine(nil, l.Seq, clock(), l.Prev(), event, payload)
		rewritten := f.clone()
		rewritten[p.segment] = slices.Concat(b[:p.start], forged, b[p.end:])
		check(fmt.Sprintf("entry %d rewritten with its hash", p.seq), rewritten, chain.WhatForked, p.seq+1)
	}
}

func TestAJournalTruncatedAtEveryByteIsFoundAgainstItsHead(t *testing.T) {
	dir, at := written(t, 12)
	f := load(t, dir)
	last := at[len(at)-1]
	head := audit.Head{Seq: last.Seq, Hash: last.Hash}
	if r := verify(t, dir, audit.Options{Head: &head}); !r.OK() || r.SelfConsistentOnly() {
		t.Fatalf("whole: %s", describe(r))
	}
	other := head
	other.Hash[5] ^= 1
	if r := verify(t, dir, audit.Options{Head: &other}); r.OK() || r.Findings[0].What != chain.WhatForked {
		t.Fatalf("another hash: %s", describe(r))
	}
	scratch := t.TempDir()
	step := 1
	if testing.Short() {
		step = 7
	}
	all := f.places(t)
	for n := len(f); n >= 1; n-- {
		name := chain.SegmentName(n)
		cut := f.clone()
		for later := n + 1; later <= len(f); later++ {
			delete(cut, chain.SegmentName(later))
		}
		for size := len(f[name]) - 1; size >= 0; size -= step {
			cut[name] = f[name][:size]
			cut.storeIn(t, scratch)
			r := verify(t, scratch, audit.Options{Head: &head})
			var lost place
			for _, p := range all {
				if p.segment == name && p.end > size {
					lost = p
					break
				}
			}
			if !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.What == chain.WhatTruncated && f.Seq == lost.seq }) {
				t.Fatalf("%s cut at %d: want truncated at entry %d, found:\n%s", name, size, lost.seq, describe(r))
			}
		}
	}
}

func TestSegmentsRemovedRenamedOrSwappedAreFoundAndLocated(t *testing.T) {
	dir, _ := written(t, 40)
	f := load(t, dir)
	all := f.places(t)
	first := func(n int) uint64 {
		for _, p := range all {
			if p.segment == chain.SegmentName(n) {
				return p.seq
			}
		}
		t.Fatalf("no segment %d", n)
		return 0
	}
	name := chain.SegmentName
	for what, c := range map[string]struct {
		damage func(files)
		want   chain.What
		seq    uint64
	}{
		"first removed":  {func(f files) { delete(f, name(1)) }, chain.WhatSegment, 1},
		"second removed": {func(f files) { delete(f, name(2)) }, chain.WhatSegment, first(2)},
		"two swapped":    {func(f files) { f[name(2)], f[name(3)] = f[name(3)], f[name(2)] }, chain.WhatLink, first(3)},
		"one copied":     {func(f files) { f[name(3)] = f[name(2)] }, chain.WhatLink, first(2)},
		"one renamed":    {func(f files) { f[name(99)] = f[name(2)]; delete(f, name(2)) }, chain.WhatSegment, first(2)},
		"rest renumbered": {func(f files) {
			for n := 2; n < len(f); n++ {
				f[name(n)] = f[name(n+1)]
			}
			delete(f, name(len(f)))
		}, chain.WhatLink, first(3)},
		"emptied":     {func(f files) { f[name(2)] = nil }, chain.WhatGarbage, first(2)},
		"end removed": {func(f files) { f[name(2)] = f[name(2)][:len(f[name(2)])-200] }, chain.WhatChanged, first(3) - 1},
		"something behind unused space": {func(f files) {
			f[name(2)] = append(append(f[name(2)], make([]byte, 3<<20)...), "hidden"...)
		}, chain.WhatGarbage, first(3)},
		"something behind the end": {func(f files) {
			f[name(len(f))] = append(append(f[name(len(f))], make([]byte, 3<<20)...), "hidden"...)
		}, chain.WhatChanged, all[len(all)-1].seq + 1},
	} {
		t.Run(what, func(t *testing.T) {
			damaged := f.clone()
			c.damage(damaged)
			r := verify(t, damaged.store(t), audit.Options{})
			if !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.What == c.want && f.Seq == c.seq }) {
				t.Fatalf("want %s at entry %d, found:\n%s", c.want, c.seq, describe(r))
			}
		})
	}
}

func TestAPayloadThatWasExchangedOrRemovedIsFoundAndAnErasedOneIsNot(t *testing.T) {
	dir, at := written(t, 12)
	f := load(t, dir)
	p := at[5]
	name := chain.SegmentName(p.Segment)
	l, err := chain.Split(f[name][p.Offset : p.Offset+int64(bytes.IndexByte(f[name][p.Offset:], '\n'))])
	if err != nil {
		t.Fatal(err)
	}
	from, n := l.SealedRange()
	sealed := f[name][int(p.Offset)+from : int(p.Offset)+from+n]
	find := func(r audit.Report, what chain.What) bool {
		return len(r.Findings) == 1 && r.Findings[0].What == what && r.Findings[0].Seq == p.Seq && r.Findings[0].Offset == p.Offset
	}
	changed := f.clone()
	copy(changed[name][int(p.Offset)+from:], "AAAA")
	if r := verify(t, changed.store(t), audit.Options{}); !find(r, chain.WhatPayload) {
		t.Fatalf("exchanged: %s", describe(r))
	}
	dashed := f.clone()
	copy(dashed[name][int(p.Offset)+from:], strings.Repeat("-", n))
	if r := verify(t, dashed.store(t), audit.Options{}); !find(r, chain.WhatErased) {
		t.Fatalf("erased off the record: %s", describe(r))
	}
	exported := f.clone()
	exported[name] = bytes.Replace(exported[name], slices.Concat([]byte(`,"sealed":"`), sealed, []byte(`"`)), nil, 1)
	if r := verify(t, exported.store(t), audit.Options{}); !find(r, chain.WhatErased) {
		t.Fatalf("withheld: %s", describe(r))
	}
	if r := verify(t, exported.store(t), audit.Options{Withheld: true}); !r.OK() || r.Withheld != 1 {
		t.Fatalf("withheld in an export: %s", describe(r))
	}
	j, _, err := journal.Open(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Erase(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, audit.Options{}); !r.OK() || r.Erased != 1 {
		t.Fatalf("erased on the record: %s", describe(r))
	}
	half := load(t, dir)
	copy(half[name][int(p.Offset)+from:], sealed[:4])
	if r := verify(t, half.store(t), audit.Options{}); !r.OK() || r.Erased != 1 {
		t.Fatalf("an erasure that the machine interrupted: %s", describe(r))
	}
}

func TestAnAcceptedBreakIsReportedAsAcceptedUntilTheEvidenceChanges(t *testing.T) {
	dir, at := written(t, 12)
	f := load(t, dir)
	p := at[len(at)-2]
	name := chain.SegmentName(p.Segment)
	f[name][p.Offset+120] ^= 1
	f.storeIn(t, dir)
	if r := verify(t, dir, audit.Options{}); r.OK() || r.Findings[0].Seq != p.Seq {
		t.Fatal(describe(r))
	}
	cfg := config(dir)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, r, err := journal.Open(cfg)
	if err != nil || r.Quarantine == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := j.AcceptQuarantine("seen", nil); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(entry(1)).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	rep := verify(t, dir, audit.Options{})
	if !rep.OK() || len(rep.Accepted) == 0 || rep.Accepted[0].Seq != p.Seq {
		t.Fatalf("%+v\n%s", rep, describe(rep))
	}
	old := at[len(at)-1]
	if r := verify(t, dir, audit.Options{Head: &audit.Head{Seq: old.Seq, Hash: old.Hash}}); !r.OK() {
		t.Fatalf("against a head from before: %s", describe(r))
	}
	again := load(t, dir)
	again[name][p.Offset+130] ^= 1
	if r := verify(t, again.store(t), audit.Options{}); r.OK() {
		t.Fatal("the evidence was changed after it was accepted, and nothing was found")
	}
}

func TestATailThatWasCutIsReported(t *testing.T) {
	dir, _ := written(t, 3)
	f := load(t, dir)
	name := chain.SegmentName(1)
	f[name] = append(f[name], `{"entry":{"seq":`...)
	f.storeIn(t, dir)
	j, _, err := journal.Open(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	r := verify(t, dir, audit.Options{})
	if !r.OK() || len(r.Cuts) != 1 || r.Cuts[0].Length != 16 {
		t.Fatalf("%+v", r)
	}
}
