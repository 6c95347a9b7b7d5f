package egress_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/egress"
	"singlepass.dev/daemon/egress/proxytest"
)

// public is an address that only the proxy of a test leads anywhere (RFC 5737).
const public = "203.0.113.7"

// echo answers every connection with what comes.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

func behind(t *testing.T, proxy string, cfg egress.Config, authorize func(context.Context) ([]byte, error)) *egress.Dialer {
	t.Helper()
	u, err := egress.ReadProxy(proxy)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Proxy = func() (*egress.Proxy, error) { return &egress.Proxy{URL: u, Authorize: authorize}, nil }
	if cfg.Resolve == nil {
		cfg.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
			return map[string][]netip.Addr{
				"name.example": {netip.MustParseAddr(public)}, "intern.example": {netip.MustParseAddr("10.1.2.3")}, "meta.example": {netip.MustParseAddr("169.254.169.254")},
				"localhost": {netip.MustParseAddr("127.0.0.1")},
			}[host], nil
		}
	}
	return egress.New(cfg)
}

func says(t *testing.T, c net.Conn, text string) {
	t.Helper()
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Errorf("the tunnel said %q, %v", got, err)
	}
}

func TestAProxyIsToldTheAddressThatWasCheckedAndNothingElse(t *testing.T) {
	p := proxytest.Start(t, proxytest.Config{Target: echo(t)})
	d := behind(t, "http://"+p.Address, egress.Config{}, func(context.Context) ([]byte, error) { return []byte("Basic Y2FuYXJ5"), nil })
	c, err := d.Dial(t.Context(), "name.example", "443", false)
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "hello")
	asked := p.Asked()
	if len(asked) != 1 || asked[0].Method != "CONNECT" || asked[0].Address != public+":443" || asked[0].Host != public+":443" || asked[0].Authorization != "Basic Y2FuYXJ5" || asked[0].Fields != 1 {
		t.Errorf("the proxy was asked %+v", asked)
	}
	// What must not be reached is not, whoever would connect to it.
	for _, host := range []string{"meta.example", "169.254.169.254", "intern.example", "0.0.0.0", "fd00:ec2::254"} {
		if c, err := d.Dial(t.Context(), host, "443", false); err == nil {
			t.Errorf("%s was reached by %s", host, c.RemoteAddr())
		}
	}
	if n := len(p.Asked()); n != 1 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

func TestThisMachineAndPrivateNetworksAreReachedWithoutTheProxy(t *testing.T) {
	p := proxytest.Start(t, proxytest.Config{Target: echo(t)})
	var dialled []string
	d := behind(t, "http://"+p.Address, egress.Config{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return nil, errors.New("nobody is there")
	}}, nil)
	for _, host := range []string{"127.0.0.1", "localhost", "10.1.2.3", "intern.example"} {
		if _, err := d.Dial(t.Context(), host, "443", true); err == nil || strings.Contains(err.Error(), "proxy") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if len(p.Asked()) != 0 || strings.Join(dialled, " ") != "127.0.0.1:443 127.0.0.1:443 10.1.2.3:443 10.1.2.3:443" {
		t.Errorf("the proxy was asked %+v, dialled %v", p.Asked(), dialled)
	}
}

func TestAProxyOverTLSIsKnownByItsName(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	pair := s.TLS.Certificates[0]
	p := proxytest.Start(t, proxytest.Config{Target: echo(t), TLS: &pair})
	c, err := behind(t, "https://"+p.Address, egress.Config{RootCAs: roots}, nil).Dial(t.Context(), "name.example", "443", false)
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "hello")
	secret := func(context.Context) ([]byte, error) { return []byte("Basic canary-not-a-secret"), nil }
	before := len(p.Asked())
	if _, err := behind(t, "https://"+p.Address, egress.Config{}, secret).Dial(t.Context(), "name.example", "443", false); err == nil || !strings.Contains(err.Error(), "TLS handshake") || len(p.Asked()) != before {
		t.Errorf("a proxy that nobody vouches for: %v", err)
	}
}

func TestWhateverAProxyAnswersInsteadIsAFailureToConnect(t *testing.T) {
	for name, c := range map[string]struct{ answer, after, says string }{
		"refuses":             {"HTTP/1.1 403 Forbidden\r\nContent-Length: 24\r\n\r\ncanary-not-a-secret-here", "", "it answered 403"},
		"wants credentials":   {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"canary-not-a-secret\"\r\n\r\n", "", "proxy_credential"},
		"redirects":           {"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n", "", "it answered 302"},
		"closes":              {"\r", "", "closed the connection"},
		"speaks otherwise":    {"SSH-2.0-canary-not-a-secret\r\n", "", "closed the connection, or what it answered is not HTTP"},
		"switches protocols":  {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "", "101"},
		"never answers":       {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), "", "never in the end"},
		"a header too long":   {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 100<<10) + "\r\n\r\n", "", "not HTTP"},
		"speaks out of turn":  {"", "HTTP/1.1 200 OK\r\n\r\n", "more than its answer"},
		"answers with a body": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "", "more than its answer"},
	} {
		p := proxytest.Start(t, proxytest.Config{Target: echo(t), Answer: c.answer, After: c.after})
		conn, err := behind(t, "http://"+p.Address, egress.Config{}, nil).Dial(t.Context(), "name.example", "443", false)
		if c.after != "" && err == nil { // the bytes may come later than the answer: the tunnel is then what spoke, and TLS or HTTP finds out
			conn.Close()
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "through the proxy http://"+p.Address) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := proxytest.Start(t, proxytest.Config{})
	p.Close()
	if _, err := behind(t, "http://"+p.Address, egress.Config{}, nil).Dial(t.Context(), "name.example", "443", false); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("no proxy: %v", err)
	}
	closed := egress.New(egress.Config{Proxy: func() (*egress.Proxy, error) { return nil, errors.New("the settings were not read yet") }})
	if _, err := closed.Dial(t.Context(), "127.0.0.1", "443", false); err == nil || !strings.Contains(err.Error(), "not read yet") {
		t.Errorf("settings that are not there: %v", err)
	}
}

func TestASilentProxyIsWaitedForNoLongerThanTheAttempt(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	p := proxytest.Start(t, proxytest.Config{Answer: "silence", Heard: func() { cancel(errors.New("the test's limit")) }})
	d := behind(t, "http://"+p.Address, egress.Config{}, nil)
	if _, err := d.Dial(ctx, "name.example", "443", false); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	limited, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	if _, err := d.Dial(limited, "name.example", "443", false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("out of time: %v", err)
	}
}

func TestTheCredentialOfAProxyThatCannotBeHadStopsTheConnection(t *testing.T) {
	p := proxytest.Start(t, proxytest.Config{Target: echo(t)})
	d := behind(t, "http://"+p.Address, egress.Config{}, func(context.Context) ([]byte, error) { return nil, errors.New("the vault is locked") })
	if _, err := d.Dial(t.Context(), "name.example", "443", false); err == nil || !strings.Contains(err.Error(), "the vault is locked") || len(p.Asked()) != 0 {
		t.Errorf("%v, asked %+v", err, p.Asked())
	}
}

func TestAProxyIsASchemeAHostAndAPort(t *testing.T) {
	for text, want := range map[string]string{"http://proxy.example:3128": "http://proxy.example:3128", "https://PROXY.example:443/": "https://proxy.example:443", "http://[::1]:8080": "http://[::1]:8080"} {
		if u, err := egress.ReadProxy(text); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v", text, u, err)
		}
	}
	for _, text := range []string{
		"", "none", "proxy.example:3128", "http://proxy.example", "http://user:canary-not-a-secret@proxy.example:3128", "socks5://proxy.example:1080", "http://proxy.example:3128/path", "http://proxy.example:0",
		"http://proxy.example:99999", "http://proxy.example:3128?x", "http://:3128", "http://pröxy.example:3128", "http://a b:1", "http://proxy.example:3128/#x",
	} {
		if u, err := egress.ReadProxy(text); err == nil {
			t.Errorf("%s was taken as %s", text, u)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error quotes the password: %v", err)
		}
	}
}
