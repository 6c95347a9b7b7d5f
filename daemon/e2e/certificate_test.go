package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// clientCertificate makes a certificate for a client and its key, and the authority that signed it.
func clientCertificate(t *testing.T, name string) (pair string, authority *x509.Certificate) {
	t.Helper()
	made := func(serial int64, isCA bool, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: isCA, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if parent == nil {
			parent, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	authority, authorityKey := made(1, true, nil, nil)
	leaf, key := made(2, false, authority, authorityKey)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})), authority
}

func TestAClientCertificateProvesItselfToATargetOfAPrivateAuthority(t *testing.T) {
	t.Parallel()
	pair, authority := clientCertificate(t, "anna")
	stranger, _ := clientCertificate(t, "anna") // of an authority that the target does not know
	var served atomic.Int32
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		fmt.Fprintf(w, "done for %s", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	target.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	target.TLS.ClientCAs.AddCert(authority)
	target.Config.ErrorLog = log.New(io.Discard, "", 0)
	target.StartTLS()
	t.Cleanup(target.Close)

	s := newStand(t, option{actions: map[string]string{
		"place_order": order(target.URL+"/orders", "inside", ""), "balance": usualActions["balance"],
		"look": "action: look\ndescription: Looks.\nchannel: http\ninput: {type: object, properties: {}, additionalProperties: false}\ncredential: inside\napproval: session\nhttp: {method: GET, url: \"" +
			target.URL + "/look\"}\nreplay: {class: read_only}\n",
	}})
	s.agreeable()
	trusted := s.write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: target.Certificate().Raw})))
	s.spctl("credential", "add", "inside", "--kind", "client-cert", "--target", target.URL, "--value-file", s.write("pair", pair))
	s.wipe("pair")
	c := s.agent(clientKinds[4], "stdio")

	want := func(what string, r *result, state string, says string, n int32) {
		t.Helper()
		if said := r.meta(t); said.State != state || !strings.Contains(string(r.raw), says) || served.Load() != n {
			t.Errorf("%s: %d requests were served, and the agent is told %+v: %s", what, served.Load(), said, r.raw)
		}
	}
	const delivered = "completed_result_not_delivered"
	want("an authority that the machine does not know", oneOrder(c, "A-1"), "not_sent", "certificate", 0)
	s.spctl("credential", "change", "inside", "--ca-file", trusted)
	if shown := s.spctl("credential", "show", "inside"); !strings.Contains(shown, "trusts only") || !strings.Contains(shown, "SHA-256 ") {
		t.Errorf("whom it trusts is not shown: %s", shown)
	}
	want("one that the credential names", oneOrder(c, "A-2"), delivered, "done for anna", 1)
	want("a read", c.mustCall(request{tool: "look", args: map[string]any{}}), delivered, "done for anna", 2)

	s.spctl("credential", "rotate", "inside", "--value-file", s.write("pair", stranger))
	s.wipe("pair")
	want("a certificate that the target refuses", oneOrder(c, "A-3"), "not_sent", "tls: ", 2)
	s.spctl("credential", "change", "inside", "--system-cas")
	want("the machine's authorities again", oneOrder(c, "A-4"), "not_sent", "certificate", 2)
	for name, b := range filesBelow(t, s.dir, logDir(t)) {
		if strings.Contains(string(b), "PRIVATE KEY") {
			t.Errorf("a key lies in %s", name)
		}
	}
}
