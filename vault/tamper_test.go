package vault_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
)

// filled returns the home of a closed vault with one record of each kind.
func filled(t *testing.T) *home {
	t.Helper()
	h := newHome(t)
	v, _ := h.initialized()
	fill(t, v)
	must(t, v.Close())
	return h
}

func fill(t *testing.T, v *vault.Vault) {
	t.Helper()
	must(t, v.AddCredential(bearer("a"), text("canary-not-a-secret-a")))
	must(t, v.AcceptContract(contract("c")))
	must(t, v.SetSetting("s", []byte(`"value"`)))
}

// read unlocks a vault and reads all of it, and fails the test if anything is not what fill stored.
func read(t *testing.T, h *home) error {
	t.Helper()
	v, err := vault.Open(h.config())
	if err != nil {
		return err
	}
	defer v.Close()
	if err := v.Unlock(t.Context(), text(passphrase)); err != nil {
		return err
	}
	_, value, err := v.UseCredential("a")
	if err != nil {
		return err
	}
	contracts, err := v.Contracts()
	if err != nil {
		return err
	}
	setting, err := v.Setting("s")
	if err != nil {
		return err
	}
	if reveal(t, value) != "canary-not-a-secret-a" || len(contracts) != 1 || string(contracts[0].Source) != "action: c" || string(setting) != `"value"` {
		t.Error("something else was read than was stored")
	}
	return nil
}

// clean reports whether err is one that a person can act on.
func clean(err error) bool {
	for _, expected := range []error{vault.ErrTampered, vault.ErrWrongPassphrase, vault.ErrSealingKeyChanged} {
		if errors.Is(err, expected) {
			return true
		}
	}
	return false
}

// records returns the keys of bucket "records" of a closed file.
func records(t *testing.T, h *home) []string {
	t.Helper()
	var keys []string
	h.update(func(b *bolt.Bucket) error {
		return b.ForEach(func(k, _ []byte) error { keys = append(keys, string(k)); return nil })
	})
	return keys
}

func (h *home) update(f func(records *bolt.Bucket) error) {
	h.t.Helper()
	db, err := bolt.Open(h.path, 0o600, &bolt.Options{Timeout: time.Second, NoSync: true})
	must(h.t, err)
	must(h.t, db.Update(func(tx *bolt.Tx) error { return f(tx.Bucket([]byte("records"))) }))
	must(h.t, db.Close())
}

func TestEveryChangedByteOfHeaderManifestAndRecordsIsFound(t *testing.T) {
	h := filled(t)
	must(t, read(t, h))
	places := [][2]string{{"header", "header"}, {"header", "manifest"}}
	for _, id := range records(t, h) {
		places = append(places, [2]string{"records", id})
	}
	if len(places) != 2+6 { // keys, kit, description and value of the credential, contract, setting
		t.Fatalf("%d places", len(places))
	}
	tried := 0
	for n, place := range places {
		length := 0
		h.edit(place[0], place[1], func(b []byte) []byte { length = len(b); return b })
		// Every byte of the header and the manifest, and of a record its first, nonce, and both ends of the box.
		for at := 0; at < length; at++ {
			if n > 1 && at > 28 && at < length-18 && at%16 != 0 {
				continue
			}
			flip := func(b []byte) []byte { b[at] ^= 0x20; return b } // also turns a letter's case
			h.edit(place[0], place[1], flip)
			if err := read(t, h); err == nil {
				t.Errorf("%s %d: a change of byte %d was not found", place[0], n, at)
			} else if format := n == 0 && bytes.Contains([]byte(err.Error()), []byte("newer singlepass")); !clean(err) && !format {
				t.Errorf("%s %d: a change of byte %d gives %v", place[0], n, at, err)
			}
			h.edit(place[0], place[1], flip)
			h.clock.advance(time.Hour) // the wrong tries of the wraps
			tried++
		}
		for _, cut := range []int{0, 1, length / 2, length - 1} {
			var kept []byte
			h.edit(place[0], place[1], func(b []byte) []byte { kept = bytes.Clone(b); return b[:cut:cut] })
			if err := read(t, h); !clean(err) && !errors.Is(err, vault.ErrUninitialized) {
				t.Errorf("%s %d cut to %d bytes gives %v", place[0], n, cut, err)
			}
			h.edit(place[0], place[1], func([]byte) []byte { return kept })
			h.clock.advance(time.Hour)
		}
	}
	must(t, read(t, h))
	t.Logf("%d bytes changed", tried)
}

func TestADamagedCountOfTriesIsAnErrorAndNoFreeTry(t *testing.T) {
	for _, damage := range []string{"", "{", `{"count":-1,"last":"2026-01-01T00:00:00Z"}`, `{"count":1}`, "null"} {
		h := newHome(t)
		v, _ := h.initialized()
		wrong(t, v)
		must(t, v.Close())
		h.edit("state", "tries", func([]byte) []byte { return []byte(damage) })
		wantError(t, read(t, h), vault.ErrTampered)
	}
}

func TestRecordsThatChangePlacesOrComeAndGoAreFound(t *testing.T) {
	get := func(b *bolt.Bucket, id string) []byte { return bytes.Clone(b.Get([]byte(id))) }
	for name, change := range map[string]func(b *bolt.Bucket, ids []string) error{
		"swapped": func(b *bolt.Bucket, ids []string) error {
			first, second := get(b, ids[0]), get(b, ids[1])
			return errors.Join(b.Put([]byte(ids[0]), second), b.Put([]byte(ids[1]), first))
		},
		"copied over another": func(b *bolt.Bucket, ids []string) error { return b.Put([]byte(ids[0]), get(b, ids[1])) },
		"copied to a new id": func(b *bolt.Bucket, ids []string) error {
			id := []byte(ids[0])
			id[len(id)-1] ^= 1
			return b.Put(id, get(b, ids[0]))
		},
		"moved to another kind": func(b *bolt.Bucket, ids []string) error {
			moved := ids[0][:16] + ids[5][16:]
			return b.Put([]byte(moved), get(b, ids[5]))
		},
		"short id":      func(b *bolt.Bucket, ids []string) error { return b.Put([]byte("x"), get(b, ids[0])) },
		"nested bucket": func(b *bolt.Bucket, _ []string) error { _, err := b.CreateBucket(make([]byte, 48)); return err },
		"other version": func(b *bolt.Bucket, ids []string) error {
			stored := get(b, ids[2])
			stored[0] = 2
			return b.Put([]byte(ids[2]), stored)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := filled(t)
			ids := records(t, h)
			h.update(func(b *bolt.Bucket) error { return change(b, ids) })
			wantError(t, read(t, h), vault.ErrTampered)
		})
	}
	t.Run("each removed", func(t *testing.T) {
		h := filled(t)
		for _, id := range records(t, h) {
			var kept []byte
			h.update(func(b *bolt.Bucket) error { kept = get(b, id); return b.Delete([]byte(id)) })
			wantError(t, read(t, h), vault.ErrTampered)
			h.update(func(b *bolt.Bucket) error { return b.Put([]byte(id), kept) })
		}
		must(t, read(t, h))
	})
}

func TestARecordSetBackToItsOlderVersionIsFound(t *testing.T) {
	h := filled(t)
	older := map[string][]byte{}
	h.update(func(b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error { older[string(k)] = bytes.Clone(v); return nil })
	})
	v := h.open()
	must(t, v.Unlock(t.Context(), text(passphrase)))
	must(t, v.SetSetting("s", []byte(`"stricter"`)))
	must(t, v.Close())
	changed := 0
	h.update(func(b *bolt.Bucket) error {
		for id, stored := range older {
			if !bytes.Equal(b.Get([]byte(id)), stored) {
				changed++
				must(t, b.Put([]byte(id), stored))
			}
		}
		return nil
	})
	if changed != 1 {
		t.Fatalf("%d records differ", changed)
	}
	wantError(t, read(t, h), vault.ErrTampered)
}

func TestABoxOpensOnlyAsTheRecordThatItWasSealedAs(t *testing.T) {
	h, foreign := newHome(t), newHome(t)
	v, _ := h.initialized()
	w, _ := foreign.initialized()
	own := vault.BoxIdentity(v, "a", "credential", 1)
	for name, associated := range map[string][]byte{
		"vault":   vault.BoxIdentity(w, "a", "credential", 1),
		"id":      vault.BoxIdentity(v, "b", "credential", 1),
		"kind":    vault.BoxIdentity(v, "a", "setting", 1),
		"version": vault.BoxIdentity(v, "a", "credential", 2),
		"border":  vault.BoxIdentity(v, "ac", "redential", 1),
	} {
		if bytes.Equal(own, associated) || vault.BoxOpens(v, own, associated) {
			t.Errorf("it opens under another %s", name)
		}
	}
	if !vault.BoxOpens(v, own, own) {
		t.Error("it does not open at all")
	}
}

func TestAnotherVaultsHeaderAndRecordsDoNotFit(t *testing.T) {
	one, two := filled(t), filled(t)
	var header, manifest []byte
	one.edit("header", "header", func(b []byte) []byte { header = bytes.Clone(b); return b })
	one.edit("header", "manifest", func(b []byte) []byte { manifest = bytes.Clone(b); return b })
	two.edit("header", "header", func([]byte) []byte { return header })
	two.edit("header", "manifest", func([]byte) []byte { return manifest })
	for account, value := range one.keychain.values { // the attacker has both keyrings and the passphrase
		two.keychain.values[account] = value
	}
	wantError(t, read(t, two), vault.ErrTampered)
}

func TestARecordChangedUnderARunningVaultIsFound(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	fill(t, v)
	file, err := os.OpenFile(h.path, os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	content, err := os.ReadFile(h.path)
	must(t, err)
	// Past the two meta pages and the header everything that is not zero is bbolt's structure or a box; turning one bit in
	// the middle of each 4 KiB page's data hits boxes.
	hit := 0
	for at := 2 * 4096; at+4096 <= len(content); at += 4096 {
		page := content[at : at+4096]
		last := len(bytes.TrimRight(page, "\x00"))
		if last < 512 {
			continue
		}
		position := at + last - 8
		if _, err := file.WriteAt([]byte{content[position] ^ 1}, int64(position)); err != nil {
			t.Fatal(err)
		}
		_, _, first := v.UseCredential("a")
		_, second := v.Contracts()
		_, third := v.Setting("s")
		for _, err := range []error{first, second, third} {
			if err != nil {
				wantError(t, err, vault.ErrTampered)
				hit++
			}
		}
		if _, err := file.WriteAt(content[position:position+1], int64(position)); err != nil {
			t.Fatal(err)
		}
	}
	if hit == 0 {
		t.Error("no change hit a record, so this test shows nothing")
	}
	_, _, err = v.UseCredential("a")
	must(t, err)
}

func TestAFileDamagedAnywhereGivesACleanErrorOrWhatWasStored(t *testing.T) {
	h := filled(t)
	content, err := os.ReadFile(h.path)
	must(t, err)
	if os.Getpagesize() != 4096 {
		t.Fatal("this test knows pages of 4096 bytes")
	}
	var opened, refused int
	for n := range 300 {
		damaged := slices.Clone(content)
		at := n * len(damaged) / 300
		for i := range 1 + n%3 {
			damaged[(at+i)%len(damaged)] ^= byte(1 << (n % 8))
		}
		must(t, os.WriteFile(h.path, damaged, 0o600))
		if err := read(t, h); err == nil {
			opened++
		} else if refused++; !clean(err) && !errors.Is(err, keychain.ErrNotFound) && // another vault id
			(at >= 2*4096 || !errors.Is(err, vault.ErrNotFound)) { // bbolt fell back to the meta page before the last write
			t.Errorf("byte %d: %v", at, err)
		}
		h.clock.advance(time.Hour)
	}
	for _, length := range []int{1, 100, 4096, 8192, len(content) / 2, len(content) - 1} {
		must(t, os.WriteFile(h.path, content[:length], 0o600))
		err := read(t, h) // nil if only free pages were cut off
		if err != nil && !clean(err) || err == nil && length <= 8192 {
			t.Errorf("cut to %d bytes: %v", length, err)
		}
	}
	if refused == 0 || opened == 0 {
		t.Errorf("%d opened, %d refused: this test shows nothing", opened, refused)
	}
}

func TestAnOlderRecordPutBackUnderARunningVaultIsFound(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	boxes := func() map[string][]byte { // of a copy, since v holds the file
		copied := *h
		copied.path = h.path + ".copy"
		copyFile(t, h.path, copied.path)
		found := map[string][]byte{}
		copied.update(func(b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error { found[string(k)] = bytes.Clone(v); return nil })
		})
		return found
	}
	must(t, v.SetSetting("k", []byte(`"lax"`)))
	before := boxes()
	must(t, v.SetSetting("k", []byte(`"new"`)))
	file, err := os.OpenFile(h.path, os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	replaced := 0
	for id, box := range boxes() {
		older := before[id]
		if bytes.Equal(older, box) {
			continue
		}
		content, err := os.ReadFile(h.path)
		must(t, err)
		if at := bytes.Index(content, box); at >= 0 && len(older) == len(box) {
			_, err := file.WriteAt(older, int64(at)) // a box of the same id that once was right
			must(t, err)
			replaced++
		}
	}
	if replaced != 1 {
		t.Fatalf("%d records were put back", replaced)
	}
	_, err = v.Setting("k")
	wantError(t, err, vault.ErrTampered)
}
