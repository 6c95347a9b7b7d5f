package httpchan

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/scrub"
	"singlepass.dev/daemon/sigv4"
	"singlepass.dev/vault/material"
)

// request is an effect that was found fit to be sent.
type request struct {
	*effect.HTTPRequest
	url    *url.URL
	host   string // as it is resolved and as TLS names it: lower case, no brackets, no port
	port   string
	target string // the request target without the credential
	auth   *effect.Auth
	take   func(Answer) channel.Outcome // reads the answer in place of us; may be nil
}

// unsendable are the fields that frame a message, belong to one connection, or would make the answer unreadable (RFC 9110 sections 7.2, 7.6.1, 10.1.1, 12.5.3).
var unsendable = map[string]string{
	"host": "", "content-length": "", "transfer-encoding": "", "connection": "", "keep-alive": "", "te": "", "trailer": "", "upgrade": "", "expect": "",
	"proxy-connection": "", "proxy-authorization": "", "proxy-authenticate": "", "http2-settings": "",
	"accept-encoding": ": the answer has to be readable to be scrubbed",
}

// plan checks everything about a request that can be checked without a connection.
func plan(r channel.Request) (request, error) {
	h := r.Effect.HTTP
	p := request{HTTPRequest: h, auth: r.Effect.Auth}
	switch {
	case !isToken(h.Method):
		return p, fmt.Errorf("method %q is not a token", h.Method)
	case h.Method == "CONNECT" || h.Method == "TRACE": // a tunnel; an echo of the credential
		return p, fmt.Errorf("method %s is not supported", h.Method)
	}
	if err := p.readURL(); err != nil {
		return p, err
	}
	var placed []string
	if p.auth != nil {
		if r.Secret == nil {
			return p, fmt.Errorf("credential %q has no secret here", p.auth.Credential)
		}
		var err error
		if placed, err = p.checkAuth(); err != nil {
			return p, err
		}
	} else if r.Secret != nil {
		return p, errors.New("there is a secret that the effect does not mention")
	}
	for _, f := range h.Header {
		if !isToken(f.Name) {
			return p, fmt.Errorf("header name %q is not a token", f.Name)
		}
		if why, ok := unsendable[strings.ToLower(f.Name)]; ok {
			return p, fmt.Errorf("header %s is not for a contract to set%s", f.Name, why)
		}
		if slices.ContainsFunc(placed, func(name string) bool { return strings.EqualFold(f.Name, name) }) {
			return p, fmt.Errorf("header %s is where the credential goes: leave it out of the request", f.Name)
		}
		if !isFieldValue(f.Value) {
			return p, fmt.Errorf("the value of header %s has a control character or outer white space", f.Name)
		}
	}
	return p, nil
}

func (p *request) readURL() error {
	u, err := url.Parse(p.URL)
	if err != nil {
		return errors.New("the URL cannot be read") // url.Error quotes it with its query
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("scheme %q is not http or https", u.Scheme)
	}
	if u.User != nil {
		return errors.New("the URL names a user: use a credential of kind basic")
	}
	p.url, p.host, p.port = u, strings.ToLower(u.Hostname()), u.Port()
	if p.host == "" {
		return errors.New("the URL has no host")
	}
	for _, c := range []byte(p.URL) {
		if c <= ' ' || c >= 0x7f {
			return errors.New("the URL has a character that is not printable ASCII: percent-encode it, and write the host in punycode")
		}
	}
	if p.port == "" {
		p.port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if n, err := strconv.ParseUint(p.port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not between 1 and 65535", p.port)
	}
	if strings.HasPrefix(u.Host, "[") {
		if a, err := netip.ParseAddr(p.host); err != nil || a.Zone() != "" {
			return fmt.Errorf("host %q is not an IPv6 address without a zone", p.host)
		}
	}
	// The bytes that were approved are the ones that are sent, so a URL that a library would rewrite is not.
	_, rest, _ := strings.Cut(p.URL, "://")
	rest, ok := strings.CutPrefix(rest, u.Host)
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	if !ok || u.Opaque != "" || rest != u.RequestURI() {
		return fmt.Errorf("the URL would be sent as %s: write it so", u.Scheme+"://"+u.Host+u.EscapedPath())
	}
	p.target = rest
	return nil
}

// checkAuth returns the header fields that the credential takes.
func (p *request) checkAuth() (placed []string, err error) {
	a := p.auth
	switch a.Kind {
	case "bearer", "oauth2":
		return []string{"Authorization"}, nil
	case "basic":
		if strings.Contains(a.Username, ":") || !isPrintable(a.Username) { // RFC 7617 section 2
			return nil, fmt.Errorf("the user name of credential %q has a colon or a control character", a.Credential)
		}
		return []string{"Authorization"}, nil
	case "header":
		if _, bad := unsendable[strings.ToLower(a.Place)]; bad || !isToken(a.Place) {
			return nil, fmt.Errorf("credential %q cannot go into header %q", a.Credential, a.Place)
		}
		return []string{a.Place}, nil
	case "query":
		if a.Place == "" {
			return nil, fmt.Errorf("credential %q names no query parameter", a.Credential)
		}
		if p.url.Query().Has(a.Place) {
			return nil, fmt.Errorf("query parameter %q is where the credential goes: leave it out of the URL", a.Place)
		}
		return nil, nil
	case "aws-sigv4":
		if a.Region == "" || a.Service == "" {
			return nil, fmt.Errorf("credential %q names no region or no service", a.Credential)
		}
		return sigv4.Added, nil
	case "client-cert":
		if p.url.Scheme != "https" {
			return nil, fmt.Errorf("credential %q is a certificate, which only https can carry", a.Credential)
		}
		return nil, nil
	}
	return nil, fmt.Errorf("credential %q is of kind %q, which HTTP requests cannot carry", a.Credential, a.Kind)
}

// checkSecret keeps a secret from ending its line and beginning another.
func checkSecret(a *effect.Auth, secret []byte) error {
	if a != nil && (a.Kind == "aws-sigv4" || a.Kind == "client-cert") { // goes into no line
		return nil
	}
	for i, c := range secret {
		if c >= ' ' && c != 0x7f {
			continue
		}
		if c == '\n' && i == len(secret)-1 {
			return errors.New("the secret ends with a line break: store it again without")
		}
		return errors.New("the secret has a control character, which no HTTP header can carry")
	}
	return nil
}

// appendTarget adds the request target, credential included.
func (p *request) appendTarget(b, secret []byte) []byte {
	b = append(b, p.target...)
	if p.auth == nil || p.auth.Kind != "query" {
		return b
	}
	switch {
	case !p.url.ForceQuery && p.url.RawQuery == "":
		b = append(b, '?')
	case p.url.RawQuery != "":
		b = append(b, '&')
	}
	b = append(append(b, url.QueryEscape(p.auth.Place)...), '=')
	for _, c := range secret {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '.' || c == '_' || c == '~' {
			b = append(b, c)
		} else {
			b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
	}
	return b
}

// credentialFields returns the header fields of the credential. The caller wipes their values.
func (p *request) credentialFields(secret []byte, now time.Time) ([]sigv4.Field, error) {
	if p.auth == nil {
		return nil, nil
	}
	one := func(name, before string, value []byte) ([]sigv4.Field, error) {
		b := make([]byte, 0, len(before)+len(value))
		return []sigv4.Field{{Name: name, Value: append(append(b, before...), value...)}}, nil
	}
	switch p.auth.Kind {
	case "bearer", "oauth2":
		return one("Authorization", "Bearer ", secret)
	case "basic":
		pair := userPassword(p.auth, secret)
		defer clear(pair)
		b := make([]byte, 0, 6+base64.StdEncoding.EncodedLen(len(pair)))
		return []sigv4.Field{{Name: "Authorization", Value: base64.StdEncoding.AppendEncode(append(b, "Basic "...), pair)}}, nil
	case "header":
		return one(p.auth.Place, "", secret)
	case "aws-sigv4":
		return p.sign(secret, now)
	}
	return nil, nil
}

// sign signs the request as it will be sent.
func (p *request) sign(secret []byte, now time.Time) ([]sigv4.Field, error) {
	kept, err := material.Decode(secret)
	if err != nil {
		return nil, err
	}
	r := sigv4.Request{Method: p.Method, Host: p.url.Host, Target: p.target, Body: p.Body, Region: p.auth.Region, Service: p.auth.Service, Time: now}
	for _, f := range p.Header {
		r.Header = append(r.Header, sigv4.Field{Name: f.Name, Value: []byte(f.Value)})
	}
	return sigv4.Sign(r, sigv4.Keys{ID: material.Get(kept, material.AWSKeyID), Secret: material.Get(kept, material.AWSSecretKey), Token: material.Get(kept, material.AWSToken)})
}

// lookedFor returns what the answer must not show: the secret itself, or the parts of it that are secret, and what holds it and is sent in base64. The caller wipes the last.
func lookedFor(a *effect.Auth, secret []byte) (values, whole [][]byte) {
	switch a.Kind {
	case "basic":
		return [][]byte{secret}, [][]byte{userPassword(a, secret)}
	case "aws-sigv4": // the signature is good for this request alone, and the key's id is no secret
		kept, err := material.Decode(secret)
		if err != nil {
			return nil, nil
		}
		for _, name := range []string{material.AWSSecretKey, material.AWSToken} {
			if v := material.Get(kept, name); v != nil {
				values = append(values, v)
			}
		}
		return values, nil
	case "client-cert": // the key is used in the handshake and sent to nobody
		return nil, nil
	}
	return [][]byte{secret}, nil
}

// Scrubber looks for what an answer must not show of a credential, for a protocol that lies in HTTP; nil where that is nothing. The caller wipes it.
func Scrubber(a *effect.Auth, secret []byte) *scrub.Scrubber {
	values, whole := lookedFor(a, secret)
	defer func() {
		for _, w := range whole {
			clear(w)
		}
	}()
	if len(values) == 0 {
		return nil
	}
	return scrub.NewSet(values, whole...)
}

func userPassword(a *effect.Auth, secret []byte) []byte {
	pair := make([]byte, 0, len(a.Username)+1+len(secret))
	return append(append(append(pair, a.Username...), ':'), secret...)
}

// wire returns the whole message. Its capacity is known first, so that growing leaves no copy of the secret behind.
func (p *request) wire(userAgent string, secret []byte, now time.Time) ([]byte, error) {
	fields, err := p.credentialFields(secret, now)
	if err != nil {
		return nil, err
	}
	size := 256 + len(p.Method) + len(p.target) + len(p.url.Host) + len(userAgent) + len(p.Body)
	if p.auth != nil {
		size += 3*len(p.auth.Place) + 3*len(secret) // as a query parameter
	}
	for _, f := range p.Header {
		size += len(f.Name) + len(f.Value) + 4
	}
	for _, f := range fields {
		size += len(f.Name) + len(f.Value) + 4
	}
	b := make([]byte, 0, size)
	b = append(append(b, p.Method...), ' ')
	b = append(p.appendTarget(b, secret), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, p.url.Host...), "\r\nConnection: close\r\nAccept-Encoding: identity\r\n"...)
	if !p.has("User-Agent") {
		b = append(append(append(b, "User-Agent: "...), userAgent...), "\r\n"...)
	}
	if p.declaresLength() {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(p.Body)), 10), "\r\n"...)
	}
	for _, f := range p.Header {
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	for _, f := range fields {
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
		clear(f.Value)
	}
	return append(append(b, "\r\n"...), p.Body...), nil
}

// declaresLength: RFC 9110 section 8.6 wants Content-Length: 0 where a method usually has a body.
func (p *request) declaresLength() bool {
	return len(p.Body) > 0 || p.Method == "POST" || p.Method == "PUT" || p.Method == "PATCH"
}

func (p *request) has(name string) bool {
	for _, f := range p.Header {
		if strings.EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

// isToken: RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// isFieldValue: RFC 9110 section 5.5, but no tab.
func isFieldValue(s string) bool {
	return isPrintable(s) && strings.Trim(s, " ") == s
}

func isPrintable(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
