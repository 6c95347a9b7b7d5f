//go:build linux

// Package keyringtest runs a test on a session bus of its own, with a real gnome-keyring if it wants one. It is for
// tests only.
//
// Nothing of the person's own session is touched: bus, HOME and XDG directories are private, and the bus activates no
// services by itself. What is missing on the machine fails the test with the command that installs it.
package keyringtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	marker   = "SINGLEPASS_KEYRINGTEST"
	password = "canary-not-a-secret-keyring"
	install  = "apt-get install -y --no-install-recommends dbus-daemon gnome-keyring"
	patience = 20 * time.Second
)

// A bus without <servicedir>: the installed gnome-keyring would otherwise be started by the first question for it.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
`

// Inside runs the calling test again in a process of its own under dbus-run-session and reports how it went; it then
// returns false, and the test returns. In that other process it returns true, and the test does its work:
//
//	if !keyringtest.Inside(t) {
//		return
//	}
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(marker) == t.Name() {
		return true
	}
	for _, program := range []string{"dbus-run-session", "dbus-daemon", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("this test needs %s: run `%s`", program, install)
		}
	}
	directory, err := os.MkdirTemp("", "keyringtest") // t.TempDir's names can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	config := filepath.Join(directory, "bus.conf")
	if err := os.WriteFile(config, []byte(busConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := []string{marker + "=" + t.Name(), "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	for variable, name := range map[string]string{"HOME": "h", "XDG_DATA_HOME": "d", "XDG_CONFIG_HOME": "c", "XDG_CACHE_HOME": "k", "XDG_RUNTIME_DIR": "r", "TMPDIR": "t"} {
		path := filepath.Join(directory, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		environment = append(environment, variable+"="+path)
	}
	var pattern []string
	for _, part := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "dbus-run-session", "--config-file="+config, "--",
		os.Args[0], "-test.run="+strings.Join(pattern, "/"), "-test.count=1", "-test.timeout=100s", "-test.v")
	command.Env = environment
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Errorf("under dbus-run-session: %v\n%s", err, output)
	}
	return false
}

// Bus returns a connection to the private bus.
func Bus(t *testing.T) *dbus.Conn {
	t.Helper()
	conn, err := dbus.ConnectSessionBus()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Start starts gnome-keyring and waits for it. With a login it makes and unlocks the login keyring, as PAM does at a
// login; without, there is no keyring yet.
func Start(t *testing.T, login bool) {
	t.Helper()
	conn := Bus(t)
	if err := conn.AddMatchSignal(dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, "org.freedesktop.secrets")); err != nil {
		t.Fatal(err)
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	arguments := []string{"--foreground", "--components=secrets"}
	if login {
		arguments = append(arguments, "--unlock")
	}
	command := exec.Command("gnome-keyring-daemon", arguments...)
	command.Stdin = strings.NewReader(password)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	select {
	case <-signals:
	case <-time.After(patience):
		t.Fatal("gnome-keyring did not take its name on the bus")
	}
}

const (
	servicePath = dbus.ObjectPath("/org/freedesktop/secrets")
	loginPath   = servicePath + "/collection/login"
)

// Lock locks the login keyring.
func Lock(t *testing.T) {
	t.Helper()
	var locked []dbus.ObjectPath
	var prompt dbus.ObjectPath
	err := Bus(t).Object("org.freedesktop.secrets", servicePath).
		Call("org.freedesktop.Secret.Service.Lock", 0, []dbus.ObjectPath{loginPath}).Store(&locked, &prompt)
	if err != nil || len(locked) != 1 {
		t.Fatalf("locking the keyring: %v, %v", locked, err)
	}
}

// Unlock unlocks the login keyring without a prompt, by the interface that gnome-keyring keeps for its PAM module.
func Unlock(t *testing.T) {
	t.Helper()
	conn := Bus(t)
	service := conn.Object("org.freedesktop.secrets", servicePath)
	var nothing dbus.Variant
	var session dbus.ObjectPath
	if err := service.Call("org.freedesktop.Secret.Service.OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&nothing, &session); err != nil {
		t.Fatal(err)
	}
	master := struct {
		Session     dbus.ObjectPath
		Parameters  []byte
		Value       []byte
		ContentType string
	}{session, []byte{}, []byte(password), "text/plain"}
	if err := service.Call("org.gnome.keyring.InternalUnsupportedGuiltRiddenInterface.UnlockWithMasterPassword", 0, loginPath, master).Err; err != nil {
		t.Fatal(err)
	}
}
