package e2e_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// startKeyring starts a private session bus with a real, unlocked gnome-keyring on it, and returns the environment in
// which it is found.
func startKeyring(t *testing.T, dir string) []string {
	t.Helper()
	for _, sub := range []string{"data", "run"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8",
		"XDG_DATA_HOME=" + filepath.Join(dir, "data"), "XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"),
	}
	bus := exec.Command("dbus-daemon", "--session", "--nofork", "--print-address")
	bus.Env = env
	out, err := bus.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Start(); err != nil {
		t.Fatalf("starting a session bus (install dbus-daemon, or run: bash .ci/setup): %v", err)
	}
	t.Cleanup(func() { _ = bus.Process.Kill(); _ = bus.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the address of the session bus: %v", err)
	}
	env = append(env, "DBUS_SESSION_BUS_ADDRESS="+strings.TrimSpace(address))

	keyring := exec.Command("gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
	keyring.Env = env
	keyring.Stdin = strings.NewReader("canary-not-a-secret-keyring")
	if err := keyring.Start(); err != nil {
		t.Fatalf("starting gnome-keyring-daemon (run: bash .ci/setup): %v", err)
	}
	t.Cleanup(func() { _ = keyring.Process.Kill(); _ = keyring.Wait() })
	wait := exec.Command("gdbus", "wait", "--session", "--timeout", "30", "org.freedesktop.secrets")
	wait.Env = env
	if out, err := wait.CombinedOutput(); err != nil {
		t.Fatalf("waiting for the keyring: %v\n%s", err, out)
	}
	return env
}

func TestAVaultWithARealKeyringSurvivesTheDaemon(t *testing.T) {
	s := newStand(t, option{keyring: true})
	if st := s.status(); st.Keyring != "used" {
		t.Fatalf("the keyring is %q: %s", st.Keyring, st.Reason)
	}
	s.agreeable()
	c := s.agent(clientKinds[0], "stdio")
	daemonKilled(t, s, c, "charge_keyed", s.stdio(), "A-1")
	s.wantReceipt(c.mustCall(request{tool: "charge_keyed", args: args("A-1")}))
	s.target.wantEffects(t, "A-1", 1)
}
