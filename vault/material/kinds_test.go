package material_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
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

func TestAWSKeysAreTakenAsTheToolsWriteThem(t *testing.T) {
	const short = "AWS_ACCESS_KEY_ID=AKIDEXAMPLE\x00AWS_SECRET_ACCESS_KEY=canary/not+a+secret\x00"
	const long = "AWS_ACCESS_KEY_ID=AKIDEXAMPLE\x00AWS_SECRET_ACCESS_KEY=canary/not+a+secret\x00AWS_SESSION_TOKEN=canary==\x00"
	for text, want := range map[string]string{
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE\nexport AWS_SECRET_ACCESS_KEY='canary/not+a+secret'\nAWS_REGION=x":                                                              short,
		"[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = canary/not+a+secret\naws_session_token = canary==\nregion = eu-west-1\n":                  long,
		`{"Version":1,"AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"canary/not+a+secret","SessionToken":"canary==","Expiration":"2026-01-01T00:00:00Z"}`:              long,
		`{"Credentials":{"AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"canary/not+a+secret","SessionToken":"canary=="},"AssumedRoleUser":{"Arn":"arn:aws:sts::1:x"}}`: long,
	} {
		got, err := material.AWSKeys([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"AWS_SECRET_ACCESS_KEY=canary":                                    "AWS_ACCESS_KEY_ID is missing",
		"AWS_ACCESS_KEY_ID=canary-x\nAWS_SECRET_ACCESS_KEY=canary":        "letters and digits",
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE":                                   "AWS_SECRET_ACCESS_KEY is missing",
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE\nAWS_SECRET_ACCESS_KEY='canary x'": "a space",
		"AWS_ACCESS_KEY_ID=AKIDEXAMPLE\naws_access_key_id=AKIDEXAMPLE":    "twice",
		"CANARY=1":       "another name",
		"canary":         "line 1",
		`{"canary`:       "is none",
		`{"x":"canary"}`: "is missing",
		"[a]\naws_access_key_id=AKIDEXAMPLE\naws_secret_access_key=canary\n[b]\naws_access_key_id=AKIDEXAMPLE": "more than one profile",
	} {
		if got, err := material.AWSKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestOAuthSecretsAreTakenInSeveralForms(t *testing.T) {
	for _, c := range []struct {
		grant      material.OAuthGrant
		text, want string
	}{
		{material.ClientCredentials, "canary secret\n", "client_secret=canary secret\x00"},
		{material.RefreshToken, "1//canary", "refresh_token=1//canary\x00"},
		{material.RefreshToken, "refresh_token=canary\nclient_secret=other", "client_secret=other\x00refresh_token=canary\x00"},
		{material.RefreshToken, `{"refresh_token":"canary","access_token":"ignored"}`, "refresh_token=canary\x00"},
		{material.ClientCredentials, `{"client_secret":"canary"}`, "client_secret=canary\x00"},
	} {
		got, err := material.OAuth(c.grant, []byte(c.text))
		if err != nil || string(got) != c.want {
			t.Errorf("%s %q: %q, %v", c.grant, c.text, got, err)
		}
	}
	for _, c := range []struct {
		grant      material.OAuthGrant
		text, says string
	}{
		{material.ClientCredentials, "canary\x01", "control character"},
		{material.ClientCredentials, "refresh_token=canary", "choose the grant refresh_token"},
		{material.RefreshToken, "client_secret=canary", "refresh token is missing"},
		{material.RefreshToken, `{"canary":1}`, "refresh token is missing"},
		{material.RefreshToken, `{"canary`, "is none"},
		{material.RefreshToken, "refresh_token=canary\nCANARY=1", "another name"},
	} {
		if got, err := material.OAuth(c.grant, []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %q, %v", c.text, got, err)
		}
	}
}

// pair makes a certificate and its key.
func pair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, x, x, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func TestACertificateComesWithItsKey(t *testing.T) {
	certificate, key := pair(t)
	_, otherKey := pair(t)
	other, _ := pair(t)
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, text := range map[string][]byte{
		"in order": join(certificate, key), "key first": join(key, certificate), "with a chain": join(certificate, other, key),
		"with text between": join([]byte("Bag Attributes\n  friendlyName: x\n"), certificate, []byte("\n"), key),
	} {
		kept, err := material.ClientCertificate(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c, err := material.TLSCertificate(kept)
		if err != nil || c.PrivateKey == nil || strings.Contains(string(kept), "Bag") {
			t.Errorf("%s: %v", name, err)
		}
	}
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	legacy := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("x")})
	for name, c := range map[string]struct {
		text []byte
		says string
	}{
		"no key": {certificate, "no private key"}, "no certificate": {key, "no certificate"}, "two keys": {join(certificate, key, otherKey), "more than one"},
		"another's key": {join(certificate, otherKey), "not the first certificate's"}, "encrypted": {join(certificate, encrypted), "openssl pkey"}, "encrypted in the old way": {join(certificate, legacy), "openssl pkey"},
		"something else": {join(certificate, pem.EncodeToMemory(&pem.Block{Type: "CANARY", Bytes: []byte("x")})), "neither"}, "no PEM": {[]byte("canary"), "no certificate"},
	} {
		if _, err := material.ClientCertificate(c.text); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
