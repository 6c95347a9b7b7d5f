package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/httptoken"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
)

const (
	// httpTokenPrefix is what the keys of tokens begin with in the vault: an agent of the same user could add one to a file.
	httpTokenPrefix = "http-token."
	// maxHTTPClients bounds how many there are.
	maxHTTPClients = 64
)

// httpClients is what is known of the clients of the listener on loopback. It stays known while the vault is locked: a digest of 256 random bits tells nothing, and an agent that
// asks then is told that the vault is locked, and what became of what it sent before.
type httpClients struct {
	mu     sync.Mutex
	loaded bool                          // owner: mu; the vault was open once
	known  map[string]httptoken.Verifier // owner: mu; by client
	used   map[string]use                // owner: mu; by client

	refused  api.RefusedClients // owner: mu
	recorded time.Time          // owner: mu; when the journal said so last
	since    int                // owner: mu; refused since then
}

// use is when a token was shown last, and by whom.
type use struct {
	at    time.Time
	actor string
}

// loadHTTPClients reads them from the open vault. One that this version does not understand counts for nothing.
func (s *Server) loadHTTPClients() error {
	stored, err := s.vault.Settings()
	if err != nil {
		return err
	}
	known := map[string]httptoken.Verifier{}
	for _, setting := range stored {
		if len(setting.Key) <= len(httpTokenPrefix) || setting.Key[:len(httpTokenPrefix)] != httpTokenPrefix {
			continue
		}
		var v httptoken.Verifier
		err := json.Unmarshal(setting.Value, &v)
		if err == nil {
			err = v.Valid()
		}
		if err == nil && setting.Key != httpTokenPrefix+v.Client {
			err = errors.New("it stands under another client's name")
		}
		if err != nil {
			s.log.Error("a client's token is not understood, so it does not count", "setting", setting.Key, "error", err)
			continue
		}
		known[v.Client] = v
	}
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	s.clients.known, s.clients.loaded = known, true
	return nil
}

// What a client without a token that counts is told. Whoever reads it may be a model: it says what the person can do.
var (
	errTokensUnread = fmt.Errorf("%w: the vault has not been opened since spd started, so no token can be checked; the person has to run: spctl unlock (or spctl init, where there is no vault yet)", mcpserver.ErrCannotCheck)
	errNoToken      = errors.New("this request carries no token; the person has to connect this client: spctl connect CLIENT --http writes the URL with the header Authorization: Bearer into its configuration")
	errWrongToken   = errors.New("the token of this request is not known: it was revoked, replaced by a newer one, or is of another home; the person has to connect this client again: spctl connect CLIENT --http")
)

// authorizeHTTP says whether a request carries a token that counts. It is one thing more that a client has to have: who asks is the process behind the connection, whatever token it holds.
func (s *Server) authorizeHTTP(token string, from *peer.Identity) error {
	client, err := s.clients.check(token)
	now := time.Now()
	if err == nil {
		s.clients.mu.Lock()
		defer s.clients.mu.Unlock()
		if s.clients.used == nil {
			s.clients.used = map[string]use{}
		}
		s.clients.used[client] = use{now.UTC(), from.Actor}
		return nil
	}
	if errors.Is(err, mcpserver.ErrCannotCheck) {
		return err // says nothing about the client, and there may be no journal that knows the vault yet
	}
	why := "no token"
	if token != "" {
		why = "a token that does not count"
	}
	record, stands := s.clients.count(from, why, now)
	s.log.Warn("an agent's HTTP request was refused: "+why, "pid", from.Agent.PID, "actor", from.Actor)
	if record {
		note := engineNote{Kind: "http_client_refused", By: fmt.Sprintf("process %d (%s)", from.Agent.PID, from.Actor), Reason: why}
		if stands > 1 {
			note.Reason = fmt.Sprintf("%s, and %d more since the last entry", why, stands-1)
		}
		if err := s.engine.Note(note); err != nil {
			s.log.Warn("recording that an HTTP client was refused", "error", err)
		}
	}
	return err
}

// check finds the client whose token this is.
func (c *httpClients) check(token string) (client string, err error) {
	c.mu.Lock()
	loaded := c.loaded
	name, formed := httptoken.Client(token)
	v, known := c.known[name]
	c.mu.Unlock()
	switch {
	case !loaded:
		return "", errTokensUnread
	case token == "":
		return "", errNoToken
	case !formed || !known || !v.Matches(token):
		return "", errWrongToken
	}
	return name, nil
}

// count notes a refusal, and says whether the journal should, and how many it stands for.
func (c *httpClients) count(from *peer.Identity, why string, now time.Time) (record bool, stands int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = api.RefusedClients{Count: c.refused.Count + 1, Last: now.UTC(), LastPID: from.Agent.PID, LastActor: from.Actor, LastWhy: why}
	c.since++
	if now.Sub(c.recorded) < recordEvery {
		return false, 0
	}
	stands = c.since
	c.recorded, c.since = now, 0
	return true, stands
}

// seen returns the refusals, or nil where there are none.
func (c *httpClients) seen() *api.RefusedClients {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused.Count == 0 {
		return nil
	}
	r := c.refused
	return &r
}

// HTTPClients lists the clients that have a token.
func (o *operatorSide) HTTPClients(context.Context) ([]api.HTTPClient, error) {
	if o.s.vault.Status() != vault.Unlocked {
		return nil, vault.ErrLocked
	}
	c := &o.s.clients
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]api.HTTPClient, 0, len(c.known))
	for _, name := range slices.Sorted(maps.Keys(c.known)) {
		v, used := c.known[name], c.used[name]
		list = append(list, api.HTTPClient{Client: v.Client, Issued: v.Issued, File: v.File, Used: used.at, UsedBy: used.actor})
	}
	return list, nil
}

// maxFileName bounds the note of where a token was written.
const maxFileName = 4096

// IssueHTTPToken makes a client's token.
func (o *operatorSide) IssueHTTPToken(_ context.Context, in api.HTTPClientRequest, by string) (api.HTTPClientToken, error) {
	s := o.s
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	if s.vault.Status() != vault.Unlocked {
		return api.HTTPClientToken{}, vault.ErrLocked
	}
	if s.web == nil {
		return api.HTTPClientToken{}, api.Errorf(api.CodeConflict, "spd serves no MCP over HTTP, so a token would be of no use").
			WithHint("write mcp_http: 127.0.0.1:7717 into config.yaml, and restart spd")
	}
	if len(in.File) > maxFileName {
		return api.HTTPClientToken{}, api.Errorf(api.CodeUsage, "the file's name is longer than %d bytes", maxFileName)
	}
	s.clients.mu.Lock()
	_, replaced := s.clients.known[in.Client]
	full := !replaced && len(s.clients.known) >= maxHTTPClients
	s.clients.mu.Unlock()
	if full {
		return api.HTTPClientToken{}, api.Errorf(api.CodeUsage, "%d clients have a token, and more are not kept", maxHTTPClients).WithHint("spctl connect --list, then spctl connect --revoke CLIENT")
	}
	token, v, err := httptoken.New(in.Client, in.File, rand.Reader, time.Now())
	if errors.Is(err, httptoken.ErrName) {
		return api.HTTPClientToken{}, api.Errorf(api.CodeUsage, "%v", err)
	} else if err != nil {
		return api.HTTPClientToken{}, err
	}
	stored, err := json.Marshal(v)
	if err != nil {
		return api.HTTPClientToken{}, err
	}
	if err := s.vault.SetSetting(httpTokenPrefix+in.Client, stored); err != nil {
		return api.HTTPClientToken{}, err
	}
	s.clients.mu.Lock()
	s.clients.known[in.Client] = v
	delete(s.clients.used, in.Client)
	s.clients.mu.Unlock()
	s.touch()
	return api.HTTPClientToken{Token: token, URL: s.MCPURL(), Replaced: replaced}, s.engine.Note(engineNote{Kind: "http_token_issued", Client: in.Client, By: by})
}

// RevokeHTTPToken ends a client's token: its next request is refused.
func (o *operatorSide) RevokeHTTPToken(_ context.Context, client, by string) error {
	s := o.s
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	if s.vault.Status() != vault.Unlocked {
		return vault.ErrLocked
	}
	// It counts no more whatever becomes of the file: the next unlock reads what stands there.
	s.clients.mu.Lock()
	delete(s.clients.known, client)
	delete(s.clients.used, client)
	s.clients.mu.Unlock()
	err := s.vault.RemoveSetting(httpTokenPrefix + client)
	if errors.Is(err, vault.ErrNotFound) {
		return api.Errorf(api.CodeMissing, "no client %q has a token", client).WithHint("spctl connect --list")
	} else if err != nil {
		return err
	}
	s.touch()
	return s.engine.Note(engineNote{Kind: "http_token_revoked", Client: client, By: by})
}

// CheckHTTPToken says whether a token counts.
func (o *operatorSide) CheckHTTPToken(token string) api.HTTPTokenState {
	_, err := o.s.clients.check(token)
	switch {
	case err == nil:
		return api.HTTPTokenState{State: "known"}
	case errors.Is(err, mcpserver.ErrCannotCheck):
		return api.HTTPTokenState{State: "unchecked"}
	default:
		return api.HTTPTokenState{State: "unknown"}
	}
}
