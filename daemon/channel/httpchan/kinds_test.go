package httpchan_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/sigv4"
	"singlepass.dev/vault/material"
)

// needsCertificate serves over TLS, to whoever shows a certificate by one of the authorities. It says whose it was.
func needsCertificate(t *testing.T, version uint16, authorities *x509.CertPool) (url string, roots *x509.CertPool, served *atomic.Int64) {
	t.Helper()
	pair, roots := certificate(t)
	cert, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		t.Fatal(err)
	}
	served = new(atomic.Int64)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		fmt.Fprintf(w, "%s resumed=%v", r.TLS.PeerCertificates[0].Subject.CommonName, r.TLS.DidResume)
	}))
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities, MaxVersion: version}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, roots, served
}

func clientCert(t *testing.T, name string) (func(*channel.Request), *x509.CertPool) {
	t.Helper()
	pair, authority := certificateOf(t, name, x509.ExtKeyUsageClientAuth)
	kept, err := material.ClientCertificate(pair)
	if err != nil {
		t.Fatal(err)
	}
	return with(t, effect.Auth{Credential: "c", Kind: "client-cert"}, string(kept)), authority
}

func TestAClientCertificateProvesWhoAsks(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		anna, authorities := clientCert(t, "anna")
		both(t, func(t *testing.T, class func(*channel.Request)) {
			url, roots, _ := needsCertificate(t, version, authorities)
			c := client(t, httpchan.Config{RootCAs: roots})
			for range 2 { // the second could resume the session of the first
				o := c.Do(t.Context(), attempt(url+"/", class, anna))
				if o.Verdict != channel.Success || !strings.Contains(string(o.Result), `"anna resumed=false"`) {
					t.Fatalf("%+v %s", o, o.Result)
				}
			}
		})
	}
}

func TestACertificateThatIsRefusedIsProofThatNothingWasSent(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		_, authorities := clientCert(t, "anna")
		other, _ := clientCert(t, "anna") // of another authority
		both(t, func(t *testing.T, class func(*channel.Request)) {
			url, roots, served := needsCertificate(t, version, authorities)
			o := client(t, httpchan.Config{RootCAs: roots}).Do(t.Context(), attempt(url+"/", class, other))
			if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "tls: ") || served.Load() != 0 {
				t.Errorf("TLS %x: %+v", version, o)
			}
		})
	}
}

func TestACertificateGoesOverNoPlainConnectionAndKeepsItsKey(t *testing.T) {
	anna, _ := clientCert(t, "anna")
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	both(t, func(t *testing.T, class func(*channel.Request)) {
		o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class, anna))
		if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "https") || strings.Contains(o.Reason, "PRIVATE") {
			t.Errorf("%+v", o)
		}
		o = client(t, httpchan.Config{}).Do(t.Context(), attempt("https://127.0.0.1:1/", class, with(t, effect.Auth{Credential: "c", Kind: "client-cert"}, canary)))
		if o.Verdict != channel.NotSent || strings.Contains(o.Reason, canary) {
			t.Errorf("%+v", o)
		}
	})
}

func TestARequestIsSignedForAWSExactlyAsItIsSent(t *testing.T) {
	const key, token = "canary-not-a-secret-key+/7f3a", "canary-not-a-secret-token=="
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	kept, err := material.AWSKeys([]byte("AWS_ACCESS_KEY_ID=AKIDEXAMPLE\nAWS_SECRET_ACCESS_KEY=" + key + "\nAWS_SESSION_TOKEN=" + token))
	if err != nil {
		t.Fatal(err)
	}
	var wrong atomic.Pointer[string]
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		// The target signs what it got with its own copy of the keys, as AWS does.
		body, _ := io.ReadAll(r.Body)
		got := sigv4.Request{Method: r.Method, Host: r.Host, Target: r.RequestURI, Body: body, Region: "eu-west-1", Service: "lambda", Time: now}
		for name, values := range r.Header {
			for _, v := range values {
				if !strings.HasPrefix(name, "X-Amz-") && name != "Authorization" {
					got.Header = append(got.Header, sigv4.Field{Name: name, Value: []byte(v)})
				}
			}
		}
		want, err := sigv4.Sign(got, sigv4.Keys{ID: []byte("AKIDEXAMPLE"), Secret: []byte(key), Token: []byte(token)})
		for _, f := range want {
			if err != nil || r.Header.Get(f.Name) != string(f.Value) {
				text := fmt.Sprintf("%v: %s: %q, expected %q", err, f.Name, r.Header.Get(f.Name), f.Value)
				wrong.Store(&text)
			}
		}
		fmt.Fprintf(w, "%s %s %s", r.Header.Get("Authorization"), key, r.Header.Get("X-Amz-Security-Token"))
	})
	auth := with(t, effect.Auth{Credential: "c", Kind: "aws-sigv4", Place: "Authorization", Region: "eu-west-1", Service: "lambda"}, string(kept))
	c := client(t, httpchan.Config{Now: func() time.Time { return now }})
	both(t, func(t *testing.T, class func(*channel.Request)) {
		o := c.Do(t.Context(), attempt(s.URL+"/2015-03-31/functions/a%3Ab/invocations?b=2&a=%20x", class, auth))
		if text := wrong.Swap(nil); text != nil {
			t.Error(*text)
		}
		result := string(o.Result)
		if o.Verdict != channel.Success || strings.Contains(result, "canary") || !strings.Contains(result, "Signature=") || !strings.Contains(result, `"scrubbed":true`) {
			t.Errorf("%+v %s", o, result)
		}
		for _, name := range sigv4.Added {
			o := c.Do(t.Context(), attempt(s.URL+"/", class, auth, func(r *channel.Request) {
				r.Effect.HTTP.Header = append(r.Effect.HTTP.Header, effect.Field{Name: name, Value: "x"})
			}))
			if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, name) {
				t.Errorf("%s: %+v", name, o)
			}
		}
	})
}

func TestAnAccessTokenGoesWhereABearerTokenGoesAndIsScrubbed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "got "+r.Header.Get("Authorization"))
	})
	both(t, func(t *testing.T, class func(*channel.Request)) {
		o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", class, with(t, effect.Auth{Credential: "c", Kind: "oauth2", Place: "Authorization"}, canary)))
		if o.Verdict != channel.Success || !strings.Contains(string(o.Result), `"body":"got Bearer [secret]"`) {
			t.Errorf("%+v %s", o, o.Result)
		}
	})
}
