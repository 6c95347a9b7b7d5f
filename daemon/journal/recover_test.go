package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

// snapshot is the directory as a process that is killed now would leave it.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	to := newDir(t)
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, filepath.Base(f)), b)
	}
	return to
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// killed is a journal of n entries after segment_opened, left as by a kill, with its content and the
// offset of its last line.
func killed(t testing.TB, n int) (dir string, content []byte, last int) {
	t.Helper()
	cfg := config(newDir(t))
	cfg.Reserve = 4096
	j, _ := open(t, cfg)
	for i := range n {
		mustAppend(t, j, event(i))
	}
	dir = snapshot(t, cfg.Dir)
	content = bytes.TrimRight(read(t, filepath.Join(dir, chain.SegmentName(1))), "\x00")
	return dir, content, bytes.LastIndexByte(content[:len(content)-1], '\n') + 1
}

func TestALineThatWasTornAnywhereIsCutAndTheCutRecorded(t *testing.T) {
	dir, content, last := killed(t, 3)
	name := filepath.Join(dir, chain.SegmentName(1))
	for cut := last + 1; cut < len(content); cut += 7 {
		for _, unused := range []int{0, 5000} {
			write(t, name, append(bytes.Clone(content[:cut]), make([]byte, unused)...))
			j, r := open(t, config(dir))
			want := chain.TailCut{
				Kind: chain.KindTailCut, Segment: chain.SegmentName(1), Offset: int64(last),
				Length: int64(cut - last), Digest: chain.Digest(content[last:cut]), Reason: "torn",
			}
			if r.Quarantine != nil || r.Cut == nil || *r.Cut != want || r.Clean {
				t.Fatalf("cut at %d: %+v, want %+v", cut, r, want)
			}
			mustAppend(t, j, event(9))
			if got := fmt.Sprint(kinds(t, j)); got != "[segment_opened dispatched dispatched tail_cut dispatched]" {
				t.Fatalf("cut at %d: %s", cut, got)
			}
			closeNow(t, j)
			if j, r := open(t, config(dir)); !r.Clean {
				t.Fatalf("cut at %d, second open: %+v", cut, r)
			} else {
				closeNow(t, j)
			}
		}
	}
}

func TestUnusedZerosAreNotPartOfTheJournal(t *testing.T) {
	dir, _, _ := killed(t, 3)
	j, r := open(t, config(dir))
	if r.Clean || r.Cut != nil || r.Quarantine != nil || r.Head.Seq != 4 {
		t.Fatalf("%+v", r)
	}
	mustAppend(t, j, event(4))
	if got := len(kinds(t, j)); got != 5 {
		t.Fatalf("%d entries", got)
	}
}

func TestABatchWhoseSectorsReachedTheDiskInAnotherOrderIsCut(t *testing.T) {
	dir, content, _ := killed(t, 12)
	name := filepath.Join(dir, chain.SegmentName(1))
	for sector := len(content) / chain.Sector / 2; sector < len(content)/chain.Sector; sector++ {
		torn := append(bytes.Clone(content), make([]byte, 4000)...)
		clear(torn[sector*chain.Sector : (sector+1)*chain.Sector])
		write(t, name, torn)
		j, r := open(t, config(dir))
		start := bytes.LastIndexByte(content[:sector*chain.Sector], '\n') + 1
		if r.Quarantine != nil || r.Cut == nil || r.Cut.Offset != int64(start) || r.Cut.Length != int64(len(content)-start) {
			t.Fatalf("sector %d: %+v", sector, r)
		}
		mustAppend(t, j, event(1))
		kinds(t, j)
		closeNow(t, j)
	}
}

func TestWhatIsNotATornTailIsNeitherCutNorOverwritten(t *testing.T) {
	dir, content, last := killed(t, 4)
	name := filepath.Join(dir, chain.SegmentName(1))
	unused := make([]byte, 3000)
	first := bytes.IndexByte(content, '\n') + 1
	second := first + bytes.IndexByte(content[first:], '\n') + 1
	damaged := map[string][]byte{
		"line removed":          slices.Concat(content[:first], content[second:], unused),
		"line twice":            slices.Concat(content, content[last:], unused),
		"zeros in a line":       slices.Concat(content[:last+60], make([]byte, 3), content[last+63:], unused),
		"last line break gone":  slices.Concat(content[:len(content)-1], []byte("}"), unused),
		"text behind":           slices.Concat(content, []byte("hello"), unused),
		"text behind the zeros": slices.Concat(content, unused, []byte("hello")),
		"an empty line":         slices.Concat(content, []byte("\n"), unused),
		"nothing":               unused,
	}
	for i := 0; i < len(content); i += 11 {
		b := slices.Concat(content, unused)
		b[i] ^= 4
		damaged[fmt.Sprintf("byte %d", i)] = b
	}
	for what, b := range damaged {
		t.Run(what, func(t *testing.T) {
			write(t, name, b)
			j, r := open(t, config(dir))
			if r.Quarantine == nil || j.Quarantine() == nil || r.Cut != nil {
				t.Fatalf("%+v", r)
			}
			if err := j.Append(event(1)).Wait(t.Context()); !errors.Is(err, journal.ErrQuarantine) {
				t.Fatalf("append: %v", err)
			}
			closeNow(t, j)
			if !bytes.Equal(read(t, name), b) {
				t.Fatal("the evidence was changed")
			}
		})
	}
}

func TestAnAcceptedQuarantineIsRecordedInANewSegmentAndTheEvidenceStays(t *testing.T) {
	dir, content, _ := killed(t, 5)
	name := filepath.Join(dir, chain.SegmentName(1))
	first := bytes.IndexByte(content, '\n') + 1
	content[first+100] ^= 1 // in the line of entry 2
	write(t, name, content)
	j, r := open(t, config(dir))
	if r.Quarantine == nil || r.Head.Seq != 1 || r.Quarantine.Breaks[0].Seq != 2 || r.Quarantine.Breaks[0].Offset != int64(first) {
		t.Fatalf("%+v %v", r, r.Quarantine)
	}
	if _, err := j.AcceptQuarantine("", nil); err == nil {
		t.Fatal("accepted without a reason")
	}
	at, err := j.AcceptQuarantine("disk was swapped", []byte(`{"operator":"someone"}`))
	if err != nil {
		t.Fatal(err)
	}
	if at.Seq != 7 || at.Segment != 2 {
		t.Fatalf("accepted at %+v; entries up to 6 may have been acknowledged", at)
	}
	mustAppend(t, j, event(8))
	want := "1 segment_opened, 3 dispatched evidence, 4 dispatched evidence, 5 dispatched evidence, 6 dispatched evidence, 7 quarantine_accepted, 8 dispatched"
	story := func(j *journal.Journal) string {
		var s []string
		if err := j.Read(journal.Position{}, func(d journal.Durable) error {
			l, err := chain.Split(d.Line)
			text := fmt.Sprintf("%d %s", d.Seq, l.Kind)
			if d.Evidence {
				text += " evidence"
			}
			s = append(s, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(s, ", ")
	}
	if got := story(j); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	closeNow(t, j)
	if !bytes.Equal(read(t, name), content) {
		t.Fatal("the evidence was changed")
	}
	j, r = open(t, config(dir))
	if r.Quarantine != nil || story(j) != want {
		t.Fatalf("reopened: %+v", r)
	}
}

func TestAJournalThatLostWhatTheCallerKnowsIsInQuarantine(t *testing.T) {
	cfg := config(newDir(t))
	cfg.SegmentSize = 2000
	j, _ := open(t, cfg)
	var at []journal.Position
	for i := range 20 {
		at = append(at, mustAppend(t, j, event(i)).Last())
	}
	closeNow(t, j)
	last := at[len(at)-1]
	for _, trusted := range at {
		cfg.Trusted = &trusted
		j, r := open(t, cfg)
		if r.Quarantine != nil || r.Head != last {
			t.Fatalf("trusting entry %d: %+v", trusted.Seq, r)
		}
		closeNow(t, j)
	}
	name := filepath.Join(cfg.Dir, chain.SegmentName(last.Segment))
	whole := read(t, name)
	refused := func(what string) {
		t.Helper()
		j, r := open(t, cfg)
		if r.Quarantine == nil {
			t.Fatalf("%s: no quarantine", what)
		}
		if _, err := j.AcceptQuarantine(what, nil); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if h := mustAppend(t, j, event(0)).Last(); h.Seq <= last.Seq {
			t.Fatalf("%s: number %d was given twice", what, h.Seq)
		}
		closeNow(t, j)
		for _, trusted := range []*journal.Position{cfg.Trusted, nil} {
			again := cfg
			again.Trusted = trusted
			j, r = open(t, again)
			if r.Quarantine != nil {
				t.Fatalf("%s: accepted, and again: %v", what, r.Quarantine)
			}
			closeNow(t, j)
		}
	}
	cfg.Trusted = &last
	good := snapshot(t, cfg.Dir)
	write(t, name, whole[:last.Offset])
	refused("last line gone")

	cfg.Dir = snapshot(t, good)
	if err := os.Remove(filepath.Join(cfg.Dir, chain.SegmentName(last.Segment))); err != nil {
		t.Fatal(err)
	}
	refused("last segment gone")

	cfg.Dir = snapshot(t, good)
	forged := last
	forged.Hash[3] ^= 1
	cfg.Trusted = &forged
	refused("another entry in its place")

	cfg.Dir = newDir(t)
	cfg.Trusted = &last
	refused("everything gone")
}

func TestSegmentsThatAreMissingOrMisplacedAreQuarantined(t *testing.T) {
	cfg := config(newDir(t))
	cfg.SegmentSize = 2000
	j, _ := open(t, cfg)
	for i := range 20 {
		mustAppend(t, j, event(i))
	}
	closeNow(t, j)
	good := cfg.Dir
	path := func(n int) string { return filepath.Join(cfg.Dir, chain.SegmentName(n)) }
	for what, damage := range map[string]func() error{
		"first gone":  func() error { return os.Remove(path(1)) },
		"second gone": func() error { return os.Remove(path(2)) },
		"two swapped": func() error {
			return errors.Join(os.Rename(path(2), path(99)), os.Rename(path(3), path(2)), os.Rename(path(99), path(3)))
		},
		"one copied": func() error { write(t, path(3), read(t, path(2))); return nil },
		"end cut off": func() error {
			b := read(t, path(2))
			write(t, path(2), b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1])
			return nil
		},
		"end torn":      func() error { b := read(t, path(2)); write(t, path(2), b[:len(b)-30]); return nil },
		"emptied":       func() error { write(t, path(2), nil); return nil },
		"end scribbled": func() error { b := read(t, path(2)); b[len(b)-200] ^= 1; write(t, path(2), b); return nil },
	} {
		t.Run(what, func(t *testing.T) {
			cfg.Dir = snapshot(t, good)
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			j, r := open(t, cfg)
			if r.Quarantine == nil {
				t.Fatal("no quarantine")
			}
			t.Log(r.Quarantine)
			if _, err := j.AcceptQuarantine("tested", nil); err != nil {
				t.Fatal(err)
			}
			mustAppend(t, j, event(1))
			if err := j.Read(journal.Position{}, func(journal.Durable) error { return nil }); err != nil {
				t.Fatal(err)
			}
			closeNow(t, j)
			j, r = open(t, cfg)
			if r.Quarantine != nil {
				t.Fatalf("accepted, and again: %v", r.Quarantine)
			}
			closeNow(t, j)
		})
	}
}
