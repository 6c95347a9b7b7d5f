package vault_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"singlepass.dev/vault"
)

var writeVector = flag.Bool("write-vector", false, "make testdata/vault-v1.* anew; only for a new format, under a new name")

// vector is what testdata/vault-v1.json says about testdata/vault-v1.db. It was made by TestTheFrozenVaultOpens
// with -write-vector, ChaCha8 as randomness and the parameters of production.
type vector struct {
	Passphrase   string          `json:"passphrase"`
	Changed      string          `json:"changed_passphrase"`
	DeviceSecret string          `json:"device_secret_hex"`
	Kit          string          `json:"kit"`
	VaultID      string          `json:"vault_id"`
	Fingerprint  string          `json:"fingerprint_mac_of_message_hex"`
	Signature    string          `json:"signature_of_message_hex"`
	SigningKey   string          `json:"signing_key_hex"`
	SealingKey   string          `json:"public_sealing_key_hex"`
	IndexKey     string          `json:"index_key_hex"`
	SealedBox    string          `json:"hpke_box_base64"` // info "info", HKDF-SHA256, ChaCha20-Poly1305, plaintext "sealed"
	Value        string          `json:"credential_value"`
	Credential   json.RawMessage `json:"credential"`
	Setting      json.RawMessage `json:"setting"`
	Source       string          `json:"contract_source"`
}

const (
	vectorDB   = "testdata/vault-v1.db"
	vectorJSON = "testdata/vault-v1.json"
)

func (h *home) vectorConfig() vault.Config {
	c := h.config()
	c.Rand = rand.NewChaCha8([32]byte([]byte("singlepass frozen vault vector 1")))
	return c
}

func TestTheFrozenVaultOpens(t *testing.T) {
	if *writeVector {
		makeVector(t)
	}
	stored, err := os.ReadFile(vectorJSON)
	must(t, err)
	var want vector
	must(t, json.Unmarshal(stored, &want))
	h := newHome(t)
	copyFile(t, vectorDB, h.path)
	device, err := hex.DecodeString(want.DeviceSecret)
	must(t, err)
	h.keychain.values = map[string][]byte{want.VaultID: device}

	v := h.open()
	if info := v.Info(); info.KDF != vault.DefaultKDF || info.VaultID != want.VaultID || !info.DeviceSecret {
		t.Errorf("Info says %+v", info)
	}
	must(t, v.Unlock(t.Context(), text(want.Passphrase)))
	if got := observe(t, v); got != want.observed() {
		t.Errorf("the vault holds\n%+v, want\n%+v", got, want.observed())
	}
	keys, err := v.Keys()
	must(t, err)
	box, err := base64.StdEncoding.DecodeString(want.SealedBox)
	must(t, err)
	must(t, keys.UseSealingKey(func(private hpke.PrivateKey) error {
		opened, err := hpke.Open(private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte("info"), box)
		if string(opened) != "sealed" {
			t.Errorf("the box opens to %q", opened)
		}
		return err
	}))
	v.Lock()
	clear(h.keychain.values)
	must(t, v.UnlockWithKit(t.Context(), text(want.Passphrase), text(want.Kit)))
	must(t, v.ChangePassphrase(t.Context(), text(want.Passphrase), text(want.Changed)))
	must(t, v.Close())
	v = h.open()
	must(t, v.Unlock(t.Context(), text(want.Changed)))
	if got := observe(t, v); got != want.observed() {
		t.Errorf("after kit and change the vault holds\n%+v, want\n%+v", got, want.observed())
	}
}

type observed struct{ fingerprint, signature, signing, sealing, index, value, credential, setting, source string }

func (w vector) observed() observed {
	return observed{w.Fingerprint, w.Signature, w.SigningKey, w.SealingKey, w.IndexKey, w.Value, compact(w.Credential), compact(w.Setting), w.Source}
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // a malformed one compares unequal
	return b.String()
}

func observe(t *testing.T, v *vault.Vault) observed {
	t.Helper()
	keys, err := v.Keys()
	must(t, err)
	fingerprint, err := keys.FingerprintMAC([]byte("message"))
	must(t, err)
	signature, err := keys.Sign([]byte("message"))
	must(t, err)
	o := observed{
		fingerprint: hex.EncodeToString(fingerprint[:]), signature: hex.EncodeToString(signature),
		signing: hex.EncodeToString(keys.SigningKey()), sealing: hex.EncodeToString(v.PublicSealingKey()),
	}
	must(t, keys.UseIndexKey(func(k []byte) error { o.index = hex.EncodeToString(k); return nil }))
	c, value, err := v.UseCredential("vector")
	must(t, err)
	o.value = reveal(t, value)
	description, err := json.Marshal(c)
	must(t, err)
	o.credential = string(description)
	setting, err := v.Setting("vector")
	must(t, err)
	o.setting = string(setting)
	contracts, err := v.Contracts()
	must(t, err)
	if len(contracts) != 1 {
		t.Fatalf("%d contracts", len(contracts))
	}
	o.source = string(contracts[0].Source)
	return o
}

func makeVector(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(vectorDB); err == nil {
		t.Fatal("the vector exists: it is frozen")
	}
	h := newHome(t)
	v, err := vault.Open(h.vectorConfig())
	must(t, err)
	kit, err := v.Init(t.Context(), text("canary-not-a-secret caf\u00e9"), vault.InitOptions{})
	must(t, err)
	c := bearer("vector")
	c.Kind, c.PerUse = vault.Basic, true
	c.Params.Username = "user"
	must(t, v.AddCredential(c, text("canary-not-a-secret-value")))
	must(t, v.AcceptContract(contract("vector")))
	must(t, v.SetSetting("vector", []byte(`{"a":1}`)))
	public, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(v.PublicSealingKey())
	must(t, err)
	box, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte("info"), []byte("sealed"))
	must(t, err)
	o, id := observe(t, v), v.Info().VaultID
	must(t, v.Close())
	made, err := json.MarshalIndent(vector{
		Passphrase: "canary-not-a-secret cafe\u0301", Changed: "canary-not-a-secret-changed",
		DeviceSecret: hex.EncodeToString(h.keychain.values[id]), Kit: reveal(t, kit.Text()), VaultID: id,
		Fingerprint: o.fingerprint, Signature: o.signature, SigningKey: o.signing, SealingKey: o.sealing, IndexKey: o.index,
		SealedBox: base64.StdEncoding.EncodeToString(box), Value: o.value,
		Credential: json.RawMessage(o.credential), Setting: json.RawMessage(o.setting), Source: o.source,
	}, "", "\t")
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(vectorDB), 0o755))
	copyFile(t, h.path, vectorDB)
	must(t, os.WriteFile(vectorJSON, append(made, '\n'), 0o644))
}

// copyFile copies a file that may be open, to mode 0600.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, content, 0o600))
}
