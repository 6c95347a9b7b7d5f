package httpchan_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
)

// BenchmarkRequest puts one request through the channel beside the same request by net/http alone: with fresh connections for a side effect, pooled for read_only. Run the pairs in one
// run and take the ratio.
func BenchmarkRequest(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"rel_000001","state":"created"}`)
	})
	pair, roots := certificate(b)
	cert, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		b.Fatal(err)
	}
	for _, scheme := range []string{"http", "https"} {
		s := httptest.NewUnstartedServer(handler)
		s.Config.ErrorLog = quiet
		if scheme == "https" {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
			s.StartTLS()
		} else {
			s.Start()
		}
		b.Cleanup(s.Close)
		for _, callers := range []int{1, 16} {
			for _, sideEffect := range []bool{true, false} {
				name := scheme + "/side_effect"
				if !sideEffect {
					name = scheme + "/read_only"
				}
				if callers > 1 {
					name += "/many_callers"
				}
				b.Run(name+"/net_http", func(b *testing.B) {
					t := &http.Transport{DisableKeepAlives: sideEffect, MaxIdleConnsPerHost: 64, TLSClientConfig: &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(64)}}
					defer t.CloseIdleConnections()
					many(b, callers, func() bool {
						req, err := http.NewRequest("POST", s.URL+"/v1/releases", bytes.NewReader([]byte(`{"n":1}`)))
						if err != nil {
							return false
						}
						req.Header.Set("Content-Type", "application/json")
						req.Header.Set("Authorization", "Bearer "+canary)
						resp, err := t.RoundTrip(req)
						if err != nil {
							return false
						}
						_, err = io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						return err == nil && resp.StatusCode == http.StatusCreated
					})
				})
				b.Run(name+"/channel", func(b *testing.B) {
					c := client(b, httpchan.Config{RootCAs: roots})
					r := attempt(s.URL+"/v1/releases", with(b, effect.Auth{Credential: "c", Kind: "bearer"}, canary))
					r.SideEffect = sideEffect
					r.Effect.HTTP.Header = []effect.Field{{Name: "Content-Type", Value: "application/json"}}
					many(b, callers, func() bool { return c.Do(b.Context(), r).Verdict == channel.Success })
				})
			}
		}
	}
}

func many(b *testing.B, callers int, do func() bool) {
	b.ReportAllocs()
	if callers == 1 {
		for b.Loop() {
			if !do() {
				b.Fatal("not a success")
			}
		}
		return
	}
	b.SetParallelism(callers / 2)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if !do() {
				b.Error("not a success")
				return
			}
		}
	})
}
