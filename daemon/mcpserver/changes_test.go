package mcpserver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/mcpserver/enginetest"
)

func TestClientsOfEitherRevisionAreToldWhenTheToolsChange(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		for _, over := range []string{"socket", "http"} {
			t.Run(revision+" over "+over, func(t *testing.T) {
				e := enginetest.New(t)
				changed := make(chan struct{}, 10)
				opts := &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }}
				var session *mcp.ClientSession
				if over == "http" {
					url, _ := serveHTTP(t, e, oneRun, nil)
					session = connectHTTP(t, url, revision, opts)
				} else {
					session = connect(t, dial(t, newServer(t, e, nil), "socket"), revision, opts)
				}
				if _, err := session.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				// The subscription of an event stream is not confirmed to a client, so the change is repeated until it is heard of.
				for i, names := 0, "bcdefghijklmnopqrstuvwxyz"; ; i++ {
					e.AddTool(names[i : i+1])
					select {
					case <-changed:
					case <-time.After(200 * time.Millisecond):
						if i < 20 {
							continue
						}
						t.Fatal("the client was never told")
					}
					break
				}
				tools, err := session.ListTools(t.Context(), nil)
				if err != nil || len(tools.Tools) < 2 || tools.Tools[1].Name != "b" {
					t.Errorf("the tools are %v, %v", tools, err)
				}
			})
		}
	}
}

func TestShutdownLetsAnswersBeTakenAndRefusesNewCalls(t *testing.T) {
	e := enginetest.New(t)
	s := newServer(t, e, nil)
	w := newWire(t, dial(t, s, "socket"))
	w.initialize()
	w.send(toolCall("1", "wait"))
	e.Expect("called wait")
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		done <- s.Shutdown(ctx)
	}()
	for id := 2; ; id++ { // until the shutdown has begun
		w.send(toolCall("2", "echo"))
		if line := w.recv(); strings.Contains(line, "shutting_down") {
			if !strings.Contains(line, "nothing was sent") {
				t.Errorf("a refused call got %s", line)
			}
			break
		}
		e.Expect("delivered socket_drained")
	}
	e.Release <- struct{}{}
	w.expect(`"id":1,"result"`)
	e.Expect("delivered socket_drained")
	if err := <-done; err != nil {
		t.Errorf("shutting down: %v", err)
	}
	if _, err := w.rd.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
}

func TestShutdownEndsInTimeWhenACallDoesNot(t *testing.T) {
	e := enginetest.New(t)
	s, err := mcpserver.New(mcpserver.Config{Engine: e, Logger: discard(), Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(t, dial(t, s, "socket"))
	w.initialize()
	w.send(toolCall("1", "wait"))
	e.Expect("called wait")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("a shutdown that ran out of time does not say so")
	}
	e.Expect("detached")
}

func TestASlowReaderHoldsUpNobodyElse(t *testing.T) {
	e := enginetest.New(t)
	s := newServer(t, e, nil)
	slow, fast := newWire(t, dial(t, s, "socket")), newWire(t, dial(t, s, "socket"))
	slow.initialize()
	fast.initialize()
	big := `{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","arguments":{"a":"` + strings.Repeat("x", 1<<20) + `"}}}`
	for _, id := range []string{"1", "2", "3"} {
		slow.send(strings.Replace(big, "ID", id, 1)) // nobody reads the answers
	}
	fast.send(toolCall("1", "echo"))
	fast.expect(`"id":1,"result"`)
	// The slow one's next messages are still read, and once it reads it has everything.
	slow.send(toolCall("4", "wait"))
	e.ExpectAny("called wait")
	slow.send(cancel("4"))
	e.ExpectAny("detached")
	for range 3 {
		slow.expect(`"result"`)
	}
}
