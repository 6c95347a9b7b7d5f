package tray_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"singlepass.dev/ui/icon"
)

// BenchmarkIdle says what the tray app costs while nothing happens: its processor time, and its memory, of which Go's heap is the app's own and the rest is mostly the OpenGL driver
// (in software here). Hidden is what it is most of the day: unlocked, every stream open, the window closed.
func BenchmarkIdle(b *testing.B) {
	const length = 20 * time.Second
	r := newRig(b)
	r.startDaemon()
	r.setUp()
	r.startTray("--background")
	r.awaitIcon(icon.Locked, 0)
	measure := func(name string) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := r.processorTime()
				time.Sleep(length)
				spent := r.processorTime() - before
				heap, all := r.memory()
				b.ReportMetric(spent.Seconds()/length.Seconds()*100, "%cpu")
				b.ReportMetric(float64(heap)/(1<<20), "heap-MiB")
				b.ReportMetric(float64(all)/(1<<20), "resident-MiB")
			}
		})
	}
	measure("never-shown")
	r.item.Click("Unlock")
	r.awaitWindow()
	r.aside()
	r.unlock(icon.Unlocked, 0)
	measure("shown")
	r.closed()
	measure("hidden")
}

// processorTime is what sp-tray has used (proc(5), stat fields 14 and 15, in ticks of 10 ms).
func (r *rig) processorTime() time.Duration {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.tray.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var user, system int64
	f := strings.Fields(rest)
	if _, err := fmt.Sscan(f[11]+" "+f[12], &user, &system); err != nil {
		r.t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory is what is resident of Go's heap, and in all. The runtime puts its arenas at a random address of its own (runtime/malloc.go, "randomizedHeapBase64"), far above the program
// and far below where the kernel maps libraries, stacks and what the OpenGL driver allocates; nothing else without a name lies there.
func (r *rig) memory() (heap, all int64) {
	r.t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", r.tray.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	const above, below = 1 << 32, 0x7000_0000_0000
	inHeap := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var start, end uint64
		var kb int64
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &start, &end); n == 2 {
			inHeap = start > above && start < below && len(strings.Fields(lines.Text())) == 5
		} else if n, _ := fmt.Sscanf(lines.Text(), "Rss: %d kB", &kb); n == 1 {
			all += kb << 10
			if inHeap {
				heap += kb << 10
			}
		}
	}
	if heap == 0 {
		r.t.Fatal("Go's heap was not found among the mappings")
	}
	return heap, all
}
