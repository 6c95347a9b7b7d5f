package vault_test

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"singlepass.dev/vault"
)

// limitFiles makes every file that this process writes end at size, until the returned function is called.
func limitFiles(t *testing.T, size uint64) (restore func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}))
	return func() { must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before)) }
}

func TestAWriteOfUnknownOutcomeLocksTheVaultAndTheNextUnlockTakesWhatIsThere(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	must(t, v.SetSetting("k", []byte("1")))
	hooks := make(chan struct{}, 1)
	v.OnLock(func() { hooks <- struct{}{} })
	info, err := os.Stat(h.path)
	must(t, err)
	big := append(append([]byte{'"'}, bytes.Repeat([]byte("x"), 500_000)...), '"') // the file has to grow
	restore := limitFiles(t, uint64(info.Size()))
	err = v.SetSetting("k", big)
	restore()
	if err == nil || !strings.Contains(err.Error(), "may or may not be stored") {
		t.Fatalf("got %v", err)
	}
	<-hooks
	if v.Status() != vault.Locked {
		t.Errorf("the vault is %s", v.Status())
	}
	must(t, v.Unlock(t.Context(), text(passphrase)))
	got, err := v.Setting("k")
	must(t, err)
	if string(got) != "1" && !bytes.Equal(got, big) {
		t.Errorf("setting: %.20s", got)
	}
	must(t, v.SetSetting("k", big))
}

func TestATryThatCannotBeCountedIsNotTaken(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	v.Lock()
	restore := limitFiles(t, 0)
	err := v.Unlock(t.Context(), text(passphrase))
	restore()
	if !errors.Is(err, syscall.EFBIG) || v.Status() != vault.Locked {
		t.Errorf("got %v, and the vault is %s", err, v.Status())
	}
	must(t, v.Unlock(t.Context(), text(passphrase)))
}

func TestAFailedInitLeavesNothingBehind(t *testing.T) {
	h := newHome(t)
	v := h.open()
	c := h.config()
	must(t, v.Close())
	c.Rand = bytes.NewReader(make([]byte, 300)) // ends while the records are sealed, after the keyring was written
	v, err := vault.Open(c)
	must(t, err)
	defer v.Close()
	if _, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: cheapKDF}); err == nil {
		t.Fatal("Init succeeded")
	}
	if v.Status() != vault.Uninitialized || len(h.keychain.values) != 0 {
		t.Errorf("the vault is %s, the keyring has %d entries", v.Status(), len(h.keychain.values))
	}
}

func TestTheMemoryOfADerivationGoesBackToTheSystem(t *testing.T) {
	h := newHome(t)
	v := h.open()
	_, err := v.Init(t.Context(), text(passphrase), vault.InitOptions{KDF: vault.ProductionKDF})
	must(t, err)
	vault.HoldDerivation(v)() // is given once the memory was
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if held := m.HeapSys - m.HeapReleased; held > 32<<20 {
		t.Errorf("the heap holds %d MiB after a derivation of 64", held>>20)
	}
}

func TestAfterAChangeOfUnknownOutcomeOneOfThePassphrasesOpensTheVault(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	// One write after another is cut short, each a little later, until the change of the passphrase succeeds.
	for size := uint64(0); ; size += 4096 {
		restore := limitFiles(t, size)
		err := v.ChangePassphrase(t.Context(), text(passphrase), text(other))
		restore()
		changed := v.CheckPassphrase(t.Context(), text(other)) == nil
		if !changed {
			must(t, v.CheckPassphrase(t.Context(), text(passphrase)))
			h.clock.advance(time.Hour)
		}
		if err == nil && !changed {
			t.Error("the change succeeded and the old passphrase is in force")
		}
		if changed {
			break
		}
	}
	v.Lock()
	must(t, v.Unlock(t.Context(), text(other)))
}
