package journal_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

func benchEntry() journal.Entry {
	return journal.Entry{Event: []byte(`{"kind":"dispatched","execution_id":"act_01JNZX5T7V9M3Q8R2W4Y6A0BCD","attempt":1,"note":"` + strings.Repeat("n", 100) + `"}`)}
}

// BenchmarkAppend compares with its floor in one run: writing and syncing the same bytes into a file that
// was filled with zeros before, by the same system calls and nothing else. The two take turns, because
// a disk that others use too is not the same disk a second later.
func BenchmarkAppend(b *testing.B) {
	for _, lazy := range []bool{false, true} {
		b.Run(fmt.Sprintf("writers=1/lazy=%v", lazy), func(b *testing.B) {
			cfg := config(newDir(b))
			cfg.Now = time.Now
			j, _ := open(b, cfg)
			e := benchEntry()
			e.Lazy = lazy
			line, _ := chain.AppendLine(nil, 1000, time.Now(), chain.Hash{}, e.Event, nil)
			raw, offset := rawFile(b), int64(0)
			var floor, ours []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := raw.WriteAt(line, offset%(32<<20)); err != nil {
					b.Fatal(err)
				}
				if err := raw.Datasync(); err != nil {
					b.Fatal(err)
				}
				offset += int64(len(line))
				middle := time.Now()
				if err := j.Append(e).Wait(context.Background()); err != nil {
					b.Fatal(err)
				}
				floor, ours = append(floor, middle.Sub(start)), append(ours, time.Since(middle))
			}
			b.ReportMetric(micro(median(floor)), "floor-µs")
			b.ReportMetric(micro(median(ours)), "append-µs")
			b.ReportMetric(micro(ours[len(ours)*99/100]), "append-p99-µs")
			b.ReportMetric(micro(floor[len(floor)*99/100]), "floor-p99-µs")
			b.ReportMetric(micro(ours[len(ours)-1]), "append-max-µs")
			b.ReportMetric(float64(median(ours))/float64(median(floor)), "ratio")
		})
	}
	for _, writers := range []int{8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			cfg := config(newDir(b))
			cfg.Now = time.Now
			syncs := &countingFS{FS: journal.OS{}}
			cfg.FS = syncs
			j, _ := open(b, cfg)
			var left atomic.Int64
			var wg sync.WaitGroup
			all := make([][]time.Duration, writers)
			before := syncs.n.Load()
			left.Store(int64(b.N))
			b.ResetTimer()
			for w := range writers {
				wg.Go(func() {
					e := benchEntry()
					for left.Add(-1) >= 0 {
						start := time.Now()
						if err := j.Append(e).Wait(context.Background()); err != nil {
							b.Error(err)
							return
						}
						all[w] = append(all[w], time.Since(start))
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.N)/float64(syncs.n.Load()-before), "records/sync")
			b.ReportMetric(micro(median(slices.Concat(all...))), "median-µs")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// rawFile is 32 MiB and a line of zeros.
func rawFile(b *testing.B) journal.File {
	f, err := journal.OS{}.OpenFile(filepath.Join(b.TempDir(), rand.Text()), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(make([]byte, 33<<20), 0); err != nil {
		b.Fatal(err)
	}
	if err := f.Datasync(); err != nil {
		b.Fatal(err)
	}
	return f
}

type countingFS struct {
	journal.FS
	n atomic.Int64
}

func (c *countingFS) OpenFile(path string, flag int, perm os.FileMode) (journal.File, error) {
	f, err := c.FS.OpenFile(path, flag, perm)
	return countingFile{f, &c.n}, err
}

type countingFile struct {
	journal.File
	n *atomic.Int64
}

func (c countingFile) Datasync() error {
	c.n.Add(1)
	return c.File.Datasync()
}
