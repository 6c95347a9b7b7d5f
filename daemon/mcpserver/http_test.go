package mcpserver_test

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
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/mcpserver/enginetest"
	"singlepass.dev/daemon/peer"
)

// serveHTTP serves Streamable HTTP on loopback. Each connection is from the run that named last returns.
func serveHTTP(t *testing.T, e *enginetest.Engine, run func() string, change func(*mcpserver.Config)) (url string, s *mcpserver.Server) {
	t.Helper()
	s = newServer(t, e, func(c *mcpserver.Config) {
		c.IdentifyTCP = func(_, remote netip.AddrPort) (*peer.Identity, error) {
			if !remote.Addr().IsLoopback() {
				return nil, errors.New("not loopback")
			}
			return &peer.Identity{Run: run(), Actor: "exe:/http", Via: "http"}, nil
		}
		if change != nil {
			change(c)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hs := s.HTTPServer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		hs.Close()
		<-done
	})
	return "http://" + l.Addr().String() + "/mcp", s
}

func oneRun() string { return "run_http" }

func connectHTTP(t *testing.T, url, revision string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "go-client", Version: "2"}, opts).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connecting at %s: %v", revision, err)
	}
	t.Cleanup(func() { session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("revision %s was negotiated, want %s", got, revision)
	}
	return session
}

func TestAnHTTPClientOfEitherRevisionCallsAToolAtTheSameURL(t *testing.T) {
	e := enginetest.New(t)
	url, _ := serveHTTP(t, e, oneRun, nil)
	for _, revision := range []string{"2025-11-25", "2025-06-18", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			session := connectHTTP(t, url, revision, nil)
			arguments := json.RawMessage(`{"n":9007199254740993,"n2":1.0}`)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: arguments, Meta: mcp.Meta{"dev.singlepass/idempotency-key": "k"}})
			if err != nil {
				t.Fatal(err)
			}
			if text := result.Content[0].(*mcp.TextContent).Text; text != string(arguments) {
				t.Errorf("the engine saw %s, want %s", text, arguments)
			}
			if ours, ok := result.Meta["dev.singlepass/execution"].(map[string]any); !ok || ours["execution_id"] != "act_01" {
				t.Errorf("_meta is %v", result.Meta)
			}
			got := e.Last()
			if got.Key != "k" || got.Correlation.Transport != "http" || got.Correlation.Protocol != revision || got.Correlation.Client != "go-client/2" || got.Correlation.RequestID == "" || got.Peer.Run != "run_http" {
				t.Errorf("correlation %+v of %s", got.Correlation, got.Peer.Run)
			}
			if (got.Correlation.Session == "") != (revision == "2026-07-28") {
				t.Errorf("session %q at %s", got.Correlation.Session, revision)
			}
			e.Expect("delivered tcp_acknowledged")
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) == 0 || tools.Tools[0].Name != "echo" {
				t.Errorf("listing tools: %v, %v", tools, err)
			}
		})
	}
}

func TestARefusedHTTPPeerHoldsNoConnection(t *testing.T) {
	stranger := func(c *mcpserver.Config) {
		c.IdentifyTCP = func(netip.AddrPort, netip.AddrPort) (*peer.Identity, error) {
			return nil, errors.New("it belongs to user 1000")
		}
	}
	for host, change := range map[string]func(*mcpserver.Config){"127.0.0.1": stranger, "rebound.example": nil} {
		url, _ := serveHTTP(t, enginetest.New(t), oneRun, change)
		nc, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(nc, "GET /mcp HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403") {
			t.Errorf("host %s: %s, %v", host, answer, err)
		}
	}
}

func TestAnHTTPClientThatCancelsGetsItsCallDetachedAndNothingCounts(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			e := enginetest.New(t)
			url, _ := serveHTTP(t, e, oneRun, nil)
			session := connectHTTP(t, url, revision, nil)
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
				failed <- err
			}()
			e.Expect("called wait")
			cancel()
			if err := <-failed; err == nil {
				t.Error("a cancelled call has an answer")
			}
			e.Expect("detached")
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"}); err != nil {
				t.Fatal(err)
			}
			e.Expect("delivered tcp_acknowledged")
		})
	}
}

// post sends one message and returns the status and the body.
func post(t *testing.T, url, body string, headers map[string]string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(bytes.TrimSpace(content)), resp.Header
}

func TestAPageInABrowserCannotReachTheListener(t *testing.T) {
	e := enginetest.New(t)
	url, _ := serveHTTP(t, e, oneRun, nil)
	for name, headers := range map[string]map[string]string{
		"another origin":       {"Origin": "https://evil.example"},
		"a cross-site request": {"Sec-Fetch-Site": "cross-site"},
		"a rebound name":       {"Host": "evil.example"},
	} {
		if status, body, _ := post(t, url, initialize, headers); status != http.StatusForbidden {
			t.Errorf("%s: status %d, %s", name, status, body)
		}
	}
	if status, body, _ := post(t, url, initialize, nil); status != http.StatusOK {
		t.Errorf("a client of this machine: status %d, %s", status, body)
	}
}

func TestASessionIsClosedToOtherProcesses(t *testing.T) {
	e := enginetest.New(t)
	run := make(chan string, 10)
	url, _ := serveHTTP(t, e, func() string { return <-run }, nil)
	run <- "run_one"
	_, _, header := post(t, url, initialize, nil)
	session := map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"}
	run <- "run_two"
	if status, body, _ := post(t, url, toolCall("1", "echo"), session); status != http.StatusForbidden {
		t.Errorf("another process: status %d, %s", status, body)
	}
	run <- "run_one"
	if status, body, _ := post(t, url, toolCall("1", "echo"), session); status != http.StatusOK || !strings.Contains(body, "act_01") {
		t.Errorf("the same process: status %d, %s", status, body)
	}
}

func TestALateCancellationOverHTTPIsADispute(t *testing.T) {
	e := enginetest.New(t)
	url, _ := serveHTTP(t, e, oneRun, nil)
	_, _, header := post(t, url, initialize, nil)
	session := map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"}
	keepAlive(t, url, toolCall("1", "echo"), session)
	e.Expect("delivered tcp_acknowledged")
	post(t, url, cancel("1"), session)
	e.Expect("disputed")
}

// keepAlive posts on a connection that stays open, so that the acknowledgement can be seen.
func keepAlive(t *testing.T, url, body string, headers map[string]string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
}

func TestASecondRequestWithAnIDInFlightIsRefusedOverHTTP(t *testing.T) {
	e := enginetest.New(t)
	url, _ := serveHTTP(t, e, oneRun, nil)
	_, _, header := post(t, url, initialize, nil)
	session := map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"}
	done := make(chan string, 1)
	go func() {
		_, body, _ := post(t, url, toolCall("1", "wait"), session)
		done <- body
	}()
	e.Expect("called wait")
	if status, body, _ := post(t, url, toolCall("1", "echo"), session); status != http.StatusConflict || !strings.Contains(body, "still being handled") {
		t.Errorf("status %d, %s", status, body)
	}
	e.Release <- struct{}{}
	if body := <-done; !strings.Contains(body, "act_01") {
		t.Errorf("the first one got %s", body)
	}
}

func TestBadMessagesAreRefusedOverHTTP(t *testing.T) {
	e := enginetest.New(t)
	url, _ := serveHTTP(t, e, oneRun, func(c *mcpserver.Config) { c.MaxMessage = 1 << 10 })
	for _, c := range []struct {
		name, body string
		status     int
		holds      string
	}{
		{"garbage", "hello", 400, "-32700"},
		{"a key twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"other"}}`, 400, "-32602"},
		{"too long", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("x", 2<<10) + `"}}`, 413, "too large"},
		{"a revision without its header", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, 400, "-32020"},
	} {
		if status, body, _ := post(t, url, c.body, nil); status != c.status || !strings.Contains(body, c.holds) {
			t.Errorf("%s: status %d, %s", c.name, status, body)
		}
	}
	if e.Count() != 0 {
		t.Errorf("the engine saw %d calls", e.Count())
	}
}

func TestARequestWithoutATokenThatCountsIsRefusedBeforeItIsRead(t *testing.T) {
	e := enginetest.New(t)
	const right = "canary-not-a-secret-token"
	unready := false
	url, _ := serveHTTP(t, e, oneRun, func(c *mcpserver.Config) {
		c.Authorize = func(token string, from *peer.Identity) error {
			switch {
			case from.Run != "run_http":
				t.Errorf("the token is said to be of %+v", from)
			case unready:
				return fmt.Errorf("%w: unlock first", mcpserver.ErrCannotCheck)
			case token != right:
				return errors.New("the token is missing or wrong: connect again")
			}
			return nil
		}
	})
	for _, c := range []struct {
		name, header string
		status       int
		challenge    string
	}{
		{"none", "", 401, `Bearer realm="singlepass"`},
		{"a wrong one", "Bearer wrong", 401, `Bearer realm="singlepass", error="invalid_token"`},
		{"one that begins alike", "Bearer " + right[:10], 401, `Bearer realm="singlepass", error="invalid_token"`},
		{"another scheme", "Basic " + right, 401, `Bearer realm="singlepass"`},
		{"no scheme", right, 401, `Bearer realm="singlepass"`},
		{"the right one", "Bearer " + right, 200, ""},
		{"the scheme in small letters", "bearer " + right, 200, ""},
	} {
		headers := map[string]string{}
		if c.header != "" {
			headers["Authorization"] = c.header
		}
		body := initialize
		if c.status == 401 {
			body = "{ not even JSON"
		}
		status, answer, got := post(t, url, body, headers)
		if status != c.status || got.Get("WWW-Authenticate") != c.challenge {
			t.Errorf("%s: status %d, WWW-Authenticate %q", c.name, status, got.Get("WWW-Authenticate"))
		}
		if c.status == 401 && answer != "the token is missing or wrong: connect again" {
			t.Errorf("%s: the client is told %q", c.name, answer)
		}
		if strings.Contains(answer, right) {
			t.Errorf("%s: the token is in the answer", c.name)
		}
	}
	unready = true
	if status, answer, got := post(t, url, initialize, map[string]string{"Authorization": "Bearer " + right}); status != 503 || got.Get("Retry-After") == "" || !strings.Contains(answer, "unlock first") {
		t.Errorf("before a token can be checked: status %d, %q", status, answer)
	}
}

// rawHTTP says something on a connection of its own.
func rawHTTP(t *testing.T, url, text string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	return nc
}

// A client that stops in the middle of a message holds neither its connection nor the message for ever; an answer may take its time.
func TestABodyThatDoesNotComeEndsItsConnection(t *testing.T) {
	e := enginetest.New(t)
	url, _ := serveHTTP(t, e, oneRun, func(c *mcpserver.Config) { c.BodyTimeout = time.Second })
	_, _, header := post(t, url, initialize, nil)
	session := map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"}
	done := make(chan string, 1)
	go func() {
		_, body, _ := post(t, url, toolCall("1", "wait"), session)
		done <- body
	}()
	e.Expect("called wait")
	nc := rawHTTP(t, url, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	if answer, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408") || !strings.Contains(string(answer), "did not come within 1s") {
		t.Errorf("%s, %v", answer, err)
	}
	// By now the time of the call's body has passed too.
	e.Release <- struct{}{}
	if body := <-done; !strings.Contains(body, "act_01") {
		t.Errorf("the call got %s", body)
	}
}

// Clients that never end their sessions do not use up the daemon: the oldest of a run's goes, and says so to whoever uses it.
func TestTheSessionsOfOneRunAreBounded(t *testing.T) {
	e := enginetest.New(t)
	run := make(chan string, 1)
	url, _ := serveHTTP(t, e, func() string { return <-run }, nil)
	begin := func(of string) string {
		t.Helper()
		run <- of
		status, body, header := post(t, url, initialize, nil)
		if status != http.StatusOK {
			t.Fatalf("status %d, %s", status, body)
		}
		return header.Get("Mcp-Session-Id")
	}
	ping := func(of, session string) int {
		t.Helper()
		run <- of
		status, _, _ := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"})
		return status
	}
	other := begin("run_other")
	var sessions []string
	for range 66 {
		sessions = append(sessions, begin("run_many"))
	}
	for _, old := range sessions[:2] {
		for until := time.Now().Add(time.Minute); ping("run_many", old) != http.StatusNotFound; {
			if time.Now().After(until) {
				t.Fatal("an old session is still there")
			}
		}
	}
	for _, session := range []string{sessions[2], sessions[65]} {
		if status := ping("run_many", session); status != http.StatusOK {
			t.Errorf("a newer session: status %d", status)
		}
	}
	if status := ping("run_other", other); status != http.StatusOK {
		t.Errorf("another run's session: status %d", status)
	}
}

func TestTheConnectionsOfOneRunAreBoundedAndOthersFindAPlace(t *testing.T) {
	run := make(chan string, 1)
	url, _ := serveHTTP(t, enginetest.New(t), func() string { return <-run }, func(c *mcpserver.Config) { c.MaxHTTP = 2 })
	ask := func(of string) (nc net.Conn, status int) {
		t.Helper()
		run <- of
		nc = rawHTTP(t, url, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(initialize), initialize))
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		return nc, resp.StatusCode
	}
	first, status := ask("run_many")
	if _, second := ask("run_many"); status != 200 || second != 200 {
		t.Fatalf("status %d, %d", status, second)
	}
	third, status := ask("run_many")
	if status != http.StatusTooManyRequests {
		t.Errorf("one too many: status %d", status)
	}
	if _, err := io.Copy(io.Discard, third); err != nil {
		t.Errorf("the connection of one too many stays: %v", err)
	}
	if _, status := ask("run_other"); status != 200 {
		t.Errorf("another run: status %d", status)
	}
	first.Close()
	for until := time.Now().Add(time.Minute); ; {
		nc, status := ask("run_many")
		if status == 200 {
			break
		}
		nc.Close()
		if time.Now().After(until) {
			t.Fatal("a place is not given back")
		}
	}
}

func TestAStreamWithABodyIsRefused(t *testing.T) {
	url, _ := serveHTTP(t, enginetest.New(t), oneRun, nil)
	_, _, header := post(t, url, initialize, nil)
	nc := rawHTTP(t, url, "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: "+header.Get("Mcp-Session-Id")+"\r\nContent-Length: 10\r\n\r\nx")
	if answer, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
		t.Errorf("%s, %v", answer, err)
	}
}

func TestOfTwoTokensNoneCounts(t *testing.T) {
	url, _ := serveHTTP(t, enginetest.New(t), oneRun, func(c *mcpserver.Config) {
		c.Authorize = func(token string, _ *peer.Identity) error {
			if token != "right" {
				return errors.New("wrong")
			}
			return nil
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(initialize))
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Authorization"] = []string{"Bearer right", "Bearer other"}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// A client that is refused must not hold the daemon by a body that it never sends, however long it says that it is.
func TestARefusedRequestIsNotWaitedFor(t *testing.T) {
	url, _ := serveHTTP(t, enginetest.New(t), oneRun, func(c *mcpserver.Config) {
		c.Authorize = func(string, *peer.Identity) error { return errors.New("no") }
	})
	for _, length := range []string{"Content-Length: 1000000", "Content-Length: 10", "Transfer-Encoding: chunked"} {
		nc := rawHTTP(t, url, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"+length+"\r\n\r\n1")
		if answer, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401") {
			t.Errorf("%s: %s, %v", length, answer, err)
		}
	}
}

func TestAnHTTPConnectionIsToldToTheEngineWhileItIsOpen(t *testing.T) {
	e := enginetest.New(t)
	url, _ := serveHTTP(t, e, oneRun, nil)
	post(t, url, initialize, nil)
	for deadline := time.Now().Add(10 * time.Second); e.Connections() != 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are still open", e.Connections())
		}
	}
}

func TestAClientThatDisconnectsIsDetached(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		e := enginetest.New(t)
		url, _ := serveHTTP(t, e, oneRun, nil)
		headers, body := map[string]string{"Mcp-Protocol-Version": revision}, toolCall("1", "wait")
		if revision == "2025-11-25" {
			_, _, header := post(t, url, initialize, nil)
			headers["Mcp-Session-Id"] = header.Get("Mcp-Session-Id")
		} else {
			headers["Mcp-Method"], headers["Mcp-Name"] = "tools/call", "wait"
			body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		}
		ctx, disconnect := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for name, value := range headers {
			req.Header.Set(name, value)
		}
		done := make(chan error, 1)
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			done <- err
		}()
		e.Expect("called wait")
		disconnect()
		<-done
		e.Expect("detached")
	}
}
