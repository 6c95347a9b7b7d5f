package engine_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/journal"
)

// disk is the real file system with faults in front of it, and a view of every moment between two operations.
type disk struct {
	journal.OS
	mu    sync.Mutex
	fault func(op string) error // optional
	after func(op string)       // optional
}

func (d *disk) set(fault func(op string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

func (d *disk) do(op string, f func() error) error {
	d.mu.Lock()
	fault, after := d.fault, d.after
	d.mu.Unlock()
	if fault != nil {
		if err := fault(op); err != nil {
			return err
		}
	}
	err := f()
	if after != nil {
		after(op)
	}
	return err
}

func (d *disk) OpenFile(path string, flag int, perm fs.FileMode) (journal.File, error) {
	f, err := d.OS.OpenFile(path, flag, perm)
	if err != nil || flag&(os.O_RDWR|os.O_WRONLY) == 0 {
		return f, err
	}
	return &diskFile{f, d}, nil
}

type diskFile struct {
	journal.File
	d *disk
}

func (f *diskFile) WriteAt(b []byte, at int64) (n int, err error) {
	if len(b) > 0 && b[0] == 0 { // room for what is to come
		f.d.mu.Lock()
		fault := f.d.fault
		f.d.mu.Unlock()
		if fault != nil {
			if err := fault("allocate"); err != nil {
				return 0, err
			}
		}
	}
	err = f.d.do("write", func() (err error) { n, err = f.File.WriteAt(b, at); return err })
	return n, err
}

func (f *diskFile) Datasync() error { return f.d.do("sync", f.File.Datasync) }

// on says how an operation fails.
func on(op string, err error) func(string) error {
	return func(got string) error {
		if got == op {
			return &fs.PathError{Op: op, Path: "journal", Err: err}
		}
		return nil
	}
}

func TestWhenTheJournalCannotBeWrittenTheActionDoesNotRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op  string
		err error
	}{{"write", syscall.ENOSPC}, {"write", syscall.EIO}, {"sync", syscall.EIO}, {"sync", syscall.ENOSPC}} {
		t.Run(fmt.Sprintf("%s %v", c.op, c.err), func(t *testing.T) {
			d := &disk{}
			r := newRig(t, func(r *rig) { r.fs = d })
			a := newAgent("1")
			r.trust(a)
			d.set(on(c.op, c.err))
			for range 3 {
				r.want(r.call(background, a, "pay", `{"order":"7"}`), api.CodeJournal, 0)
			}
			d.set(nil)
			// It goes on by itself as soon as the disk does.
			r.untilTrue(func() bool { return !r.Counts().Down })
			r.want(r.call(background, a, "pay", `{"order":"7"}`), "", 1)
			r.restart()
			r.trust(a)
			got := r.call(background, a, "pay", `{"order":"7"}`)
			r.want(got, "", 0)
			if !got.Recorded {
				t.Error("what was recorded after the fault is lost")
			}
		})
	}
}

func TestAnOutcomeThatCannotBeWrittenIsHeldAndWrittenLater(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"write", "sync"} {
		t.Run(op, func(t *testing.T) {
			d := &disk{}
			r := newRig(t, func(r *rig) { r.fs = d })
			a := newAgent("1")
			r.trust(a)
			r.target.answer = func(n int, _ channel.Request) channel.Outcome {
				d.set(on(op, syscall.EIO))
				return success(n)
			}
			done := r.begin(background, a, "pay", `{"order":"7"}`)
			r.untilTrue(func() bool { return r.Counts().Down })
			select {
			case got := <-done:
				t.Fatalf("the agent was answered before the outcome was durable: %s", got.Result)
			default:
			}
			d.set(nil)
			got := <-done
			r.want(got, "", 1)
			if got.State != execution.NotDelivered || !bytes.Contains(got.Result, []byte("receipt 1")) {
				t.Errorf("got %s %s", got.State, got.Result)
			}
			r.restart()
			r.trust(a)
			again := r.call(background, a, "pay", `{"order":"7"}`)
			r.want(again, "", 0)
			if !bytes.Equal(again.Result, got.Result) {
				t.Errorf("the recorded result is %s", again.Result)
			}
		})
	}
}

// moment is the disk as a killed daemon leaves it, and what the target had done by then.
type moment struct {
	dir     string
	op      string
	effects int
}

// TestKilledAtEveryBoundaryTheEffectStaysOne cuts the daemon off between any two operations on its journal, lets another one start on what is there, and calls again.
func TestKilledAtEveryBoundaryTheEffectStaysOne(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pay", "release", "order", "order that was lost on its way"} {
		t.Run(name, func(t *testing.T) {
			tool, _, onItsWay := strings.Cut(name, " ")
			var acted atomic.Int32 // what the target did; the status request of "order" tells it
			asked := func(acted *atomic.Int32) func(int, channel.Query) channel.Finding {
				return func(_ int, q channel.Query) channel.Finding {
					if acted.Load() > 0 {
						return answered(q, 200, doneBody)
					}
					return answered(q, 404, "")
				}
			}
			var moments []moment
			var synced string // what a power failure leaves: the journal as of the last sync
			d := &disk{}
			var r *rig
			shot := func(from string) string {
				dir := filepath.Join(t.TempDir(), "data")
				if err := os.CopyFS(filepath.Join(dir, "journal"), os.DirFS(filepath.Join(from, "journal"))); err != nil {
					t.Error(err)
				}
				_ = os.Chmod(dir, 0o700)
				_ = os.Chmod(filepath.Join(dir, "journal"), 0o700)
				for _, f := range journalFiles(dir) {
					_ = os.Chmod(f, 0o600)
				}
				return dir
			}
			r = newRig(t, func(r *rig) { r.fs = d; r.small = 64 << 10 })
			a := newAgent("1")
			r.trust(a)
			d.mu.Lock()
			d.after = func(op string) {
				dir := shot(r.dir)
				if op == "sync" {
					synced = dir
				}
				moments = append(moments, moment{dir, op, int(acted.Load())})
			}
			d.mu.Unlock()
			r.target.before = func(q channel.Request) {
				if onItsWay && q.Attempt == 1 {
					moments = append(moments, moment{shot(synced), "the request is lost on its way, and power fails", 0})
					return
				}
				moments = append(moments, moment{shot(synced), "effect is about to happen, power fails after it", 1})
				acted.Add(1)
			}
			attempts := 1
			switch {
			case onItsWay:
				attempts = 2
				r.target.answer = func(n int, q channel.Request) channel.Outcome {
					if n == 1 {
						return lost(n, q)
					}
					return success(n)
				}
			case tool == "order":
				r.target.answer = lost
			}
			r.target.status = asked(&acted)
			got := r.call(background, a, tool, `{"order":"7"}`)
			r.want(got, "", attempts)
			got.Delivered("pipe drained")
			if err := r.Note(struct {
				Kind string `json:"kind"`
			}{"test_barrier"}); err != nil {
				t.Fatal(err)
			}
			d.mu.Lock()
			d.after = nil
			d.mu.Unlock()
			if len(moments) < 5 {
				t.Fatalf("only %d moments", len(moments))
			}
			// Each goes on from here: by the pauses of all before it the time in which a repeat belongs to the original could be over.
			stopped := r.clock.now()
			for i, m := range moments {
				var actedNow atomic.Int32
				actedNow.Store(int32(m.effects))
				next := newRig(t, func(n *rig) {
					n.dir, n.keys, n.clock = m.dir, r.keys, &clock{at: stopped}
					n.target.before = func(q channel.Request) {
						if q.SideEffect {
							actedNow.Add(1)
						}
					}
					n.target.status = asked(&actedNow)
				})
				next.trust(a)
				done := next.begin(background, a, tool, `{"order":"7"}`)
				var after call.Answer
				select {
				case after = <-done:
				case c := <-next.anyCard():
					// Only what was delivered is asked about; the person sees the earlier record and takes it.
					if c.Card.Question != approval.AskAgain {
						t.Errorf("moment %d (%s): a fresh card: %+v", i, m.op, c.Card)
					}
					next.answer(c, approval.Recorded)
					after = <-done
				}
				if onItsWay && after.State == execution.NotDone && actedNow.Load() == 0 {
					// It was sent as often as the contract allows, and it is told that the target did nothing.
					after = next.call(background, a, tool, `{"order":"7"}`)
				}
				sent := next.target.effects()
				total := m.effects + sent
				switch {
				case tool == "release" && m.effects == 1 && sent == 1 && next.target.ledger[0].ExecutionID != got.ExecutionID:
					t.Errorf("moment %d (%s): the target was asked again under another key", i, m.op)
				case tool == "order" && (total != 1 || after.State != execution.NotDelivered && after.State != execution.Delivered):
					t.Errorf("moment %d (%s): %d effects, and the agent is told %s: %s", i, m.op, total, after.State, after.Result)
				case tool == "pay" && total > 1:
					t.Errorf("moment %d (%s): %d effects", i, m.op, total)
				case total == 0 && after.State != execution.Unknown:
					t.Errorf("moment %d (%s): no effect, and the agent is told %s: %s", i, m.op, after.State, after.Result)
				}
				if after.Code != "" {
					t.Errorf("moment %d (%s): an invented failure: %s", i, m.op, after.Result)
				}
				next.halt()
			}
		})
	}
}
