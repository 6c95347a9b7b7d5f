package secret_test

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"singlepass.dev/vault/secret"
)

func TestASecretIsLockedAndLeftOutOfCoreDumps(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	s := value(t)
	var flags string
	_ = s.Use(func(b []byte) error {
		flags = vmFlags(t, uintptr(unsafe.Pointer(&b[0])))
		return nil
	})
	if !strings.Contains(flags, " dd") {
		t.Errorf("the pages would be dumped: VmFlags %q", flags)
	}
	if limit.Cur >= 1<<20 && !strings.Contains(flags, " lo") {
		t.Errorf("the pages could be swapped out: VmFlags %q", flags)
	}
}

// vmFlags returns the flags of the mapping that holds address, from proc_pid_smaps(5).
func vmFlags(t *testing.T, address uintptr) string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= address && address < to
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && inside {
			return flags
		}
	}
	t.Fatal("the address is not mapped")
	return ""
}

func TestAfterWipeTheMemoryIsZero(t *testing.T) {
	s := secret.New([]byte(canary))
	var kept []byte
	_ = s.Use(func(b []byte) error { kept = b; return nil })
	s.Wipe()
	// The page is kept, locked and empty, for the next secret.
	for i, b := range kept {
		if b != 0 {
			t.Fatalf("byte %d still holds the secret", i)
		}
	}
}

func TestASecretLargerThanAPageIsGivenBack(t *testing.T) {
	s := secret.New(make([]byte, 1<<20))
	var kept []byte
	_ = s.Use(func(b []byte) error { kept = b; return nil })
	s.Wipe()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("a slice that was kept can still be read")
		}
	}()
	t.Log(kept[0])
}

func TestTwoSecretsNeverShareAPage(t *testing.T) {
	seen := map[uintptr]bool{}
	var all []*secret.Bytes
	for range 200 {
		s := secret.New([]byte(canary))
		all = append(all, s)
		_ = s.Use(func(b []byte) error {
			page := uintptr(unsafe.Pointer(&b[0])) / uintptr(os.Getpagesize())
			if seen[page] {
				t.Error("two secrets lie in one page")
			}
			seen[page] = true
			return nil
		})
	}
	for _, s := range all {
		s.Wipe()
	}
}
