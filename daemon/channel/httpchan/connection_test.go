package httpchan_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/effect"
)

func TestASideEffectHasAConnectionOfItsOwn(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]string{}
	resumed := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.RemoteAddr] = r.Proto
		if r.TLS.DidResume {
			resumed++
		}
		if r.Method == "POST" && !r.Close {
			t.Error("the connection was to be kept")
		}
	}))
	s.EnableHTTP2 = true
	pair, roots := certificate(t)
	cert, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := client(t, httpchan.Config{RootCAs: roots})
	for range 3 {
		if o := c.Do(t.Context(), attempt(s.URL+"/")); o.Verdict != channel.Success {
			t.Fatalf("%+v", o)
		}
	}
	if len(seen) != 3 || resumed != 2 {
		t.Errorf("%d connections for three requests, %d of them with a resumed TLS session", len(seen), resumed)
	}
	for _, proto := range seen {
		if proto != "HTTP/1.1" {
			t.Errorf("a side effect went over %s", proto)
		}
	}
	clear(seen)
	for range 3 {
		if o := c.Do(t.Context(), attempt(s.URL+"/", readOnly)); o.Verdict != channel.Success {
			t.Fatalf("%+v", o)
		}
	}
	if len(seen) != 1 {
		t.Errorf("%d connections for three readings", len(seen))
	}
	for _, proto := range seen {
		if proto != "HTTP/2.0" {
			t.Errorf("reading went over %s", proto)
		}
	}
}

func TestAStreamThatBreaksIsUnknown(t *testing.T) {
	pair, roots := certificate(t)
	cert, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	for _, http2 := range []bool{true, false} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if (r.ProtoMajor == 2) != http2 {
				t.Errorf("%s", r.Proto)
			}
			panic(http.ErrAbortHandler)
		}))
		s.EnableHTTP2 = http2
		s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		s.StartTLS()
		t.Cleanup(s.Close)
		o := client(t, httpchan.Config{RootCAs: roots}).Do(t.Context(), attempt(s.URL+"/", readOnly))
		if o.Verdict != channel.Unknown || requests.Swap(0) != 1 {
			t.Errorf("HTTP/2 %v: %+v", http2, o)
		}
	}
}

func TestASecretTooShortToBeLookedForIsMentioned(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	for value, want := range map[string]bool{"": false, "abc": true, "abcd": false} { // an empty password beside a key as the user name is common
		o := client(t, httpchan.Config{}).Do(t.Context(), attempt(s.URL+"/", with(t, effect.Auth{Credential: "c", Kind: "basic", Username: "u"}, value)))
		if o.Verdict != channel.Success || strings.Contains(o.Reason, "too short") != want {
			t.Errorf("%q: %+v", value, o)
		}
	}
}

func TestThePlainTextOnTheWireIsExact(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var b [4096]byte
		n, _ := conn.Read(b[:])
		got <- string(b[:n])
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}()
	o := client(t, httpchan.Config{UserAgent: "test/1"}).Do(t.Context(), attempt("http://"+l.Addr().String()+"?b=2&a=1", with(t, effect.Auth{Credential: "c", Kind: "bearer"}, canary), func(r *channel.Request) {
		r.Effect.HTTP.Header = []effect.Field{{Name: "X-B", Value: "2"}, {Name: "X-A", Value: "ä"}, {Name: "X-B", Value: ""}}
	}))
	if o.Verdict != channel.Success {
		t.Fatalf("%+v", o)
	}
	want := "POST /?b=2&a=1 HTTP/1.1\r\nHost: " + l.Addr().String() + "\r\nConnection: close\r\nAccept-Encoding: identity\r\nUser-Agent: test/1\r\nContent-Length: 7\r\n" +
		"X-B: 2\r\nX-A: ä\r\nX-B: \r\nAuthorization: Bearer " + canary + "\r\n\r\n{\"n\":1}"
	if text := <-got; text != want {
		t.Errorf("\n%q\n%q", text, want)
	}
}

func TestTLSIsVerifiedBeforeAnythingIsSent(t *testing.T) {
	pair, roots := certificate(t)
	_, others := certificate(t)
	cert, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	start := func(cfg *tls.Config) (port string) {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		s.Config.ErrorLog = quiet
		s.TLS = cfg
		cfg.Certificates = []tls.Certificate{cert}
		s.StartTLS()
		t.Cleanup(s.Close)
		_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
		return port
	}
	var named atomic.Value
	port := start(&tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { named.Store(h.ServerName); return nil, nil }})
	old := start(&tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	both(t, func(t *testing.T, class func(*channel.Request)) {
		for _, c := range []struct{ name, url, reason string }{
			{"by nobody whom we know", "https://localhost:" + port, "unknown authority"},
			{"for another name", "https://other.localhost:" + port, "not other.localhost"},
			{"an old version", "https://localhost:" + old, "protocol version"},
			{"plain text", "https://127.0.0.1:" + plainPort(t), "first record does not look like a TLS handshake"},
		} {
			cfg := httpchan.Config{RootCAs: roots, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				_, port, _ := net.SplitHostPort(address)
				return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
			}}
			if c.reason == "unknown authority" {
				cfg.RootCAs = others
			}
			cfg.Resolve = loopback
			before := requests.Load()
			o := client(t, cfg).Do(t.Context(), attempt(c.url+"/", class))
			if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, c.reason) {
				t.Errorf("%s: %+v", c.name, o)
			}
			if requests.Load() != before {
				t.Errorf("%s: a request was served", c.name)
			}
		}
		o := client(t, httpchan.Config{RootCAs: roots, Resolve: loopback}).Do(t.Context(), attempt("https://localhost:"+port+"/", class))
		if o.Verdict != channel.Success || named.Load() != "localhost" {
			t.Errorf("%+v, server name %v", o, named.Load())
		}
	})
}

func plainPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn) // closing with bytes unread would be a reset
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestAProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	both(t, func(t *testing.T, class func(*channel.Request)) {
		url, _ := raw(t, says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
		o := client(t, httpchan.Config{Resolve: loopback}).Do(t.Context(), attempt("http://name.example:"+port+"/", class, func(r *channel.Request) { r.Private = true }))
		if o.Verdict != channel.Success {
			t.Errorf("%+v", o)
		}
	})
}

// faultyConn accepts n bytes after the handshake, then fails.
type faultyConn struct {
	net.Conn
	armed *atomic.Bool
	n     int
}

func (f *faultyConn) Write(b []byte) (int, error) {
	if !f.armed.Load() {
		return f.Conn.Write(b)
	}
	if f.n < len(b) {
		n, _ := f.Conn.Write(b[:f.n])
		f.n -= n
		return n, syscall.EPIPE
	}
	f.n -= len(b)
	return f.Conn.Write(b)
}

func TestNotSentMeansThatTheSocketTookNoByte(t *testing.T) {
	pair, roots := certificate(t)
	cert, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("half a request was served") }))
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	plain := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("half a request was served") })
	for _, url := range []string{s.URL, plain.URL} {
		for n, want := range map[int]channel.Verdict{0: channel.NotSent, 1: channel.Unknown, 30: channel.Unknown} {
			var armed atomic.Bool
			c := client(t, httpchan.Config{RootCAs: roots, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return &faultyConn{Conn: conn, armed: &armed, n: n}, err
			}})
			o := c.Do(t.Context(), attempt(url+"/", func(r *channel.Request) {
				r.Permitted = func(string) error { armed.Store(true); return nil }
				r.Limits.Total = 200 * time.Millisecond // the target waits for the rest
			}))
			if o.Verdict != want {
				t.Errorf("%d bytes on %s: %+v", n, url, o)
			}
		}
	}
}

// keepConn keeps the buffers that were written.
type keepConn struct {
	net.Conn
	written *[][]byte
}

func (k keepConn) Write(b []byte) (int, error) {
	*k.written = append(*k.written, b)
	return k.Conn.Write(b)
}

func TestTheRequestIsOneWriteAndItsBufferIsWiped(t *testing.T) {
	for _, body := range []int{10, 1 << 20} {
		url, _ := raw(t, says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		var written [][]byte
		c := client(t, httpchan.Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return keepConn{conn, &written}, err
		}})
		o := c.Do(t.Context(), attempt(url+"/", with(t, effect.Auth{Credential: "c", Kind: "bearer"}, canary), func(r *channel.Request) {
			r.Effect.HTTP.Body = bytes.Repeat([]byte("x"), body)
		}))
		if o.Verdict != channel.Success || len(written) != 1 || len(written[0]) < body || len(bytes.Trim(written[0], "\x00")) != 0 {
			t.Errorf("%+v: %d writes", o, len(written))
		}
	}
}

func TestALongBodyMayBeRefusedBeforeItIsRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	over := make(chan struct{})
	defer close(over)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := bufio.NewReader(io.LimitReader(conn, 1000)).ReadString('\n'); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-over // neither reads nor closes
	}()
	o := client(t, httpchan.Config{}).Do(t.Context(), attempt("http://"+l.Addr().String()+"/", func(r *channel.Request) {
		r.Effect.HTTP.Body = bytes.Repeat([]byte("x"), 32<<20)
	}))
	if o.Verdict != channel.TargetError || o.Status != 413 {
		t.Errorf("%+v", o)
	}
}

func TestLimitsEndAnAttempt(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		const short = 50 * time.Millisecond
		over := make(chan struct{})
		defer close(over)
		drip := func(w io.Writer, _ *http.Request) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi")
			<-over
		}
		silent := func(io.Writer, *http.Request) { <-over }
		for name, c := range map[string]struct {
			say     func(io.Writer, *http.Request)
			verdict channel.Verdict
			reason  string
		}{
			"no answer":     {silent, channel.Unknown, "the limit of 50ms passed"},
			"a slow answer": {drip, channel.Success, "incomplete: the limit of 50ms passed"},
		} {
			url, _ := raw(t, c.say)
			o := client(t, httpchan.Config{}).Do(t.Context(), attempt(url+"/", class, func(r *channel.Request) { r.Limits.Total = short }))
			if o.Verdict != c.verdict || !strings.Contains(o.Reason, c.reason) {
				t.Errorf("%s: %+v", name, o)
			}
		}
		stuck := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		o := client(t, httpchan.Config{Dial: stuck}).Do(t.Context(), attempt("http://127.0.0.1:1/", class, func(r *channel.Request) { r.Limits.Connect = short }))
		if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "not connected within 50ms") {
			t.Errorf("dialling: %+v", o)
		}
		deaf, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody shakes hands
		if err != nil {
			t.Fatal(err)
		}
		defer deaf.Close()
		o = client(t, httpchan.Config{}).Do(t.Context(), attempt("https://"+deaf.Addr().String()+"/", class, func(r *channel.Request) { r.Limits.Connect = short }))
		if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "not connected within 50ms") {
			t.Errorf("handshake: %+v", o)
		}
		cancelled, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the daemon stops"))
		o = client(t, httpchan.Config{}).Do(cancelled, attempt("http://"+deaf.Addr().String()+"/", class))
		if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "the daemon stops") {
			t.Errorf("cancelled before: %+v", o)
		}
	})
}

func TestAnAttemptEndedWhilePermissionIsAskedIsNotSent(t *testing.T) {
	both(t, func(t *testing.T, class func(*channel.Request)) {
		s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
		ctx, cancel := context.WithCancel(t.Context())
		o := client(t, httpchan.Config{}).Do(ctx, attempt(s.URL+"/", class, func(r *channel.Request) { r.Permitted = func(string) error { cancel(); return nil } }))
		if o.Verdict != channel.NotSent {
			t.Errorf("%+v", o)
		}
	})
}

func TestTheSecretWipedMeanwhileWithholdsTheAnswerAndKeepsTheVerdict(t *testing.T) {
	r := attempt("", with(t, effect.Auth{Credential: "c", Kind: "bearer"}, canary))
	s := serve(t, func(w http.ResponseWriter, req *http.Request) {
		r.Secret.Wipe()
		_, _ = io.WriteString(w, req.Header.Get("Authorization"))
	})
	r.Effect.HTTP.URL = s.URL + "/"
	o := client(t, httpchan.Config{}).Do(t.Context(), r)
	if o.Verdict != channel.Success || strings.Contains(string(o.Result), "canary") || !strings.Contains(o.Reason, "withheld") {
		t.Errorf("%+v %s", o, o.Result)
	}
}

func TestManyAttemptsAtOnceKeepApart(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.URL.Path, b, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer canary-not-a-secret-"))
	})
	c := client(t, httpchan.Config{})
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			n := fmt.Sprintf("%04d", i)
			r := attempt(s.URL+"/"+n, with(t, effect.Auth{Credential: "c", Kind: "bearer"}, "canary-not-a-secret-"+n), func(r *channel.Request) {
				r.SideEffect = i%2 == 0
				r.Effect.HTTP.Body = []byte("b" + n)
			})
			if o := c.Do(t.Context(), r); o.Verdict != channel.Success || !strings.Contains(string(o.Result), fmt.Sprintf(`"body":"/%s b%s %s"`, n, n, n)) {
				t.Errorf("%+v %s", o, o.Result)
			}
		})
	}
	all.Wait()
}
