package mcpchan_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/channel/mcpchan"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/vault/secret"
)

const canary = "canary-not-a-secret-5f8e2b"

// rig is a channel with one upstream.
type rig struct {
	*mcpchan.Channel
	t      *testing.T
	def    upstream.Definition
	ledger string
	token  string
	log    *lines

	readable chan struct{} // told that resources may be others
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func stdio(t *testing.T, mode string) *rig {
	t.Helper()
	ledger := filepath.Join(t.TempDir(), "ledger")
	return behind(t, ledger, upstream.Definition{Name: "bank", Command: []string{os.Args[0]}, Env: []string{"MCPCHAN_CHILD=" + mode, "LEDGER=" + ledger, "GORACE=atexit_sleep_ms=0"}, Secrets: []string{"bank"}})
}

func overHTTP(t *testing.T, h http.Handler) *rig {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return behind(t, "", upstream.Definition{Name: "bank", URL: server.URL + "/mcp", Credential: "bank"})
}

func behind(t *testing.T, ledger string, d upstream.Definition) *rig {
	t.Helper()
	r := behindDial(t, d, canary, nil)
	r.ledger = ledger
	return r
}

func behindDial(t *testing.T, d upstream.Definition, token string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *rig {
	t.Helper()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, def: d, token: token, log: &lines{}, readable: make(chan struct{}, 10)}
	http := httpchan.New(httpchan.Config{Dial: dial})
	var err error
	r.Channel, err = mcpchan.New(mcpchan.Config{
		Upstream: func(name string) (upstream.Definition, error) {
			if name != r.def.Name {
				return upstream.Definition{}, errors.New("there is no such upstream")
			}
			return r.def, nil
		},
		Environment: func(upstream.Definition) ([]mcpchan.Variable, func(), error) {
			return []mcpchan.Variable{{Name: "BANK_TOKEN", Value: []byte(token)}}, func() {}, nil
		},
		Ready: func(upstream.Definition) (channel.Request, func(), error) {
			s := secret.New([]byte(token))
			return channel.Request{Effect: effect.Effect{Auth: bearer()}, Secret: s}, s.Wipe, nil
		},
		HTTP: http, Logger: slog.New(slog.NewTextHandler(r.log, nil)), Version: "test", Now: time.Now, Readable: func(string) { r.readable <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Resume()
	t.Cleanup(func() { r.Close(); http.Close() })
	return r
}

func bearer() *effect.Auth {
	return &effect.Auth{Credential: "bank", Kind: "bearer", Place: "Authorization"}
}

// request is an attempt at a tool as the upstream lists it now.
func (r *rig) request(tool, arguments string) channel.Request {
	r.t.Helper()
	l, err := r.List(r.t.Context(), "bank")
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(l.Tools, func(o mcpchan.Listed) bool { return o.Tool.Name == tool })
	if i < 0 {
		r.t.Fatalf("%q is not listed: %+v", tool, l.Tools)
	}
	return r.pinned(tool, l.Tools[i].Pin, arguments)
}

func (r *rig) pinned(tool, pin, arguments string) channel.Request {
	q := channel.Request{ExecutionID: "act_1", Attempt: 1, SideEffect: true, Effect: effect.Effect{Channel: effect.MCP, MCP: &effect.MCPCall{
		Upstream: "bank", Identity: r.def.Identity(), URL: r.def.URL, Command: r.def.Command, Tool: tool, Pin: pin, Arguments: []byte(arguments),
	}}}
	if r.def.HTTP() {
		q.Effect.Auth, q.Secret = bearer(), secret.New([]byte(r.token))
	}
	return q
}

func (r *rig) calls() (calls, starts int) {
	r.t.Helper()
	b, err := os.ReadFile(r.ledger)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Count(string(b), "call "), strings.Count(string(b), "start\n")
}

func text(t *testing.T, o channel.Outcome) string {
	t.Helper()
	var in struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(o.Result, &in); err != nil || len(in.Content) == 0 {
		t.Fatalf("%+v has no text (%v)", o, err)
	}
	return in.Content[0].Text
}

func TestACallReachesAnUpstreamAndItsAnswerComesBack(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *rig{
		"stdio":              func(t *testing.T) *rig { return stdio(t, "sdk") },
		"HTTP at 2025-11-25": func(t *testing.T) *rig { return overHTTP(t, serveSDK(false)) },
		"HTTP at 2026-07-28": func(t *testing.T) *rig { return overHTTP(t, serveSDK(true)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := make(t)
			q := r.request("echo", `{"text":"<é>"}`)
			var said []channel.Progress
			q.Progress = func(p channel.Progress) { said = append(said, p) }
			o := r.Do(t.Context(), q)
			if o.Verdict != channel.Success || text(t, o) != `{"text":"<é>"}` {
				t.Errorf("%+v %s", o, o.Result)
			}
			if len(said) != 1 || said[0] != (channel.Progress{Message: "half", Done: 1, Total: 2}) {
				t.Errorf("progress %+v", said)
			}
			if o := r.Do(t.Context(), r.request("fail", `{}`)); o.Verdict != channel.TargetError || text(t, o) != "it did not work" {
				t.Errorf("%+v %s", o, o.Result)
			}
			o = r.Do(t.Context(), r.request("ask", `{}`))
			if o.Verdict != channel.TargetError {
				t.Errorf("%+v %s", o, o.Result)
			}
			t.Logf("%s", o.Answer)
		})
	}
}

func TestAnAnswerComesBackByteForByte(t *testing.T) {
	r := stdio(t, "big")
	o := r.Do(t.Context(), r.request("charge", `{}`))
	if o.Verdict != channel.Success || string(o.Result) != bigResult {
		t.Errorf("%+v\n%s", o, o.Result)
	}
}

func TestWhatAnAnswerMeans(t *testing.T) {
	for mode, want := range map[string]struct {
		verdict channel.Verdict
		says    string // in the reason or the result
	}{
		"plain":            {channel.Success, "charged"},
		"error":            {channel.TargetError, `"error":{"code":-32602,"message":"no such account","data":{"n":9007199254740993}}`},
		"lost behind":      {channel.Unknown, "lost behind it"},
		"timed out behind": {channel.Unknown, "lost behind it"},
		"null error":       {channel.Success, "charged"},
		"null result":      {channel.TargetError, "no such account"},
		"both":             {channel.Unknown, "both a result and an error"},
		"neither":          {channel.Unknown, "neither a result nor an error"},
		"killed":           {channel.Unknown, "signal: killed"},
		"input required":   {channel.TargetError, "refused"},
		"twice":            {channel.Unknown, "twice"},
		"no result":        {channel.Unknown, "not the result of a tool"},
		"endless":          {channel.Unknown, "longer than 16 MiB"},
	} {
		t.Run(mode, func(t *testing.T) {
			r := stdio(t, mode)
			o := r.Do(t.Context(), r.request("charge", `{}`))
			if o.Verdict != want.verdict || !strings.Contains(o.Reason+string(o.Result), want.says) {
				t.Errorf("%+v\n%s", o, o.Result)
			}
			if answered := o.Verdict == channel.Success || o.Verdict == channel.TargetError; answered != (o.Result != nil) {
				t.Errorf("a result belongs to an answer and to nothing else: %+v", o)
			}
			if calls, _ := r.calls(); calls != 1 {
				t.Errorf("the upstream was called %d times", calls)
			}
		})
	}
}

func TestAChildThatWasKilledIsStartedAgainAndSentNothingAgain(t *testing.T) {
	r := stdio(t, "killed")
	if o := r.Do(t.Context(), r.request("charge", `{}`)); o.Verdict != channel.Unknown {
		t.Errorf("%+v", o)
	}
	if _, err := r.List(t.Context(), "bank"); err != nil {
		t.Fatal(err)
	}
	if calls, starts := r.calls(); calls != 1 || starts != 2 {
		t.Errorf("%d calls in %d processes", calls, starts)
	}
}

func TestAToolThatIsNotWhatWasAcceptedIsSentNothing(t *testing.T) {
	r := stdio(t, "plain")
	q := r.request("charge", `{}`)
	r.Forget("bank")
	was := q.Effect.MCP.Identity
	r.def.Env[0] = "MCPCHAN_CHILD=changed"
	if o := r.Do(t.Context(), q); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "another one") {
		t.Errorf("%+v", o)
	}
	q.Effect.MCP.Identity = r.def.Identity()
	if o := r.Do(t.Context(), q); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "otherwise than when it was accepted") {
		t.Errorf("%+v", o)
	}
	q.Effect.MCP.Tool = "refund"
	if o := r.Do(t.Context(), q); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "no longer has") {
		t.Errorf("%+v", o)
	}
	if calls, _ := r.calls(); calls != 0 || was == r.def.Identity() {
		t.Errorf("%d calls", calls)
	}
}

func TestAnUpstreamThatCannotStartIsSentNothing(t *testing.T) {
	r := stdio(t, "plain")
	r.def.Command = []string{"/nonexistent/bank"}
	if o := r.Do(t.Context(), r.pinned("charge", "sha256:0", `{}`)); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "/nonexistent/bank") {
		t.Errorf("%+v", o)
	}
}

func TestAServerThatFallsOverTheNewestProbeIsGreetedTheOldWay(t *testing.T) {
	r := stdio(t, "falls over")
	if o := r.Do(t.Context(), r.request("charge", `{}`)); o.Verdict != channel.Success {
		t.Errorf("%+v", o)
	}
}

func TestAServerThatDoesNotAnswerTheNewestProbeIsGreetedTheOldWayInTheSameProcess(t *testing.T) {
	r := stdio(t, "does not know")
	if o := r.Do(t.Context(), r.request("charge", `{}`)); o.Verdict != channel.Success {
		t.Errorf("%+v", o)
	}
	if _, starts := r.calls(); starts != 1 {
		t.Errorf("it was started %d times", starts)
	}
}

func TestASecretOfTheEnvironmentReachesTheChildAndNothingElse(t *testing.T) {
	r := stdio(t, "secret")
	o := r.Do(t.Context(), r.request("charge", `{}`))
	told := o.Reason + string(o.Result) + string(o.Answer) + r.log.String()
	if o.Verdict != channel.Success || strings.Contains(told, canary) || !strings.Contains(o.Reason, "taken out") {
		t.Errorf("%+v\n%s\n%s", o, o.Result, r.log)
	}
	if !strings.Contains(r.log.String(), "the secret is ") {
		t.Errorf("what the child wrote to standard error is not in the log:\n%s", r.log)
	}
}

func TestWhyAnUpstreamCannotBeUsedIsToldWithoutItsSecret(t *testing.T) {
	for mode, said := range map[string]string{"refuses its token": "the token ", "refuses to list": "xxx"} {
		r := stdio(t, mode)
		o := r.Do(t.Context(), r.pinned("charge", "sha256:0", `{}`))
		if o.Verdict != channel.NotSent || !strings.Contains(o.Reason, said) || strings.Contains(o.Reason, canary[:5]) {
			t.Errorf("%s: %+v", mode, o)
		}
		if _, problem := r.Listing("bank"); problem == nil || strings.Contains(problem.Error(), canary[:5]) {
			t.Errorf("%s: the operator is told %v", mode, problem)
		}
	}
	r := overHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.Error(w, "no, "+q.Header.Get("Authorization"), http.StatusUnauthorized)
	}))
	if o := r.Do(t.Context(), r.pinned("charge", "sha256:0", `{}`)); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "401") || strings.Contains(o.Reason, canary) {
		t.Errorf("over HTTP: %+v", o)
	}
}

func TestAChildIsGivenASmallEnvironment(t *testing.T) {
	t.Setenv("SOMETHING_OF_THE_DAEMON", "x")
	r := stdio(t, "environment")
	all := text(t, r.Do(t.Context(), r.request("charge", `{}`)))
	for line := range strings.Lines(all) {
		name, _, _ := strings.Cut(line, "=")
		if !slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "MCPCHAN_CHILD", "LEDGER", "BANK_TOKEN", "PWD", "GORACE"}, name) {
			t.Errorf("it was given %q", name)
		}
	}
}

func TestWhatAnUpstreamAsksOfUsIsRefusedAndSaid(t *testing.T) {
	r := stdio(t, "asks")
	o := r.Do(t.Context(), r.request("charge", `{}`))
	if o.Verdict != channel.Success || !strings.Contains(text(t, o), `"code":-32601`) || !strings.Contains(text(t, o), `"id":"q1"`) {
		t.Errorf("%+v\n%s", o, o.Result)
	}
	if !strings.Contains(o.Reason, "sampling/createMessage") || !strings.Contains(string(o.Answer), `"refused":["sampling/createMessage"]`) {
		t.Errorf("it is not said: %+v %s", o, o.Answer)
	}
}

func TestAnUpstreamThatAsksAndTellsWithoutEndIsHeldToItsShare(t *testing.T) {
	r := stdio(t, "floods")
	q := r.request("charge", `{}`)
	said := 0
	q.Progress = func(channel.Progress) { said++ }
	o := r.Do(t.Context(), q)
	if o.Verdict != channel.Success || said != 10_000 || strings.Count(string(o.Answer), "sampling/createMessage") != 8 || strings.Count(r.log.String(), "\n") > 250 {
		t.Errorf("%d notifications, %+v %s", said, o, o.Answer)
	}
}

func TestProgressAndLogMessagesArePassedOnScrubbed(t *testing.T) {
	r := stdio(t, "talks")
	q := r.request("charge", `{}`)
	var said []channel.Progress
	q.Progress = func(p channel.Progress) { said = append(said, p) }
	if o := r.Do(t.Context(), q); o.Verdict != channel.Success {
		t.Errorf("%+v", o)
	}
	if len(said) != 2 || !strings.HasPrefix(said[0].Message, "info: the token is ") || strings.Contains(said[0].Message, canary) || said[1].Message != "nearly" || said[1].Done <= said[0].Done {
		t.Errorf("%+v", said)
	}
}

func TestAnAnswerPastTheLimitIsWithheldAndItsVerdictKept(t *testing.T) {
	r := stdio(t, "long")
	q := r.request("charge", `{}`)
	q.Limits.Answer = 1000
	o := r.Do(t.Context(), q)
	if o.Verdict != channel.Success || len(o.Result) > 1000 || !strings.Contains(o.Reason, "withheld") {
		t.Errorf("%+v\n%s", o, o.Result)
	}
}

func TestALimitThatPassesAfterTheWriteIsUnknownAndTellsTheUpstreamNothing(t *testing.T) {
	r := stdio(t, "silent")
	q := r.request("charge", `{}`)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for { // the call is in the ledger before the child is silent
			if calls, _ := r.calls(); calls == 1 {
				cancel(errors.New("the test's limit"))
				return
			}
		}
	}()
	if o := r.Do(ctx, q); o.Verdict != channel.Unknown || !strings.Contains(o.Reason, "the test's limit") {
		t.Errorf("%+v", o)
	}
	r.Suspend("the vault is locked") // its input is closed then, so that all that was written is in the ledger when it is gone
	r.Close()
	if b, _ := os.ReadFile(r.ledger); strings.Contains(string(b), "cancelled") || strings.Count(string(b), "call ") != 1 {
		t.Errorf("%s", b)
	}
}

func TestASuspendedChannelStopsItsProgramsAndStartsNone(t *testing.T) {
	r := stdio(t, "plain")
	q := r.request("charge", `{}`)
	r.Suspend("the vault is locked")
	if o := r.Do(t.Context(), q); o.Verdict != channel.NotSent || !strings.Contains(o.Reason, "the vault is locked") {
		t.Errorf("%+v", o)
	}
	r.Close() // waits until it is gone
	if !strings.Contains(r.log.String(), "an upstream ended") {
		t.Errorf("it was not stopped:\n%s", r.log)
	}
	r.Resume()
	if o := r.Do(t.Context(), q); o.Verdict != channel.Success {
		t.Errorf("%+v", o)
	}
}

func TestTheCredentialOfAnHTTPUpstreamGoesWithEveryRequest(t *testing.T) {
	inner := serveSDK(false)
	r := overHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "Bearer "+canary {
			http.Error(w, "no, "+q.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, q)
	}))
	q := r.request("echo", `{"text":"`+canary+`"}`)
	o := r.Do(t.Context(), q)
	if o.Verdict != channel.Success || strings.Contains(string(o.Result), canary) {
		t.Errorf("%+v\n%s", o, o.Result)
	}
}

func TestAServerThatRefusesThePostRefusedTheCall(t *testing.T) {
	inner := serveSDK(true)
	for status, want := range map[int]channel.Verdict{401: channel.TargetError, 404: channel.TargetError, 429: channel.TargetError, 307: channel.TargetError, 500: channel.Unknown, 503: channel.Unknown, 408: channel.Unknown, 202: channel.Unknown} {
		calls := 0
		r := overHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Mcp-Method") != "tools/call" {
				inner.ServeHTTP(w, q)
				return
			}
			calls++
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}))
		o := r.Do(t.Context(), r.request("echo", `{}`))
		if o.Verdict != want || calls != 1 {
			t.Errorf("HTTP %d: %d calls, %+v", status, calls, o)
		}
	}
}
