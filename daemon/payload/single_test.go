package payload_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/binary"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"

	"singlepass.dev/daemon/payload"
)

// An implementation from the package documentation alone, with the library's own XChaCha20-Poly1305.
func TestThePackageDocumentationIsEnoughToOpenAPayload(t *testing.T) {
	k := pair(t)
	sealed := mustSeal(t, sealer(t, k), payload.Result, []byte("hello"))

	r, err := hpke.NewRecipient(sealed[9:41], k, hpke.HKDFSHA256(), hpke.ExportOnly(), []byte("singlepass payload epoch v1"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := r.Export("singlepass payload key v1", 32)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		t.Fatal(err)
	}
	ad := append([]byte("singlepass payload v1"), sealed[:41]...)
	ad = binary.BigEndian.AppendUint16(ad, uint16(len("outcome_observed")))
	ad = append(ad, "outcome_observed"+id...)
	plain, err := aead.Open(nil, sealed[41:65], sealed[65:], ad)
	if err != nil {
		t.Fatal(err)
	}
	if want := append([]byte("hello\x80"), make([]byte, 250)...); !bytes.Equal(plain, want) {
		t.Errorf("plaintext is %q", plain)
	}
	if hpke.DHKEM(ecdh.X25519()).ID() != 0x0020 {
		t.Error("the KEM is not DHKEM(X25519, HKDF-SHA256) of RFC 9180, section 7.1")
	}
}
