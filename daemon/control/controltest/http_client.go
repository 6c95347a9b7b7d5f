package controltest

import (
	"context"
	"crypto/rand"
	"slices"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/httptoken"
	"singlepass.dev/vault"
)

// HTTPClients implements control.HTTPClients.
func (d *Daemon) HTTPClients(context.Context) ([]api.HTTPClient, error) {
	if d.Vault.Status() != vault.Unlocked {
		return nil, vault.ErrLocked
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []api.HTTPClient{}
	for _, v := range d.tokens {
		list = append(list, api.HTTPClient{Client: v.Client, Issued: v.Issued, File: v.File})
	}
	return list, nil
}

// IssueHTTPToken implements control.HTTPClients.
func (d *Daemon) IssueHTTPToken(_ context.Context, in api.HTTPClientRequest, _ string) (api.HTTPClientToken, error) {
	token, v, err := httptoken.New(in.Client, in.File, rand.Reader, d.now())
	if err != nil {
		return api.HTTPClientToken{}, api.Errorf(api.CodeUsage, "%v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.tokens)
	d.tokens = slices.DeleteFunc(d.tokens, func(o httptoken.Verifier) bool { return o.Client == in.Client })
	replaced := len(d.tokens) < n
	d.tokens = append(d.tokens, v)
	return api.HTTPClientToken{Token: token, URL: "http://127.0.0.1:7717/mcp", Replaced: replaced}, nil
}

// RevokeHTTPToken implements control.HTTPClients.
func (d *Daemon) RevokeHTTPToken(_ context.Context, client, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.tokens)
	d.tokens = slices.DeleteFunc(d.tokens, func(o httptoken.Verifier) bool { return o.Client == client })
	if len(d.tokens) == n {
		return api.Errorf(api.CodeMissing, "no client %q has a token", client)
	}
	return nil
}

// CheckHTTPToken implements control.HTTPClients.
func (d *Daemon) CheckHTTPToken(token string) api.HTTPTokenState {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.ContainsFunc(d.tokens, func(v httptoken.Verifier) bool { return v.Matches(token) }) {
		return api.HTTPTokenState{State: "known"}
	}
	return api.HTTPTokenState{State: "unknown"}
}
