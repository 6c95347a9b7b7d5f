package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// issuer is a token endpoint and the API behind it. Its refresh tokens are good once, as RFC 9700, section 4.14.2 has it: one that is used again ends the whole grant.
type issuer struct {
	mu      sync.Mutex
	n       int
	refresh string
	valid   string // the access token that the API takes
	revoked bool
	effects []string // what the API did, by order
	life    int      // of access tokens, in seconds
}

const (
	clientSecret = canary + "-client"
	firstRefresh = canary + "-refresh-0"
)

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/token" {
		form := r.Clone(r.Context())
		form.Body = io.NopCloser(strings.NewReader(string(body)))
		w.Header().Set("Content-Type", "application/json")
		if form.ParseForm() != nil || i.revoked || form.PostForm.Get("client_secret") != clientSecret || form.PostForm.Get("refresh_token") != i.refresh {
			i.revoked = true
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
			return
		}
		i.n++
		i.refresh, i.valid = fmt.Sprintf("%s-refresh-%d", canary, i.n), fmt.Sprintf("canary-access-%d", i.n)
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d,"refresh_token":%q}`, i.valid, i.life, i.refresh)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+i.valid || i.valid == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	i.effects = append(i.effects, string(body))
	fmt.Fprintf(w, "done with %s", i.valid)
}

func (i *issuer) state() (tokens, effects int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.n, len(i.effects)
}

func (i *issuer) change(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

// order is a contract for an API of the test's own.
func order(url, credential, more string) string {
	return fmt.Sprintf(`action: place_order
title: Place an order
description: Places one order.
channel: http
input: {type: object, properties: {order: {type: string}}, required: [order], additionalProperties: false}
credential: %s
approval: session
http:
  method: POST
  url: %s
  body: "{order}"
%sreplay: {class: irreversible, attach_window: 1h}
`, credential, url, more)
}

// oneOrder places an order and returns what the agent was told.
func oneOrder(c *client, name string) *result {
	return c.mustCall(request{tool: "place_order", args: map[string]any{"order": name}})
}

func TestAnOAuthTokenThatExpiresMidRunIsRenewed(t *testing.T) {
	api := &issuer{refresh: firstRefresh, life: 3600}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	s := newStand(t, option{actions: map[string]string{"place_order": order(server.URL+"/orders", "shop", ""), "balance": usualActions["balance"]}})
	s.agreeable()
	s.spctl("credential", "add", "shop", "--kind", "oauth2", "--target", server.URL+"/orders", "--token-url", server.URL+"/token", "--client-id", "agent",
		"--grant", "refresh_token", "--client-auth", "post", "--value-file", s.write("value", "client_secret='"+clientSecret+"'\nrefresh_token='"+firstRefresh+"'\n"))
	s.wipe("value")
	c := s.agent(clientKinds[0], "stdio")

	want := func(what string, r *result, isError bool, tokens, effects int) {
		t.Helper()
		n, e := api.state()
		if r.IsError != isError || n != tokens || e != effects {
			t.Errorf("%s: %d tokens and %d effects, expected %d and %d: %s", what, n, e, tokens, effects, r.raw)
		}
		if strings.Contains(string(r.raw), "canary") {
			t.Errorf("%s: the agent sees a secret: %s", what, r.raw)
		}
	}
	want("the first", oneOrder(c, "A-1"), false, 1, 1)
	want("a token in force is used again", oneOrder(c, "A-2"), false, 1, 2)

	// The API ends the token before its time. That answer is a known outcome; nothing is sent again for it, and the next call gets another token.
	api.change(func() { api.valid = "" })
	refused := oneOrder(c, "A-3")
	want("a token that the API no longer takes", refused, true, 1, 2)
	if !strings.Contains(string(refused.raw), "401") {
		t.Errorf("the refusal is not told: %s", refused.raw)
	}
	want("the next order", oneOrder(c, "A-4"), false, 2, 3)

	// From here on every token is past its time as soon as it was used.
	api.change(func() { api.life = 0 })
	s.spctl("lock")
	s.cards.kill()
	s.tape.kill()
	s.spctl("unlock")
	s.watch()
	s.agreeable()
	want("after a lock no token is left", oneOrder(c, "A-5"), false, 3, 4)
	want("an expired token", oneOrder(c, "A-6"), false, 4, 5)

	// The rotated refresh token survives a daemon that is killed: the old one would end the grant.
	s.killDaemon()
	s.restart()
	s.agreeable()
	want("after a kill", oneOrder(c, "A-7"), false, 5, 6)

	// A grant that was ended is told as what it is: nothing was sent.
	api.change(func() { api.revoked = true })
	r := oneOrder(c, "A-8")
	want("a grant that was ended", r, true, 5, 6)
	if said := r.meta(t); said.State != "not_sent" {
		t.Errorf("the agent is told %+v: %s", said, r.raw)
	}
	s.spctl("credential", "show", "shop")
	wantClean(t, filesBelow(t, s.dir, logDir(t)))
	wantClean(t, processes(t))
}

func TestARequestForAWSIsSigned(t *testing.T) {
	var mu sync.Mutex
	var signed []string
	aws := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		signed = append(signed, r.Header.Get("Authorization"))
		fmt.Fprintf(w, "%s %s", r.Header.Get("Authorization"), r.Header.Get("X-Amz-Security-Token"))
	}))
	t.Cleanup(aws.Close)

	s := newStand(t, option{actions: map[string]string{"place_order": order(aws.URL+"/orders", "cloud", ""), "balance": usualActions["balance"]}})
	s.agreeable()
	s.spctl("credential", "add", "cloud", "--kind", "aws-sigv4", "--target", aws.URL, "--region", "eu-west-1", "--service", "execute-api",
		"--value-file", s.write("keys", "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = '"+canary+"'\naws_session_token = '"+canary+"-token'\n"))
	s.wipe("keys")
	c := s.agent(clientKinds[len(clientKinds)-1], "http")

	r := oneOrder(c, "A-1")
	mu.Lock()
	if len(signed) != 1 || !strings.HasPrefix(signed[0], "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") || !strings.Contains(signed[0], "/eu-west-1/execute-api/aws4_request") {
		t.Errorf("signed with %q", signed)
	}
	mu.Unlock()
	if r.IsError || strings.Contains(string(r.raw), "canary") || !strings.Contains(string(r.raw), `"scrubbed":true`) {
		t.Errorf("the agent got %s", r.raw)
	}
	wantClean(t, filesBelow(t, s.dir, logDir(t)))
	wantClean(t, processes(t))
}
