package oauth

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"singlepass.dev/vault"
	"singlepass.dev/vault/material"
	"singlepass.dev/vault/secret"
)

// answer is a successful one (RFC 6749, section 5.1).
type answer struct {
	access  *secret.Bytes
	refresh *secret.Bytes // nil where there is none
	life    time.Duration
}

// RefusedError says that an endpoint refused (RFC 6749, section 5.2).
type RefusedError struct {
	Credential string
	Status     int
	Code       string // one of the RFC's; "" for any other
}

func (e *RefusedError) Error() string {
	switch {
	case e.Code == "":
		return fmt.Sprintf("the token endpoint of credential %q answered %d", e.Credential, e.Status)
	case e.final():
		return fmt.Sprintf("the token endpoint of credential %q refused: %s; run `spctl credential rotate %s` with a new value", e.Credential, e.Code, e.Credential)
	}
	return fmt.Sprintf("the token endpoint of credential %q refused: %s", e.Credential, e.Code)
}

// codes are the errors that an endpoint can name, and whether asking again with the same value is of no use.
var codes = map[string]bool{"invalid_grant": true, "invalid_client": true, "unauthorized_client": true, "unsupported_grant_type": true, "invalid_scope": true, "invalid_target": true, "invalid_request": false}

func (e *RefusedError) final() bool { return codes[e.Code] }

const (
	answerLimit = 64 << 10
	mostLife    = 24 * time.Hour
)

// request asks the endpoint once: on a connection of its own, without redirects, proxies or repetition.
func (s *Source) request(ctx context.Context, c vault.Credential, value *secret.Bytes) (answer, error) {
	failed := func(format string, args ...any) (answer, error) {
		return answer{}, fmt.Errorf("the token endpoint of credential %q %s", c.Name, fmt.Sprintf(format, args...))
	}
	endpoint, err := c.Params.TokenEndpoint()
	if err != nil {
		return answer{}, err
	}
	var req *http.Request
	if err := value.Use(func(b []byte) (err error) {
		req, err = message(ctx, c.Params, endpoint, b)
		return err
	}); err != nil {
		return failed("cannot be asked: %v", err)
	}
	roots := s.cfg.RootCAs
	if c.Params.Authorities != "" {
		if roots, err = material.Roots(c.Params.Authorities); err != nil {
			return failed("cannot be asked: %v", err)
		}
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return s.cfg.Dialer.Dial(ctx, host, port, c.AllowPrivate)
		},
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: answerLimit,
	}
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return failed("did not answer within %v", endpointLimit)
		}
		var untrusted *tls.CertificateVerificationError
		if errors.As(err, &untrusted) {
			return failed("is not trusted: its certificate does not verify")
		}
		var op *net.OpError
		if errors.As(err, &op) || strings.HasPrefix(err.Error(), "connecting to ") || strings.HasPrefix(err.Error(), "resolving ") {
			return failed("was not reached: %v", err)
		}
		return failed("could not be talked to: the connection broke, or is not trusted, or what came back is not HTTP")
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit+1))
	defer func() { clear(body) }()
	switch {
	case err != nil:
		return failed("answered %d, and its answer is incomplete", resp.StatusCode)
	case len(body) > answerLimit:
		return failed("answered %d with more than %d bytes", resp.StatusCode, answerLimit)
	case resp.StatusCode != http.StatusOK:
		return answer{}, refusal(c.Name, resp.StatusCode, body)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "application/json" {
		return failed("answered with something other than JSON")
	}
	return parse(c.Name, body)
}

func message(ctx context.Context, p vault.CredentialParams, endpoint vault.Target, value []byte) (*http.Request, error) {
	fields, err := material.Decode(value)
	if err != nil {
		return nil, err
	}
	form := url.Values{"grant_type": {p.Grant}}
	for name, v := range map[string]string{"scope": p.Scope, "audience": p.Audience, "resource": p.Resource} {
		if v != "" {
			form.Set(name, v)
		}
	}
	if p.Grant == string(material.RefreshToken) {
		form.Set("refresh_token", string(material.Get(fields, material.OAuthRefreshToken)))
	}
	client := material.Get(fields, material.OAuthClientSecret)
	basic := client != nil && p.ClientAuth != "post"
	if !basic {
		form.Set("client_id", p.ClientID)
		if client != nil {
			form.Set("client_secret", string(client))
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint.String(), io.NopCloser(strings.NewReader(form.Encode()))) // without GetBody, so that nothing is sent twice
	if err != nil {
		return nil, errors.New("its URL cannot be read")
	}
	req.ContentLength = int64(len(form.Encode()))
	req.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}, "User-Agent": {"singlepass"}}
	if basic { // RFC 6749, section 2.3.1: both are form-encoded first
		pair := url.QueryEscape(p.ClientID) + ":" + url.QueryEscape(string(client))
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	return req, nil
}

func refusal(name string, status int, body []byte) error {
	var said struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &said)
	e := &RefusedError{Credential: name, Status: status}
	if _, known := codes[said.Error]; known && status >= 400 && status < 500 {
		e.Code = said.Error
	}
	return e
}

// parse reads a successful answer, which is as hostile as any.
func parse(name string, body []byte) (answer, error) {
	var said struct {
		Access  string      `json:"access_token"`
		Type    string      `json:"token_type"`
		Expires json.Number `json:"expires_in"`
		Refresh string      `json:"refresh_token"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&said); err != nil {
		return answer{}, fmt.Errorf("the token endpoint of credential %q answered with JSON that cannot be read", name)
	}
	usable := func(s string) bool { // RFC 6750, section 2.1 takes less; every token in use is within this
		return len(s) <= 16<<10 && !slices.ContainsFunc([]byte(s), func(c byte) bool { return c <= ' ' || c >= 0x7f })
	}
	switch {
	case said.Access == "" || !usable(said.Access):
		return answer{}, fmt.Errorf("the token endpoint of credential %q gave no access token that can be sent", name)
	case !strings.EqualFold(said.Type, "bearer"):
		return answer{}, fmt.Errorf("the token endpoint of credential %q gave a token that is not of type Bearer", name)
	case !usable(said.Refresh):
		return answer{}, fmt.Errorf("the token endpoint of credential %q gave a refresh token that cannot be kept", name)
	}
	a := answer{access: secret.New([]byte(said.Access)), life: lifeUnsaid}
	if n, err := said.Expires.Int64(); err == nil && n >= 0 {
		a.life = time.Duration(min(n, int64(mostLife/time.Second))) * time.Second
	}
	if said.Refresh != "" {
		a.refresh = secret.New([]byte(said.Refresh))
	}
	return a, nil
}
