package attack_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

func init() { roles["saver"] = actAsScreenSaver }

// actAsScreenSaver is the desktop's screen saver, which says that the screen was locked.
func actAsScreenSaver(args []string) error {
	conn, err := dbus.Connect(args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	const name = "org.freedesktop.ScreenSaver"
	if reply, err := conn.RequestName(name, 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		return fmt.Errorf("being a screen saver: %w, %v", err, reply)
	}
	if err := conn.Emit("/org/freedesktop/ScreenSaver", name+".ActiveChanged", true); err != nil {
		return err
	}
	// Answered by the bus after it passed the signal on.
	return conn.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err
}

// startBus starts a session bus of the user's.
func startBus(t *testing.T) (address string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become the user")
	}
	folder, err := os.MkdirTemp("", "sp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	config := filepath.Join(folder, "bus.conf")
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>`), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--config-file="+config, "--nofork", "--print-address")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// The person locks the screen and leaves. What waited for them is void, and what was sent comes to its end with its own copy of the secret.
func TestAScreenLockVoidsWhatWaitsAndLetsWhatWasSentFinish(t *testing.T) {
	address := startBus(t)
	s := begin(t, "DBUS_SESSION_BUS_ADDRESS="+address)
	a, other := s.agent(), s.agent()
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let) // before the target is closed, which waits for its requests
	s.target.slow.Store(release)
	sent := a.pay("1")
	s.spctl("approve", s.card().Card, "--session")
	for until := time.Now().Add(patience); s.target.acted.Load() == 0; {
		if time.Now().After(until) {
			t.Fatal("the approved call was never sent")
		}
	}
	waiting := other.pay("2")
	card := s.card()

	saver := s.command("agent")
	saver.Env = append(saver.Env, "ATTACK_ROLE=saver "+address)
	if out, status := run(saver); status != 0 {
		t.Fatalf("locking the screen: %s", out)
	}
	s.log.wait("the vault is locked")
	if st := s.status(); st.Vault != "locked" || !strings.Contains(st.Reason, "screen") || st.Pending != 0 {
		t.Errorf("the status is %+v", st)
	}
	if l := other.answer(waiting); !strings.Contains(l, `"isError":true`) {
		t.Errorf("what waited for a card ended as %s", l)
	}
	let()
	if l := a.answer(sent); !strings.Contains(l, "receipt") {
		t.Errorf("what was sent ended as %s", l)
	}
	if out, status := run(s.command("spctl", "approve", card.Card, "--once")); status == 0 {
		t.Errorf("a card of before the lock was approved: %s", out)
	}
	s.wantActed(1)
}
