package ledger_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

type stand struct {
	*ledger.Server
	url, file string
	events    chan ledger.Event
}

func start(t *testing.T) *stand {
	t.Helper()
	s := &stand{file: filepath.Join(t.TempDir(), "ledger.jsonl"), events: make(chan ledger.Event, 100)}
	f, err := os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s.Server, err = ledger.New(ledger.Config{File: f, Notify: func(e ledger.Event) { s.events <- e }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// post sends one request on a connection of its own, so that the transport has nothing to send it again on.
func (s *stand) post(path, key, body string) (status int, answer string, err error) {
	req, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.GetBody = nil
	req.Close = true
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	req.Header.Set("Authorization", "Bearer canary-not-a-secret-ledger")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func (s *stand) kinds(t *testing.T) string {
	t.Helper()
	entries, err := ledger.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range entries {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

func TestAKeyIsHonouredOnlyBelowHonours(t *testing.T) {
	const body, other = `{"amount":1}`, `{"amount":2}`
	for _, c := range []struct {
		name, path, key, second string
		status                  int
		kinds                   string
	}{
		{"same key, same body", "/honours/charge", "k1", body, 201, "effect replayed"},
		{"same key, other body", "/honours/charge", "k1", other, 422, "effect conflict"},
		{"no key", "/honours/charge", "", body, 201, "effect effect"},
		{"a key that is ignored", "/ignores/charge", "k1", body, 201, "effect effect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t)
			_, first, err := s.post(c.path, c.key, body)
			if err != nil {
				t.Fatal(err)
			}
			status, second, err := s.post(c.path, c.key, c.second)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.kinds(t); got != c.kinds || status != c.status {
				t.Errorf("ledger has %q and the second answer is %d, want %q and %d", got, status, c.kinds, c.status)
			}
			if replayed := strings.HasSuffix(c.kinds, "replayed"); replayed != (first == second) {
				t.Errorf("answers %q and %q: the same only for a replay", first, second)
			}
		})
	}
}

func TestTheEffectIsDurableBeforeAnAnswerIsLost(t *testing.T) {
	for _, c := range []struct {
		mode  ledger.Mode
		kinds string
	}{{ledger.Cut, "effect"}, {ledger.Drop, "dropped"}} {
		s := start(t)
		s.Plan(c.mode)
		if status, answer, err := s.post("/ignores/charge", "", `{}`); err == nil {
			t.Errorf("%s: answered %d %q", c.mode, status, answer)
		}
		if got := s.kinds(t); got != c.kinds {
			t.Errorf("%s: ledger has %q, want %q", c.mode, got, c.kinds)
		}
	}
}

func TestAHeldAnswerComesAfterRelease(t *testing.T) {
	s := start(t)
	s.Plan(ledger.Hold)
	answers := make(chan string, 1)
	go func() {
		_, answer, err := s.post("/ignores/charge", "", `{"amount":1}`)
		if err != nil {
			answer = err.Error()
		}
		answers <- answer
	}()
	held := <-s.events
	if held.Event != "entry" || held.Entry.Kind != ledger.Effect {
		t.Fatalf("first event is %+v", held)
	}
	select {
	case answer := <-answers:
		t.Fatalf("answered before the release: %q", answer)
	default:
	}
	s.Release()
	if answer := <-answers; !strings.Contains(answer, held.Entry.Receipt) {
		t.Errorf("answer %q has no receipt %q", answer, held.Entry.Receipt)
	}
	if e := <-s.events; e.Event != "answered" {
		t.Errorf("last event is %+v", e)
	}
}

func TestAnEchoSaysTheCredentialBack(t *testing.T) {
	s := start(t)
	_, answer, err := s.post("/ignores/echo", "", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, spelling := range []string{"canary-not-a-secret-ledger", "63616e617279", "Y2FuYXJ5LW5vdC1hLXNlY3JldC1sZWRnZXI="} {
		if !strings.Contains(answer, spelling) {
			t.Errorf("answer %s has no %s", answer, spelling)
		}
	}
}

func TestTheLedgerKeepsNoCredential(t *testing.T) {
	s := start(t)
	if _, _, err := s.post("/ignores/charge", "", `{}`); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "canary") || !strings.Contains(string(data), `"auth_sha256":"`) {
		t.Errorf("ledger is %s", data)
	}
}
