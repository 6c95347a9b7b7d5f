package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkCall is a whole call through the engine, on a real journal, with a target that answers at once. One call is two durable points; the floor beside it is one
// append and fdatasync of about as many bytes as a point has.
func BenchmarkCall(b *testing.B) {
	b.Run("floor=append+fdatasync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		line := make([]byte, 2200)
		zeros := make([]byte, 64<<20)
		if _, err := f.Write(zeros); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		var at int64
		for b.Loop() {
			if _, err := f.WriteAt(line, at); err != nil {
				b.Fatal(err)
			}
			if err := dataSync(f); err != nil {
				b.Fatal(err)
			}
			at = (at + int64(len(line))) % (63 << 20)
		}
	})
	for _, tool := range []string{"pay", "look"} {
		for _, callers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("tool=%s/callers=%d", tool, callers), func(b *testing.B) {
				r := newRig(b)
				a := newAgent("1")
				r.trust(a)
				var n atomic.Int64
				var wg sync.WaitGroup
				b.ResetTimer()
				for range callers {
					wg.Go(func() {
						for {
							i := n.Add(1)
							if i > int64(b.N) {
								return
							}
							got := r.call(background, a, tool, fmt.Sprintf(`{"order":"%d"}`, i))
							if got.Code != "" {
								b.Errorf("refused: %s", got.Result)
								return
							}
							got.Delivered("pipe drained")
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}
