package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/control/controltest"
	"singlepass.dev/daemon/home"
	"singlepass.dev/vault/secret"
)

// quick takes one passphrase and derives nothing, and its vault stays as it is: a fuzzer is not to spend its time on Argon2, nor to lock itself out.
type quick struct{}

func (quick) Init(context.Context, *secret.Bytes, bool) (string, error) { return "kit", nil }

func (quick) Unlock(context.Context, *secret.Bytes, *secret.Bytes) error { return nil }

func (quick) Lock() {}

func (quick) ChangePassphrase(context.Context, *secret.Bytes, *secret.Bytes) error { return nil }

func (quick) Prove(_ context.Context, scheme string, value *secret.Bytes, _ control.Peer) (string, error) {
	right := false
	if err := value.Use(func(b []byte) error {
		right = scheme == control.SchemePassphrase && string(b) == passphrase
		return nil
	}); err != nil {
		return "", err
	}
	if !right {
		return "", api.Errorf(api.CodeProofWrong, "the passphrase does not open this vault")
	}
	return control.Operator, nil
}

// fuzzed is a server on a real socket, with everything behind it that the operator can change.
func fuzzed(f *testing.F) (socket string) {
	f.Helper()
	dir, err := os.MkdirTemp("", "sp")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	h, err := home.Resolve(dir, os.Getenv)
	if err != nil {
		f.Fatal(err)
	}
	d, err := controltest.New(h, time.Now)
	if err != nil {
		f.Fatal(err)
	}
	words := secret.New([]byte(passphrase))
	defer words.Wipe()
	if _, err := d.Init(f.Context(), words, true); err != nil {
		f.Fatal(err)
	}
	s, err := control.New(control.Config{
		Daemon: d, Vault: quick{}, Credentials: d, Hosts: d, Approvals: d, Activity: d, Verdicts: d, Sessions: d, Grants: d, Actions: d, Upstreams: d, Journal: d, Settings: d, HTTPClients: d, Ancestry: d, Prover: quick{}, Now: time.Now,
	})
	if err != nil {
		f.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		f.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	f.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return socket
}

// talk says something on a connection of its own, hangs up, and returns all that is answered.
func talk(t *testing.T, socket string, said []byte) []byte {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = c.Write(said) // it may be hung up on in the middle
		_ = c.(*net.UnixConn).CloseWrite()
	}()
	heard, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection does not end after %q", said)
	}
	return heard
}

// judge holds an answer against what every answer has to be, and sees that the next one is served.
func judge(t *testing.T, socket, method string, heard []byte) {
	t.Helper()
	for in := bufio.NewReader(bytes.NewReader(heard)); ; {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			break // the end, or an answer that was cut because its reader hung up
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusInternalServerError {
			t.Fatalf("a fault of the daemon's own: %s", body)
		}
		if resp.Header.Get("Content-Type") == "application/json" && method != http.MethodHead && err == nil && (!json.Valid(body) || !utf8.Valid(body)) {
			t.Fatalf("the answer is not JSON: %q", body)
		}
	}
	if next := talk(t, socket, []byte("GET /v1/status HTTP/1.1\r\nHost: spd\r\nConnection: close\r\n\r\n")); !bytes.HasPrefix(next, []byte("HTTP/1.1 200 OK\r\n")) {
		t.Fatalf("the next request is answered with %q", next)
	}
}

// FuzzWhateverIsSaidAtTheOperatorsSocket says any bytes.
func FuzzWhateverIsSaidAtTheOperatorsSocket(f *testing.F) {
	proven := "Authorization: " + proofOf(passphrase) + "\r\n"
	for _, seed := range []string{
		"", "\r\n\r\n", "\x00\xff\xfe nonsense\r\n\r\n", "GET", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET /v1/status HTTP/1.1\r\nHost: spd\r\n\r\n", "GET /v1/status HTTP/1.0\r\n\r\n", "GET /v1/status HTTP/1.1\r\n\r\n", "HEAD /v1/status HTTP/1.1\r\nHost: spd\r\n\r\n",
		"GET /v1/approvals HTTP/1.1\r\nHost: spd\r\n" + proven + "\r\nGET /v1/sessions HTTP/1.1\r\nHost: spd\r\n" + proven + "\r\n",
		"GET /v1/approvals/stream HTTP/1.1\r\nHost: spd\r\n" + proven + "\r\n",
		"POST /v1/proof HTTP/1.1\r\nHost: spd\r\n" + proven + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"POST /v1/proof HTTP/1.1\r\nHost: spd\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
		"POST /v1/vault/unlock HTTP/1.1\r\nHost: spd\r\nContent-Length: 4\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"POST /v1/vault/unlock HTTP/1.1\r\nHost: spd\r\nContent-Length: 99999999999999999999\r\n\r\n{}", "POST /v1/vault/unlock HTTP/1.1\r\nHost: spd\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
		"GET /v1/status HTTP/1.1\r\nHost: spd\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "GET /v1/%2e%2e/status HTTP/1.1\r\nHost: spd\r\n\r\n", "CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/status HTTP/1.1\r\nHost: spd\r\nX: " + strings.Repeat("x", 17<<10) + "\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	socket := fuzzed(f)
	f.Fuzz(func(t *testing.T, said []byte) {
		if head, more, _ := bytes.Cut(said, []byte("\r\n\r\n")); bytes.Contains(head, []byte("/stream")) && len(more) > 0 {
			t.Skip("that the reader of a stream hung up is seen at the next line, where it sent more behind its request")
		}
		method, _, _ := bytes.Cut(bytes.TrimLeft(said, "\r\n"), []byte(" "))
		judge(t, socket, string(method), talk(t, socket, said))
	})
}

// FuzzProvenRequestsOfTheOperator says any body to any path, with the right proof.
func FuzzProvenRequestsOfTheOperator(f *testing.F) {
	for _, c := range everything {
		f.Add(c.method, c.path, []byte(c.body))
	}
	deep := strings.Repeat(`{"answer":`, 20_000)
	for _, body := range []string{
		deep, strings.Repeat("[", 20_000), "{\"answer\":\"\xff\xfe\"}", `{"answer":` + strings.Repeat("9", 10_000) + `}`, `{"answer":"deny","answer":"once"}`, "{\"answer\":\"once\x00\"}", `{"answer":"once","force":true}`,
		`["once"]`, `null`, `"`, `{"answer":"\ud800"}`, `{"answer":1e400}`, `{"minutes":-1e300}`, "\xef\xbb\xbf{}", `{} {}`,
	} {
		f.Add("POST", "/v1/approvals/card_1", []byte(body))
	}
	for _, path := range []string{
		"/v1/approvals/%2e%2e", "/v1/approvals/%00", "/v1/approvals/%ff", "/v1/activity?limit=-1", "/v1/activity?limit=99999999999999999999", "/v1/activity?since=yesterday&until=\u2028", "/v1/activity?%zz", "//v1//status", "/v1/settings/%0a",
	} {
		f.Add("GET", path, []byte(nil))
	}
	for _, c := range [][3]string{
		{"POST", "/v1/vault/unlock", initBody(passphrase)},
		{"POST", "/v1/vault/init", initBody(passphrase)},
		{"POST", "/v1/vault/passphrase", `{"old":"eA==","new":"eA=="}`},
		{"DELETE", "/v1/ticket", `{"ticket":"eA=="}`},
		{"POST", "/v1/http-clients/check", `{"token":"spt_x_"}`},
		{"POST", "/v1/hosts/look", `{"host":"[::1]:22","file":"eA=="}`},
		{"POST", "/v1/hosts", `{"host":"a:22","keys":[{"key":"ssh-ed25519 AAAA"}]}`},
		{"POST", "/v1/upstreams", `{"upstream":"x","command":["/bin/true"]}`},
		{"PUT", "/v1/settings/card_ttl", `{"value":null}`},
	} {
		f.Add(c[0], c[1], []byte(c[2]))
	}
	socket := fuzzed(f)
	f.Fuzz(func(t *testing.T, method, path string, body []byte) {
		if strings.ContainsAny(method+path, " \r\n") {
			t.Skip("another request")
		}
		said := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: spd\r\nConnection: close\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n", method, path, proofOf(passphrase), len(body))
		judge(t, socket, method, talk(t, socket, append(said, body...)))
	})
}
