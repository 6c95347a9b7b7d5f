package cli

import (
	"fmt"
	"testing"

	"singlepass.dev/daemon/audit"
)

// BenchmarkStory is what `spctl audit verify` does: the bytes, and every transition of every execution. Beside it the bytes alone.
func BenchmarkStory(b *testing.B) {
	const executions = 60_000
	entries := 1 // the segment's own
	path := segment(b, func(add func([]byte)) {
		for i := range executions {
			for _, ev := range life(fmt.Sprintf("act_%026d", i)) {
				add(ev.AppendJSON(nil))
				entries++
			}
		}
	})
	for _, c := range []struct {
		name  string
		story *audit.Story
	}{{"bytes", nil}, {"transitions", story()}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				r, err := audit.Verify(b.Context(), path, audit.Options{Story: c.story})
				if err != nil || !r.OK() {
					b.Fatalf("%v %+v", err, r.Findings)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(entries)*1e6, "s/1M")
		})
	}
}
