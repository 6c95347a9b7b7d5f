package mcpchan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/upstream"
)

// streaming is an upstream at a URL that answers a call by a stream of events, and breaks it.
type streaming struct {
	t        *testing.T
	revision string // 2025-11-25 where it is empty
	call     string // what the stream of the call holds before it breaks; ID is the call's
	// get answers the nth GET, from 1; nil refuses it. What it returns is the stream, which then ends.
	get func(n int, w http.ResponseWriter, id string) string

	mu    sync.Mutex
	calls int
	gets  []http.Header
	id    string
}

func (s *streaming) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream := func(text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(text))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if q.Method == http.MethodGet {
		s.gets = append(s.gets, q.Header.Clone())
		if s.get == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if text := s.get(len(s.gets), w, s.id); text != "" {
			stream(text)
		}
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.NewDecoder(q.Body).Decode(&m); err != nil {
		s.t.Errorf("it was posted no message: %v", err)
		return
	}
	answer := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
	switch m.Method {
	case "server/discover":
		if s.revision == "" {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
			return
		}
		answer(`{"supportedVersions":["` + s.revision + `"],"capabilities":{"tools":{}}}`)
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "session-1")
		answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`)
	case "tools/list":
		answer(`{"tools":[{"name":"charge","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		s.calls++
		s.id = string(m.ID)
		stream(strings.ReplaceAll(s.call, "ID", s.id))
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s *streaming) charge(t *testing.T) channel.Outcome {
	t.Helper()
	s.t = t
	r := overHTTP(t, s)
	o := r.Do(t.Context(), r.request("charge", `{}`))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls != 1 {
		t.Errorf("the upstream was called %d times", s.calls)
	}
	return o
}

func event(id, data string) string { return "id: " + id + "\ndata: " + data + "\n\n" }

func answered(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"charged with ` + canary + `"}]}}`
}

// named is a stream that says from where it can be taken up again, and breaks in the middle of another event.
const named = "retry: 1\nid: first\n\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\nid: never\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,"

func TestAStreamThatBrokeIsTakenUpAgainAndTheCallIsNotMadeAgain(t *testing.T) {
	s := &streaming{call: named, get: func(_ int, _ http.ResponseWriter, id string) string { return event("8", answered(id)) }}
	o := s.charge(t)
	if o.Verdict != channel.Success || !strings.Contains(text(t, o), "charged with ") || strings.Contains(string(o.Result), canary) || !strings.Contains(o.Reason, "taken up again") {
		t.Errorf("%+v %s", o, o.Result)
	}
	if len(s.gets) != 1 {
		t.Fatalf("%d GETs", len(s.gets))
	}
	for name, want := range map[string]string{
		"Last-Event-Id": "7", "Mcp-Session-Id": "session-1", "Mcp-Protocol-Version": "2025-11-25", "Authorization": "Bearer " + canary, "Accept": "text/event-stream", "Content-Type": "",
	} {
		if got := s.gets[0].Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestAStreamIsTakenUpAgainForAsLongAsItGoesOn(t *testing.T) {
	s := &streaming{call: named, get: func(n int, _ http.ResponseWriter, id string) string {
		if n < 4 {
			return fmt.Sprintf("id: more%d\n\n", n)
		}
		return event("end", answered(id))
	}}
	if o := s.charge(t); o.Verdict != channel.Success || len(s.gets) != 4 || s.gets[3].Get("Last-Event-Id") != "more3" {
		t.Errorf("%+v after %d GETs", o, len(s.gets))
	}
}

func TestAServerThatHasNotNoticedTheBreakIsAskedOnceMore(t *testing.T) {
	s := &streaming{call: named, get: func(n int, w http.ResponseWriter, id string) string {
		if n < 3 {
			w.WriteHeader(http.StatusConflict)
			return ""
		}
		return event("8", answered(id))
	}}
	if o := s.charge(t); o.Verdict != channel.Success || len(s.gets) != 3 {
		t.Errorf("%+v after %d GETs", o, len(s.gets))
	}
}

func TestABrokenStreamIsUnknownWhereItCannotBeTakenUpToTheVeryAnswer(t *testing.T) {
	gone := func(status int) func(int, http.ResponseWriter, string) string {
		return func(_ int, w http.ResponseWriter, _ string) string {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			return ""
		}
	}
	right := func(_ int, _ http.ResponseWriter, id string) string { return event("8", answered(id)) }
	for name, test := range map[string]struct {
		*streaming
		asked int
	}{
		"it is refused":     {&streaming{call: named}, 1},
		"it is forgotten":   {&streaming{call: named, get: gone(404)}, 1},
		"it is elsewhere":   {&streaming{call: named, get: gone(307)}, 1},
		"it has failed":     {&streaming{call: named, get: gone(500)}, 1},
		"it ends once more": {&streaming{call: named, get: func(int, http.ResponseWriter, string) string { return ": nothing\n\n" }}, 1},
		"it never ends":     {&streaming{call: named, get: func(n int, _ http.ResponseWriter, _ string) string { return fmt.Sprintf("id: more%d\n\n", n) }}, 8},
		"the answer is another's": {&streaming{call: named, get: func(_ int, _ http.ResponseWriter, id string) string {
			return event("7", answered(id+"1")+"\n") + event("7", answered("null")) + event("7", answered(`"`+id+`"`)) + event("7", `[`+answered(id)+`]`)
		}}, 1},
		"the answer is cut off": {&streaming{call: named, get: func(_ int, _ http.ResponseWriter, id string) string { return "data: " + answered(id) + "\n" }}, 1},
		"it answers by JSON": {&streaming{call: named, get: func(_ int, w http.ResponseWriter, id string) string {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answered(id)))
			return ""
		}}, 1},
		"it named no place":         {&streaming{call: "data: {}\n\ndata: {", get: right}, 0},
		"the place was cut off":     {&streaming{call: "id: 7\ndata: {}\n", get: right}, 0},
		"the place was taken back":  {&streaming{call: "id: 7\n\nid:\n\n", get: right}, 0},
		"the place is no header":    {&streaming{call: "id: 7\x01\n\n", get: right}, 0},
		"the place is not ASCII":    {&streaming{call: "id: é\n\n", get: right}, 0},
		"the place has a space":     {&streaming{call: "id:  7\n\n", get: right}, 0},
		"the place is long":         {&streaming{call: "id: " + strings.Repeat("x", 2000) + "\n\n", get: right}, 0},
		"its revision has no such":  {&streaming{revision: "2026-07-28", call: named, get: right}, 0},
		"nothing of it ever came":   {&streaming{call: "", get: right}, 0},
		"it claims to be over 256M": {&streaming{call: "id: 7\n\ndata: " + strings.Repeat("x", 17<<20) + "\n\n", get: right}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := test.charge(t)
			if o.Verdict != channel.Unknown || o.Result != nil || o.Reason == "" {
				t.Errorf("%+v %s", o, o.Result)
			}
			if len(test.gets) != test.asked {
				t.Errorf("%d GETs, want %d", len(test.gets), test.asked)
			}
		})
	}
}

type connKey struct{}

// cutting closes the connection of a call once an event with an id went over it.
type cutting struct {
	http.ResponseWriter
	conn net.Conn
}

func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutting) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }

func (c *cutting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	if bytes.Contains(b, []byte("id: ")) {
		c.Flush()
		_ = c.conn.Close()
	}
	return n, err
}

// The official Go SDK's server with its event store: it goes on with the call while nobody listens.
func TestARealServerGoesOnWithTheAnswerAndIsCalledOnce(t *testing.T) {
	calls, release := 0, make(chan struct{})
	var once sync.Once
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "charge", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		calls++
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
		<-release
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "charged"}}}, nil
	})
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case bytes.Contains(body, []byte("tools/call")):
			conn, _ := q.Context().Value(connKey{}).(net.Conn)
			w = &cutting{w, conn}
		case q.Method == http.MethodGet:
			once.Do(func() { close(release) })
		}
		sdk.ServeHTTP(w, q)
	}))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	server.Start()
	t.Cleanup(server.Close)
	r := behind(t, "", upstream.Definition{Name: "bank", URL: server.URL + "/mcp", Credential: "bank"})
	q := r.request("charge", `{}`)
	q.Progress = func(channel.Progress) {}
	if o := r.Do(t.Context(), q); o.Verdict != channel.Success || text(t, o) != "charged" || !strings.Contains(o.Reason, "taken up again") || calls != 1 {
		t.Errorf("%+v %s after %d calls", o, o.Result, calls)
	}
}
