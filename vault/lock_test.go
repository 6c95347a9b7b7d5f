package vault_test

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hpke"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"singlepass.dev/vault"
)

func TestLockingStopsEveryUseOfTheVault(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	must(t, v.AddCredential(bearer("a"), text("canary-not-a-secret")))
	_, value, err := v.UseCredential("a")
	must(t, err)
	keys, err := v.Keys()
	must(t, err)
	called := 0
	v.OnLock(func() {
		called++
		if v.Status() != vault.Locked {
			t.Error("the hook ran before the lock")
		}
	})
	v.Lock()
	v.Lock()
	if called != 1 {
		t.Errorf("the hook ran %d times", called)
	}
	if len(v.PublicSealingKey()) != 32 {
		t.Error("the public sealing key is gone")
	}
	for name, f := range map[string]func() error{
		"Keys":             func() error { _, err := v.Keys(); return err },
		"FingerprintMAC":   func() error { _, err := keys.FingerprintMAC([]byte("m")); return err },
		"UseIndexKey":      func() error { return keys.UseIndexKey(func([]byte) error { return nil }) },
		"Sign":             func() error { _, err := keys.Sign([]byte("m")); return err },
		"UseSealingKey":    func() error { return keys.UseSealingKey(func(hpke.PrivateKey) error { return nil }) },
		"Credentials":      func() error { _, err := v.Credentials(); return err },
		"Credential":       func() error { _, err := v.Credential("a"); return err },
		"UseCredential":    func() error { _, _, err := v.UseCredential("a"); return err },
		"AddCredential":    func() error { return v.AddCredential(bearer("b"), text("x")) },
		"RotateCredential": func() error { return v.RotateCredential("a", text("x")) },
		"RemoveCredential": func() error { return v.RemoveCredential("a") },
		"Contracts":        func() error { _, err := v.Contracts(); return err },
		"AcceptContract":   func() error { return v.AcceptContract(contract("a")) },
		"RemoveContract":   func() error { return v.RemoveContract("a") },
		"Setting":          func() error { _, err := v.Setting("a"); return err },
		"Settings":         func() error { _, err := v.Settings(); return err },
		"SetSetting":       func() error { return v.SetSetting("a", []byte("1")) },
		"RemoveSetting":    func() error { return v.RemoveSetting("a") },
	} {
		if err := f(); !errors.Is(err, vault.ErrLocked) {
			t.Errorf("%s on a locked vault returns %v", name, err)
		}
	}
	if reveal(t, value) != "canary-not-a-secret" {
		t.Error("what was handed out for a dispatch was wiped")
	}
	must(t, v.Unlock(t.Context(), text(passphrase)))
	must(t, v.Close())
	if called != 2 {
		t.Error("closing did not lock")
	}
	if err := v.Unlock(t.Context(), text(passphrase)); err == nil {
		t.Error("a closed vault was unlocked")
	}
	must(t, v.Close())
}

func TestAfterLockNoKeyByteCanBeReached(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	views := vault.SecretViews(v)
	if len(views) != 8 {
		t.Fatalf("%d secrets", len(views))
	}
	for i, view := range views {
		if len(view) != 32 || zero(view) {
			t.Fatalf("secret %d is not one", i)
		}
	}
	v.Lock()
	for i, view := range views {
		if !zero(view) {
			t.Errorf("secret %d is still there", i)
		}
	}
}

// zero reports whether b is all zeros or not even mapped any more.
func zero(b []byte) (gone bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			gone = true
		}
	}()
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

func TestPrintingAVaultShowsNoKey(t *testing.T) {
	h := newHome(t)
	v, kit := h.initialized()
	keys, err := v.Keys()
	must(t, err)
	shown := fmt.Sprintf("%v %+v %#v %v %#v", v, v, v, keys, keys)
	for i, view := range vault.SecretViews(v) {
		if strings.Contains(shown, strings.Trim(fmt.Sprint(view), "[]")) {
			t.Errorf("secret %d is printed", i)
		}
	}
	if strings.Contains(shown, kit) {
		t.Error("the kit is printed")
	}
}

func TestLockWaitsForAPendingWrite(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	finish := vault.HoldWrite(v)
	locked := make(chan struct{})
	go func() { v.Lock(); close(locked) }()
	select {
	case <-locked:
		t.Error("Lock did not wait")
	default:
	}
	finish()
	<-locked
	if v.Status() != vault.Locked {
		t.Errorf("the vault is %s", v.Status())
	}
}

func TestALockStopsAnUnlockUnderWay(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	v.Lock()
	asked, answer := make(chan struct{}), make(chan struct{})
	h.keychain.hook = func() { close(asked); <-answer }
	result := make(chan error)
	go func() { result <- v.Unlock(t.Context(), text(passphrase)) }()
	<-asked
	v.Lock()
	close(answer)
	wantError(t, <-result, vault.ErrLocked)
	if v.Status() != vault.Locked {
		t.Errorf("the vault is %s", v.Status())
	}
}

func TestEveryoneAtOnceSeesAValueOrALockedVault(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	must(t, v.AddCredential(bearer("a"), text("canary-not-a-secret")))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	check := func(err error) {
		if err != nil && !errors.Is(err, vault.ErrLocked) {
			t.Error(err)
		}
	}
	loop := func(f func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					check(f())
				}
			}
		})
	}
	loop(func() error {
		_, value, err := v.UseCredential("a")
		defer value.Wipe()
		if err == nil && reveal(t, value) != "canary-not-a-secret" {
			return errors.New("torn value")
		}
		return err
	})
	loop(func() error { return v.SetSetting("k", []byte("1")) })
	loop(func() error { return v.RotateCredential("a", text("canary-not-a-secret")) })
	loop(func() error {
		keys, err := v.Keys()
		if err != nil {
			return err
		}
		_, err = keys.FingerprintMAC([]byte("m"))
		return err
	})
	for range 20 {
		v.Lock()
		check(v.Unlock(t.Context(), text(passphrase)))
	}
	close(stop)
	wg.Wait()
}

func TestKeysSignAndOpenAndStayTheSame(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	keys, err := v.Keys()
	must(t, err)
	signature, err := keys.Sign([]byte("message"))
	must(t, err)
	if !ed25519.Verify(keys.SigningKey(), []byte("message"), signature) {
		t.Error("the signature does not verify")
	}
	v.Lock()
	public, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(v.PublicSealingKey())
	must(t, err)
	box, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte("info"), []byte("written while locked"))
	must(t, err)
	must(t, v.Unlock(t.Context(), text(passphrase)))
	keys, err = v.Keys()
	must(t, err)
	must(t, keys.UseSealingKey(func(private hpke.PrivateKey) error {
		opened, err := hpke.Open(private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte("info"), box)
		if string(opened) != "written while locked" {
			t.Errorf("opened %q", opened)
		}
		return err
	}))
	var index []byte
	must(t, keys.UseIndexKey(func(k []byte) error { index = append(index, k...); return nil }))
	if len(index) != 32 || zero(index) {
		t.Error("there is no index key")
	}
	a, err := keys.FingerprintMAC([]byte("a"))
	must(t, err)
	b, err := keys.FingerprintMAC([]byte("b"))
	must(t, err)
	if a == b || a == [32]byte{} {
		t.Error("fingerprints do not tell messages apart")
	}
}
