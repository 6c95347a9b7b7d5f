package journal_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

// faultFS is the real file system with faults in front of it.
type faultFS struct {
	journal.OS
	mu   sync.Mutex
	hook func(op, path string, b []byte) fault
}

// fault is what an operation does instead. After means: it is done, and then reported as failed.
type fault struct {
	err   error
	after bool
}

func (f *faultFS) on(hook func(op, path string, b []byte) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *faultFS) do(op, path string, b []byte, real func() error) error {
	f.mu.Lock()
	var x fault
	if f.hook != nil {
		x = f.hook(op, path, b)
	}
	f.mu.Unlock()
	if x.err != nil && !x.after {
		return x.err
	}
	return errors.Join(real(), x.err)
}

func (f *faultFS) OpenFile(path string, flag int, perm fs.FileMode) (file journal.File, err error) {
	if flag == os.O_RDONLY {
		return f.OS.OpenFile(path, flag, perm)
	}
	err = f.do("open", path, nil, func() (err error) {
		file, err = f.OS.OpenFile(path, flag, perm)
		return err
	})
	return &faultFile{file, f, path}, err
}

func (f *faultFS) Rename(from, to string) error {
	return f.do("rename", to, nil, func() error { return f.OS.Rename(from, to) })
}

func (f *faultFS) SyncDir(path string) error {
	return f.do("syncdir", path, nil, func() error { return f.OS.SyncDir(path) })
}

type faultFile struct {
	journal.File
	fs   *faultFS
	path string
}

func (f *faultFile) WriteAt(b []byte, off int64) (n int, err error) {
	op := "write"
	if len(b) > 0 && b[0] == 0 {
		op = "allocate"
	}
	err = f.fs.do(op, f.path, b, func() (err error) {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	if err != nil && n == 0 { // Part of it got there.
		n, _ = f.File.WriteAt(b[:len(b)/2], off)
	}
	return n, err
}

func (f *faultFile) Datasync() error { return f.fs.do("sync", f.path, nil, f.File.Datasync) }

func (f *faultFile) Truncate(n int64) error {
	return f.fs.do("truncate", f.path, nil, func() error { return f.File.Truncate(n) })
}

// always fails an operation with err from the nth time on.
func always(op string, nth int, err error, after bool) func(string, string, []byte) fault {
	return func(got, _ string, _ []byte) fault {
		if got == op {
			if nth--; nth < 0 {
				return fault{err: err, after: after}
			}
		}
		return fault{}
	}
}

func faulty(t testing.TB) (journal.Config, *faultFS) {
	f := &faultFS{}
	cfg := config(newDir(t))
	cfg.FS = f
	return cfg, f
}

// idle makes sure that the writer has done what it does at its start.
func idle(t testing.TB, j *journal.Journal) { mustAppend(t, j, event(0)) }

func TestAfterAFailedWriteOrSyncTheWriterStopsUntilItIsResumed(t *testing.T) {
	for _, op := range []string{"write", "sync"} {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v done=%v", op, cause, after), func(t *testing.T) {
					cfg, f := faulty(t)
					var seen []uint64
					cfg.OnDurable = func(batch []journal.Durable) {
						for _, d := range batch {
							seen = append(seen, d.Seq)
						}
					}
					j, _ := open(t, cfg)
					idle(t, j)
					before := mustAppend(t, j, event(1)).Last()
					f.on(always(op, 0, cause, after))
					lost := j.Append(event(2))
					if err := lost.Wait(t.Context()); !errors.Is(err, journal.ErrStopped) || !errors.Is(err, cause) {
						t.Fatalf("append: %v", err)
					}
					if err := j.Append(event(3)).Wait(t.Context()); !errors.Is(err, journal.ErrStopped) {
						t.Fatalf("append while stopped: %v", err)
					}
					if err := j.Status(); !errors.Is(err, journal.ErrStopped) {
						t.Fatalf("status: %v", err)
					}
					if err := j.Resume(); !errors.Is(err, cause) {
						t.Fatalf("resume while the fault lasts: %v", err)
					}
					f.on(nil)
					if err := j.Resume(); err != nil {
						t.Fatal(err)
					}
					next := mustAppend(t, j, event(4)).Last()
					want := "[segment_opened dispatched dispatched tail_cut dispatched]"
					if op == "sync" {
						want = "[segment_opened dispatched dispatched segment_opened tail_cut dispatched]"
					}
					if got := fmt.Sprint(kinds(t, j)); got != want {
						t.Fatalf("%s, want %s", got, want)
					}
					if (next.Segment > before.Segment) != (op == "sync") {
						t.Fatalf("went on in segment %d", next.Segment)
					}
					dir := snapshot(t, cfg.Dir)
					closeNow(t, j)
					for i, s := range seen {
						if s != uint64(i)+2 {
							t.Fatalf("the subscriber saw %v", seen)
						}
					}
					for _, dir := range []string{cfg.Dir, dir} {
						j, r := open(t, config(dir))
						if r.Quarantine != nil || r.Head != next || r.Cut != nil {
							t.Fatalf("%+v", r)
						}
						kinds(t, j)
						closeNow(t, j)
					}
				})
			}
		}
	}
}

func TestAKillWhileTheWriterIsStoppedLosesNothingAcknowledged(t *testing.T) {
	for _, op := range []string{"write", "sync"} {
		for _, after := range []bool{false, true} {
			cfg, f := faulty(t)
			j, _ := open(t, cfg)
			idle(t, j)
			known := mustAppend(t, j, event(1)).Last()
			f.on(always(op, 0, syscall.EIO, after))
			if err := j.Append(event(2)).Wait(t.Context()); err == nil {
				t.Fatal("no error")
			}
			again := config(snapshot(t, cfg.Dir))
			again.Trusted = &known
			j2, r := open(t, again)
			if r.Quarantine != nil || r.Head.Seq < known.Seq {
				t.Fatalf("%s done=%v: %+v", op, after, r)
			}
			mustAppend(t, j2, event(3))
			kinds(t, j2)
		}
	}
}

func TestOnAFullDiskOrdinaryEntriesAreRefusedAndOutcomesUseTheReserve(t *testing.T) {
	for _, op := range []string{"allocate", "open"} {
		t.Run(op, func(t *testing.T) {
			cfg, f := faulty(t)
			cfg.Reserve = 8 << 10
			cfg.SegmentSize = 16 << 10
			j, _ := open(t, cfg)
			idle(t, j)
			full := func(got, _ string, _ []byte) fault {
				if got == op || got == "allocate" {
					return fault{err: syscall.ENOSPC}
				}
				return fault{}
			}
			f.on(full)
			n := 0
			var err error
			for err == nil {
				err = j.Append(event(n)).Wait(t.Context())
				n++
			}
			if !errors.Is(err, journal.ErrFull) || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("after %d entries: %v", n, err)
			}
			outcome := journal.Entry{Event: []byte(`{"kind":"completed"}`), Outcome: true}
			kept := 0
			for {
				if err := j.Append(outcome).Wait(t.Context()); err != nil {
					if !errors.Is(err, journal.ErrFull) {
						t.Fatal(err)
					}
					break
				}
				kept++
			}
			if kept < 20 {
				t.Fatalf("%d outcomes fitted in the reserve of 8 KiB", kept)
			}
			if err := j.Append(event(n)).Wait(t.Context()); !errors.Is(err, journal.ErrFull) {
				t.Fatalf("ordinary entry: %v", err)
			}
			f.on(nil)
			mustAppend(t, j, event(n))
			head := j.Head()
			closeNow(t, j)
			j, r := open(t, config(cfg.Dir))
			if r.Quarantine != nil || r.Head != head {
				t.Fatalf("%+v", r)
			}
			if got := strings.Count(fmt.Sprint(kinds(t, j)), "completed"); got != kept {
				t.Fatalf("%d outcomes, want %d", got, kept)
			}
		})
	}
}

func TestAFaultWhileASegmentIsMadeLeavesTheOldOneInUse(t *testing.T) {
	for _, op := range []string{"open", "write", "allocate", "sync", "rename", "syncdir", "truncate"} {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v done=%v", op, cause, after), func(t *testing.T) {
					cfg, f := faulty(t)
					cfg.SegmentSize = 3000
					j, _ := open(t, cfg)
					idle(t, j)
					f.on(func(got, path string, _ []byte) fault {
						making := strings.Contains(path, "000002") || got == "rename" || got == "syncdir" || got == "truncate"
						if got == op && making {
							return fault{err: cause, after: after}
						}
						return fault{}
					})
					for i := range 20 {
						if err := j.Append(event(i)).Wait(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					during, last := snapshot(t, cfg.Dir), j.Head()
					if j, r := open(t, config(during)); r.Quarantine != nil || r.Head != last {
						t.Fatalf("killed meanwhile: %+v, want %+v", r, last)
					} else {
						closeNow(t, j)
					}
					f.on(nil)
					for i := range 20 {
						mustAppend(t, j, event(i))
					}
					head := j.Head()
					if head.Segment < 2 {
						t.Fatal("no segment was made when the fault was gone")
					}
					killed := snapshot(t, cfg.Dir)
					closeNow(t, j)
					for _, dir := range []string{cfg.Dir, killed} {
						j, r := open(t, config(dir))
						if r.Quarantine != nil || r.Head != head {
							t.Fatalf("%+v", r)
						}
						kinds(t, j)
					}
				})
			}
		}
	}
}

func TestAFaultAtOpenIsAnErrorAndTheNextOpenWorks(t *testing.T) {
	for _, op := range []string{"open", "write", "allocate", "sync", "rename", "syncdir"} {
		for _, after := range []bool{false, true} {
			cfg, f := faulty(t)
			f.on(always(op, 0, syscall.ENOSPC, after))
			if _, _, err := journal.Open(cfg); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%s done=%v: new journal: %v", op, after, err)
			}
			f.on(nil)
			j, r := open(t, cfg)
			if r.Quarantine != nil {
				t.Fatalf("%s done=%v: %+v", op, after, r)
			}
			closeNow(t, j)
		}
	}
	dir, content, last := killed(t, 3)
	torn := append(content[:last+50:last+50], make([]byte, 100)...)
	for _, op := range []string{"open", "write", "sync"} {
		for nth := range 2 {
			for _, after := range []bool{false, true} {
				cfg, f := faulty(t)
				cfg.Dir = snapshot(t, dir)
				write(t, cfg.Dir+"/"+chain.SegmentName(1), torn)
				f.on(always(op, nth, syscall.EIO, after))
				if j, _, err := journal.Open(cfg); err == nil {
					if op != "open" {
						t.Fatalf("%s %d done=%v: no error", op, nth, after)
					}
					closeNow(t, j)
				}
				f.on(nil)
				j, r := open(t, cfg)
				if r.Quarantine != nil || r.Head.Seq < 3 {
					t.Fatalf("%s %d done=%v: %+v", op, nth, after, r)
				}
				kinds(t, j)
				closeNow(t, j)
			}
		}
	}
}

func TestCloseAfterAFailureLeavesTheFileForRecovery(t *testing.T) {
	cfg, f := faulty(t)
	cfg.LazyDelay = time.Hour
	j, _ := open(t, cfg)
	idle(t, j)
	f.on(always("sync", 0, syscall.EIO, false))
	lazy := event(1)
	lazy.Lazy = true
	waits, fails := j.Append(lazy), j.Append(event(2))
	if err := fails.Wait(t.Context()); !errors.Is(err, journal.ErrStopped) {
		t.Fatal(err)
	}
	if err := waits.Wait(t.Context()); !errors.Is(err, journal.ErrStopped) {
		t.Fatal(err)
	}
	closeNow(t, j)
	if err := j.Append(event(3)).Wait(t.Context()); !errors.Is(err, journal.ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
	if err := j.Resume(); !errors.Is(err, journal.ErrClosed) {
		t.Fatalf("resume after close: %v", err)
	}
	f.on(nil)
	if _, r := open(t, cfg); r.Quarantine != nil || r.Clean {
		t.Fatalf("%+v", r)
	}
}
