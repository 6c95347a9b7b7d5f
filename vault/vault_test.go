package vault_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
	"singlepass.dev/vault/secret"
)

// cheapKDF makes a derivation cost next to nothing.
var cheapKDF = vault.KDF{MemoryKiB: 64, Time: 1, Parallelism: 1}

const passphrase = "canary-not-a-secret-passphrase"

func TestMain(m *testing.M) {
	vault.SetLeastKDF(cheapKDF)
	os.Exit(m.Run())
}

// memoryKeychain is a keyring in memory. The real one is tested in package keychain and in keyring_linux_test.go.
type memoryKeychain struct {
	mu     sync.Mutex
	values map[string][]byte
	err    error  // what every call returns, if set
	hook   func() // called by Get, if set
}

func (k *memoryKeychain) Get(_ context.Context, account string) (*secret.Bytes, error) {
	if k.hook != nil {
		k.hook()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	b, ok := k.values[account]
	if !ok {
		return nil, keychain.ErrNotFound
	}
	return secret.New(append([]byte(nil), b...)), nil
}

func (k *memoryKeychain) Set(_ context.Context, account string, value *secret.Bytes) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	if k.values == nil {
		k.values = map[string][]byte{}
	}
	return value.Use(func(b []byte) error { k.values[account] = append([]byte(nil), b...); return nil })
}

func (k *memoryKeychain) Delete(_ context.Context, account string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	delete(k.values, account)
	return nil
}

// clock is a wall clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// home is one vault file with its keyring and clock.
type home struct {
	t        testing.TB
	path     string
	keychain *memoryKeychain
	clock    *clock
}

// newHome makes a home in memory where there is such a place: some tests write the file a thousand times.
func newHome(t testing.TB) *home {
	directory, err := os.MkdirTemp("/dev/shm", "vault")
	if err != nil {
		directory = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	return &home{t: t, path: filepath.Join(directory, "vault.db"), keychain: &memoryKeychain{}, clock: newClock()}
}

func (h *home) config() vault.Config {
	return vault.Config{Path: h.path, Keychain: h.keychain, Now: h.clock.Now, Rand: rand.Reader}
}

func (h *home) open() *vault.Vault {
	h.t.Helper()
	v, err := vault.Open(h.config())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = v.Close() })
	return v
}

// initialized returns an unlocked vault and the text of its kit.
func (h *home) initialized() (*vault.Vault, string) {
	h.t.Helper()
	v := h.open()
	kit, err := v.Init(h.t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF})
	if err != nil {
		h.t.Fatal(err)
	}
	return v, reveal(h.t, kit.Text())
}

func bearer(name string) vault.Credential {
	return vault.Credential{Name: name, Kind: vault.Bearer, Targets: []vault.Target{{Scheme: "https", Host: "api.example.com", Port: 443, PathPrefix: "/"}}}
}

func contract(action string) vault.AcceptedContract {
	return vault.AcceptedContract{Action: action, File: action + ".yaml", Source: []byte("action: " + action), Digest: "sha256:00"}
}

func text(s string) *secret.Bytes { return secret.New([]byte(s)) }

func reveal(t testing.TB, s *secret.Bytes) string {
	t.Helper()
	var got string
	if err := s.Use(func(b []byte) error { got = string(b); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func TestAVaultKeepsWhatItIsGivenOverLockAndReopening(t *testing.T) {
	h := newHome(t)
	v := h.open()
	if v.Status() != vault.Uninitialized || v.PublicSealingKey() != nil {
		t.Errorf("a new file is %s", v.Status())
	}
	wantError(t, v.Unlock(t.Context(), text(passphrase)), vault.ErrUninitialized)
	v.Close()
	v, _ = h.initialized()
	if v.Status() != vault.Unlocked {
		t.Errorf("after Init the vault is %s", v.Status())
	}
	target, err := vault.ParseTarget("https://api.example.com/v1/")
	must(t, err)
	must(t, v.AddCredential(vault.Credential{Name: "deploy", Kind: vault.Bearer, Targets: []vault.Target{target}}, text("canary-not-a-secret-token")))
	must(t, v.AcceptContract(vault.AcceptedContract{Action: "deploy_release", File: "a.yaml", Source: []byte("action: x"), Digest: "sha256:00"}))
	must(t, v.SetSetting("answer_within", []byte(`"45s"`)))
	keys, err := v.Keys()
	must(t, err)
	before, err := keys.FingerprintMAC([]byte("m"))
	must(t, err)
	must(t, v.Close())

	v = h.open()
	if v.Status() != vault.Locked {
		t.Errorf("a reopened vault is %s", v.Status())
	}
	_, err = v.Credentials()
	wantError(t, err, vault.ErrLocked)
	must(t, v.Unlock(t.Context(), text(passphrase)))
	c, value, err := v.UseCredential("deploy")
	must(t, err)
	if reveal(t, value) != "canary-not-a-secret-token" || c.Version != 1 || !c.Created.Equal(h.clock.Now()) || c.Targets[0] != target {
		t.Errorf("credential came back as %+v", c)
	}
	contracts, err := v.Contracts()
	must(t, err)
	if len(contracts) != 1 || string(contracts[0].Source) != "action: x" {
		t.Errorf("contracts came back as %+v", contracts)
	}
	setting, err := v.Setting("answer_within")
	must(t, err)
	if string(setting) != `"45s"` {
		t.Errorf("setting came back as %s", setting)
	}
	keys, err = v.Keys()
	must(t, err)
	after, err := keys.FingerprintMAC([]byte("m"))
	must(t, err)
	if before != after {
		t.Error("the fingerprint key changed")
	}
}
