package vault_test

import (
	"crypto/rand"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"

	"singlepass.dev/vault"
)

// BenchmarkUnlock alternates a raw Argon2id at the parameters of production with an unlock, on one goroutine, and reports
// the ratio of the two medians. The keyring is in memory: the real one is another process's time.
func BenchmarkUnlock(b *testing.B) {
	h := newHome(b)
	h.path = filepath.Join(b.TempDir(), "vault.db") // on a disk, so that the count's syncs are part of it
	v := h.open()
	if _, err := v.Init(b.Context(), text(passphrase), vault.InitOptions{KDF: vault.ProductionKDF}); err != nil {
		b.Fatal(err)
	}
	salt := make([]byte, 16)
	_, _ = rand.Read(salt)
	var raw, unlock []time.Duration
	for b.Loop() {
		v.Lock()
		debug.FreeOSMemory() // both begin without memory of the other's
		start := time.Now()
		argon2.IDKey([]byte(passphrase), salt, 3, 64*1024, 4, 32)
		raw = append(raw, time.Since(start))
		debug.FreeOSMemory()
		p := text(passphrase)
		start = time.Now()
		if err := v.Unlock(b.Context(), p); err != nil {
			b.Fatal(err)
		}
		unlock = append(unlock, time.Since(start))
	}
	b.ReportMetric(float64(median(raw).Microseconds())/1000, "raw-ms")
	b.ReportMetric(float64(median(unlock).Microseconds())/1000, "unlock-ms")
	b.ReportMetric(float64(median(unlock))/float64(median(raw)), "unlock/raw")
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func BenchmarkUseCredential(b *testing.B) {
	h := newHome(b)
	v, _ := h.initialized()
	must(b, v.AddCredential(bearer("a"), text("canary-not-a-secret")))
	for b.Loop() {
		_, value, err := v.UseCredential("a")
		if err != nil {
			b.Fatal(err)
		}
		value.Wipe()
	}
}

func BenchmarkFingerprintMAC(b *testing.B) {
	h := newHome(b)
	v, _ := h.initialized()
	keys, err := v.Keys()
	must(b, err)
	message := make([]byte, 600)
	for b.Loop() {
		if _, err := keys.FingerprintMAC(message); err != nil {
			b.Fatal(err)
		}
	}
}
