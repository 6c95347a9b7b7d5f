package vault_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"singlepass.dev/vault"
)

func TestACredentialForHTTPSCanNameTheAuthoritiesThatItTrusts(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	trusted := vault.CredentialParams{Authorities: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	with := func(change func(*vault.CredentialParams)) vault.CredentialParams {
		p := trusted
		change(&p)
		return p
	}

	v, _ := newHome(t).initialized()
	must(t, v.AddCredential(ofKind(t, vault.Basic, with(func(p *vault.CredentialParams) { p.Username = "anna" }), "https://a.example"), text("canary")))
	c, err := v.ChangeCredential("x", func(c *vault.Credential) { c.Params = vault.CredentialParams{Username: "eve"} })
	must(t, err)
	if c.Params.Authorities != "" || c.Params.Username != "anna" {
		t.Errorf("a change of the authorities made %+v", c.Params)
	}
	c, err = v.ChangeCredential("x", func(c *vault.Credential) { c.Params.Authorities = trusted.Authorities })
	must(t, err)
	if c.Params.Authorities != trusted.Authorities {
		t.Error("the authorities were not changed")
	}
	for name, bad := range map[string]struct {
		c    vault.Credential
		says string
	}{
		"no certificate":   {ofKind(t, vault.Bearer, with(func(p *vault.CredentialParams) { p.Authorities = "x" }), "https://a.example"), "no certificate"},
		"another form":     {ofKind(t, vault.Bearer, with(func(p *vault.CredentialParams) { p.Authorities += "\n" }), "https://a.example"), "shortest form"},
		"no target has it": {ofKind(t, vault.Bearer, trusted, "http://127.0.0.1"), "no target has that"},
		"SSH":              {ofKind(t, vault.SSHPassword, trusted, "ssh://a@b.example"), "takes no parameter authorities"},
		"an upstream":      {ofKind(t, vault.Env, trusted, "upstream:a"), "takes no parameter authorities"},
	} {
		if err := bad.c.Validate(); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kind := range []vault.CredentialKind{vault.Bearer, vault.Cert} {
		must(t, ofKind(t, kind, trusted, "https://a.example").Validate())
	}
	must(t, ofKind(t, vault.OAuth2, with(func(p *vault.CredentialParams) {
		p.TokenURL, p.ClientID, p.Grant = "https://tokens.example/", "x", "client_credentials"
	}), "http://127.0.0.1").Validate())
}
