package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/execution"
)

// BenchmarkStory is what `spctl audit verify` does: the bytes, and every transition of every execution. Beside it the bytes alone.
func BenchmarkStory(b *testing.B) {
	const executions = 60_000
	path := filepath.Join(b.TempDir(), chain.SegmentName(1))
	at := time.Date(2026, 7, 22, 14, 0, 0, 0, time.UTC)
	var file []byte
	var prev chain.Hash
	seq := uint64(0)
	add := func(event []byte) {
		seq++
		file, prev = chain.AppendLine(file, seq, at, prev, event, nil)
	}
	add(fmt.Appendf(nil, `{"kind":"segment_opened","segment":"%s","tree_size":0}`, chain.SegmentName(1)))
	for i := range executions {
		id := fmt.Sprintf("act_%026d", i)
		for _, ev := range []execution.Event{
			{
				Kind: execution.KindAccepted, ID: id, Caller: &execution.Caller{Call: "run_1/1", Run: "run_1", Transport: "stdio", RequestID: "1"},
				Acceptance: &execution.Acceptance{
					Tool: "pay", Channel: "http", Target: "https://api.example.com/v1/pay", Class: execution.Irreversible, Actor: "exe:/usr/bin/agent", Run: "run_1", Scope: "run:run_1",
					Fingerprint: "hmac-sha256:0baf8aa3c65bc9fe19f2b751a8abbee8a2423d16e1c42731a63a4fd2694f1b16", EffectDigest: "sha256:00", AttachWindow: time.Hour, AfterDelivery: execution.Ask,
				},
			},
			{Kind: execution.KindAuthorized, ID: id, By: "session"},
			{Kind: execution.KindDispatched, ID: id, Attempt: 1},
			{Kind: execution.KindObserved, ID: id, Attempt: 1, Outcome: execution.Success, Status: 201, Result: "result_1", Source: execution.FromTarget},
			{Kind: execution.KindDelivered, ID: id, Call: "run_1/1", Evidence: "bridge_pipe_drained"},
		} {
			add(ev.AppendJSON(nil))
		}
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		b.Fatal(err)
	}
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
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(seq)*1e6, "s/1M")
		})
	}
}
