package policy_test

import (
	"runtime"
	"testing"

	"singlepass.dev/policy"
)

// BenchmarkParse also reports what an action keeps in memory, since a daemon keeps hundreds.
func BenchmarkParse(b *testing.B) {
	for name, src := range map[string]string{"plain": plain, "condition": edit(b, plain, "approval: session", "approval: args.weight > 100")} {
		b.Run(name, func(b *testing.B) {
			compile(b, src)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var kept []*policy.Action
			b.ReportAllocs()
			for b.Loop() {
				kept = append(kept, compile(b, src))
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(kept)), "kept-B/op")
		})
	}
}
