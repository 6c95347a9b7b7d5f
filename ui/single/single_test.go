package single_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/ui/single"
)

// folder is short: a socket's path has at most 107 bytes.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestASecondStartRaisesTheFirst(t *testing.T) {
	dir := folder(t)
	first, err := single.Claim(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	raised := make(chan bool, 1)
	go first.Serve(func() { raised <- true })
	if _, err := single.Claim(t.Context(), dir); !errors.Is(err, single.ErrRunning) {
		t.Fatalf("the second start got %v", err)
	}
	<-raised
	first.Close()
	third, err := single.Claim(t.Context(), dir)
	if err != nil {
		t.Fatalf("after the first ended: %v", err)
	}
	third.Close()
}

func TestNothingButTheOneWordDoesAnything(t *testing.T) {
	dir := folder(t)
	first, err := single.Claim(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	raised := make(chan bool, 100)
	ended := make(chan bool)
	go func() { first.Serve(func() { raised <- true }); close(ended) }()
	for _, text := range []string{"approve card_1\n", "raise", "raise \n", "\n", strings.Repeat("x", 1<<16) + "\n"} {
		c, err := net.Dial("unix", filepath.Join(dir, "tray.sock"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		_ = c.(*net.UnixConn).CloseWrite()
		if answer, _ := io.ReadAll(c); len(answer) > 0 {
			t.Errorf("%.20q was answered %q", text, answer)
		}
		c.Close()
	}
	first.Close()
	<-ended
	if len(raised) > 0 {
		t.Error("the window was raised")
	}
}

func TestTheSocketIsTheOwnersAlone(t *testing.T) {
	dir := folder(t)
	first, err := single.Claim(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, name := range []string{"tray.sock", "tray.lock"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}

func TestWhatACrashLeftIsNoHindrance(t *testing.T) {
	dir := folder(t)
	l, err := net.Listen("unix", filepath.Join(dir, "tray.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	i, err := single.Claim(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	i.Close()
}

func TestTheAutostartEntryRunsTheProgramWhateverItsPath(t *testing.T) {
	config := t.TempDir()
	file, err := single.Autostart(config, "/opt/my \"apps\"/100%/$HOME`x`\\sp-tray", "/home/me/second home", true)
	if err != nil {
		t.Fatal(err)
	}
	if !single.HasAutostart(config) {
		t.Error("it is not there")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := `Exec="/opt/my \\"apps\\"/100%%/\\$HOME\\` + "`x\\\\`" + `\\\\sp-tray" --background --home "/home/me/second home"` + "\n"
	if !bytes.Contains(b, []byte(want)) {
		t.Errorf("got\n%swant\n%s", b, want)
	}
	for range 2 {
		if _, err := single.Autostart(config, "x", "", false); err != nil || single.HasAutostart(config) {
			t.Errorf("removing it: %v", err)
		}
	}
}
