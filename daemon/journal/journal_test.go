package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

func clock() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func config(dir string) journal.Config {
	return journal.Config{Dir: dir, Now: clock, Reserve: 16 << 10}
}

func newDir(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }

func open(t testing.TB, cfg journal.Config) (*journal.Journal, *journal.Recovery) {
	t.Helper()
	j, r, err := journal.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() }) //nolint:errcheck // Most tests have closed it.
	return j, r
}

func event(n int) journal.Entry {
	return journal.Entry{Event: fmt.Appendf(nil, `{"kind":"dispatched","n":%d}`, n)}
}

func mustAppend(t testing.TB, j *journal.Journal, e ...journal.Entry) *journal.Commit {
	t.Helper()
	c := j.Append(e...)
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func closeNow(t testing.TB, j *journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// kinds reads the whole journal and returns the kinds of its entries; Read verifies the chain.
func kinds(t testing.TB, j *journal.Journal) []string {
	t.Helper()
	var got []string
	if err := j.Read(journal.Position{}, func(d journal.Durable) error {
		l, err := chain.Split(d.Line)
		if err != nil {
			return err
		}
		got = append(got, string(l.Kind))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWhatWasAppendedIsReadInOrderAfterReopening(t *testing.T) {
	dir := newDir(t)
	j, r := open(t, config(dir))
	if !r.Clean || r.Head.Seq != 1 {
		t.Fatalf("recovery %+v", r)
	}
	c := mustAppend(t, j, event(1), event(2), journal.Entry{Event: []byte(`{"kind":"completed"}`), Sealed: []byte("payload")})
	if c.First().Seq != 2 || c.Last().Seq != 4 {
		t.Fatalf("entries %d to %d", c.First().Seq, c.Last().Seq)
	}
	closeNow(t, j)
	j, r = open(t, config(dir))
	if !r.Clean || r.Head != c.Last() || r.Cut != nil || r.Quarantine != nil {
		t.Fatalf("recovery %+v, want head %+v", r, c.Last())
	}
	var seqs []uint64
	if err := j.Read(c.First(), func(d journal.Durable) error {
		seqs = append(seqs, d.Seq)
		return nil
	}); err != nil || fmt.Sprint(seqs) != "[3 4]" {
		t.Fatalf("read %v, %v", seqs, err)
	}
	if err := j.ReadAt(c.Last(), func(d journal.Durable) error {
		l, err := chain.Split(d.Line)
		if err != nil {
			return err
		}
		if p, err := l.Payload(nil); err != nil || string(p) != "payload" {
			return fmt.Errorf("payload %q, %w", p, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wrong := c.Last()
	wrong.Hash[0] ^= 1
	if err := j.ReadAt(wrong, func(journal.Durable) error { return nil }); !errors.Is(err, journal.ErrNotFound) {
		t.Fatalf("another hash: %v", err)
	}
}

func TestASecondProcessIsToldThatTheJournalIsInUse(t *testing.T) {
	dir := newDir(t)
	j, _ := open(t, config(dir))
	if _, _, err := journal.Open(config(dir)); !errors.Is(err, journal.ErrInUse) {
		t.Fatalf("second open: %v", err)
	}
	closeNow(t, j)
	open(t, config(dir))
}

func TestLaxModesAreRefused(t *testing.T) {
	dir := newDir(t)
	j, _ := open(t, config(dir))
	closeNow(t, j)
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open(config(dir)); err == nil {
		t.Fatal("a directory of mode 0750 was accepted")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, chain.SegmentName(1)), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open(config(dir)); err == nil {
		t.Fatal("a segment of mode 0640 was accepted")
	}
}

func TestEntriesThatTheJournalMustWriteItselfAreRefused(t *testing.T) {
	j, _ := open(t, config(newDir(t)))
	for _, e := range []string{`{"kind":"segment_opened"}`, `{"kind":"tail_cut"}`, `{"kind":"quarantine_accepted"}`, `{"kind":"payload_erased"}`, `{}`} {
		if err := j.Append(journal.Entry{Event: []byte(e)}).Wait(t.Context()); err == nil {
			t.Fatalf("%s was appended", e)
		}
	}
	if err := j.Append().Wait(t.Context()); err == nil {
		t.Fatal("nothing was appended")
	}
	big := journal.Entry{Event: event(1).Event, Sealed: make([]byte, chain.MaxLine)}
	if err := j.Append(big).Wait(t.Context()); !errors.Is(err, journal.ErrTooLarge) {
		t.Fatalf("32 MiB payload: %v", err)
	}
}

func TestSegmentsRotateAndNameTheOneBefore(t *testing.T) {
	cfg := config(newDir(t))
	cfg.SegmentSize = 2000
	j, _ := open(t, cfg)
	for i := range 40 {
		mustAppend(t, j, event(i))
	}
	head := j.Head()
	closeNow(t, j)
	files, err := filepath.Glob(filepath.Join(cfg.Dir, "journal-*.jsonl"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d segments, %v", len(files), err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > cfg.SegmentSize {
			t.Fatalf("%s: %v", f, err)
		}
	}
	j, r := open(t, cfg)
	if r.Head != head {
		t.Fatalf("head %+v, want %+v", r.Head, head)
	}
	if got := kinds(t, j); uint64(len(got)) != head.Seq {
		t.Fatalf("%d entries, want %d", len(got), head.Seq)
	}
}

func TestALazyEntryWaitsForCompanyOrForTheDelay(t *testing.T) {
	cfg := config(newDir(t))
	cfg.LazyDelay = time.Hour
	j, _ := open(t, cfg)
	lazy := event(1)
	lazy.Lazy = true
	c := j.Append(lazy)
	select {
	case <-c.Done():
		t.Fatal("a lazy entry was written at once")
	default:
	}
	after := mustAppend(t, j, event(2))
	if err := c.Wait(t.Context()); err != nil || c.Last().Seq+1 != after.First().Seq {
		t.Fatalf("lazy entry %d, %v", c.Last().Seq, err)
	}
	last := j.Append(lazy)
	closeNow(t, j)
	if err := last.Wait(context.Background()); err != nil {
		t.Fatalf("close did not write the lazy entry: %v", err)
	}
	cfg.LazyDelay = time.Nanosecond
	j, _ = open(t, cfg)
	if err := j.Append(lazy).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTheSubscriberSeesEachEntryOnceAndBeforeTheWaiter(t *testing.T) {
	cfg := config(newDir(t))
	cfg.SegmentSize = 4000
	var seen []journal.Position // written by the writer's goroutine, read after Wait and Close
	cfg.OnDurable = func(batch []journal.Durable) {
		for _, d := range batch {
			l, err := chain.Split(d.Line)
			if err != nil || l.Hash() != d.Hash {
				t.Errorf("entry %d: %v", d.Seq, err)
			}
			seen = append(seen, d.Position)
		}
	}
	j, _ := open(t, cfg)
	for i := range 30 {
		c := mustAppend(t, j, event(i))
		if last := seen[len(seen)-1]; last != c.Last() {
			t.Fatalf("the waiter woke at %+v, the subscriber stands at %+v", c.Last(), last)
		}
	}
	closeNow(t, j)
	for i, p := range seen {
		if p.Seq != uint64(i)+2 {
			t.Fatalf("subscriber saw entry %d as number %d", p.Seq, i+2)
		}
	}
}

func TestManyWritersShareSyncsAndKeepTheOrderOfEachAppend(t *testing.T) {
	cfg := config(newDir(t))
	cfg.SegmentSize = 64 << 10
	j, _ := open(t, cfg)
	done := make(chan error)
	for w := range 16 {
		go func() {
			for i := range 50 {
				c := j.Append(event(w), event(i), event(w))
				if err := c.Wait(context.Background()); err != nil {
					done <- err
					return
				}
				if c.Last().Seq != c.First().Seq+2 {
					done <- fmt.Errorf("entries %d to %d are not contiguous", c.First().Seq, c.Last().Seq)
					return
				}
			}
			done <- nil
		}()
	}
	for range 16 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	head := j.Head()
	closeNow(t, j)
	j, _ = open(t, cfg)
	if got := kinds(t, j); uint64(len(got)) != head.Seq {
		t.Fatalf("%d entries, want %d", len(got), head.Seq)
	}
}
