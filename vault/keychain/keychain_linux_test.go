package keychain_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/zalando/go-keyring"

	"singlepass.dev/vault/keychain"
	"singlepass.dev/vault/keychain/keyringtest"
	"singlepass.dev/vault/secret"
)

// each calls every method and checks that all return want.
func each(t *testing.T, ctx context.Context, want error) {
	t.Helper()
	k := keychain.New()
	_, err := k.Get(ctx, "a")
	for method, err := range map[string]error{
		"Get": err, "Set": k.Set(ctx, "a", secret.New([]byte("canary-not-a-secret"))), "Delete": k.Delete(ctx, "a"),
	} {
		if !errors.Is(err, want) {
			t.Errorf("%s returns %v, want %v", method, err, want)
		}
	}
}

func want(t *testing.T, k *keychain.Keychain, account, value string) {
	t.Helper()
	got, err := k.Get(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Wipe()
	if !got.Equal(secret.New([]byte(value))) {
		t.Errorf("account %s has another value than %q", account, value)
	}
}

func TestARealKeyringKeepsOneValuePerAccount(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	keyringtest.Start(t, true)
	k := keychain.New()
	if _, err := k.Get(t.Context(), "one"); !errors.Is(err, keychain.ErrNotFound) {
		t.Errorf("Get before Set: %v", err)
	}
	if err := k.Delete(t.Context(), "one"); !errors.Is(err, keychain.ErrNotFound) {
		t.Errorf("Delete before Set: %v", err)
	}
	binary := "canary-not-a-secret\x00\xff\n"
	for account, value := range map[string]string{"one": binary, "two": "second"} {
		if err := k.Set(t.Context(), account, secret.New([]byte(value))); err != nil {
			t.Fatal(err)
		}
	}
	want(t, k, "one", binary)
	want(t, k, "two", "second")
	if err := k.Set(t.Context(), "one", secret.New([]byte("third"))); err != nil {
		t.Fatal(err)
	}
	want(t, k, "one", "third")
	if err := k.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Get(t.Context(), "one"); !errors.Is(err, keychain.ErrNotFound) {
		t.Errorf("Get after Delete: %v", err)
	}
	want(t, k, "two", "second")
}

func TestALockedKeyringIsReportedAndWorksOnceUnlocked(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	keyringtest.Start(t, true)
	k := keychain.New()
	if err := k.Set(t.Context(), "a", secret.New([]byte("value"))); err != nil {
		t.Fatal(err)
	}
	keyringtest.Lock(t)
	each(t, t.Context(), keychain.ErrCollectionLocked)
	keyringtest.Unlock(t)
	want(t, k, "a", "value")
}

func TestAServiceWithoutAKeyringIsReported(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	keyringtest.Start(t, false)
	each(t, t.Context(), keychain.ErrNoCollection)
}

func TestABusWithoutASecretServiceIsReported(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	each(t, t.Context(), keychain.ErrNoService)
}

func TestAnEntryOfSomebodyElseIsReportedAndNotQuoted(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	keyringtest.Start(t, true)
	for _, entry := range []string{"canary-foreign", "sp1:", "sp1:canary-foreign!", "sp1:QUJD\n"} {
		if err := keyring.Set("singlepass", "a", entry); err != nil {
			t.Fatal(err)
		}
		_, err := keychain.New().Get(t.Context(), "a")
		if !errors.Is(err, keychain.ErrMalformed) || strings.Contains(err.Error(), "canary") {
			t.Errorf("entry %q: %v", entry, err)
		}
	}
}

func TestWithoutABusNothingIsStarted(t *testing.T) {
	directory := t.TempDir()
	trace := filepath.Join(directory, "started")
	script := "#!/bin/sh\n: >'" + trace + "'\n"
	if err := os.WriteFile(filepath.Join(directory, "dbus-launch"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
	for _, address := range []string{"autolaunch:", "autolaunch:scope=user", "unix:path=" + directory + "/absent", "nonsense"} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		each(t, t.Context(), keychain.ErrNoBus)
	}
	if _, err := os.Stat(trace); err == nil {
		t.Error("dbus-launch was started")
	}
}

func TestABusThatNeverAnswersIsGivenUp(t *testing.T) {
	directory, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	listener, err := net.Listen("unix", directory+"/bus")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // the backlog connects; nobody accepts
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+directory+"/bus")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	each(t, ctx, keychain.ErrTimeout)
}

// prompting is a Secret Service that claims an unlocked keyring and then asks its user, who never answers.
type prompting struct{ asked chan struct{} }

const promptPath = dbus.ObjectPath("/org/freedesktop/secrets/prompt/p")

func (p prompting) Unlock([]dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	return nil, promptPath, nil
}

func (p prompting) Prompt(string) *dbus.Error {
	p.asked <- struct{}{}
	return nil
}

func (p prompting) Get(_, property string) (dbus.Variant, *dbus.Error) {
	if property == "Locked" {
		return dbus.MakeVariant(false), nil
	}
	return dbus.MakeVariant([]dbus.ObjectPath{"/org/freedesktop/secrets/collection/login"}), nil
}

func TestAPromptThatNobodyAnswersIsGivenUp(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	conn := keyringtest.Bus(t)
	service := prompting{asked: make(chan struct{}, 64)}
	for path, face := range map[dbus.ObjectPath]string{
		"/org/freedesktop/secrets": "org.freedesktop.Secret.Service",
		promptPath:                 "org.freedesktop.Secret.Prompt",
	} {
		if err := conn.Export(service, path, face); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []dbus.ObjectPath{"/org/freedesktop/secrets", "/org/freedesktop/secrets/collection/login"} {
		if err := conn.Export(service, path, "org.freedesktop.DBus.Properties"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.RequestName("org.freedesktop.secrets", 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := keychain.New().Get(ctx, "a"); !errors.Is(err, keychain.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	select {
	case <-service.asked:
	default:
		t.Error("the prompt was never reached, so this test shows nothing")
	}
	// Calls that were given up wait on, but only so many: the next ones do not even ask.
	soon, cancelSoon := context.WithTimeout(t.Context(), time.Second)
	defer cancelSoon()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := keychain.New().Get(soon, "a"); !errors.Is(err, keychain.ErrTimeout) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if asked := 1 + len(service.asked); asked > 8 {
		t.Errorf("%d calls were left waiting", asked)
	}
	cancelled, stop := context.WithCancel(t.Context())
	stop()
	if _, err := keychain.New().Get(cancelled, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
}
