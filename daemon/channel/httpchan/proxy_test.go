package httpchan_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/egress"
	"singlepass.dev/daemon/egress/proxytest"
)

// proxied is a channel whose connections to name.example go through a proxy.
func proxied(t *testing.T, p *proxytest.Proxy, cfg httpchan.Config) *httpchan.Channel {
	t.Helper()
	u, err := egress.ReadProxy("http://" + p.Address)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Proxy = func() (*egress.Proxy, error) {
		return &egress.Proxy{URL: u, Authorize: func(context.Context) ([]byte, error) { return []byte("Basic canary-not-a-secret-of-the-proxy"), nil }}, nil
	}
	cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("203.0.113.7")}, nil
	}
	return client(t, cfg)
}

func hostOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// What a request came to through a proxy: nothing was sent as long as there is no tunnel, and from the first byte in it on everything is as without a proxy.
func TestThroughAProxyWhatWasNotSentIsProvenAndWhatWasIsNot(t *testing.T) {
	for name, c := range map[string]struct {
		proxy   proxytest.Config
		answer  string // of the target
		verdict channel.Verdict
		says    string
		effects int32
	}{
		"done":                                 {verdict: channel.Success, answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", effects: 1},
		"a target's error":                     {verdict: channel.TargetError, answer: "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", effects: 1},
		"the proxy refuses":                    {proxy: proxytest.Config{Answer: "HTTP/1.1 403 Forbidden\r\n\r\n"}, verdict: channel.NotSent, says: "it answered 403"},
		"the proxy wants other credentials":    {proxy: proxytest.Config{Answer: "HTTP/1.1 407 No\r\n\r\n"}, verdict: channel.NotSent, says: "407"},
		"the proxy cannot connect":             {proxy: proxytest.Config{Dial: func(string) (net.Conn, error) { return nil, io.EOF }}, verdict: channel.NotSent, says: "it answered 502"},
		"the proxy closes":                     {proxy: proxytest.Config{Answer: " "}, verdict: channel.NotSent, says: "it closed the connection"},
		"the tunnel breaks after the request":  {proxy: proxytest.Config{Cut: true}, verdict: channel.Unknown, says: "the request was sent"},
		"the target closes after it has acted": {verdict: channel.Unknown, says: "the request was sent", effects: 1},
	} {
		both(t, func(t *testing.T, class func(*channel.Request)) {
			var effects atomic.Int32
			target, _ := raw(t, func(w io.Writer, r *http.Request) {
				effects.Add(1)
				if r.Header.Get("Proxy-Authorization") != "" || r.Header.Get("Authorization") != "Bearer "+canary || r.Host != "name.example:80" && r.Host != "name.example" {
					t.Errorf("%s: the target got %s %v", name, r.Host, r.Header)
				}
				_, _ = io.WriteString(w, c.answer)
			})
			c.proxy.Target = hostOf(t, target)
			p := proxytest.Start(t, c.proxy)
			o := proxied(t, p, httpchan.Config{}).Do(t.Context(), attempt("http://name.example/effect", class, with(t, effect.Auth{Credential: "c", Kind: "bearer"}, canary)))
			if o.Verdict != c.verdict || !strings.Contains(o.Reason, c.says) || effects.Load() != c.effects {
				t.Errorf("%s: %s, %s; %d effects", name, o.Verdict, o.Reason, effects.Load())
			}
			if told := fmt.Sprintf("%s %s %s", o.Reason, o.Result, o.Answer); strings.Contains(told, "of-the-proxy") || strings.Contains(told, canary) {
				t.Errorf("%s: a secret is told: %s", name, told)
			}
			for _, a := range p.Asked() {
				if a.Method != "CONNECT" || a.Address != "203.0.113.7:80" || a.Fields != 1 {
					t.Errorf("%s: the proxy was asked %+v", name, a)
				}
			}
			if n := len(p.Asked()); n != 1 {
				t.Errorf("%s: the proxy was asked %d times", name, n)
			}
		})
	}
}

func TestThroughAProxyTLSGoesToTheTarget(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		url, roots := overTLS(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
		p := proxytest.Start(t, proxytest.Config{Target: hostOf(t, url)})
		r := attempt("https://example.com/effect", class, with(t, effect.Auth{Credential: "c", Kind: "bearer"}, canary))
		if o := proxied(t, p, httpchan.Config{RootCAs: roots}).Do(t.Context(), r); o.Verdict != channel.Success {
			t.Errorf("%s: %s", o.Verdict, o.Reason)
		}
		// A proxy that stands in for the target is not believed.
		r.Effect.HTTP.URL = "https://name.example/effect"
		if o := proxied(t, p, httpchan.Config{RootCAs: roots}).Do(t.Context(), r); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "certificate") {
			t.Errorf("another's certificate: %s: %s", o.Verdict, o.Reason)
		}
	})
}

func TestAProxyThatIsSilentIsNotSentWhenTheLimitPasses(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		p := proxytest.Start(t, proxytest.Config{Answer: "silence"})
		r := attempt("http://name.example/effect", class)
		r.Limits.Connect = time.Millisecond
		if o := proxied(t, p, httpchan.Config{}).Do(t.Context(), r); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "not connected within") {
			t.Errorf("%s: %s", o.Verdict, o.Reason)
		}
	})
}

func TestAnotherProxyCountsForTheNextRequest(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	first, second := proxytest.Start(t, proxytest.Config{Target: hostOf(t, s.URL)}), proxytest.Start(t, proxytest.Config{Target: hostOf(t, s.URL)})
	var now atomic.Pointer[egress.Proxy]
	use := func(p *proxytest.Proxy) {
		u, err := egress.ReadProxy("http://" + p.Address)
		if err != nil {
			t.Fatal(err)
		}
		now.Store(&egress.Proxy{URL: u})
	}
	use(first)
	c := client(t, httpchan.Config{
		Proxy: func() (*egress.Proxy, error) { return now.Load(), nil },
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("203.0.113.7")}, nil
		},
	})
	read := func() {
		t.Helper()
		if o := c.Do(t.Context(), attempt("http://name.example/", readOnly)); o.Verdict != channel.Success {
			t.Fatalf("%s: %s", o.Verdict, o.Reason)
		}
	}
	read()
	read()
	use(second)
	c.Forget()
	read()
	if len(first.Asked()) != 1 || len(second.Asked()) != 1 {
		t.Errorf("the proxies were asked %d and %d times", len(first.Asked()), len(second.Asked()))
	}
}

// overTLS is a server with the certificate of example.com.
func overTLS(t *testing.T, h http.HandlerFunc) (url string, roots *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are to fail
	s.StartTLS()
	t.Cleanup(s.Close)
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.URL, roots
}
