package control_test

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/control"
	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
	"singlepass.dev/vault/secret"
)

// pocket is a keyring in memory.
type pocket map[string]*secret.Bytes

func (p pocket) Get(_ context.Context, account string) (*secret.Bytes, error) {
	if v, ok := p[account]; ok {
		return v.Clone()
	}
	return nil, keychain.ErrNotFound
}

func (p pocket) Set(_ context.Context, account string, value *secret.Bytes) (err error) {
	p[account], err = value.Clone()
	return err
}

func (p pocket) Delete(_ context.Context, account string) error {
	delete(p, account)
	return nil
}

func TestTheRecoveryKitReachesThePersonEvenIfWhatFollowsFails(t *testing.T) {
	v, err := vault.Open(vault.Config{Path: filepath.Join(t.TempDir(), "vault.db"), Keychain: pocket{}, Now: time.Now, Rand: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	parts := control.VaultParts{Vault: v, Opened: func(context.Context) error { return errors.New("the records cannot be opened") }}
	kit, err := parts.Init(t.Context(), secret.New([]byte(passphrase)), false)
	if err != nil || !strings.HasPrefix(kit, "SP1-") {
		t.Errorf("the kit is %q, %v", kit, err)
	}
	if v.Status() != vault.Locked {
		t.Errorf("the vault is %s", v.Status())
	}
}
