package control_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control/controltest"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/home"
)

const passphrase = "canary-not-a-secret-passphrase"

// stand is a daemon that listens, and a bare HTTP client for it.
type stand struct {
	*controltest.Daemon
	t    testing.TB
	http *http.Client
}

func start(t testing.TB, now func() time.Time) *stand {
	t.Helper()
	dir, err := os.MkdirTemp("", "sp") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h, err := home.Resolve(dir, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	d, err := controltest.New(h, now)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.Server.Serve(l) }()
	t.Cleanup(func() { _ = d.Shutdown(context.Background()) })
	return &stand{d, t, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", h.OperatorSocket())
		},
	}}}
}

func started(t *testing.T) *stand {
	t.Helper()
	return startedAt(t, time.Now)
}

func startedAt(t *testing.T, now func() time.Time) *stand {
	t.Helper()
	s := start(t, now)
	if status, body := s.do("POST", "/v1/vault/init", "", initBody(passphrase)); status != 200 {
		t.Fatalf("init: %d %s", status, body)
	}
	return s
}

func initBody(passphrase string) string {
	return `{"no_keyring":true,"passphrase":"` + base64.StdEncoding.EncodeToString([]byte(passphrase)) + `"}`
}

func proofOf(passphrase string) string {
	return "Passphrase " + base64.StdEncoding.EncodeToString([]byte(passphrase))
}

func (s *stand) request(method, path, proof, body string) *http.Request {
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://spd"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if proof != "" {
		r.Header.Set("Authorization", proof)
	}
	return r
}

func (s *stand) send(r *http.Request) (int, string) {
	s.t.Helper()
	resp, err := s.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (s *stand) do(method, path, proof, body string) (int, string) {
	s.t.Helper()
	return s.send(s.request(method, path, proof, body))
}

func code(body string) api.Code {
	var e struct {
		Error api.Error `json:"error"`
	}
	_ = json.Unmarshal([]byte(body), &e)
	return e.Error.Code
}

// everything lists each path that reads cards or activity or changes anything, with a body that it takes.
var everything = []struct{ method, path, body string }{
	{"POST", "/v1/proof", ""},
	{"GET", "/v1/credentials", ""},
	{"POST", "/v1/credentials", `{"name":"x","kind":"bearer","targets":["https://a.example/"],"per_use":false,"secret":"eA=="}`},
	{"GET", "/v1/credentials/x", ""},
	{"PATCH", "/v1/credentials/x", `{"per_use":true}`},
	{"POST", "/v1/credentials/x/rotate", `{"secret":"eQ=="}`},
	{"DELETE", "/v1/credentials/x", ""},
	{"GET", "/v1/actions", ""},
	{"POST", "/v1/actions", `{}`},
	{"GET", "/v1/actions/x", ""},
	{"DELETE", "/v1/actions/x", ""},
	{"GET", "/v1/approvals", ""},
	{"GET", "/v1/approvals/stream", ""},
	{"GET", "/v1/approvals/card_1", ""},
	{"POST", "/v1/approvals/card_1", `{"answer":"once"}`},
	{"GET", "/v1/sessions", ""},
	{"DELETE", "/v1/sessions/run_1", ""},
	{"GET", "/v1/grants", ""},
	{"DELETE", "/v1/grants/grant_1", ""},
	{"GET", "/v1/activity", ""},
	{"GET", "/v1/activity/stream", ""},
	{"GET", "/v1/activity/act_1", ""},
	{"GET", "/v1/activity/act_1/payload", ""},
	{"POST", "/v1/activity/act_1/check", ""},
	{"POST", "/v1/activity/act_1/settle", `{"done":true}`},
	{"GET", "/v1/settings", ""},
	{"PUT", "/v1/settings/card_ttl", `{"value":"24h"}`},
	{"GET", "/v1/http-clients", ""},
	{"POST", "/v1/http-clients", `{"client":"cursor"}`},
	{"DELETE", "/v1/http-clients/cursor", ""},
	{"POST", "/v1/journal/accept", `{"reason":"x"}`},
}

func TestNothingIsReadOrChangedWithoutProof(t *testing.T) {
	s := started(t)
	now := time.Now()
	s.Ask(controltest.Card("card_1", approval.AskUse, controltest.Accepted(1, now), now))
	for _, c := range everything {
		if status, body := s.do(c.method, c.path, "", c.body); status != 401 || code(body) != api.CodeProofNeeded {
			t.Errorf("%s %s without proof: %d %s", c.method, c.path, status, body)
		}
		if status, body := s.do(c.method, c.path, "Ticket eA==", c.body); status != 401 || code(body) != api.CodeTicketOver {
			t.Errorf("%s %s with a ticket that nobody earned: %d %s", c.method, c.path, status, body)
		}
	}
	if status, body := s.do("GET", "/v1/approvals", proofOf("wrong-passphrase"), ""); status != 401 || code(body) != api.CodeProofWrong {
		t.Errorf("wrong passphrase: %d %s", status, body)
	}
	if got := s.Answers(); len(got) != 0 {
		t.Errorf("something was answered: %v", got)
	}
	for _, free := range []struct{ method, path string }{{"GET", "/v1/status"}, {"POST", "/v1/vault/lock"}} {
		if status, body := s.do(free.method, free.path, "", ""); status != 200 {
			t.Errorf("%s needs a proof: %d %s", free.path, status, body)
		}
	}
}

func TestAnAgentsDescendantIsRefusedEvenWithTheRightPassphrase(t *testing.T) {
	s := started(t)
	s.Agent(os.Getpid(), "run_1")
	for _, c := range append(everything, struct{ method, path, body string }{"POST", "/v1/vault/unlock", initBody(passphrase)}) {
		if status, body := s.do(c.method, c.path, proofOf(passphrase), c.body); status != 403 || code(body) != api.CodeAgentCaller {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
}

func TestACallerWhoCannotBeToldIsRefusedLikeAnAgent(t *testing.T) {
	s := started(t)
	s.CannotTell(errors.New("it is gone"))
	if status, body := s.do("GET", "/v1/approvals", proofOf(passphrase), ""); status != 403 || code(body) != api.CodeAgentCaller {
		t.Errorf("%d %s", status, body)
	}
}

func TestAWebPageIsRefused(t *testing.T) {
	s := started(t)
	r := s.request("GET", "/v1/approvals", proofOf(passphrase), "")
	r.Header.Set("Origin", "https://evil.example")
	if status, body := s.send(r); status != 403 {
		t.Errorf("%d %s", status, body)
	}
}

func TestTooManyWrongPassphrasesSayWhenTheNextIsTaken(t *testing.T) {
	now := time.Now()
	s := startedAt(t, func() time.Time { return now })
	var status int
	var body string
	for range 6 {
		status, body = s.do("POST", "/v1/proof", proofOf("wrong-passphrase"), "")
	}
	var e struct {
		Error api.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || status != 429 || e.Error.Code != api.CodeTooManyTries || e.Error.RetryAfter < 1 || strings.Contains(e.Error.Hint, " 0s") {
		t.Errorf("%d %s", status, body)
	}
}

func TestRequestsAreDecodedStrictlyAndErrorsDoNotRepeatThem(t *testing.T) {
	s := started(t)
	for _, body := range []string{
		`{"answer":"once","reazon":"canary-not-a-secret"}`, `{"answer":"once"} {"canary-not-a-secret":1}`, `canary-not-a-secret`, `{"answer":["canary-not-a-secret"]}`, ``,
		`{"answer":"deny","answer":"once"}`, "{\"answer\":\"deny\",\"reason\":\"canary-not-a-secret \xff\"}", `{"answer":"deny","reason":"\ud800"}`,
		`{"answer":"` + strings.Repeat("canary-not-a-secret", 100_000) + `"}`,
	} {
		status, answer := s.do("POST", "/v1/approvals/card_1", proofOf(passphrase), body)
		if status != 400 && status != 413 {
			t.Errorf("%.60q: %d %s", body, status, answer)
		}
		if strings.Contains(answer, "canary-not-a-secret") {
			t.Errorf("%.60q is repeated: %s", body, answer)
		}
	}
	if status, answer := s.do("GET", "/v1/approvals/stream", proofOf(passphrase), "x"); status != 400 || code(answer) != api.CodeUsage {
		t.Errorf("a stream with a body: %d %s", status, answer)
	}
	if status, answer := s.do("GET", "/v1/unheard-of", proofOf(passphrase), ""); status != 404 || code(answer) != api.CodeMissing {
		t.Errorf("unknown path: %d %s", status, answer)
	}
}

func TestACardShowsExactlyWhatIsSentWithTheSecretMasked(t *testing.T) {
	s := started(t)
	now := time.Now()
	v := controltest.Card("card_1", approval.AskAgain, controltest.Accepted(2, now), now)
	earlier := controltest.Unknown(1, now.Add(-time.Minute))
	v.Earlier, v.Retry = &earlier, "the earlier one may have acted"
	s.Ask(v)
	status, body := s.do("GET", "/v1/approvals/card_1", proofOf(passphrase), "")
	var card api.Card
	if err := json.Unmarshal([]byte(body), &card); err != nil || status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if card.Card != "card_1" || card.Original == nil || card.Original.ExecutionID != earlier.ID || card.Original.State != "unknown" || card.Retry == "" {
		t.Errorf("the earlier record is missing: %s", body)
	}
	want := api.Field{Name: "Authorization", Value: "Bearer ‹credential pay›"}
	if h := card.Effect.Header; len(h) != 2 || h[1] != want || card.Effect.Body != `{"amount":5}` || card.Effect.Method != "POST" {
		t.Errorf("effect: %+v", card.Effect)
	}
	if !strings.Contains(card.LostAnswer, "never sent again") || !strings.Contains(card.Sentence, "exe:/usr/bin/agent") {
		t.Errorf("words: %q, %q", card.LostAnswer, card.Sentence)
	}
}

func TestAnswersReachTheRightCardOnce(t *testing.T) {
	s := started(t)
	now := time.Now()
	s.Ask(controltest.Card("card_1", approval.AskUse, controltest.Accepted(1, now), now))
	s.Ask(controltest.Card("card_2", approval.AskSession, controltest.Accepted(2, now), now))
	p := proofOf(passphrase)
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"card_1", `{"answer":"perhaps"}`, 400},
		{"card_1", `{"answer":"session"}`, 409}, // its run has a session
		{"card_1", `{"answer":"deny","reason":"not today"}`, 204},
		{"card_1", `{"answer":"once"}`, 404},
		{"card_2", `{"answer":"session"}`, 204},
	} {
		if status, body := s.do("POST", "/v1/approvals/"+c.path, p, c.body); status != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.path, c.body, status, body, c.want)
		}
	}
	if got := strings.Join(s.Answers(), "; "); got != "card_1 deny not today; card_2 session " {
		t.Errorf("answered: %s", got)
	}
	if status, body := s.do("GET", "/v1/sessions", p, ""); status != 200 || !strings.Contains(body, `"run":"run_1"`) || !strings.Contains(body, `"by":"operator"`) {
		t.Errorf("sessions: %d %s", status, body)
	}
}

func TestTheStreamStartsWithWhatWaitsAndEndsWithTheLock(t *testing.T) {
	s := started(t)
	now := time.Now()
	s.Ask(controltest.Card("card_1", approval.AskUse, controltest.Accepted(1, now), now))
	resp, err := s.http.Do(s.request("GET", "/v1/approvals/stream", proofOf(passphrase), ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	next := func() map[string]any {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		var m map[string]any
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := next(); m["event"] != "waiting" || m["card"] != "card_1" {
		t.Errorf("first line: %v", m)
	}
	s.Ask(controltest.Card("card_2", approval.AskUse, controltest.Accepted(2, now), now))
	if m := next(); m["event"] != "added" || m["card"] != "card_2" {
		t.Errorf("second line: %v", m)
	}
	if status, body := s.do("POST", "/v1/approvals/card_1", proofOf(passphrase), `{"answer":"once"}`); status != 204 {
		t.Fatalf("%d %s", status, body)
	}
	if m := next(); m["event"] != "answered" || m["card"] != "card_1" || m["by"] != "operator" || m["effect"] != nil {
		t.Errorf("third line: %v", m)
	}
	if status, body := s.do("POST", "/v1/vault/lock", "", ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if e, ok := next()["error"].(map[string]any); !ok || e["code"] != string(api.CodeVaultLocked) && e["code"] != string(api.CodeShuttingDown) {
		t.Errorf("last line: %s", lines.Text())
	}
	if lines.Scan() {
		t.Errorf("the stream goes on: %s", lines.Text())
	}
}

func TestAListThatLagsBehindIsBroughtUpToNow(t *testing.T) {
	s := started(t)
	now := time.Now()
	x := controltest.Unknown(1, now)
	s.Lag = func(x execution.Execution) execution.Execution {
		x.State = execution.Dispatched
		return x
	}
	s.Put(x)
	if status, body := s.do("GET", "/v1/activity", proofOf(passphrase), ""); status != 200 || !strings.Contains(body, `"state":"unknown"`) {
		t.Errorf("list: %d %s", status, body)
	}
	resp, err := s.http.Do(s.request("GET", "/v1/activity/stream", proofOf(passphrase), ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"state":"unknown"`) {
		t.Errorf("stream: %s, %v", line, err)
	}
}

func TestOnlyAnUnknownOutcomeTakesAVerdict(t *testing.T) {
	s := started(t)
	now := time.Now()
	x, y := controltest.Unknown(1, now), controltest.Accepted(2, now)
	s.Put(x)
	s.Put(y)
	p := proofOf(passphrase)
	if status, body := s.do("POST", "/v1/activity/"+y.ID+"/settle", p, `{"done":true}`); status != 409 || code(body) != api.CodeConflict {
		t.Errorf("accepted: %d %s", status, body)
	}
	status, body := s.do("POST", "/v1/activity/"+x.ID+"/settle", p, `{"done":true,"note":"saw it in the ledger"}`)
	var r api.Record
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != 200 || r.State != "completed_result_not_delivered" || r.OutcomeSource != "operator" {
		t.Errorf("unknown: %d %s", status, body)
	}
	if status, body := s.do("POST", "/v1/activity/act_none/settle", p, `{"done":true}`); status != 404 || code(body) != api.CodeNotFound {
		t.Errorf("none: %d %s", status, body)
	}
}

func TestAContractIsAcceptedOnlyByTheDigestThatWasShown(t *testing.T) {
	s := started(t)
	body := `{"action":"a","file":"a.yaml","digest":"sha256:00","source":"` + base64.StdEncoding.EncodeToString([]byte("action: a\n")) + `"}`
	if status, answer := s.do("POST", "/v1/actions", proofOf(passphrase), body); status != 409 || code(answer) != api.CodeConflict {
		t.Errorf("%d %s", status, answer)
	}
}

func TestCredentialsAreBoundAndTheirErrorsAreTheOperatorsToMend(t *testing.T) {
	s := started(t)
	p := proofOf(passphrase)
	value := base64.StdEncoding.EncodeToString([]byte("canary-not-a-secret-value"))
	add := func(fields string) (int, string) {
		return s.do("POST", "/v1/credentials", p, `{`+fields+`,"secret":"`+value+`"}`)
	}
	if status, body := add(`"name":"pay","kind":"bearer","targets":["https://pay.example/v1/"],"per_use":true`); status != 204 {
		t.Fatalf("%d %s", status, body)
	}
	for fields, want := range map[string]int{
		`"name":"pay","kind":"bearer","targets":["https://pay.example/"],"per_use":false`: 409,
		`"name":"b","kind":"bearer","targets":["http://pay.example/"],"per_use":false`:    400,
		`"name":"c","kind":"ssh-key","targets":["https://pay.example/"],"per_use":false`:  400,
		`"name":"d","kind":"header","targets":["https://pay.example/"],"per_use":false`:   400,
		`"name":"e","kind":"bearer","targets":[],"per_use":false`:                         400,
	} {
		if status, body := add(fields); status != want || strings.Contains(body, "canary") {
			t.Errorf("%s: %d %s, want %d", fields, status, body, want)
		}
	}
	status, body := s.do("GET", "/v1/credentials/pay", p, "")
	if status != 200 || strings.Contains(body, "canary") || !strings.Contains(body, `"per_use":true`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.do("POST", "/v1/vault/lock", "", ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := s.do("GET", "/v1/credentials", p, ""); status != 423 || code(body) != api.CodeVaultLocked {
		t.Errorf("locked: %d %s", status, body)
	}
}
