//go:build unix

package audit_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
)

// BenchmarkVerify compares with its floor in one run: SHA-256 of the same file. They take turns.
// One entry in ten has a payload in the second journal, as executions have.
func BenchmarkVerify(b *testing.B) {
	const records = 300_000
	for _, payloads := range []bool{false, true} {
		name := "plain"
		if payloads {
			name = "payloads"
		}
		path := filepath.Join(b.TempDir(), chain.SegmentName(1))
		writeJournal(b, path, records, payloads)
		b.Run(name, func(b *testing.B) {
			var floor, bytesOnly, story []cost
			for b.Loop() {
				floor = append(floor, timed(func() { sum(b, path) }))
				bytesOnly = append(bytesOnly, timed(func() { mustVerify(b, path, audit.Options{}) }))
				story = append(story, timed(func() { mustVerify(b, path, audit.Options{Story: byID()}) }))
			}
			const million = 1e6 / records
			report := func(name string, c []cost) {
				b.ReportMetric(wall(c).Seconds()*million, name+"-s/1M")
				b.ReportMetric(cpu(c).Seconds()*million, name+"-cpu-s/1M")
			}
			report("sha256", floor)
			report("verify", bytesOnly)
			report("story", story)
			b.ReportMetric(wall(bytesOnly).Seconds()/wall(floor).Seconds(), "ratio")
			b.ReportMetric(cpu(bytesOnly).Seconds()/cpu(floor).Seconds(), "cpu-ratio")
		})
	}
}

// cost is time that went by and time of processors that was used. Verify uses two processors; on a machine
// whose processors others use too, only the second says something about it.
type cost struct{ wall, cpu time.Duration }

func timed(f func()) cost {
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			panic(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	start, before := time.Now(), used()
	f()
	return cost{time.Since(start), used() - before}
}

func median(c []cost, of func(cost) time.Duration) time.Duration {
	var d []time.Duration
	for _, c := range c {
		d = append(d, of(c))
	}
	slices.Sort(d)
	return d[len(d)/2]
}

func wall(c []cost) time.Duration { return median(c, func(c cost) time.Duration { return c.wall }) }
func cpu(c []cost) time.Duration  { return median(c, func(c cost) time.Duration { return c.cpu }) }

func mustVerify(b *testing.B, path string, opts audit.Options) {
	if r := verify(b, path, opts); !r.OK() {
		b.Fatal(describe(r))
	}
}

func sum(b *testing.B, path string) {
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{sha256.New()}, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		b.Fatal(err)
	}
}

// byID tells the story to the cheapest listener: what remains is what package audit itself costs.
func byID() *audit.Story {
	return &audit.Story{Key: executionID, Teller: func() func([]byte, *chain.Line) error {
		seen := map[string]uint64{}
		return func(key []byte, l *chain.Line) error {
			if seen[string(key)] >= l.Seq {
				return fmt.Errorf("entry %d comes late", l.Seq)
			}
			seen[string(key)] = l.Seq
			return nil
		}
	}}
}

// writeJournal makes a segment of lines of 621 bytes, the length that was measured for the design.
func writeJournal(b *testing.B, path string, records int, payloads bool) {
	var buf []byte
	var head chain.Hash
	payload := bytes.Repeat([]byte{0xa5}, 900)
	for seq := 1; seq <= records; seq++ {
		event := fmt.Appendf(nil, `{"kind":"dispatched","execution_id":"act_%08d","target":"https://deploy-api.internal.example/v1/releases","note":"%s"}`,
			seq/4, strings.Repeat("n", 213))
		if seq == 1 {
			event = fmt.Appendf(nil, `{"kind":"segment_opened","segment":"%s","tree_size":0}`, chain.SegmentName(1))
		}
		var p []byte
		if payloads && seq%10 == 0 {
			p = payload
		}
		buf, head = chain.AppendLine(buf, uint64(seq), clock(), head, event, p)
	}
	if err := os.WriteFile(path, buf, 0o600); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d bytes a line", len(buf)/records)
}
