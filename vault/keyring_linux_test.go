package vault_test

import (
	"crypto/rand"
	"path/filepath"
	"testing"

	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
	"singlepass.dev/vault/keychain/keyringtest"
)

// The tests of this file run against a real gnome-keyring.

func real(t *testing.T) vault.Config {
	return vault.Config{Path: filepath.Join(t.TempDir(), "vault.db"), Keychain: keychain.New(), Now: newClock().Now, Rand: rand.Reader}
}

func opened(t *testing.T, c vault.Config) *vault.Vault {
	t.Helper()
	v, err := vault.Open(c)
	must(t, err)
	t.Cleanup(func() { _ = v.Close() })
	return v
}

func TestTwoHomesShareAKeyringWithoutCollidingAndALockedOneIsSaid(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	keyringtest.Start(t, true)
	first, second := real(t), real(t)
	for i, c := range []vault.Config{first, second} {
		v := opened(t, c)
		_, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF})
		must(t, err)
		must(t, v.SetSetting("home", []byte{'0' + byte(i)}))
	}
	for i, c := range []vault.Config{first, second} {
		v := opened(t, reopen(t, c))
		must(t, v.Unlock(t.Context(), text(passphrase)))
		got, err := v.Setting("home")
		must(t, err)
		if string(got) != string([]byte{'0' + byte(i)}) {
			t.Errorf("home %d opened %s", i, got)
		}
		must(t, v.ChangePassphrase(t.Context(), text(passphrase), text(other)))
		v.Lock()
		keyringtest.Lock(t)
		wantError(t, v.Unlock(t.Context(), text(other)), keychain.ErrCollectionLocked)
		keyringtest.Unlock(t)
		wantError(t, v.Unlock(t.Context(), text(passphrase)), vault.ErrWrongPassphrase)
		must(t, v.Unlock(t.Context(), text(other)))
	}
}

// reopen gives a second path to the same file content, because the first is still held.
func reopen(t *testing.T, c vault.Config) vault.Config {
	t.Helper()
	copied := c
	copied.Path = filepath.Join(t.TempDir(), "vault.db")
	copyFile(t, c.Path, copied.Path)
	return copied
}

func TestAWipedKeyringEntryIsReplacedByTheKit(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	keyringtest.Start(t, true)
	v := opened(t, real(t))
	kit, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF})
	must(t, err)
	v.Lock()
	must(t, keychain.New().Delete(t.Context(), v.Info().VaultID))
	wantError(t, v.Unlock(t.Context(), text(passphrase)), keychain.ErrNotFound)
	wantError(t, v.UnlockWithKit(t.Context(), text(other), kit.Text()), vault.ErrWrongPassphrase)
	must(t, v.UnlockWithKit(t.Context(), text(passphrase), kit.Text()))
	v.Lock()
	must(t, v.Unlock(t.Context(), text(passphrase)))
}

func TestWithoutASecretServiceInitSaysSoAndNoKeyringIsAChoice(t *testing.T) {
	if !keyringtest.Inside(t) {
		return
	}
	v := opened(t, real(t))
	_, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF})
	wantError(t, err, keychain.ErrNoService)
	if v.Status() != vault.Uninitialized {
		t.Errorf("the vault is %s", v.Status())
	}
	_, err = v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF, NoKeyring: true})
	must(t, err)
	v.Lock()
	must(t, v.Unlock(t.Context(), text(passphrase)))
}
