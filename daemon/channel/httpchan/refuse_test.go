package httpchan_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/vault/secret"
)

// refused runs r, which must not reach the target, and returns why.
func refused(t *testing.T, cfg httpchan.Config, connections *atomic.Int64, r channel.Request) string {
	t.Helper()
	before := connections.Load()
	o := client(t, cfg).Do(t.Context(), r)
	if o.Verdict != channel.NotSent || o.Reason == "" || o.Result != nil || o.Status != 0 {
		t.Errorf("%+v", o)
	}
	if strings.Contains(o.Reason, "canary") {
		t.Errorf("the reason shows what it must not: %s", o.Reason)
	}
	if connections.Load() != before {
		t.Error("the target was connected to")
	}
	return o.Reason
}

func TestWhatCannotBeSentAsItIsIsRefused(t *testing.T) {
	url, connections := raw(t, says("HTTP/1.1 200 OK\r\n\r\n"))
	field := func(name, value string) func(*channel.Request) {
		return func(r *channel.Request) { r.Effect.HTTP.Header = []effect.Field{{Name: name, Value: value}} }
	}
	at := func(u string) func(*channel.Request) {
		return func(r *channel.Request) { r.Effect.HTTP.URL = u }
	}
	method := func(m string) func(*channel.Request) {
		return func(r *channel.Request) { r.Effect.HTTP.Method = m }
	}
	host := strings.TrimPrefix(url, "http://")
	both(t, func(t *testing.T, class func(*channel.Request)) {
		for name, change := range map[string]func(*channel.Request){
			"another channel":          func(r *channel.Request) { r.Effect.Channel = effect.SSH },
			"no request":               func(r *channel.Request) { r.Effect.HTTP = nil },
			"no method":                method(""),
			"two words of a method":    method("GET /x HTTP/1.1\r\nX:"),
			"a tunnel":                 method("CONNECT"),
			"an echo":                  method("TRACE"),
			"a line in a value":        field("X-A", "a\r\nX-B: b"),
			"a line feed in a value":   field("X-A", "a\nX-B: b"),
			"a tab in a value":         field("X-A", "a\tb"),
			"a NUL in a value":         field("X-A", "a\x00"),
			"space around a value":     field("X-A", " a"),
			"a line in a name":         field("X-A: a\r\nX-B", "b"),
			"a space in a name":        field("X A", "b"),
			"no name":                  field("", "b"),
			"another host":             field("Host", "elsewhere.example"),
			"another length":           field("content-length", "1"),
			"a transfer coding":        field("Transfer-Encoding", "chunked"),
			"a kept connection":        field("Connection", "keep-alive"),
			"an expectation":           field("Expect", "100-continue"),
			"an upgrade":               field("Upgrade", "h2c"),
			"a coding of the answer":   field("Accept-Encoding", "gzip"),
			"no URL":                   at(""),
			"another scheme":           at("ftp://" + host + "/"),
			"no scheme":                at(host + "/"),
			"a relative URL":           at("/x"),
			"no host":                  at("http:///x"),
			"a user":                   at("http://u:canary@" + host + "/"),
			"a fragment":               at(url + "/x#canary"),
			"a space":                  at(url + "/a b"),
			"a line in the URL":        at(url + "/a\r\nHost: b"),
			"an unescaped character":   at(url + "/é"),
			"a host that is not ASCII": at("http://exämple.example/"),
			"a rewritten URL":          at(url + `/"`),
			"opaque":                   at("http:" + host + "/x"),
			"no such port":             at("http://127.0.0.1:0/"),
			"a port too high":          at("http://127.0.0.1:65536/"),
			"an address with a zone":   at("http://[fe80::1%25lo]/"),
			"not permitted": func(r *channel.Request) {
				r.Permitted = func(string) error { return errors.New("outside the binding") }
			},
		} {
			t.Run(name, func(t *testing.T) {
				if name == "not permitted" { // this alone is asked when there is a connection
					for _, sideEffect := range []bool{true, false} {
						r := attempt(url+"/", class, change)
						r.SideEffect = sideEffect
						if o := client(t, httpchan.Config{}).Do(t.Context(), r); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "outside the binding") {
							t.Errorf("%+v", o)
						}
					}
					return
				}
				refused(t, httpchan.Config{}, connections, attempt(url+"/", class, change))
			})
		}
	})
}

func TestACredentialThatCannotBePlacedIsRefused(t *testing.T) {
	var served atomic.Int64
	url, _ := raw(t, func(io.Writer, *http.Request) { served.Add(1) })
	bearer := effect.Auth{Credential: "c", Kind: "bearer"}
	both(t, func(t *testing.T, class func(*channel.Request)) {
		for name, change := range map[string]func(*channel.Request){
			"a line":              with(t, bearer, "canary\r\nX-Admin: 1"),
			"a line feed":         with(t, bearer, "canary\nx"),
			"a line feed at last": with(t, bearer, "canary\n"),
			"a NUL":               with(t, bearer, "canary\x00"),
			"a delete":            with(t, bearer, "canary\x7f"),
			"a line in basic":     with(t, effect.Auth{Credential: "c", Kind: "basic", Username: "u"}, "canary\r\n"),
			"a line in a query":   with(t, effect.Auth{Credential: "c", Kind: "query", Place: "k"}, "canary\r\n"),
			"a colon in the user": with(t, effect.Auth{Credential: "c", Kind: "basic", Username: "u:v"}, "canary"),
			"a line in the user":  with(t, effect.Auth{Credential: "c", Kind: "basic", Username: "u\r\n"}, "canary"),
			"no header":           with(t, effect.Auth{Credential: "c", Kind: "header"}, "canary"),
			"a framing header":    with(t, effect.Auth{Credential: "c", Kind: "header", Place: "transfer-encoding"}, "canary"),
			"a line in a header":  with(t, effect.Auth{Credential: "c", Kind: "header", Place: "X\r\nY"}, "canary"),
			"no parameter":        with(t, effect.Auth{Credential: "c", Kind: "query"}, "canary"),
			"another kind":        with(t, effect.Auth{Credential: "c", Kind: "ssh-key"}, "canary"),
			"no kind":             with(t, effect.Auth{Credential: "c"}, "canary"),
			"a parameter twice": func(r *channel.Request) {
				with(t, effect.Auth{Credential: "c", Kind: "query", Place: "a"}, "canary")(r)
				r.Effect.HTTP.URL += "?a=1"
			},
			"a header twice": func(r *channel.Request) {
				with(t, bearer, "canary")(r)
				r.Effect.HTTP.Header = []effect.Field{{Name: "authorization", Value: "Bearer other"}}
			},
			"no secret": func(r *channel.Request) { r.Effect.Auth = &bearer },
			"no place":  func(r *channel.Request) { with(t, bearer, "canary")(r); r.Effect.Auth = nil },
			"a wiped secret": func(r *channel.Request) {
				s := secret.New([]byte("canary"))
				s.Wipe()
				r.Effect.Auth, r.Secret = &bearer, s
			},
		} {
			t.Run(name, func(t *testing.T) {
				o := client(t, httpchan.Config{}).Do(t.Context(), attempt(url+"/", class, change))
				if o.Verdict != channel.NotSent || o.Reason == "" || strings.Contains(o.Reason, "canary") {
					t.Errorf("%+v", o)
				}
			})
		}
	})
	if served.Load() != 0 {
		t.Error("the target was asked")
	}
}

func TestAddressesThatHandOutCredentialsAreRefused(t *testing.T) {
	var dialled atomic.Int64
	cfg := httpchan.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		dialled.Add(1)
		return nil, errors.New("dialled")
	}}
	both(t, func(t *testing.T, class func(*channel.Request)) {
		for _, a := range []string{
			"169.254.169.254", "169.254.0.1", "[fe80::1]", "[fd00:ec2::254]", "[fd20:ce::254]", "100.100.100.200", "0.0.0.0", "[::]", "255.255.255.255", "224.0.0.1", "[ff02::1]",
			"[::ffff:169.254.169.254]", "[::ffff:100.100.100.200]", "[64:ff9b::169.254.169.254]",
		} {
			reason := refused(t, cfg, &dialled, attempt("http://"+a+"/", class))
			if !strings.Contains(reason, "address") {
				t.Errorf("%s: %s", a, reason)
			}
			named := cfg
			named.Resolve = func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr(strings.Trim(a, "[]"))}, nil
			}
			refused(t, named, &dialled, attempt("http://name.example/", class))
		}
		private := cfg
		private.AllowAddress = func(a netip.Addr) error {
			if a.IsPrivate() {
				return errors.New("private networks are switched off")
			}
			return nil
		}
		if reason := refused(t, private, &dialled, attempt("http://10.0.0.1/", class)); !strings.Contains(reason, "switched off") {
			t.Error(reason)
		}
	})
}

func TestAConnectionMadeByLeaveServesNobodyWithout(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	c := client(t, httpchan.Config{Resolve: loopback})
	leave := func(r *channel.Request) { r.Private = true }
	if o := c.Do(t.Context(), attempt("http://name.example:"+port+"/", readOnly, leave)); o.Verdict != channel.Success {
		t.Fatalf("%+v", o)
	}
	if o := c.Do(t.Context(), attempt("http://name.example:"+port+"/", readOnly)); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "--allow-private") {
		t.Errorf("%+v", o)
	}
}

func TestAHostIsResolvedOnceAndTheCheckedAddressIsDialled(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		url, _ := raw(t, says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
		var resolved, dialled []string
		c := client(t, httpchan.Config{
			Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
				resolved = append(resolved, host)
				return []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")}, nil
			},
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				dialled = append(dialled, address)
				if strings.HasPrefix(address, "[") {
					return nil, errors.New("nobody there")
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			},
		})
		o := c.Do(t.Context(), attempt("http://Name.example:"+port+"/", class, func(r *channel.Request) { r.Private = true }))
		if o.Verdict != channel.Success {
			t.Fatalf("%+v", o)
		}
		if strings.Join(resolved, " ") != "name.example" && strings.Join(resolved, " ") != "Name.example" || strings.Join(dialled, " ") != "[::1]:"+port+" 127.0.0.1:"+port {
			t.Errorf("resolved %v, dialled %v", resolved, dialled)
		}
	})
}
