package httpchan

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"singlepass.dev/daemon/channel"
)

var errConnectLimit = errors.New("the limit for connecting passed")

func (c *Channel) transport(private bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Proxy: nil, // never the environment's
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return c.dialer.Dial(ctx, host, port, private)
		},
		TLSClientConfig:        &tls.Config{RootCAs: c.cfg.RootCAs, MinVersion: tls.VersionTLS12},
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: headerLimit,
	}
}

// pooled sends a read_only request.
func (c *Channel) pooled(ctx context.Context, r channel.Request, p request) channel.Outcome {
	total, cancelTotal := context.WithTimeout(ctx, r.Limits.Total)
	defer cancelTotal()
	sending, cancel := context.WithCancelCause(total)
	defer cancel(nil)
	var connected atomic.Bool
	connecting := time.AfterFunc(r.Limits.Connect, func() {
		if !connected.Load() {
			cancel(errConnectLimit)
		}
	})
	defer connecting.Stop()
	traced := httptrace.WithClientTrace(sending, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})

	var req *http.Request
	if err := permitted(ctx, r); err != nil {
		return notSent(err.Error())
	}
	if err := useSecret(r, func(secret []byte) (err error) {
		req, err = p.pooled(traced, c.cfg.UserAgent, secret, c.cfg.Now())
		return err
	}); err != nil {
		return notSent(err.Error())
	}
	pool := c.pools.Load().usual
	if r.Private {
		pool = c.pools.Load().private
	}
	// RoundTrip, not a Client: no redirects, no cookies.
	resp, err := pool.RoundTrip(req)
	if err != nil {
		switch {
		case !connected.Load() && ctx.Err() != nil:
			return notSent("not connected: " + why(ctx))
		case !connected.Load() && sending.Err() != nil:
			return notSent(describeConnect(ctx, context.DeadlineExceeded, r.Limits))
		case !connected.Load():
			return notSent(describeConnect(ctx, err, r.Limits))
		case sending.Err() != nil:
			return unknown("the request was sent, and " + describe(ctx, sending.Err(), r.Limits))
		}
		// net/http mostly has no types for what can be wrong here, and its texts may quote the target.
		return unknown("the request was sent, and the connection broke, or what came back is not HTTP, before an answer was whole")
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return unknown("the request was sent, and " + errSwitched.Error())
	}
	a := &answer{status: resp.StatusCode, proto: resp.Proto, header: resp.Header}
	if err := a.readBody(resp.Body, r.Limits.Answer); err != nil {
		a.broken = describe(ctx, err, r.Limits)
	}
	return a.outcome(r, p)
}

// pooled returns the message for net/http, which takes strings.
func (p *request) pooled(ctx context.Context, userAgent string, secret []byte, now time.Time) (*http.Request, error) {
	u := *p.url
	if target := string(p.appendTarget(nil, secret)); target != p.target {
		_, u.RawQuery, _ = strings.Cut(target, "?")
	}
	req := (&http.Request{
		Method: p.Method,
		URL:    &u,
		Host:   p.url.Host,
		Header: http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {userAgent}},
	}).WithContext(ctx)
	if p.has("User-Agent") {
		req.Header.Del("User-Agent")
	}
	for _, f := range p.Header {
		req.Header.Add(f.Name, f.Value)
	}
	fields, err := p.credentialFields(secret, now)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		req.Header.Set(f.Name, string(f.Value))
		clear(f.Value)
	}
	if len(p.Body) > 0 { // without GetBody, so that net/http cannot send a body twice
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(p.Body)), int64(len(p.Body))
	}
	return req, nil
}
