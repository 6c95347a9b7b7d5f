package oauth_test

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"singlepass.dev/daemon/oauth"
	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
	"singlepass.dev/vault/secret"
)

const passphrase = "canary-not-a-secret-passphrase"

func text(s string) *secret.Bytes { return secret.New([]byte(s)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reveal(t *testing.T, s *secret.Bytes) (value string) {
	t.Helper()
	must(t, s.Use(func(b []byte) error { value = string(b); return nil }))
	return value
}

type noKeychain struct{}

func (noKeychain) Get(context.Context, string) (*secret.Bytes, error) {
	return nil, keychain.ErrNotFound
}

func (noKeychain) Set(context.Context, string, *secret.Bytes) error { return errors.New("unused") }

func (noKeychain) Delete(context.Context, string) error { return errors.New("unused") }

// stand is a real vault, a token endpoint and a source between them.
type stand struct {
	t      *testing.T
	path   string
	vault  *vault.Vault
	source *oauth.Source
	server *httptest.Server

	mu      sync.Mutex
	now     time.Time
	answer  http.HandlerFunc
	asked   []string // bodies, in order
	renewed atomic.Int64
}

func (s *stand) advance(d time.Duration) { s.mu.Lock(); s.now = s.now.Add(d); s.mu.Unlock() }
func (s *stand) clock() time.Time        { s.mu.Lock(); defer s.mu.Unlock(); return s.now }
func (s *stand) count() int              { s.mu.Lock(); defer s.mu.Unlock(); return len(s.asked) }
func (s *stand) answers(f http.HandlerFunc) {
	s.mu.Lock()
	s.answer = f
	s.mu.Unlock()
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{t: t, path: filepath.Join(t.TempDir(), "vault.db"), now: time.Now()}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked = append(s.asked, r.Header.Get("Authorization")+" "+string(body))
		f := s.answer
		s.mu.Unlock()
		f(w, r)
	}))
	t.Cleanup(s.server.Close)
	s.vault = s.open()
	_, err := s.vault.Init(t.Context(), text(passphrase), vault.InitOptions{NoKeyring: true})
	must(t, err)
	s.source, err = oauth.New(oauth.Config{Vault: s.vault, Now: s.clock, Renewed: func(string) { s.renewed.Add(1) }})
	must(t, err)
	s.vault.OnLock(s.source.Locked)
	return s
}

func (s *stand) open() *vault.Vault {
	v, err := vault.Open(vault.Config{Path: s.path, Keychain: noKeychain{}, Now: time.Now, Rand: rand.Reader})
	must(s.t, err)
	s.t.Cleanup(func() { _ = v.Close() })
	return v
}

// again forgets the credential and what was asked, since making a vault takes its time.
func (s *stand) again() {
	s.t.Helper()
	must(s.t, s.vault.RemoveCredential("x"))
	s.source.Forget("x")
	s.mu.Lock()
	s.asked = nil
	s.mu.Unlock()
}

// add puts a credential in; params override.
func (s *stand) add(value string, change func(*vault.CredentialParams)) {
	s.t.Helper()
	target, err := vault.ParseTarget("https://api.example.com/")
	must(s.t, err)
	c := vault.Credential{Name: "x", Kind: vault.OAuth2, Targets: []vault.Target{target}, Params: vault.CredentialParams{
		TokenURL: s.server.URL + "/token", ClientID: "the client", Grant: "refresh_token",
	}}
	change(&c.Params)
	must(s.t, s.vault.AddCredential(c, text(value)))
}

func clientCredentials(p *vault.CredentialParams) { p.Grant = "client_credentials" }
func refresh(*vault.CredentialParams)             {}

func (s *stand) token() (string, error) {
	_, got, err := s.source.UseCredential(s.t.Context(), "x")
	if err != nil {
		return "", err
	}
	defer got.Wipe()
	return reveal(s.t, got), nil
}

func (s *stand) wants(want string) {
	s.t.Helper()
	if got, err := s.token(); err != nil || got != want {
		s.t.Errorf("the token is %q, %v; expected %q", got, err, want)
	}
}

// gives answers with tokens 1, 2, …, each for some seconds.
func gives(format string) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		fmt.Fprint(w, strings.ReplaceAll(format, "N", fmt.Sprint(n.Add(1))))
	}
}

func TestATokenIsUsedUntilShortlyBeforeItExpires(t *testing.T) {
	s := newStand(t)
	s.add("canary-not-a-secret", clientCredentials)
	s.answers(gives(`{"access_token":"tokenN","token_type":"bearer","expires_in":3600}`))
	s.wants("token1")
	s.wants("token1")
	s.advance(3600*time.Second - 61*time.Second)
	s.wants("token1")
	s.advance(2 * time.Second)
	s.wants("token2")
	if s.count() != 2 {
		t.Errorf("asked %d times", s.count())
	}
	if other, value, err := s.source.UseCredential(t.Context(), "absent"); !errors.Is(err, vault.ErrNotFound) {
		t.Errorf("%+v %v %v", other, value, err)
	}
}

func TestOtherKindsPassThrough(t *testing.T) {
	s := newStand(t)
	target, err := vault.ParseTarget("https://api.example.com/")
	must(t, err)
	must(t, s.vault.AddCredential(vault.Credential{Name: "x", Kind: vault.Bearer, Targets: []vault.Target{target}}, text("canary-not-a-secret")))
	s.wants("canary-not-a-secret")
}

func TestTheClientProvesItselfAsTheEndpointWants(t *testing.T) {
	s := newStand(t)
	for name, c := range map[string]struct {
		value  string
		change func(*vault.CredentialParams)
		want   string
	}{
		"basic":        {"s+cret", clientCredentials, "Basic dGhlK2NsaWVudDpzJTJCY3JldA== grant_type=client_credentials"}, // the+client:s%2Bcret
		"post":         {"s+cret", func(p *vault.CredentialParams) { p.Grant, p.ClientAuth = "client_credentials", "post" }, " client_id=the+client&client_secret=s%2Bcret&grant_type=client_credentials"},
		"public":       {"r1", refresh, " client_id=the+client&grant_type=refresh_token&refresh_token=r1"},
		"confidential": {"refresh_token=r1\nclient_secret=s", refresh, "Basic dGhlK2NsaWVudDpz grant_type=refresh_token&refresh_token=r1"},
		"with a scope": {"s", func(p *vault.CredentialParams) { clientCredentials(p); p.Scope = "a b" }, "Basic dGhlK2NsaWVudDpz grant_type=client_credentials&scope=a+b"},
		"for something": {"s", func(p *vault.CredentialParams) {
			clientCredentials(p)
			p.Audience, p.Resource = "u", "https://r.example"
		}, "Basic dGhlK2NsaWVudDpz audience=u&grant_type=client_credentials&resource=https%3A%2F%2Fr.example"},
	} {
		s.add(c.value, c.change)
		s.answers(gives(`{"access_token":"tokenN","token_type":"Bearer"}`))
		s.wants("token1")
		if s.asked[0] != c.want {
			t.Errorf("%s: asked\n%s\nexpected\n%s", name, s.asked[0], c.want)
		}
		s.again()
	}
}

func TestManyUsesAtOnceAskOnce(t *testing.T) {
	s := newStand(t)
	s.add("r1", refresh)
	arrived, leave := make(chan struct{}), make(chan struct{})
	good := gives(`{"access_token":"tokenN","token_type":"bearer","expires_in":60}`)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-leave
		good(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := s.source.UseCredential(ctx, "x")
		gone <- err
	}()
	<-arrived
	cancel() // the first leaves; what it asked for goes on
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { s.wants("token1") })
	}
	close(leave)
	all.Wait()
	if s.count() != 1 {
		t.Errorf("asked %d times", s.count())
	}
}

func TestARotatedRefreshTokenIsDurableBeforeItsAccessTokenIsUsed(t *testing.T) {
	s := newStand(t)
	s.add("refresh_token=r0\nclient_secret=canary", refresh)
	s.answers(gives(`{"access_token":"tokenN","token_type":"bearer","expires_in":60,"refresh_token":"rN"}`))
	s.wants("token1")
	if s.renewed.Load() != 1 {
		t.Error("nobody was told")
	}
	// What the file holds now is what a daemon finds that starts after this one was killed.
	c, value, err := s.vault.UseCredential("x")
	must(t, err)
	if reveal(t, value) != "client_secret=canary\x00refresh_token=r1\x00" || c.Version != 1 {
		t.Errorf("kept: version %d", c.Version)
	}
	must(t, s.vault.Close())
	s.vault = s.open()
	must(t, s.vault.Unlock(t.Context(), text(passphrase)))
	s.source, err = oauth.New(oauth.Config{Vault: s.vault, Now: s.clock})
	must(t, err)
	s.wants("token2")
	if !strings.HasSuffix(s.asked[1], "refresh_token=r1") {
		t.Errorf("asked with %s", s.asked[1])
	}
}

func TestARefreshTokenRotatedWhileTheVaultLocksIsStoredAtTheNextUnlock(t *testing.T) {
	s := newStand(t)
	s.add("r0", refresh)
	good := gives(`{"access_token":"tokenN","token_type":"bearer","expires_in":60,"refresh_token":"rN"}`)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		s.vault.Lock()
		good(w, r)
	})
	if got, err := s.token(); !errors.Is(err, vault.ErrLocked) {
		t.Fatalf("the access token was used although its refresh token is not durable: %q, %v", got, err)
	}
	s.answers(good)
	must(t, s.vault.Unlock(t.Context(), text(passphrase)))
	s.source.Unlocked()
	_, value, err := s.vault.UseCredential("x")
	must(t, err)
	if reveal(t, value) != "refresh_token=r1\x00" {
		t.Error("the rotated token is lost")
	}
	s.wants("token2")
	if !strings.HasSuffix(s.asked[1], "refresh_token=r1") {
		t.Errorf("asked with %s", s.asked[1])
	}
}

func TestAnOperatorsRotationIsNotOverwritten(t *testing.T) {
	s := newStand(t)
	s.add("r0", refresh)
	good := gives(`{"access_token":"tokenN","token_type":"bearer","refresh_token":"rN"}`)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		must(t, s.vault.RotateCredential("x", text("mine")))
		good(w, r)
	})
	if got, err := s.token(); !errors.Is(err, vault.ErrSuperseded) {
		t.Errorf("%q, %v", got, err)
	}
	s.answers(good)
	s.wants("token2")
	if !strings.HasSuffix(s.asked[1], "refresh_token=mine") {
		t.Errorf("asked with %s", s.asked[1])
	}
}

func TestAfterALockNoTokenIsLeft(t *testing.T) {
	s := newStand(t)
	s.add("s", clientCredentials)
	s.answers(gives(`{"access_token":"tokenN","token_type":"bearer","expires_in":3600}`))
	s.wants("token1")
	s.vault.Lock()
	if _, err := s.token(); !errors.Is(err, vault.ErrLocked) {
		t.Errorf("while locked: %v", err)
	}
	must(t, s.vault.Unlock(t.Context(), text(passphrase)))
	s.wants("token2")
	s.source.Forget("x")
	s.wants("token3")
	must(t, s.vault.RotateCredential("x", text("other")))
	s.wants("token4")
}

func TestARefusedTokenIsDroppedAndAnotherOnesRefusalIsNot(t *testing.T) {
	s := newStand(t)
	s.add("s", clientCredentials)
	s.answers(gives(`{"access_token":"tokenN","token_type":"bearer","expires_in":3600}`))
	s.wants("token1")
	s.source.CredentialRefused("x", text("token0"))
	s.source.CredentialRefused("absent", text("token1"))
	s.wants("token1")
	s.source.CredentialRefused("x", text("token1"))
	s.wants("token2")
}

func TestARefusalByTheEndpointIsBelieved(t *testing.T) {
	s := newStand(t)
	for code, final := range map[string]bool{"invalid_grant": true, "invalid_client": true, "invalid_scope": true, "invalid_request": false, "canary": false} {
		s.add("canary-not-a-secret", clientCredentials)
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":%q,"error_description":"canary-not-a-secret"}`, code)
		})
		for range 3 {
			_, err := s.token()
			if err == nil || strings.Contains(err.Error(), "canary") || code != "canary" && !strings.Contains(err.Error(), code) || final != strings.Contains(err.Error(), "credential rotate x") {
				t.Errorf("%s: %v", code, err)
			}
		}
		if s.count() != 1 {
			t.Errorf("%s: asked %d times at once", code, s.count())
		}
		s.advance(time.Hour)
		_, _ = s.token()
		if again := s.count() == 2; again == final {
			t.Errorf("%s: asked again later: %v", code, again)
		}
		s.answers(gives(`{"access_token":"tokenN","token_type":"bearer"}`))
		must(t, s.vault.RotateCredential("x", text("new")))
		s.wants("token1")
		s.again()
	}
}

func TestAnswersThatCannotBeUsedAreRefusedAndNotQuoted(t *testing.T) {
	s := newStand(t)
	says := func(body string) http.HandlerFunc { return gives(body) }
	for name, f := range map[string]http.HandlerFunc{
		"not JSON":           says(`canary`),
		"no token":           says(`{"token_type":"bearer","x":"canary"}`),
		"empty token":        says(`{"access_token":"","token_type":"bearer"}`),
		"injected header":    says(`{"access_token":"canary\r\nHost: x","token_type":"bearer"}`),
		"token of a type":    says(`{"access_token":"canary","token_type":"mac"}`),
		"no type":            says(`{"access_token":"canary"}`),
		"bad refresh token":  says(`{"access_token":"canary","token_type":"bearer","refresh_token":"a\u0000b"}`),
		"long":               says(`{"access_token":"` + strings.Repeat("canary", 20000) + `","token_type":"bearer"}`),
		"another media type": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `<p>canary</p>`) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere-canary", http.StatusTemporaryRedirect)
		},
		"failure":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"broken off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"access_token":"canary"`)
		},
	} {
		s.add("s", clientCredentials)
		s.answers(f)
		if got, err := s.token(); err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if s.count() != 1 {
			t.Errorf("%s: asked %d times", name, s.count())
		}
		s.answers(gives(`{"access_token":"tokenN","token_type":"bearer"}`))
		if _, err := s.token(); err == nil {
			t.Errorf("%s: asked again at once", name)
		}
		s.advance(6 * time.Second)
		s.wants("token1")
		s.again()
	}
}

func TestAnEndpointIsReachedByTheRulesOfEveryTarget(t *testing.T) {
	s := newStand(t)
	s.add("s", func(p *vault.CredentialParams) { clientCredentials(p); p.TokenURL = "https://169.254.169.254/token" })
	if _, err := s.token(); err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("%v", err)
	}
	must(t, s.vault.RemoveCredential("x"))
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	s.add("s", func(p *vault.CredentialParams) { clientCredentials(p); p.TokenURL = tls.URL + "/token" })
	s.source.Forget("x")
	if _, err := s.token(); err == nil || !strings.Contains(err.Error(), "does not verify") {
		t.Errorf("%v", err)
	}
}

func TestAnEndpointOfAPrivateAuthorityIsTrustedByTheCredentialsWord(t *testing.T) {
	s := newStand(t)
	endpoint := httptest.NewUnstartedServer(s.server.Config.Handler)
	endpoint.Config.ErrorLog = log.New(io.Discard, "", 0)
	endpoint.StartTLS()
	t.Cleanup(endpoint.Close)
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"canary-a","token_type":"Bearer","expires_in":3600}`)
	})
	s.add("canary-not-a-secret", func(p *vault.CredentialParams) { clientCredentials(p); p.TokenURL = endpoint.URL + "/token" })
	if _, err := s.token(); err == nil || !strings.Contains(err.Error(), "is not trusted") || s.count() != 0 {
		t.Errorf("an endpoint that the machine does not know: %v, asked %d times", err, s.count())
	}
	s.again()
	s.add("canary-not-a-secret", func(p *vault.CredentialParams) {
		clientCredentials(p)
		p.TokenURL = endpoint.URL + "/token"
		p.Authorities = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw}))
	})
	s.wants("canary-a")
}
