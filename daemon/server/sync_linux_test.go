package server_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func dataSync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// processorTime is what all threads of a process have used, in user and in kernel mode, to the nanosecond: clock_getcpuclockid(3).
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	const schedulers = 2 // CPUCLOCK_SCHED of the kernel's posix-timers.h
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedulers), &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
