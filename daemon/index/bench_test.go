package index_test

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
)

// calls returns the entries of n plain calls, decoded as the engine has them: accepted, authorized, dispatched, observed, delivered.
func calls(from, n int) []index.Entry {
	var entries []index.Entry
	for i := from; i < from+n; i++ {
		id, fingerprint := fmt.Sprintf("act_%026d", i), sha256.Sum256(fmt.Append(nil, i))
		call := fmt.Sprint(i)
		for k, ev := range []execution.Event{
			{Kind: execution.KindAccepted, ID: id, Acceptance: &execution.Acceptance{
				Tool: "deploy_release", Action: "deploy_release", ContractDigest: fmt.Sprintf("sha256:%064x", 1), Channel: "http",
				Target: "https://deploy-api.internal.example/v1/releases", Credential: "deploy-service", Class: execution.Idempotent,
				Actor: "exe:/usr/local/bin/agent", Run: "run_5f2c1b7e", Scope: "run:run_5f2c1b7e", Fingerprint: fmt.Sprintf("hmac-sha256:%x", fingerprint),
				EffectDigest: fmt.Sprintf("sha256:%x", fingerprint), AttachWindow: time.Hour, AfterDelivery: execution.Ask, Retention: 720 * time.Hour,
			}, Caller: &execution.Caller{Call: call, Run: "run_5f2c1b7e", Transport: "stdio", Connection: "conn_1", RequestID: call, Client: "bench"}},
			{Kind: execution.KindAuthorized, ID: id, By: "session"},
			{Kind: execution.KindDispatched, ID: id, Attempt: 1},
			{Kind: execution.KindObserved, ID: id, Attempt: 1, Outcome: execution.Success, Status: 201, Result: "sha256:" + call},
			{Kind: execution.KindDelivered, ID: id, Call: call, Evidence: "drained"},
		} {
			seq := uint64(i*5 + k + 1)
			entries = append(entries, index.Entry{
				Position: index.Position{Seq: seq, Segment: 1, Offset: int64(seq) * 600}, Time: time.Unix(int64(seq), 0).UTC(),
				Decoded: &ev, Sealed: true,
			})
		}
	}
	return entries
}

// filled returns an index with n executions in its file.
func filled(b *testing.B, n int) *index.Index {
	b.Helper()
	ix := open(b, file(b))
	if err := ix.Authenticate(key("a")); err != nil {
		b.Fatal(err)
	}
	for at := 0; at < n; at += 16384 {
		fold(b, ix, calls(at, min(16384, n-at)))
		flush(b, ix)
	}
	b.Cleanup(func() { _ = ix.Close() })
	return ix
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		ix := filled(b, n)
		first := calls(0, 1)[0].Decoded
		b.Run(fmt.Sprintf("no earlier execution/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer perOperation(b)()
			for i := 0; b.Loop(); i++ {
				fingerprint := fmt.Sprintf("hmac-sha256:%064x", i)
				if x, err := ix.Match(first.Acceptance.Actor, first.Acceptance.Scope, fingerprint); err != nil || len(x) != 0 {
					b.Fatal(x, err)
				}
			}
		})
		b.Run(fmt.Sprintf("an earlier execution/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer perOperation(b)()
			for b.Loop() {
				if x, err := ix.Match(first.Acceptance.Actor, first.Acceptance.Scope, first.Acceptance.Fingerprint); err != nil || len(x) != 1 {
					b.Fatal(x, err)
				}
			}
		})
		b.Run(fmt.Sprintf("newest 20/%d", n), func(b *testing.B) {
			defer perOperation(b)()
			for b.Loop() {
				if x, err := ix.List(index.Query{Actor: first.Acceptance.Actor, Limit: 20}); err != nil || len(x) != 20 {
					b.Fatal(len(x), err)
				}
			}
		})
		b.Run(fmt.Sprintf("list that finds nothing/%d", n), func(b *testing.B) {
			defer perOperation(b)()
			for b.Loop() {
				if x, err := ix.List(index.Query{Run: "run_none"}); err != nil || len(x) != 0 {
					b.Fatal(len(x), err)
				}
			}
		})
	}
}

// processor returns the time that this process has spent on processors.
func processor() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perOperation reports the time of the processor for each operation until the function that it returns is called.
func perOperation(b *testing.B) func() {
	start := processor()
	return func() { b.ReportMetric(float64((processor()-start).Nanoseconds())/float64(b.N), "cpu-ns/op") }
}

// BenchmarkFoldAndFlush takes whole calls of five events in; one flush for every 16384 calls.
func BenchmarkFoldAndFlush(b *testing.B) {
	ix := filled(b, 0)
	const batch = 16384
	var folded, flushed time.Duration // of the processor: the machine may be busy with others
	n := 0
	for b.Loop() {
		b.StopTimer()
		entries := calls(n, batch)
		n += batch
		b.StartTimer()
		start := processor()
		fold(b, ix, entries)
		middle := processor()
		flush(b, ix)
		folded, flushed = folded+middle-start, flushed+processor()-middle
	}
	b.ReportMetric(float64(folded.Nanoseconds())/float64(n), "fold-cpu-ns/call")
	b.ReportMetric(float64(flushed.Nanoseconds())/float64(n), "flush-cpu-ns/call")
}

// BenchmarkOpen is what a start costs, whatever the number of executions, and what the index holds in memory when nothing goes on.
func BenchmarkOpen(b *testing.B) {
	path := file(b)
	ix := open(b, path)
	if err := ix.Authenticate(key("a")); err != nil {
		b.Fatal(err)
	}
	fold(b, ix, calls(0, 50_000))
	if err := ix.Close(); err != nil {
		b.Fatal(err)
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the first one only finds what the pools may drop
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	var last *index.Index
	for b.Loop() {
		if last != nil {
			_ = last.Close()
		}
		last = open(b, path)
		if err := last.Authenticate(key("a")); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(heap()-before, "heap-B")
	_ = last.Close()
}
