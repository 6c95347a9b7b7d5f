package tray_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"singlepass.dev/ui/icon"
)

// BenchmarkIdle says what the tray app costs while nothing happens: its processor time, and its memory, of which Go's heap is the app's own and the rest is mostly the OpenGL driver
// (in software here). Hidden is what it is most of the day: unlocked, every stream open, the window closed. The floor is an empty window of Fyne's, as its loop runs by itself.
func BenchmarkIdle(b *testing.B) {
	r := newRig(b)
	empty := filepath.Join(r.dir, "empty")
	build := exec.Command("go", "build", "-tags=gles,no_emoji", "-o", empty, "./testdata/empty")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the empty window: %v\n%s", err, out)
	}
	b.Run("floor-of-fyne", func(b *testing.B) {
		cmd := r.command(empty)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		defer end(cmd)
		r.run("timeout", "60", "xdotool", "search", "--sync", "--onlyvisible", "--name", "^Empty$")
		r.measure(b, cmd.Process.Pid)
	})
	r.startDaemon()
	r.setUp()
	r.startTray("--background")
	r.awaitIcon(icon.Locked, 0)
	pid := r.tray.Process.Pid
	b.Run("never-shown", func(b *testing.B) { r.measure(b, pid) })
	r.item.Click("Unlock")
	r.awaitWindow()
	r.aside()
	b.Run("shown-locked", func(b *testing.B) { r.measure(b, pid) }) // the cursor of the passphrase's field
	r.unlock(icon.Unlocked, 0)
	b.Run("shown", func(b *testing.B) { r.measure(b, pid) })
	a := r.startAgent()
	denied := a.deploy("web", time.Minute)
	r.awaitIcon(icon.Waiting, 1)
	b.Run("shown-with-a-card", func(b *testing.B) { r.measure(b, pid) }) // whose time runs down, second by second
	for _, c := range r.cards() {
		r.run("spctl", "deny", c.Card)
	}
	denied()
	r.closed()
	b.Run("hidden", func(b *testing.B) { r.measure(b, pid) })
}

// measure looks at a process for a while in which nothing happens, once what went before has settled.
func (r *rig) measure(b *testing.B, pid int) {
	const settled, length = 3 * time.Second, 20 * time.Second
	for b.Loop() {
		time.Sleep(settled)
		before := r.processorTime(pid)
		time.Sleep(length)
		spent := r.processorTime(pid) - before
		heap, all := r.memory(pid)
		b.ReportMetric(spent.Seconds()/length.Seconds()*100, "%cpu")
		b.ReportMetric(float64(heap)/(1<<20), "heap-MiB")
		b.ReportMetric(float64(all)/(1<<20), "resident-MiB")
	}
}

// processorTime is what the threads of a process have used (schedstat of Linux's sched-stats.rst, in nanoseconds: the ticks of proc(5)'s stat are too coarse for what is nearly nothing).
func (r *rig) processorTime(pid int) (spent time.Duration) {
	r.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		r.t.Fatalf("the threads of process %d were not found: %v", pid, err)
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		var ran int64
		if _, err := fmt.Sscan(string(b), &ran); err != nil {
			r.t.Fatal(err)
		}
		spent += time.Duration(ran)
	}
	return spent
}

// memory is what is resident of Go's heap, and in all. The runtime puts its arenas at a random address of its own (runtime/malloc.go, "randomizedHeapBase64"), far above the program
// and far below where the kernel maps libraries, stacks and what the OpenGL driver allocates; nothing else without a name lies there.
func (r *rig) memory(pid int) (heap, all int64) {
	r.t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
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
