package httpchan_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
)

// ofOwnAuthority is a target whose certificate is its own authority, as PEM.
func ofOwnAuthority(t *testing.T) (s *httptest.Server, authority string, served *atomic.Int32) {
	t.Helper()
	served = new(atomic.Int32)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	pair, _ := certificate(t)
	cert, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})), served
}

func TestTheAuthoritiesOfACredentialAreTrustedInPlaceOfAllOthers(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		one, oneAuthority, served := ofOwnAuthority(t)
		_, otherAuthority, _ := ofOwnAuthority(t)
		c := client(t, httpchan.Config{RootCAs: one.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
		do := func(authorities string) channel.Outcome {
			return c.Do(t.Context(), attempt(one.URL+"/", class, with(t, effect.Auth{Credential: "c", Kind: "bearer", Place: "Authorization", Authorities: authorities}, canary)))
		}
		for i, authorities := range []string{"", oneAuthority, ""} { // where none is named those of the machine count, which know this one
			if o := do(authorities); o.Verdict != channel.Success || served.Load() != int32(i+1) {
				t.Fatalf("%+v after %d", o, served.Load())
			}
		}
		// A connection, or a session, that was made under one trust is nobody's under another.
		before := served.Load()
		if o := do(otherAuthority); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "certificate") || served.Load() != before {
			t.Errorf("with another authority: %+v", o)
		}
		if o := do("not a certificate"); o.Verdict != channel.NotSent || served.Load() != before {
			t.Errorf("with what is none: %+v", o)
		}
	})
	t.Run("unknown to the machine", func(t *testing.T) {
		s, authority, _ := ofOwnAuthority(t)
		c := client(t, httpchan.Config{RootCAs: x509.NewCertPool()})
		for authorities, want := range map[string]channel.Verdict{authority: channel.Success, "": channel.NotSent} {
			if o := c.Do(t.Context(), attempt(s.URL+"/", with(t, effect.Auth{Credential: "c", Kind: "bearer", Place: "Authorization", Authorities: authorities}, canary))); o.Verdict != want {
				t.Errorf("with %.30q: %+v", authorities, o)
			}
		}
	})
}
