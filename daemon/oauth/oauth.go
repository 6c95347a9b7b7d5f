// Package oauth stands between the vault and what uses credentials: it turns an oauth2 credential into an access token (RFC 6749, RFC 6750, RFC 9700) and passes every other one on.
//
// Promises:
//   - A token endpoint is asked by one request at a time for each credential; whoever comes meanwhile waits for its answer. The request is made on the daemon's time: nobody's leaving cuts it off,
//     because the endpoint may have rotated the refresh token by then.
//   - A refresh token that was rotated is durable in the vault before the access token that came with it is used. If the vault was locked meanwhile, it is sealed to the vault's public key
//     and stored at the next unlock.
//   - Access tokens lie in secret memory alone; they are wiped at lock, when the credential changes, and when a target refuses one. They are renewed before they expire.
//   - What goes wrong here happens before anything of an action is sent, so the action is not_sent.
//   - What an endpoint says is never quoted, but for the error codes of the RFC.
//
// Non-promises: net/http and encoding/json have copies of secrets and tokens on the heap for a moment. A refresh token that was rotated while the vault was locked is lost if the daemon
// ends before the next unlock; so may be one whose answer was lost on the way, as the RFC has no way to ask for it again. The package freezes no format.
package oauth

import (
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"singlepass.dev/daemon/egress"
	"singlepass.dev/vault"
	"singlepass.dev/vault/material"
	"singlepass.dev/vault/secret"
)

// Vault is what the package needs of the vault. *vault.Vault is one.
type Vault interface {
	UseCredential(name string) (vault.Credential, *secret.Bytes, error)
	// RenewCredential is durable on return.
	RenewCredential(name string, version int, value *secret.Bytes) error
	PublicSealingKey() []byte
	Keys() (*vault.Keys, error)
}

// Config is what New needs.
type Config struct {
	Vault   Vault             // required
	Now     func() time.Time  // required
	Logger  *slog.Logger      // optional
	Dialer  *egress.Dialer    // optional
	RootCAs *x509.CertPool    // optional: whom TLS trusts; nil means the system's roots
	Renewed func(name string) // optional: told that a rotated refresh token was stored
}

// Source hands out what channels use. It is safe for concurrent use.
type Source struct {
	cfg  Config
	work sync.WaitGroup

	mu      sync.Mutex // owns what follows; never held while waiting
	held    map[string]*held
	epoch   int // counts locks
	pending map[string]renewal
}

// held is what is known of one credential.
type held struct {
	version int
	token   *secret.Bytes // nil when there is none
	fresh   time.Time     // until when it is handed out
	flight  *flight
	failed  error
	until   time.Time // until when the failure is believed; zero means until the credential is rotated
}

// flight is one request under way.
type flight struct {
	done  chan struct{}
	token *secret.Bytes // set before done is closed
	err   error
}

// renewal is a rotated refresh token that could not be stored, sealed to the vault.
type renewal struct {
	version int
	box     []byte
}

const (
	endpointLimit  = 20 * time.Second
	believeFailure = 5 * time.Second  // a failure that may pass is not asked about again within
	lifeUnsaid     = 5 * time.Minute  // how long a token is believed in whose endpoint does not say
	mostSkew       = 60 * time.Second // before its end a token is renewed, or before a fifth of its life is left
)

// New returns a source.
func New(cfg Config) (*Source, error) {
	if cfg.Vault == nil || cfg.Now == nil {
		return nil, errors.New("oauth: Vault and Now are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dialer == nil {
		cfg.Dialer = egress.New(egress.Config{})
	}
	if cfg.Renewed == nil {
		cfg.Renewed = func(string) {}
	}
	return &Source{cfg: cfg, held: map[string]*held{}, pending: map[string]renewal{}}, nil
}

// UseCredential returns a copy of the secret, or of an access token where the credential is of kind oauth2; the caller wipes it. It waits for the token endpoint as long as ctx lets it.
func (s *Source) UseCredential(ctx context.Context, name string) (vault.Credential, *secret.Bytes, error) {
	c, value, err := s.cfg.Vault.UseCredential(name)
	if err != nil || c.Kind != vault.OAuth2 {
		return c, value, err
	}
	value.Wipe() // whoever asks the endpoint reads it again, so that it is the newest
	token, err := s.token(ctx, c)
	if err != nil {
		return vault.Credential{}, nil, err
	}
	return c, token, nil
}

func (s *Source) token(ctx context.Context, c vault.Credential) (*secret.Bytes, error) {
	s.mu.Lock()
	h := s.held[c.Name]
	if h == nil {
		h = &held{}
		s.held[c.Name] = h
	}
	now := s.cfg.Now()
	if h.version != c.Version {
		h.drop()
		h.version, h.failed = c.Version, nil
	}
	switch {
	case h.token != nil && now.Before(h.fresh):
		t, err := h.token.Clone()
		s.mu.Unlock()
		return t, err
	case h.flight == nil && h.failed != nil && (h.until.IsZero() || now.Before(h.until)):
		err := h.failed
		s.mu.Unlock()
		return nil, err
	case h.flight == nil:
		h.flight = &flight{done: make(chan struct{})}
		f, epoch := h.flight, s.epoch
		s.work.Go(func() { s.fly(c.Name, h, f, epoch) })
	}
	f := h.flight
	s.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for an access token: %w", context.Cause(ctx))
	}
	if f.err != nil {
		return nil, f.err
	}
	t, err := f.token.Clone()
	if err != nil {
		return nil, errors.New("the access token was dropped before it was used, because the vault was locked or the credential changed")
	}
	return t, nil
}

// fly asks the endpoint once and settles what came of it.
func (s *Source) fly(name string, h *held, f *flight, epoch int) {
	ctx, cancel := context.WithTimeout(context.Background(), endpointLimit)
	defer cancel()
	version, got, err := s.ask(ctx, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(f.done)
	h.flight = nil
	now := s.cfg.Now()
	switch {
	case err == nil && s.epoch != epoch:
		got.access.Wipe()
		err = vault.ErrLocked
	case err == nil && h.version != version:
		got.access.Wipe()
		err = fmt.Errorf("credential %q: %w", name, vault.ErrSuperseded)
	}
	if err != nil {
		f.err = err
		var refused *RefusedError
		switch {
		case errors.As(err, &refused) && refused.final():
			h.failed, h.until, h.version = err, time.Time{}, version
		case errors.Is(err, vault.ErrLocked), errors.Is(err, vault.ErrSuperseded):
			h.failed = nil
		default:
			h.failed, h.until = err, now.Add(believeFailure)
		}
		return
	}
	h.drop()
	h.failed = nil
	h.token, f.token = got.access, got.access
	h.fresh = now.Add(got.life - min(mostSkew, got.life/5))
}

// ask reads the credential, asks its endpoint, and stores a refresh token that was rotated before it returns.
func (s *Source) ask(ctx context.Context, name string) (version int, got answer, err error) {
	if err := s.settle(name); err != nil {
		return 0, answer{}, err
	}
	c, value, err := s.cfg.Vault.UseCredential(name)
	if err != nil {
		return 0, answer{}, err
	}
	defer value.Wipe()
	if c.Kind != vault.OAuth2 {
		return c.Version, answer{}, fmt.Errorf("credential %q: %w", name, vault.ErrSuperseded)
	}
	if got, err = s.request(ctx, c, value); err != nil {
		return c.Version, answer{}, err
	}
	if got.refresh == nil {
		return c.Version, got, nil
	}
	defer got.refresh.Wipe()
	renewed, same, err := renew(value, got.refresh)
	if err == nil && same {
		return c.Version, got, nil
	}
	if err == nil {
		defer renewed.Wipe()
		err = s.store(name, c.Version, renewed)
	}
	if err != nil {
		got.access.Wipe()
		return c.Version, answer{}, err
	}
	s.cfg.Renewed(name)
	return c.Version, got, nil
}

// renew puts another refresh token into the value.
func renew(value, refresh *secret.Bytes) (renewed *secret.Bytes, same bool, err error) {
	err = value.Use(func(old []byte) error {
		return refresh.Use(func(token []byte) error {
			fields, err := material.Decode(old)
			if err != nil {
				return err
			}
			if same = string(material.Get(fields, material.OAuthRefreshToken)) == string(token); same {
				return nil
			}
			kept := []material.Field{{Name: material.OAuthRefreshToken, Value: token}}
			if client := material.Get(fields, material.OAuthClientSecret); client != nil {
				kept = append(kept, material.Field{Name: material.OAuthClientSecret, Value: client})
			}
			b, err := material.Encode(kept)
			if err == nil {
				renewed = secret.New(b)
			}
			return err
		})
	})
	return renewed, same, err
}

// store makes a rotated refresh token durable, or puts it aside until the vault is open again.
func (s *Source) store(name string, version int, renewed *secret.Bytes) error {
	err := s.cfg.Vault.RenewCredential(name, version, renewed)
	if err == nil || errors.Is(err, vault.ErrSuperseded) || errors.Is(err, vault.ErrNotFound) {
		return err
	}
	box, sealing := s.seal(name, renewed)
	if sealing != nil {
		s.cfg.Logger.Error("a rotated refresh token is lost: rotate the credential", "credential", name, "error", errors.Join(err, sealing))
		return err
	}
	s.mu.Lock()
	s.pending[name] = renewal{version, box}
	s.mu.Unlock()
	s.cfg.Logger.Warn("a rotated refresh token waits for the vault to be open", "credential", name)
	return err
}

func sealInfo(name string) []byte { return []byte("singlepass.dev/oauth/v1 renewal " + name) }

func (s *Source) seal(name string, value *secret.Bytes) (box []byte, err error) {
	public, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(s.cfg.Vault.PublicSealingKey())
	if err != nil {
		return nil, err
	}
	err = value.Use(func(b []byte) error {
		box, err = hpke.Seal(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), sealInfo(name), b)
		return err
	})
	return box, err
}

// settle stores what was put aside for a credential.
func (s *Source) settle(name string) error {
	s.mu.Lock()
	p, ok := s.pending[name]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	keys, err := s.cfg.Vault.Keys()
	if err != nil {
		return err
	}
	var value *secret.Bytes
	if err := keys.UseSealingKey(func(private hpke.PrivateKey) error {
		b, err := hpke.Open(private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), sealInfo(name), p.box)
		value = secret.New(b)
		return err
	}); err != nil {
		return err
	}
	defer value.Wipe()
	err = s.cfg.Vault.RenewCredential(name, p.version, value)
	if err != nil && !errors.Is(err, vault.ErrSuperseded) && !errors.Is(err, vault.ErrNotFound) {
		return err
	}
	s.mu.Lock()
	delete(s.pending, name)
	s.mu.Unlock()
	if err == nil {
		s.cfg.Renewed(name)
	}
	return nil
}

// Unlocked stores what was put aside while the vault was locked.
func (s *Source) Unlocked() {
	s.mu.Lock()
	var names []string
	for name := range s.pending {
		names = append(names, name)
	}
	s.mu.Unlock()
	for _, name := range names {
		if err := s.settle(name); err != nil {
			s.cfg.Logger.Error("storing a rotated refresh token", "credential", name, "error", err)
		}
	}
}

// CredentialRefused drops an access token that a target did not take, so that the next use gets another. Nothing is sent again for it.
func (s *Source) CredentialRefused(name string, used *secret.Bytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil && h.token.Equal(used) {
		h.drop()
	}
}

// Forget drops what is known of a credential that the operator changed.
func (s *Source) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		h.drop()
		h.failed = nil
	}
}

// Locked wipes every access token.
func (s *Source) Locked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	for _, h := range s.held {
		h.drop()
		h.failed = nil
	}
}

// Wait returns when no endpoint is asked any more, or when ctx is done. Before the daemon locks its vault for good, it waits so that a refresh token that is being rotated is stored.
func (s *Source) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// drop forgets the token. Whoever waits for the flight that brought it finds it wiped, which says that the vault was locked or the credential changed.
func (h *held) drop() {
	h.token.Wipe()
	h.token = nil
}
