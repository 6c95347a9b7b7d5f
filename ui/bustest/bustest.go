// Package bustest is a desktop without a screen, for tests: a session bus of its own, a panel that shows icons, and a notification daemon that tells what it was asked to show.
// Nothing of the person's own session is touched.
package bustest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// patience bounds every wait for an event; only a failure reaches it.
const patience = 30 * time.Second

// A bus without <servicedir>: no installed program is started by a question for its name.
const config = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
`

// Start runs a bus until the end of the test and returns its address.
func Start(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bus.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--config-file="+file, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting a session bus (apt-get install dbus-daemon): %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("starting a session bus: %v", err)
	}
	return strings.TrimSpace(address)
}

// Connect connects to a bus until the end of the test.
func Connect(t testing.TB, address string) *dbus.Conn {
	t.Helper()
	c, err := dbus.Connect(address)
	if err != nil {
		t.Fatalf("connecting to the bus: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Await waits until what is said on next matches, and fails the test if it does not within a long time.
func Await[T any](t testing.TB, what string, next <-chan T, match func(T) bool) T {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case v, ok := <-next:
			if !ok {
				t.Fatalf("waiting for %s: nothing more will come", what)
			}
			if match(v) {
				return v
			}
		case <-late.C:
			t.Fatalf("waiting for %s: it did not come", what)
		}
	}
}
