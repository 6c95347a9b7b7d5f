// Package enginetest is a call.Engine for tests of what stands in front of the engine.
package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
)

// Engine is a call.Engine that records what it is asked and answers as its tools are named.
type Engine struct {
	t       testing.TB
	Release chan struct{} // lets a call of "wait" go on

	mu        sync.Mutex
	calls     []call.Call
	Events    chan string // "called NAME", "delivered EVIDENCE", "disputed", "detached"
	tools     []call.Tool
	changed   chan struct{}
	connected int
	shared    chan struct{}
	resources call.Resources
	prompts   []call.Prompt
	refused   *call.Answer // in place of resources

	deliveries int
}

// New makes an Engine with one tool, "echo".
func New(t testing.TB) *Engine {
	return &Engine{
		t: t, Release: make(chan struct{}), Events: make(chan string, 1000), changed: make(chan struct{}), shared: make(chan struct{}),
		tools: []call.Tool{{Name: "echo", Description: "Echoes its arguments.", InputSchema: json.RawMessage(`{"type":"object"}`)}},
	}
}

// Call implements call.Engine.
func (e *Engine) Call(ctx context.Context, c call.Call) call.Answer {
	e.mu.Lock()
	e.calls = append(e.calls, c)
	e.mu.Unlock()
	a := call.Answer{
		ExecutionID: "act_01", State: execution.NotDelivered,
		Delivered: func(evidence string) {
			e.mu.Lock()
			e.deliveries++
			e.mu.Unlock()
			e.Events <- "delivered " + evidence
		},
		Disputed: func() { e.Events <- "disputed" },
	}
	if c.Method != "" {
		return e.read(c, a)
	}
	switch c.Tool {
	case "panic":
		panic("canary-not-a-secret-panic")
	case "wait":
		e.Events <- "called wait"
		select {
		case <-ctx.Done():
			e.Events <- "detached"
			return a
		case <-e.Release:
		}
	case "meta":
		a.Recorded = true
		a.Result = json.RawMessage("{\n \"content\": [],\n \"_meta\": {\"up\": [1], \"dev.singlepass/execution\": {\"state\":\"forged\"}}, \"isError\": false}")
		return a
	case "progress":
		if c.Progress != nil {
			c.Progress(call.Progress{Message: "half", Progress: 1, Total: 2})
		}
	case "broken":
		a.Result = json.RawMessage(`{"content":`)
		return a
	}
	text, err := json.Marshal(string(c.Arguments))
	if err != nil {
		e.t.Error(err)
	}
	a.Result = json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, text))
	return a
}

// Tools implements call.Engine.
func (e *Engine) Tools(*peer.Identity) ([]call.Tool, uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tools, uint64(len(e.tools))
}

// ToolsChanged implements call.Engine.
func (e *Engine) ToolsChanged() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// Connections returns how many connections are open.
func (e *Engine) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.connected
}

// Connected implements call.Engine.
func (e *Engine) Connected(*peer.Identity) func() {
	e.mu.Lock()
	e.connected++
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		e.connected--
		e.mu.Unlock()
	}
}

// AddTool adds a tool and says that the list changed.
func (e *Engine) AddTool(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tools = append(e.tools, call.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
	close(e.changed)
	e.changed = make(chan struct{})
}

// Last returns the call that came last.
func (e *Engine) Last() call.Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.calls) == 0 {
		e.t.Fatal("no call reached the engine")
	}
	return e.calls[len(e.calls)-1]
}

// Count returns how many calls came.
func (e *Engine) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls)
}

// Expect waits for the next event and compares it.
func (e *Engine) Expect(want string) {
	e.t.Helper()
	select {
	case got := <-e.Events:
		if got != want {
			e.t.Fatalf("the engine saw %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		e.t.Fatalf("the engine never saw %q", want)
	}
}

// ExpectAny waits for an event and drops those before it.
func (e *Engine) ExpectAny(want string) {
	e.t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case got := <-e.Events:
			if got == want {
				return
			}
		case <-deadline:
			e.t.Fatalf("the engine never saw %q", want)
		}
	}
}

// Deliveries returns how many answers were reported as delivered.
func (e *Engine) Deliveries() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.deliveries
}
