package attack_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func init() {
	roles["web"] = actOverHTTP
	roles["webflood"] = floodOverHTTP
}

// actOverHTTP is an agent over HTTP: it sends each line of its standard input as one message, with whatever token the file holds that it is given, and prints status and body.
func actOverHTTP(args []string) error {
	session := ""
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<20)
	for orders.Scan() {
		req, err := http.NewRequest(http.MethodPost, args[0], strings.NewReader(orders.Text()))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		if len(args) > 1 {
			token, err := os.ReadFile(args[1])
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		fmt.Printf("%d %s %s\n", resp.StatusCode, resp.Header.Get("Www-Authenticate"), strings.Join(strings.Fields(string(body)), " "))
	}
	return nil
}

// floodOverHTTP makes as many calls as it can, each on a connection of its own that it then holds, and counts what becomes of them. Its arguments are the URL and the file with the token.
func floodOverHTTP(args []string) error {
	token, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	at := strings.TrimSuffix(strings.TrimPrefix(args[0], "http://"), "/mcp")
	const calls, places = 1500, 256
	refused := make(chan error)
	for i := range calls {
		nc, err := net.Dial("tcp", at)
		if err != nil {
			return err
		}
		defer nc.Close()
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"pay","arguments":{"order":"web-%d"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, i, i)
		_, _ = fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: pay\r\n"+
			"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", strings.TrimSpace(string(token)), len(body), body)
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			_ = nc.Close()
			if err == nil && resp.StatusCode != http.StatusTooManyRequests { // otherwise it was closed: there were too many of everybody's
				refused <- fmt.Errorf("call %d got %s", i, resp.Status)
				return
			}
			refused <- nil
		}()
	}
	for range calls - places {
		if err := <-refused; err != nil {
			return err
		}
	}
	fmt.Println("refused", calls-places)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// webAgent is such an agent, as the test has it.
type webAgent struct {
	t     *testing.T
	stdin io.Writer
	out   *lines
	pid   int
}

func (s *stand) webAgent(args ...string) *webAgent {
	s.t.Helper()
	cmd := s.command("agent")
	cmd.Env = append(cmd.Env, "ATTACK_ROLE=web "+s.status().MCPURL+" "+strings.Join(args, " "))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out := collect(s.t, cmd, stdout)
	return &webAgent{s.t, stdin, out, cmd.Process.Pid}
}

func (a *webAgent) send(message string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, message+"\n"); err != nil {
		a.t.Fatal(err)
	}
}

// says sends a message and returns status and body.
func (a *webAgent) says(message string) string {
	a.t.Helper()
	a.send(message)
	return a.out.wait(" ")
}

const (
	webHello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	webPay   = `{"jsonrpc":"2.0","id":"pay","method":"tools/call","params":{"name":"pay","arguments":{"order":"%s"}}}`
)

func (s *stand) listening() {
	s.t.Helper()
	s.stop()
	s.write("h/config/config.yaml", "mcp_http: 127.0.0.1:0\n")
	s.start()
	s.spctl("unlock")
}

func TestAnHTTPClientWithoutATokenThatCountsReachesNothing(t *testing.T) {
	s := begin(t)
	s.listening()
	token := filepath.Join(s.dir, "its.token")
	s.spctl("connect", "its", "--http", "--token-file", token)
	right, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	const invalid = `401 Bearer realm="singlepass", error="invalid_token" the token of this request is not known`
	for what, c := range map[string]struct{ token, want string }{
		"none":               {"", `401 Bearer realm="singlepass" this request carries no token`},
		"a made-up one":      {"spt_its_" + strings.Repeat("A", 43), invalid},
		"another's name":     {strings.Replace(string(right), "spt_its_", "spt_other_", 1), invalid},
		"half of it":         {string(right[:30]), invalid},
		"what the vault has": {"canary-not-a-secret-digest", invalid},
	} {
		var args []string
		if c.token != "" {
			args = []string{s.write("wrong", c.token)}
		}
		if got := s.webAgent(args...).says(webHello); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if r := s.status().RefusedClients; r == nil || r.Count != 5 || !strings.Contains(r.LastActor, "/agent") {
		t.Errorf("the status shows %+v", r)
	}
	s.log.wait("an agent's HTTP request was refused")
	if out := s.spctl("status"); !strings.Contains(out, "requests of agents without a token that counts: 5") {
		t.Errorf("the person sees\n%s", out)
	}
	var journal strings.Builder
	for _, segment := range s.segments() {
		b, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		journal.Write(b)
	}
	if out := journal.String(); !strings.Contains(out, "http_client_refused") || strings.Contains(out, strings.TrimSpace(string(right))) {
		t.Error("the journal does not have the refusals, or has the token")
	}
	s.wantActed(0)
}

// Another user of the machine can connect to the port, and may even have the token; this test is one, since it is root.
func TestAnotherUserReachesNothingWithTheRightToken(t *testing.T) {
	s := begin(t)
	s.listening()
	token := filepath.Join(s.dir, "its.token")
	s.spctl("connect", "its", "--http", "--token-file", token)
	right, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.status().MCPURL, strings.NewReader(webHello))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(right)))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("another user got %s", resp.Status)
	} else if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("another user's connection ended with %v", err)
	}
	if got := s.webAgent(token).says(webHello); !strings.HasPrefix(got, "200 ") {
		t.Errorf("the user's own client gets %s", got)
	}
}

// Nor can another user keep the clients of this one away by connections that say nothing.
func TestACrowdOfAnotherUsersConnectionsTakesNoPlace(t *testing.T) {
	s := begin(t)
	s.listening()
	token := filepath.Join(s.dir, "its.token")
	s.spctl("connect", "its", "--http", "--token-file", token)
	at := strings.TrimSuffix(strings.TrimPrefix(s.status().MCPURL, "http://"), "/mcp")
	for range 1500 {
		nc, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(patience))
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("a connection of another user is held: %v", err)
		}
	}
	if got := s.webAgent(token).says(webHello); !strings.HasPrefix(got, "200 ") {
		t.Errorf("the user's own client gets %s", got)
	}
}

// An agent cannot make a token, nor have one made by editing files: that takes the operator.
func TestAnAgentCannotMakeATokenForItself(t *testing.T) {
	s := begin(t)
	s.listening()
	a := s.agent()
	if r := a.runs(filepath.Join(s.bin, "spctl"), "connect", "its", "--http", "--token-file", filepath.Join(s.dir, "own")); r.Status == 0 {
		t.Errorf("it made one: %s", r.Out)
	}
	if r := a.runs(filepath.Join(s.bin, "spctl"), "connect", "--list"); r.Status == 0 {
		t.Errorf("it read the list: %s", r.Out)
	}
	if out := s.spctl("connect", "--list"); !strings.Contains(out, "no client has a token") {
		t.Errorf("there is a token:\n%s", out)
	}
}

func TestARevokedTokenIsWorthNothing(t *testing.T) {
	s := begin(t)
	s.listening()
	token := filepath.Join(s.dir, "its.token")
	s.spctl("connect", "its", "--http", "--token-file", token)
	a := s.webAgent(token)
	if got := a.says(webHello); !strings.HasPrefix(got, "200 ") {
		t.Fatal(got)
	}
	s.spctl("connect", "--revoke", "its")
	if got := a.says(fmt.Sprintf(webPay, "revoked")); !strings.HasPrefix(got, "401 ") {
		t.Errorf("after the token was revoked: %s", got)
	}
	// Neither does a restart bring it back, nor is any token taken before the vault was opened once.
	s.stop()
	s.start()
	if got := s.webAgent(token).says(webHello); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "spctl unlock") {
		t.Errorf("before the vault is open: %s", got)
	}
	s.spctl("unlock")
	if got := s.webAgent(token).says(webHello); !strings.HasPrefix(got, "401 ") {
		t.Errorf("after a restart: %s", got)
	}
	s.wantActed(0)
}

// Another program of the user can read the token where it lies. It is still only itself: asked about anew, and shut out of the other's session.
func TestATokenInOtherHandsIsNobodysIdentity(t *testing.T) {
	s := begin(t)
	s.listening()
	token := filepath.Join(s.dir, "its.token")
	s.spctl("connect", "its", "--http", "--token-file", token)
	owner := s.webAgent(token)
	if got := owner.says(webHello); !strings.HasPrefix(got, "200 ") {
		t.Fatal(got)
	}
	owner.send(fmt.Sprintf(webPay, "first"))
	s.spctl("approve", s.card().Card, "--session")
	if got := owner.out.wait(" "); !strings.Contains(got, "receipt") {
		t.Fatal(got)
	}

	thief := s.webAgent(token)
	if got := thief.says(webHello); !strings.HasPrefix(got, "200 ") {
		t.Fatal(got)
	}
	thief.send(fmt.Sprintf(webPay, "stolen"))
	card := s.card()
	if card.Agent.PID != thief.pid {
		t.Errorf("the card is about process %d, and process %d asked", card.Agent.PID, thief.pid)
	}
	s.wantActed(1)
	s.spctl("deny", card.Card)
	if got := thief.out.wait(" "); !strings.Contains(got, "denied") {
		t.Errorf("the thief got %s", got)
	}
	if got := owner.says(fmt.Sprintf(webPay, "second")); !strings.Contains(got, "receipt") {
		t.Errorf("the owner got %s", got)
	}
	s.wantActed(2)
	var used struct {
		UsedBy string `json:"used_by"`
	}
	if err := json.Unmarshal([]byte(s.spctl("connect", "--list", "--json")), &used); err != nil || !strings.Contains(used.UsedBy, "/agent") {
		t.Errorf("the list says %+v, %v", used, err)
	}
}

// While the vault is locked a client is told so by the token that counts, and the token alone opens nothing.
func TestATokenOutlivesALockAndOpensNothing(t *testing.T) {
	s := begin(t)
	s.listening()
	token := filepath.Join(s.dir, "its.token")
	s.spctl("connect", "its", "--http", "--token-file", token)
	s.spctl("lock")
	a := s.webAgent(token)
	if got := a.says(webHello); !strings.HasPrefix(got, "200 ") {
		t.Errorf("the handshake: %s", got)
	}
	if got := a.says(fmt.Sprintf(webPay, "locked")); !strings.Contains(got, "vault_locked") {
		t.Errorf("the call: %s", got)
	}
	if got := s.webAgent().says(webHello); !strings.HasPrefix(got, "401 ") {
		t.Errorf("without a token: %s", got)
	}
	s.wantActed(0)
}

func TestAFloodOverHTTPIsItsOwnAffair(t *testing.T) {
	s := begin(t)
	s.listening()
	token := filepath.Join(s.dir, "its.token")
	s.spctl("connect", "its", "--http", "--token-file", token)
	s.plays("webflood "+s.status().MCPURL+" "+token, "refused 1244")
	if st := s.status(); st.Pending == 0 || st.Pending > 256 {
		t.Errorf("%d cards wait", st.Pending)
	}
	if got := s.webAgent(token).says(webHello); !strings.HasPrefix(got, "200 ") {
		t.Errorf("another client gets %s", got)
	}
	s.works("of another")
	s.wantActed(1)
}
