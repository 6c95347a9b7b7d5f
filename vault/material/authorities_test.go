package material_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"singlepass.dev/vault/material"
)

// authority makes a certificate authority, and its key.
func authority(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

func TestAuthoritiesAreKeptAsTheirCertificatesAlone(t *testing.T) {
	one, key := authority(t, "one")
	two, _ := authority(t, "two")
	kept, err := material.Authorities([]byte("# ours\n" + one + "\nsubject=two\n" + two + "\n"))
	if err != nil || string(kept) != one+two {
		t.Errorf("kept is %q, %v", kept, err)
	}
	if again, err := material.Authorities(kept); err != nil || string(again) != string(kept) {
		t.Errorf("what is kept is not kept as it is: %v", err)
	}
	if _, err := material.Roots(string(kept)); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct{ file, says string }{
		"nothing":          {"", "no certificate"},
		"a private key":    {one + key, "private key"},
		"a request":        {strings.ReplaceAll(one, "CERTIFICATE", "CERTIFICATE REQUEST"), "CERTIFICATE REQUEST"},
		"a cut one":        {one + two[:len(two)/2], "cannot be read"},
		"no certificate":   {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"},
		"too many":         {strings.Repeat(one, 17), "more than 16"},
		"those of systems": {strings.Repeat("x", 65<<10), "more than 32768 bytes"},
	} {
		if got, err := material.Authorities([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "MII") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
