package vault

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Target is where a credential may be sent. All fields are in canonical form, as ParseTarget makes them.
type Target struct {
	Scheme         string `json:"scheme"`                    // "https", "http" or "upstream"
	Host           string `json:"host"`                      // lower-case ASCII name, or an address without brackets; the upstream server's name
	Port           uint16 `json:"port"`                      // never 0, but for upstream
	PathPrefix     string `json:"path_prefix"`               // starts with "/"; matches whole segments; "" for upstream
	AllowPlaintext bool   `json:"allow_plaintext,omitempty"` // the operator accepts http to a host other than loopback
	User           string `json:"user,omitempty"`            // ssh: the account
}

// schemeUpstream names a server that the daemon starts: what goes to it goes nowhere else by our doing.
const schemeUpstream = "upstream"

// ParseTarget reads "https://api.example.com:443/v1/", or "upstream:NAME". Port and path may be left out. http is taken for loopback hosts only.
func ParseTarget(text string) (Target, error) { return parseTarget(text, false) }

// ParsePlaintextTarget is ParseTarget for an operator who said that http to any host is meant: everybody on the way can
// read the credential.
func ParsePlaintextTarget(text string) (Target, error) { return parseTarget(text, true) }

func parseTarget(text string, plaintext bool) (Target, error) {
	refuse := func(format string, args ...any) (Target, error) {
		return Target{}, fmt.Errorf("target %q: %s", text, fmt.Sprintf(format, args...))
	}
	if len(text) > 2048 {
		return Target{}, errors.New("the target is longer than 2048 bytes")
	}
	if name, ok := strings.CutPrefix(text, schemeUpstream+":"); ok {
		t := Target{Scheme: schemeUpstream, Host: name}
		return t, t.Validate()
	}
	u, err := url.Parse(text)
	if err != nil {
		return refuse("not a URL: write https://host[:port][/path]")
	}
	switch {
	case strings.EqualFold(u.Scheme, schemeSSH):
		return parseSSHTarget(u)
	case u.User != nil:
		// Not quoted back: the user information may be a password.
		return Target{}, errors.New("a target takes no user name or password: leave out what stands before the @")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return refuse("a target has no query and no fragment: leave them out")
	}
	host, port, err := endpoint(u)
	if err != nil {
		return refuse("%v", err)
	}
	t := Target{Scheme: strings.ToLower(u.Scheme), Host: host, Port: port, PathPrefix: u.EscapedPath()}
	if t.PathPrefix == "" {
		t.PathPrefix = "/"
	}
	if strings.Contains(t.PathPrefix, "%") {
		return refuse("the path prefix needs plain ASCII without percent-encoding")
	}
	t.AllowPlaintext = plaintext && t.Scheme == "http" && !isLoopback(t.Host)
	if err := t.Validate(); err != nil {
		return Target{}, err
	}
	return t, nil
}

// Validate reports what is wrong with a target that did not come from ParseTarget.
func (t Target) Validate() error {
	refuse := func(why string) error { return fmt.Errorf("target %q: %s", t.String(), why) }
	if t.Scheme == schemeUpstream {
		if !upstreamName.MatchString(t.Host) || t != (Target{Scheme: t.Scheme, Host: t.Host}) {
			return refuse("write upstream: and the upstream server's name, and nothing else")
		}
		return nil
	}
	if t.Scheme == schemeSSH {
		return t.validateSSH()
	}
	if !t.isHTTP() {
		return refuse("the scheme needs to be https, http or ssh")
	}
	if t.User != "" {
		return refuse("only an ssh target names a user")
	}
	if canonical, err := canonicalHost(t.Host); err != nil {
		return refuse(err.Error())
	} else if canonical != t.Host {
		return refuse("the host is not in canonical form: write " + canonical)
	}
	if t.Port == 0 {
		return refuse("the port is missing")
	}
	if strings.Contains(t.PathPrefix, "%") || !plainPath(t.PathPrefix) {
		return refuse("the path prefix needs to start with / and be free of dot segments, backslashes and percent-encoding")
	}
	if t.Scheme == "http" && !t.AllowPlaintext && !isLoopback(t.Host) {
		return refuse("http would send the credential readable to everybody on the way: use https, or allow plaintext for this target")
	}
	return nil
}

func (t Target) isHTTP() bool { return t.Scheme == "https" || t.Scheme == "http" }

// String returns the target as ParseTarget reads it.
func (t Target) String() string {
	if t.Scheme == schemeUpstream {
		return schemeUpstream + ":" + t.Host
	}
	host := t.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if t.User != "" {
		host = url.User(t.User).String() + "@" + host
	}
	return fmt.Sprintf("%s://%s:%d%s", t.Scheme, host, t.Port, t.PathPrefix)
}

// Matches reports whether u, exactly as net/http will send it, lies within the target. What different servers read
// differently never matches: dot segments, backslashes, and encoded dots, slashes or control characters in the path, also
// when encoded more than once; user information; a host with a trailing dot or outside ASCII (write its xn-- form).
func (t Target) Matches(u *url.URL) bool {
	if u == nil || !t.isHTTP() && !t.isSSH() || t.Validate() != nil || !strings.EqualFold(u.Scheme, t.Scheme) {
		return false
	}
	if t.Scheme == schemeSSH {
		return t.matchesSSH(u)
	}
	if u.User != nil {
		return false
	}
	host, port, err := endpoint(u)
	if err != nil || host != t.Host || port != t.Port {
		return false
	}
	// RequestURI, which net/http sends, is made of EscapedPath, and of Opaque if there is one; endpoint refused that.
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if !plainPath(path) {
		return false
	}
	rest, ok := strings.CutPrefix(path, t.PathPrefix)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(t.PathPrefix, "/"))
}

// endpoint returns the canonical host and the effective port.
func endpoint(u *url.URL) (string, uint16, error) {
	if u.Opaque != "" {
		return "", 0, errors.New("write // after the scheme")
	}
	host, err := canonicalHost(u.Hostname())
	if err != nil {
		return "", 0, err
	}
	written := u.Hostname()
	if strings.Contains(host, ":") {
		written = "[" + written + "]"
	}
	// What stands behind the host is nothing or a colon and a number; url.URL's own parts are not trusted to agree.
	rest, ok := strings.CutPrefix(u.Host, written)
	if !ok {
		return "", 0, errors.New("the host is malformed")
	}
	if rest == "" {
		switch strings.ToLower(u.Scheme) {
		case "https":
			return host, 443, nil
		case "http":
			return host, 80, nil
		case schemeSSH:
			return host, 22, nil
		}
		return "", 0, errors.New("the scheme needs to be https, http or ssh")
	}
	digits, ok := strings.CutPrefix(rest, ":")
	port, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || port == 0 || strconv.FormatUint(port, 10) != digits {
		return "", 0, errors.New("the port needs to be a number from 1 to 65535")
	}
	return host, uint16(port), nil
}

// canonicalHost returns the lower-case name, or the address in its shortest form (RFC 5952). Names that resolvers or other
// URL parsers read as addresses ("127.1", "0x7f.0.0.1", "2130706433") are refused, as the WHATWG URL standard calls for.
func canonicalHost(host string) (string, error) {
	if strings.Contains(host, ":") {
		address, err := netip.ParseAddr(host)
		if err != nil || address.Zone() != "" || address.Is4In6() {
			return "", errors.New("the host is not a plain IPv6 address")
		}
		return address.String(), nil
	}
	host = strings.ToLower(host)
	if host == "" || len(host) > 253 {
		return "", errors.New("the host is missing or too long")
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !hostLabel.MatchString(label) {
			return "", errors.New("the host needs to be an ASCII name without a trailing dot (write another script in its xn-- form) or an address")
		}
	}
	if last := labels[len(labels)-1]; numericLabel.MatchString(last) {
		address, err := netip.ParseAddr(host)
		if err != nil {
			return "", errors.New("the host looks like an address but is not one: write an IPv4 address as four decimal numbers")
		}
		return address.String(), nil
	}
	return host, nil
}

var (
	upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	hostLabel    = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
	numericLabel = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)

// isLoopback takes "localhost" at its word, as browsers do: RFC 6761, section 6.3.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// ambiguous finds, at any depth of percent-encoding: dot, slash, backslash, and control characters.
var ambiguous = regexp.MustCompile(`(?i)%(25)*(2e|2f|5c|[01][0-9a-f]|7f)`)

// plainPath reports whether every server reads the escaped path the same way.
func plainPath(path string) bool {
	if !strings.HasPrefix(path, "/") || ambiguous.MatchString(path) {
		return false
	}
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return false
		}
	}
	for segment := range strings.SplitSeq(path, "/") {
		segment, _, _ = strings.Cut(segment, ";") // Java servers drop parameters before they resolve dots
		if segment == "." || segment == ".." {
			return false
		}
	}
	return true
}
