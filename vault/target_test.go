package vault_test

import (
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"testing"

	"singlepass.dev/vault"
)

func TestTargetsAreReadIntoOneCanonicalForm(t *testing.T) {
	for in, want := range map[string]string{
		"https://api.example.com:443/v1/":   "https://api.example.com:443/v1/",
		"https://api.example.com":           "https://api.example.com:443/",
		"HTTPS://API.Example.COM/V1":        "https://api.example.com:443/V1",
		"https://api.example.com:8443/a//b": "https://api.example.com:8443/a//b",
		"http://localhost:8080":             "http://localhost:8080/",
		"http://127.0.0.1/x":                "http://127.0.0.1:80/x",
		"http://[::1]:9/":                   "http://[::1]:9/",
		"https://[2001:DB8:0:0::1]/":        "https://[2001:db8::1]:443/",
		"https://xn--bcher-kva.example":     "https://xn--bcher-kva.example:443/",
		"https://my_host.internal/~u":       "https://my_host.internal:443/~u",
	} {
		target, err := vault.ParseTarget(in)
		if err != nil || target.String() != want {
			t.Errorf("%s is read as %s, %v; want %s", in, target, err, want)
			continue
		}
		if again, err := vault.ParseTarget(target.String()); err != nil || again != target {
			t.Errorf("%s read again gives %+v, %v", target, again, err)
		}
	}
}

func TestTargetsThatCouldMeanSomethingElseAreRefused(t *testing.T) {
	for _, in := range []string{
		"", "api.example.com", "//api.example.com/", "/v1", "ftp://a.example/", "https:", "https:///x", "https:a.example",
		"https://user@a.example/", "https://user:canary@a.example/", "https://a.example/?q", "https://a.example/?", "https://a.example/#f", "https://a.example/#",
		"https://a.example./", "https://a..example/", "https://.a.example/", "https://-a.example/", "https://a.example-/", "https://bücher.example/",
		"https://a.example:/", "https://a.example:0/", "https://a.example:65536/", "https://a.example:0443/", "https://a.example:+443/", "https://a.example:x/",
		"https://a.example/../x", "https://a.example/x/./y", "https://a.example/x/..", "https://a.example/%2e%2e/x", "https://a.example/a%2Fb", `https://a.example/a\b`,
		"https://a.example/a%20b", "https://a.example/é", "https://a.example/a b", "https://a.example/..;x/", "https://a.example/\x00", "https://a.exa mple/",
		"http://a.example/", "http://10.0.0.1/", "http://localhost.evil.example/", "http://127.0.0.1.evil.example/", "http://0.0.0.0/",
		"https://127.1/", "https://0x7f.0.0.1/", "https://2130706433/", "https://0177.0.0.1/", "https://1.2.3.4.5/", "https://[::ffff:127.0.0.1]/", "https://[fe80::1%25eth0]/", "https://[::1/", "https://1.2.3.256/",
		"https://" + strings.Repeat("a", 64) + ".example/", "https://" + strings.Repeat("a.", 130) + "example/", "https://a.example/" + strings.Repeat("x", 2048),
	} {
		if target, err := vault.ParseTarget(in); err == nil {
			t.Errorf("%s was read as %s", in, target)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error quotes the password: %v", in, err)
		}
	}
	if target, err := vault.ParsePlaintextTarget("http://a.example/"); err != nil || !target.AllowPlaintext {
		t.Errorf("plaintext on request: %+v, %v", target, err)
	}
}

func TestATargetMatchesWhatLiesWithinItAndNothingElse(t *testing.T) {
	for _, c := range []struct{ target, matching, other string }{
		{
			"https://api.example.com/v1",
			"https://api.example.com/v1 https://api.example.com/v1/ https://API.EXAMPLE.COM:443/v1/x?q=/../#f HTTPS://api.example.com/v1/a%20b https://api.example.com/v1//x https://api.example.com/v1/100%25 https://api.example.com/v1/...",
			"https://api.example.com/v1x https://api.example.com/ https://api.example.com https://api.example.com/V1 https://api.example.com//v1 https://api.example.com/%761/x http://api.example.com/v1 http://api.example.com:443/v1 https://api.example.com:444/v1 https://api.example.com:/v1 https://api.example.com./v1 https://sub.api.example.com/v1 https://api.example.com.evil.example/v1 https://evil.example/v1 https://u@api.example.com/v1 https://api.example.com@evil.example/v1 " +
				"https://api.example.com/v1/../admin https://api.example.com/v1/./x https://api.example.com/v1/x/.. https://api.example.com/v1/%2e%2e/admin https://api.example.com/v1/.%2E/admin https://api.example.com/v1/..%2fadmin https://api.example.com/v1%2f https://api.example.com/v1/a%5cb https://api.example.com/v1/%252e%252e/admin https://api.example.com/v1/%25252E./admin https://api.example.com/v1/..;/admin https://api.example.com/v1/..;a=b/admin https://api.example.com/v1/%00 https://api.example.com/v1/%0a https://api.example.com/v1/%7F https:api.example.com/v1 /v1 //api.example.com/v1",
		},
		{"https://api.example.com/v1/", "https://api.example.com/v1/ https://api.example.com/v1/x", "https://api.example.com/v1 https://api.example.com/v1x"},
		{"https://api.example.com:8443", "https://api.example.com:8443 https://api.example.com:8443/x", "https://api.example.com/ https://api.example.com:443/"},
		{"http://127.0.0.1:80/", "http://127.0.0.1/ http://127.0.0.1:80/x", "http://localhost/ http://127.1/ http://[::1]/ http://0x7f.0.0.1/"},
		{"https://[2001:db8::1]/", "https://[2001:db8::1]/ https://[2001:DB8::1]/x", "https://[2001:db8::2]/ https://[2001:db8:0::1%25a]/"},
	} {
		target, err := vault.ParseTarget(c.target)
		must(t, err)
		for want, list := range map[bool]string{true: c.matching, false: c.other} {
			for _, raw := range strings.Fields(list) {
				u, err := url.Parse(raw)
				if err != nil {
					continue // net/http could not send it either
				}
				if target.Matches(u) != want {
					t.Errorf("%s matches %s: %v", c.target, raw, !want)
				}
			}
		}
	}
	target, err := vault.ParseTarget("https://api.example.com/v1")
	must(t, err)
	for name, u := range map[string]*url.URL{
		"nil":                   nil,
		"opaque":                {Scheme: "https", Host: "api.example.com", Path: "/v1/x", Opaque: "//evil.example/v1"},
		"raw path that differs": {Scheme: "https", Host: "api.example.com", Path: "/v1/x", RawPath: "/v1/%2e%2e/x"},
		"relative path":         {Scheme: "https", Host: "api.example.com", Path: "v1/x"},
		"backslash":             {Scheme: "https", Host: "api.example.com", Path: `/v1/..\admin`},
		"host with a path":      {Scheme: "https", Host: "api.example.com/v1", Path: "/v1"},
		"host with a break":     {Scheme: "https", Host: "api.example.com\r\n", Path: "/v1"},
		"two ports":             {Scheme: "https", Host: "api.example.com:443:443", Path: "/v1"},
	} {
		got := target.Matches(u)
		// A RawPath that does not decode to Path is ignored by net/url, which then sends the path alone.
		if want := name == "raw path that differs" && u.EscapedPath() == "/v1/x"; got != want {
			t.Errorf("%s matches: %v", name, got)
		}
	}
	var zero vault.Target
	u, err := url.Parse("https://api.example.com/")
	must(t, err)
	plain := vault.Target{Scheme: "http", Host: "a.example", Port: 80, PathPrefix: "/"}
	http, err := url.Parse("http://a.example/")
	must(t, err)
	if zero.Matches(u) || plain.Matches(http) {
		t.Error("an invalid target matches something")
	}
	if plain.AllowPlaintext = true; !plain.Matches(http) {
		t.Error("plaintext was allowed and does not match")
	}
}

func FuzzTargetMatches(f *testing.F) {
	for _, target := range []string{"https://api.example.com/v1", "https://api.example.com/v1/", "http://127.0.0.1:8080/", "https://[2001:db8::1]/x"} {
		for _, raw := range []string{"https://api.example.com/v1/x", "https://api.example.com/v1/%2e%2e/x", "https://API.example.com:443//v1", "http://127.0.0.1:8080", "https://u@[2001:db8::1]/x/..;/", `https://api.example.com/v1\..\x`} {
			f.Add(target, raw)
		}
	}
	f.Fuzz(func(t *testing.T, text, raw string) {
		target, err := vault.ParseTarget(text)
		if err != nil {
			return
		}
		if again, err := vault.ParseTarget(target.String()); err != nil || again != target {
			t.Fatalf("%q reads as %+v, and its text %q as %+v, %v", text, target, target, again, err)
		}
		u, err := url.Parse(raw)
		if err != nil || !target.Matches(u) {
			return
		}
		// An independent reading of what net/http will send, decoded as often as a server may and cleaned as it may.
		if u.User != nil || !strings.EqualFold(u.Scheme, target.Scheme) {
			t.Fatalf("%q matches %q", target, raw)
		}
		host, port := u.Hostname(), u.Port()
		if address, err := netip.ParseAddr(host); err == nil {
			host = address.String()
		}
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
		}
		if !strings.EqualFold(host, target.Host) || port != strconv.Itoa(int(target.Port)) {
			t.Fatalf("%q matches %q", target, raw)
		}
		sent, _, _ := strings.Cut(u.RequestURI(), "?")
		for range 4 {
			for _, reading := range []string{sent, strings.ReplaceAll(sent, `\`, "/")} {
				cleaned := path.Clean(reading)
				if prefix := path.Clean(target.PathPrefix); prefix != "/" && cleaned != prefix && !strings.HasPrefix(cleaned, prefix+"/") {
					t.Fatalf("%q matches %q, which a server may read as %q", target, raw, cleaned)
				}
			}
			decoded, err := url.PathUnescape(sent)
			if err != nil {
				break
			}
			sent = decoded
		}
	})
}
