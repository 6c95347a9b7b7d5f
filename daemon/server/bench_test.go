package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// figures are the calls a second that measure found, by the benchmark's name beneath its parent, for the ratios of the same run.
type figures map[string]float64

// measure makes b.N calls from so many callers, and reports calls a second, the median latency, and the processor time of a call in each process. Unlike the others, that last
// figure says much the same on a machine that others use too.
func (f figures) measure(b *testing.B, name string, callers int, shares []share, call func(caller int, i int64) error) {
	b.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	all := make([][]time.Duration, callers)
	before := make([]time.Duration, len(shares))
	for i, s := range shares {
		before[i] = processorTime(b, s.pid)
	}
	b.ResetTimer()
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				t := time.Now()
				if err := call(c, i); err != nil {
					b.Error(err)
					return
				}
				all[c] = append(all[c], time.Since(t))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	b.StopTimer()
	for i, s := range shares {
		b.ReportMetric(float64((processorTime(b, s.pid)-before[i]).Nanoseconds())/1000/float64(b.N), s.name+"-cpu-µs")
	}
	flat := slices.Concat(all...)
	if len(flat) == 0 {
		return
	}
	slices.Sort(flat)
	f[name] = float64(b.N) / took.Seconds()
	b.ReportMetric(f[name], "calls/s")
	b.ReportMetric(float64(flat[len(flat)/2].Microseconds()), "median-µs")
}

// serial makes the orders of a run unlike those of any other.
var serial atomic.Int64

// calls is a run of calls of one tool, each with an order of its own.
func (l *lines) calls(tool string) func(caller int, i int64) error {
	run := strconv.FormatInt(serial.Add(1), 10) + "-"
	return func(caller int, i int64) error { return l.call(caller, tool, run+strconv.FormatInt(i, 10)) }
}

// BenchmarkStdio is what a desktop agent sees: one stdio connection through the bridge, with a channel that answers at once.
func BenchmarkStdio(b *testing.B) {
	x := newBench(b, partInstant, "https://api.example.com")
	for _, tool := range []string{"pay", "look"} {
		for _, callers := range []int{1, 8, maxCallers} {
			b.Run(fmt.Sprintf("%s/callers=%d", tool, callers), func(b *testing.B) {
				figures{}.measure(b, "", callers, x.parts, x.calls(tool))
			})
		}
	}
	floor(b, figures{})
}

// floor is one append and fdatasync of about as many bytes as a durable point has.
func floor(b *testing.B, found figures) {
	b.Run("floor=append+fdatasync", func(b *testing.B) {
		found.measure(b, "floor", 1, nil, durablePoint(b))
	})
}

func durablePoint(b *testing.B) func(int, int64) error {
	b.Helper()
	f, err := os.CreateTemp("", "sp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = f.Close(), os.Remove(f.Name()) })
	if _, err := f.Write(make([]byte, 64<<20)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	line, at := make([]byte, 2200), int64(0)
	return func(int, int64) error {
		_, err := f.WriteAt(line, at)
		at = (at + int64(len(line))) % (60 << 20)
		return errors.Join(err, dataSync(f))
	}
}

// BenchmarkHTTP compares a call through the daemon with an MCP server that makes the same request itself, and with the request alone.
func BenchmarkHTTP(b *testing.B) {
	target := start(b, partTarget)
	url := target.says(b)
	at := share{"target", target.cmd.Process.Pid}
	x := newBench(b, partDaemon, url)
	server := start(b, partDirect, targetOf+"="+url)
	direct := newLines(b, server)
	direct.parts = []share{{"client", os.Getpid()}, {"server", server.cmd.Process.Pid}}
	found := figures{}
	floor(b, found)
	for _, callers := range []int{1, 8, maxCallers} {
		for _, tool := range []string{"pay", "look"} {
			b.Run(fmt.Sprintf("singlepass/%s/callers=%d", tool, callers), func(b *testing.B) {
				found.measure(b, fmt.Sprintf("%s/%d", tool, callers), callers, append(x.parts, at), x.calls(tool))
			})
			b.Run(fmt.Sprintf("direct-server/%s/callers=%d", tool, callers), func(b *testing.B) {
				found.measure(b, fmt.Sprintf("direct %s/%d", tool, callers), callers, append(direct.parts, at), direct.calls(tool))
			})
		}
		b.Run(fmt.Sprintf("request-alone/pay/callers=%d", callers), func(b *testing.B) {
			c := freshClient()
			found.measure(b, fmt.Sprintf("alone/%d", callers), callers, []share{{"client", os.Getpid()}, at}, func(int, int64) error { return post(c, url) })
		})
	}
	b.Run("ratios", func(b *testing.B) {
		// A disk's speed drifts within a minute, so what is divided is measured in turns.
		took := map[string][]time.Duration{}
		turn := func(name string, do func(int, int64) error, i int) {
			t := time.Now()
			if err := do(0, int64(i)); err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], time.Since(t))
		}
		point, turns := durablePoint(b), map[string]func(int, int64) error{
			"pay": x.calls("pay"), "direct pay": direct.calls("pay"), "look": x.calls("look"), "direct look": direct.calls("look"),
		}
		for i := 0; b.Loop(); i++ {
			turn("floor", point, i)
			for _, name := range []string{"pay", "direct pay", "look", "direct look"} {
				turn(name, turns[name], i)
			}
		}
		median := func(name string) float64 {
			slices.Sort(took[name])
			return float64(took[name][len(took[name])/2])
		}
		b.ReportMetric((median("pay")-median("direct pay"))/median("floor"), "journaled-added/fdatasync")
		b.ReportMetric(median("floor")/1000, "fdatasync-µs")
		b.ReportMetric((median("look")-median("direct look"))/1000, "read_only-added-µs")
		for _, callers := range []int{1, 8, maxCallers} {
			rate := func(name string) float64 { return found[fmt.Sprintf("%s/%d", name, callers)] }
			if rate("pay") == 0 || rate("alone") == 0 || rate("direct pay") == 0 {
				continue // only a part was asked for
			}
			b.ReportMetric(rate("pay")/rate("direct pay"), fmt.Sprintf("rate/direct@%d", callers))
			b.ReportMetric(rate("pay")/rate("alone"), fmt.Sprintf("rate/alone@%d", callers))
		}
	})
}

// freshClient makes a connection for every request, as anything with a side effect does.
func freshClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
}

func post(c *http.Client, url string) error {
	r, err := http.NewRequest(http.MethodPost, url+"/v1/pay", bytes.NewReader([]byte(`{"order":"1","amount":5}`)))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer canary-not-a-secret-bench")
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
