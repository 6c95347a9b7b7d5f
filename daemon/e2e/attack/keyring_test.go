package attack_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"singlepass.dev/daemon/api"
)

func init() { roles["keyring"] = readKeyring }

// withKeyring stands in the environment where there is a keyring for the vault.
const withKeyring = "ATTACK_KEYRING=yes"

// readKeyring reads everything of ours that the open keyring holds, as any program of the user can.
func readKeyring([]string) error {
	bus, err := dbus.ConnectSessionBus()
	if err != nil {
		return err
	}
	defer bus.Close()
	service := bus.Object("org.freedesktop.secrets", "/org/freedesktop/secrets")
	var session dbus.ObjectPath
	var none dbus.Variant
	if err := service.Call("org.freedesktop.Secret.Service.OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&none, &session); err != nil {
		return fmt.Errorf("opening a session: %w", err)
	}
	var open, locked []dbus.ObjectPath
	if err := service.Call("org.freedesktop.Secret.Service.SearchItems", 0, map[string]string{"service": "singlepass"}).Store(&open, &locked); err != nil {
		return fmt.Errorf("searching: %w", err)
	}
	for _, item := range open {
		var found struct {
			Session     dbus.ObjectPath
			Parameters  []byte
			Value       []byte
			ContentType string
		}
		if err := bus.Object("org.freedesktop.secrets", item).Call("org.freedesktop.Secret.Item.GetSecret", 0, session).Store(&found); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		fmt.Fprintf(os.Stderr, "device secret %s\n", found.Value)
	}
	if len(open) == 0 {
		return fmt.Errorf("the keyring holds nothing of ours")
	}
	return nil
}

// keyring starts a session bus with an open keyring for the user, and returns the environment that finds it.
func keyring(t *testing.T) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &stand{t: t, dir: dir}
	for _, name := range []string{"", "data", "run"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, user, user); err != nil {
			t.Fatal(err)
		}
	}
	s.env = []string{withKeyring, "LANG=C.UTF-8", "XDG_DATA_HOME=" + dir + "/data", "XDG_RUNTIME_DIR=" + dir + "/run"}
	bus := s.command("/usr/bin/dbus-daemon", "--session", "--nofork", "--print-address")
	out, err := bus.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Start(); err != nil {
		t.Fatalf("starting a session bus (run: bash .ci/setup): %v", err)
	}
	t.Cleanup(func() { _ = bus.Process.Kill(); _ = bus.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "DBUS_SESSION_BUS_ADDRESS="+strings.TrimSpace(address))
	daemon := s.command("/usr/bin/gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")
	daemon.Stdin = strings.NewReader("canary-not-a-secret-keyring")
	if err := daemon.Start(); err != nil {
		t.Fatalf("starting a keyring (run: bash .ci/setup): %v", err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill(); _ = daemon.Wait() })
	if out, status := run(s.command("/usr/bin/gdbus", "wait", "--session", "--timeout", "30", "org.freedesktop.secrets")); status != 0 {
		t.Fatalf("waiting for the keyring: %s", out)
	}
	return s.env
}

// An agent reads the open keyring, copies the whole home, and starts a daemon of its own on the copy. It has both that the vault needs but the passphrase.
func TestTheKeyringAndACopyOfTheHomeOpenNothingWithoutThePassphrase(t *testing.T) {
	s := begin(t, keyring(t)...)
	if st := s.status(); st.Keyring != "used" {
		t.Fatalf("the keyring is %q: %s", st.Keyring, st.Reason)
	}
	a := s.agent()
	a.order(order{Run: []string{filepath.Join(s.bin, "agent")}, Env: []string{"ATTACK_ROLE=keyring"}})
	r := a.reported()
	_, text, found := strings.Cut(strings.TrimSpace(r.Out), "device secret sp1:")
	device, err := base64.StdEncoding.DecodeString(text)
	if r.Status != 0 || !found || err != nil || len(device) < 16 {
		t.Fatalf("an agent can read an open keyring, and this one did not: %+v, %v", r, err)
	}
	stolen := filepath.Join(s.dir, "stolen")
	if r := a.runs("/bin/sh", "-c", "cp -a "+s.home+" "+stolen+" && rm -rf "+stolen+"/run"); r.Status != 0 {
		t.Fatal(r.Out)
	}
	// What was stolen holds the secret nowhere, nor the passphrase.
	files := 0
	err = filepath.WalkDir(stolen, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		for name, secret := range map[string][]byte{"the credential": []byte(canary), "the passphrase": []byte(passphrase), "the device secret": device} {
			if bytes.Contains(b, secret) {
				t.Errorf("%s holds %s", path, name)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files: %v", files, err)
	}
	own := s.command("spd")
	own.Env = append(own.Env, "SINGLEPASS_HOME="+stolen)
	log := follow(t, own)
	log.wait(`"msg":"ready"`)
	wrong := s.write("wrong", "correct horse battery staple guess\n")
	for name, args := range map[string][]string{
		"unlocking":     {"unlock", "--passphrase-file", wrong},
		"its own proof": {"credential", "list", "--passphrase-file", wrong},
	} {
		cmd := s.command("spctl", args...)
		cmd.Env = append(cmd.Env, "SINGLEPASS_HOME="+stolen)
		if out, status := run(cmd); status == 0 || strings.Contains(out, canary) {
			t.Errorf("%s: exit status %d\n%s", name, status, out)
		}
	}
	// The same copy opens with the passphrase: it was the passphrase that was missing, and nothing else.
	cmd := s.command("spctl", "unlock")
	cmd.Env = append(cmd.Env, "SINGLEPASS_HOME="+stolen)
	if out, status := run(cmd); status != 0 {
		t.Errorf("with the passphrase: exit status %d\n%s", status, out)
	}
	if st := s.status(); st.Vault != "unlocked" || st.Refused != nil && st.Refused.LastCode == api.CodeProofWrong {
		t.Errorf("the person's own daemon: %+v", st)
	}
}
