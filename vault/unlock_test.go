package vault_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
)

const other = "canary-not-a-secret-otherphrase"

// edit changes the stored bytes of one key of the closed file.
func (h *home) edit(bucket, key string, f func([]byte) []byte) {
	h.t.Helper()
	db, err := bolt.Open(h.path, 0o600, &bolt.Options{Timeout: time.Second, NoSync: true})
	must(h.t, err)
	must(h.t, db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		value := f(bytes.Clone(b.Get([]byte(key))))
		if value == nil {
			return b.Delete([]byte(key))
		}
		return b.Put([]byte(key), value)
	}))
	must(h.t, db.Close())
}

func TestNoAnswerTellsWhichPartWasWrong(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	id := v.Info().VaultID
	must(t, v.Close())

	var answers []string
	attempt := func(passphrase string) {
		t.Helper()
		v := h.open()
		err := v.Unlock(t.Context(), text(passphrase))
		wantError(t, err, vault.ErrWrongPassphrase)
		if v.Status() != vault.Locked {
			t.Errorf("the vault is %s", v.Status())
		}
		answers = append(answers, err.Error())
		must(t, v.Close())
	}
	attempt(other)
	right := h.keychain.values[id]
	h.keychain.values[id] = bytes.Repeat([]byte{7}, 32)
	attempt(passphrase)
	h.keychain.values[id] = right
	h.edit("header", "header", func(b []byte) []byte {
		at := bytes.Index(b, []byte(`"wrapped":"`)) + len(`"wrapped":"`)
		if b[at] == 'A' {
			b[at] = 'B'
		} else {
			b[at] = 'A'
		}
		return b
	})
	attempt(passphrase)
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("the answers differ: %q and %q", a, answers[0])
		}
	}
}

func TestAnAbsentDeviceSecretIsSaidAtOnceAndNotCounted(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	v.Lock()
	id := v.Info().VaultID
	right := h.keychain.values[id]
	delete(h.keychain.values, id)
	for range 10 {
		wantError(t, v.Unlock(t.Context(), text(passphrase)), keychain.ErrNotFound)
	}
	h.keychain.err = keychain.ErrCollectionLocked
	wantError(t, v.CheckPassphrase(t.Context(), text(passphrase)), keychain.ErrCollectionLocked)
	h.keychain.err = nil
	h.keychain.values[id] = right
	must(t, v.Unlock(t.Context(), text(passphrase)))
}

// wrong makes one try with a wrong passphrase and returns the delay it was answered with, 0 if it was taken.
func wrong(t *testing.T, v *vault.Vault) time.Duration {
	t.Helper()
	err := v.CheckPassphrase(t.Context(), text(other))
	var many *vault.TooManyTriesError
	if errors.As(err, &many) {
		wantError(t, err, vault.ErrTooManyTries)
		return many.RetryAfter
	}
	wantError(t, err, vault.ErrWrongPassphrase)
	return 0
}

func TestWrongPassphrasesDelayTheNextTryLongerAndLonger(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	for i := range 5 {
		if d := wrong(t, v); d != 0 {
			t.Fatalf("try %d was delayed by %v", i+1, d)
		}
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900} {
		want *= time.Second
		if got := wrong(t, v); got != want {
			t.Fatalf("delayed by %v, want %v", got, want)
		}
		// Even the right passphrase has to wait, or the delay would say which one is right.
		wantError(t, v.Unlock(t.Context(), text(passphrase)), vault.ErrTooManyTries)
		must(t, v.Close()) // and a restart forgets nothing
		v = h.open()
		h.clock.advance(want - time.Millisecond)
		if got := wrong(t, v); got != time.Millisecond {
			t.Fatalf("delayed by %v, want the last millisecond", got)
		}
		h.clock.advance(time.Millisecond)
		if got := wrong(t, v); got != 0 {
			t.Fatalf("after the delay: delayed by %v", got)
		}
	}
	h.clock.advance(15 * time.Minute)
	must(t, v.Unlock(t.Context(), text(passphrase)))
	for i := range 5 {
		if d := wrong(t, v); d != 0 {
			t.Fatalf("after the right one, try %d was delayed by %v", i+1, d)
		}
	}
}

func TestAClockSetBackDoesNotLockTheOperatorOut(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	for range 6 {
		wrong(t, v)
	}
	h.clock.advance(-365 * 24 * time.Hour)
	if got := wrong(t, v); got != time.Second {
		t.Errorf("delayed by %v, want 1s", got)
	}
	h.clock.advance(time.Second)
	must(t, v.Unlock(t.Context(), text(passphrase)))
}

func TestATryIsCountedBeforeItsDerivationEnds(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	broken := text(passphrase)
	broken.Wipe() // the derivation cannot finish, as when the daemon is killed
	for range 5 {
		if err := v.CheckPassphrase(t.Context(), broken); err == nil || errors.Is(err, vault.ErrTooManyTries) {
			t.Fatalf("got %v", err)
		}
	}
	if got := wrong(t, v); got != time.Second {
		t.Errorf("delayed by %v, want 1s", got)
	}
}

func TestParallelGuessesRunOneAtATimeAndAllCount(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	var mu sync.Mutex
	taken := 0
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if errors.Is(v.CheckPassphrase(t.Context(), text(other)), vault.ErrWrongPassphrase) {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if taken != 5 {
		t.Errorf("%d of 32 parallel guesses were taken, want 5", taken)
	}
	release := vault.HoldDerivation(v)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, v.Unlock(ctx, text(passphrase)), context.Canceled)
	release()
}

func TestTheKitReplacesALostKeyringOnlyTogetherWithThePassphrase(t *testing.T) {
	h := newHome(t)
	v, kit := h.initialized()
	must(t, v.SetSetting("k", []byte("1")))
	id := v.Info().VaultID
	lost := h.keychain.values[id]
	v.Lock()
	delete(h.keychain.values, id)

	wantError(t, v.UnlockWithKit(t.Context(), text(other), text(kit)), vault.ErrWrongPassphrase)
	second := newHome(t)
	_, foreign := second.initialized()
	wantError(t, v.UnlockWithKit(t.Context(), text(passphrase), text(foreign)), vault.ErrWrongPassphrase)
	if v.Status() != vault.Locked || len(h.keychain.values) != 0 {
		t.Error("a wrong kit changed something")
	}
	h.keychain.err = keychain.ErrNoService
	wantError(t, v.UnlockWithKit(t.Context(), text(passphrase), text(kit)), keychain.ErrNoService)
	h.keychain.err = nil

	must(t, v.UnlockWithKit(t.Context(), text(passphrase), text(kit)))
	if v.Status() != vault.Unlocked {
		t.Errorf("the vault is %s", v.Status())
	}
	if got, err := v.Setting("k"); err != nil || string(got) != "1" {
		t.Errorf("setting: %s, %v", got, err)
	}
	if bytes.Equal(h.keychain.values[id], lost) || len(h.keychain.values[id]) != 32 {
		t.Error("no new device secret was enrolled")
	}
	must(t, v.Close())
	v = h.open()
	must(t, v.Unlock(t.Context(), text(passphrase)))
	v.Lock()
	h.keychain.values[id] = lost
	wantError(t, v.Unlock(t.Context(), text(passphrase)), vault.ErrWrongPassphrase)
	must(t, v.UnlockWithKit(t.Context(), text(passphrase), text(kit)))
}

func TestTheKitSurvivesAChangeOfThePassphrase(t *testing.T) {
	h := newHome(t)
	v, kit := h.initialized()
	must(t, v.ChangePassphrase(t.Context(), text(passphrase), text(other)))
	v.Lock()
	clear(h.keychain.values)
	wantError(t, v.UnlockWithKit(t.Context(), text(passphrase), text(kit)), vault.ErrWrongPassphrase)
	must(t, v.UnlockWithKit(t.Context(), text(other), text(kit)))
}

func TestAKitMayBeTypedCarelesslyButNotWrong(t *testing.T) {
	h := newHome(t)
	v, kit := h.initialized()
	v.Lock()
	if len(kit) != len("SP1")+9*5 || !strings.HasPrefix(kit, "SP1-") {
		t.Errorf("the kit looks like %q", kit)
	}
	careless := strings.ToLower(strings.ReplaceAll(kit[3:], "-", "  "))
	careless = " sp1" + strings.NewReplacer("0", "o", "1", "l").Replace(careless) + "\n"
	must(t, v.UnlockWithKit(t.Context(), text(passphrase), text(careless)))
	v.Lock()
	for i := len("SP1-"); i < len(kit); i++ {
		if kit[i] == '-' {
			continue
		}
		mistyped := []byte(kit)
		if mistyped[i]++; mistyped[i] == 'I' || mistyped[i] == 'L' || mistyped[i] == 'O' || mistyped[i] == 'U' || mistyped[i] == '9'+1 || mistyped[i] == 'Z'+1 {
			mistyped[i] = '7'
		}
		if string(mistyped) == kit {
			continue
		}
		if err := v.UnlockWithKit(t.Context(), text(passphrase), text(string(mistyped))); !errors.Is(err, vault.ErrKitMistyped) {
			t.Errorf("character %d mistyped: %v", i, err)
		}
	}
	for _, bad := range []string{"", "SP1", kit[4:], kit + "0", kit[:len(kit)-1], "SP2" + kit[3:], strings.Repeat("0", 10000), kit[:8] + "U" + kit[9:], kit[:8] + "\xff" + kit[9:]} {
		wantError(t, v.UnlockWithKit(t.Context(), text(passphrase), text(bad)), vault.ErrKitMistyped)
	}
}

func TestAVaultWithoutKeyringSaysThatItIsWeaker(t *testing.T) {
	h := newHome(t)
	v := h.open()
	h.keychain.err = keychain.ErrNoBus
	_, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF})
	wantError(t, err, keychain.ErrNoBus)
	if v.Status() != vault.Uninitialized {
		t.Fatal("a failed Init left a vault")
	}
	kit, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF, NoKeyring: true})
	must(t, err)
	if kit.Text() != nil {
		t.Error("there is a kit, with nothing for it to replace")
	}
	must(t, v.Close())
	v = h.open()
	if info := v.Info(); info.DeviceSecret || info.Protection != "passphrase only: weaker" {
		t.Errorf("Info says %+v", info)
	}
	wantError(t, v.Unlock(t.Context(), text(other)), vault.ErrWrongPassphrase)
	must(t, v.Unlock(t.Context(), text(passphrase)))
	must(t, v.ChangePassphrase(t.Context(), text(passphrase), text(other)))
	v.Lock()
	must(t, v.Unlock(t.Context(), text(other)))
	if err := v.UnlockWithKit(t.Context(), text(other), text("SP1")); err == nil {
		t.Error("a kit was taken")
	}
}

func TestChangingThePassphraseKeepsStateAndRecordsAndOverwritesTheOldWrap(t *testing.T) {
	for _, locked := range []bool{false, true} {
		h := newHome(t)
		v, _ := h.initialized()
		must(t, v.SetSetting("k", []byte("1")))
		before, err := os.ReadFile(h.path)
		must(t, err)
		_, rest, _ := bytes.Cut(before, []byte(`"slots":[{"kind":"passphrase","wrapped":"`))
		oldWrap := rest[:64]
		if locked {
			v.Lock()
		}
		state := v.Status()
		wantError(t, v.ChangePassphrase(t.Context(), text(other), text("canary-not-a-secret-third")), vault.ErrWrongPassphrase)
		must(t, v.ChangePassphrase(t.Context(), text(passphrase), text(other)))
		if v.Status() != state {
			t.Errorf("the vault went from %s to %s", state, v.Status())
		}
		after, err := os.ReadFile(h.path)
		must(t, err)
		if !bytes.Contains(before, oldWrap) || bytes.Contains(after, oldWrap) {
			t.Error("the old wrap is still in the file")
		}
		must(t, v.Close())
		v = h.open()
		wantError(t, v.Unlock(t.Context(), text(passphrase)), vault.ErrWrongPassphrase)
		must(t, v.Unlock(t.Context(), text(other)))
		if got, err := v.Setting("k"); err != nil || string(got) != "1" {
			t.Errorf("setting: %s, %v", got, err)
		}
	}
}

func TestWeakPassphrasesAndWeakDerivationsAreRefused(t *testing.T) {
	h := newHome(t)
	v := h.open()
	for _, weak := range []string{"", "eleven char", strings.Repeat("e\u0301", 6), "canary-not-a-secret\n", "canary-not-a-secret\xff", strings.Repeat("x", 1025)} {
		if _, err := v.Init(t.Context(), text(weak), vault.InitOptions{KDF: cheapKDF}); err == nil {
			t.Fatalf("%q was taken", weak)
		} else if weak != "" && strings.Contains(err.Error(), weak) {
			t.Errorf("the error quotes the passphrase: %v", err)
		}
	}
	vault.SetLeastKDF(vault.ProductionKDF)
	defer vault.SetLeastKDF(cheapKDF)
	for _, k := range []vault.KDF{cheapKDF, {64*1024 - 1, 3, 4}, {64 * 1024, 2, 4}, {64 * 1024, 3, 3}, {4*1024*1024 + 1, 3, 4}, {64 * 1024, 17, 4}} {
		if _, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: k}); err == nil {
			t.Fatalf("%+v was taken", k)
		}
	}
	if vault.ProductionKDF != (vault.KDF{MemoryKiB: 64 * 1024, Time: 3, Parallelism: 4}) || vault.ProductionKDF != vault.DefaultKDF {
		t.Errorf("the floor of production is %+v", vault.ProductionKDF)
	}
}

func TestAPassphraseTypedInAnotherUnicodeFormOpensTheVault(t *testing.T) {
	h := newHome(t)
	v := h.open()
	_, err := v.Init(t.Context(), text("caf\u00e9 not a secret"), vault.InitOptions{KDF: cheapKDF})
	must(t, err)
	must(t, v.CheckPassphrase(t.Context(), text("cafe\u0301 not a secret")))
}

func TestGeneratedPassphrasesAreSixWordsAndAreAccepted(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		p, err := vault.GeneratePassphrase(newHome(t).config().Rand)
		must(t, err)
		words := reveal(t, p)
		if len(strings.Fields(words)) != 6 || strings.Contains(words, "  ") || seen[words] {
			t.Errorf("generated %q", words)
		}
		seen[words] = true
	}
	p, err := vault.GeneratePassphrase(newHome(t).config().Rand)
	must(t, err)
	_, err = newHome(t).open().Init(t.Context(), p, vault.InitOptions{KDF: cheapKDF})
	must(t, err)
	if _, err := vault.GeneratePassphrase(bytes.NewReader(nil)); err == nil {
		t.Error("generated without randomness")
	}
	p, err = vault.GeneratePassphrase(bytes.NewReader(append(bytes.Repeat([]byte{255, 252}, 100), make([]byte, 30)...)))
	must(t, err)
	if got := reveal(t, p); got != "abacus abacus abacus abacus abacus abacus" {
		t.Errorf("bytes from 252 on are not thrown again: %q", got)
	}
}

func TestInitHappensOnce(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	_, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF})
	wantError(t, err, vault.ErrInitialized)
	if len(h.keychain.values) != 1 {
		t.Error("the second Init touched the keyring")
	}
}

func TestOpenRefusesWhatItCannotVouchFor(t *testing.T) {
	t.Run("missing configuration", func(t *testing.T) {
		full := newHome(t).config()
		for _, c := range []vault.Config{
			{Keychain: full.Keychain, Now: full.Now, Rand: full.Rand},
			{Path: full.Path, Now: full.Now, Rand: full.Rand},
			{Path: full.Path, Keychain: full.Keychain, Rand: full.Rand},
			{Path: full.Path, Keychain: full.Keychain, Now: full.Now},
		} {
			if _, err := vault.Open(c); err == nil {
				t.Errorf("%+v was taken", c)
			}
		}
	})
	t.Run("a file that others can read", func(t *testing.T) {
		h := newHome(t)
		h.open().Close()
		info, err := os.Stat(h.path)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the file was made with mode %o", info.Mode().Perm())
		}
		must(t, os.Chmod(h.path, 0o640))
		if _, err := vault.Open(h.config()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a link", func(t *testing.T) {
		h := newHome(t)
		h.open().Close()
		link := *h
		link.path = filepath.Join(t.TempDir(), "link")
		must(t, os.Symlink(h.path, link.path))
		if _, err := vault.Open(link.config()); err == nil {
			t.Error("a link was followed")
		}
	})
	t.Run("a file in use", func(t *testing.T) {
		h := newHome(t)
		h.open()
		_, err := vault.Open(h.config())
		wantError(t, err, vault.ErrInUse)
	})
	t.Run("a file that is no vault", func(t *testing.T) {
		h := newHome(t)
		must(t, os.WriteFile(h.path, bytes.Repeat([]byte("not a vault "), 2000), 0o600))
		_, err := vault.Open(h.config())
		wantError(t, err, vault.ErrTampered)
	})
}

func TestAHostileHeaderIsRefusedBeforeAnythingIsAllocated(t *testing.T) {
	for name, replace := range map[string][2]string{
		"memory":      {`"memory_kib":64,`, `"memory_kib":4194305,`},
		"time":        {`"time":1,`, `"time":17,`},
		"parallelism": {`"parallelism":1,`, `"parallelism":65,`},
		"no memory":   {`"memory_kib":64,`, `"memory_kib":7,`},
		"no time":     {`"time":1,`, `"time":0,`},
		"new format":  {`"format":1,`, `"format":2,`},
		"old format":  {`"format":1,`, `"format":0,`},
		"algorithm":   {`argon2id`, `argon2i`},
		"unknown":     {`"format":1,`, `"format":1,"x":1,`},
		"id":          {`"vault_id":"`, `"vault_id":"00`},
		"slots":       {`"device_secret":true`, `"device_secret":false`},
		"trailing":    {`]}`, `]}{}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			v, _ := h.initialized()
			must(t, v.Close())
			h.edit("header", "header", func(b []byte) []byte {
				changed := bytes.Replace(b, []byte(replace[0]), []byte(replace[1]), 1)
				if bytes.Equal(changed, b) {
					t.Fatalf("%s is not in the header", replace[0])
				}
				return changed
			})
			_, err := vault.Open(h.config())
			if err == nil {
				t.Fatal("it was taken")
			}
			if name == "new format" {
				if errors.Is(err, vault.ErrTampered) || !strings.Contains(err.Error(), "newer") {
					t.Errorf("got %v", err)
				}
				return
			}
			wantError(t, err, vault.ErrTampered)
		})
	}
}

func TestAnotherSealingKeyInTheHeaderFailsTheUnlockWithItsOwnError(t *testing.T) {
	h := newHome(t)
	v, kit := h.initialized()
	must(t, v.Close())
	h.edit("header", "header", func(b []byte) []byte {
		at := bytes.Index(b, []byte(`"sealing_key":"`)) + len(`"sealing_key":"`)
		copy(b[at:], "AAAA")
		return b
	})
	v = h.open()
	wantError(t, v.Unlock(t.Context(), text(passphrase)), vault.ErrSealingKeyChanged)
	wantError(t, v.UnlockWithKit(t.Context(), text(passphrase), text(kit)), vault.ErrSealingKeyChanged)
	wantError(t, v.ChangePassphrase(t.Context(), text(passphrase), text(other)), vault.ErrSealingKeyChanged)
	if v.Status() != vault.Locked {
		t.Errorf("the vault is %s", v.Status())
	}
}
