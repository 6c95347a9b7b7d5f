package sqlitebench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

var event = []byte(`{"kind":"dispatched","execution_id":"act_01JNZX5T7V9M3Q8R2W4Y6A0BCD","attempt":1,"note":"` + strings.Repeat("n", 100) + `"}`)

func openJournal(b *testing.B) func() error {
	j, _, err := journal.Open(journal.Config{Dir: filepath.Join(b.TempDir(), "journal"), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { j.Close() })
	return func() error {
		return j.Append(journal.Entry{Event: event, Lazy: true}).Wait(context.Background())
	}
}

func openSQLite(b *testing.B) func() error {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(b.TempDir(), "peer.db")+"?_journal_mode=WAL&_synchronous=FULL")
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { db.Close() })
	if _, err := db.Exec("CREATE TABLE journal (seq INTEGER PRIMARY KEY, line BLOB)"); err != nil {
		b.Fatal(err)
	}
	var mode, synchronous string
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		b.Fatal(mode, err)
	}
	if err := db.QueryRow("PRAGMA synchronous").Scan(&synchronous); err != nil || synchronous != "2" {
		b.Fatal(synchronous, err)
	}
	insert, err := db.Prepare("INSERT INTO journal (line) VALUES (?)")
	if err != nil {
		b.Fatal(err)
	}
	line, _ := chain.AppendLine(nil, 1000, time.Now(), chain.Hash{}, event, nil)
	return func() error {
		_, err := insert.Exec(line)
		return err
	}
}

// rate is records a second with so many writers during d.
func rate(b *testing.B, writers int, d time.Duration, write func() error) float64 {
	var n atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range writers {
		wg.Go(func() {
			for time.Since(start) < d {
				if err := write(); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(start).Seconds()
}

func BenchmarkBesideSQLite(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			ours, theirs := openJournal(b), openSQLite(b)
			var a, s []float64
			for range 5 {
				a = append(a, rate(b, writers, 500*time.Millisecond, ours))
				s = append(s, rate(b, writers, 500*time.Millisecond, theirs))
			}
			slices.Sort(a)
			slices.Sort(s)
			b.ReportMetric(a[2], "journal/s")
			b.ReportMetric(s[2], "sqlite/s")
			b.ReportMetric(a[2]/s[2], "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
