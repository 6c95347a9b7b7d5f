package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"singlepass.dev/daemon/egress"
	"singlepass.dev/vault"
)

// noProxy is how "none" is written, of a proxy and of its credential.
const noProxy = "none"

var proxySetting = setting{
	key: "proxy", meaning: "the HTTP proxy through which HTTP targets beyond private networks are reached, such as http://proxy.example:3128",
	text: (*settings).proxyText,
	set: func(s *settings, text string) error {
		if text == noProxy {
			s.proxy = nil
			return nil
		}
		u, err := egress.ReadProxy(text)
		if err != nil {
			return fmt.Errorf("%w; or write none", err) // without the text: it may have a password in it
		}
		s.proxy = u
		return nil
	},
	guards: true,
}

var proxyCredentialSetting = setting{
	key: "proxy_credential", meaning: "the credential of kind basic that the proxy is given; its targets have to cover the proxy",
	text: func(s *settings) string {
		if s.proxyWith == "" {
			return noProxy
		}
		return s.proxyWith
	},
	set: func(s *settings, text string) error {
		if text == "" {
			return errors.New("write the name of a credential, or none")
		}
		if s.proxyWith = text; text == noProxy {
			s.proxyWith = ""
		}
		return nil
	},
	guards: true,
}

func (s *settings) proxyText() string {
	if s.proxy == nil {
		return noProxy
	}
	return s.proxy.String()
}

// proxyFits checks that the credential for a proxy is one that may be given to it.
func (s *Server) proxyFits(next settings) error {
	if next.proxy == nil || next.proxyWith == "" {
		return nil
	}
	c, err := s.vault.Credential(next.proxyWith)
	if err != nil {
		return fmt.Errorf("the credential %q cannot be used: %w", next.proxyWith, err)
	}
	return mayServeProxy(c, next)
}

func mayServeProxy(c vault.Credential, with settings) error {
	u := *with.proxy
	u.Path = "/"
	switch {
	case c.Kind != vault.Basic:
		return fmt.Errorf("the credential %q is of kind %s; a proxy is given one of kind basic", c.Name, c.Kind)
	case !c.Allows(&u):
		return fmt.Errorf("the credential %q may not be used for %s: add that to its targets with spctl credential change", c.Name, u.String())
	}
	return nil
}

// proxy says through what a connection to a target goes now.
func (s *Server) proxy() (*egress.Proxy, error) {
	now := s.settings.Load()
	if now.noTargets != nil {
		return nil, now.noTargets
	}
	if now.proxy == nil {
		return nil, nil
	}
	p := &egress.Proxy{URL: now.proxy}
	if now.proxyWith != "" {
		p.Authorize = func(context.Context) ([]byte, error) { return s.authorizeProxy(*now) }
	}
	return p, nil
}

// authorizeProxy makes the value of Proxy-Authorization (RFC 7617); the caller wipes it. The binding is that of the moment.
func (s *Server) authorizeProxy(with settings) ([]byte, error) {
	c, value, err := s.vault.UseCredential(with.proxyWith)
	if err != nil {
		return nil, fmt.Errorf("the proxy's credential %q cannot be used: %w", with.proxyWith, err)
	}
	defer value.Wipe()
	if err := mayServeProxy(c, with); err != nil {
		return nil, err
	}
	var field []byte
	err = value.Use(func(secret []byte) error {
		pair := make([]byte, 0, len(c.Params.Username)+1+len(secret))
		pair = append(append(append(pair, c.Params.Username...), ':'), secret...)
		defer clear(pair)
		field = make([]byte, 0, 6+base64.StdEncoding.EncodedLen(len(pair)))
		field = base64.StdEncoding.AppendEncode(append(field, "Basic "...), pair)
		return nil
	})
	return field, err
}
