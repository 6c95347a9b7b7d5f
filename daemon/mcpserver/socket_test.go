package mcpserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/mcpserver/enginetest"
)

func TestAClientOfEitherRevisionCallsAToolAndItsArgumentsArriveUntouched(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			e := enginetest.New(t)
			session := connect(t, dial(t, newServer(t, e, nil), "socket"), revision, nil)
			arguments := json.RawMessage(`{"n":9007199254740993,"a":{"b":1},"n2":1.0}`)
			result, err := session.CallTool(context.Background(), &mcp.CallToolParams{
				Name: "echo", Arguments: arguments, Meta: mcp.Meta{"dev.singlepass/idempotency-key": "k1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if text := result.Content[0].(*mcp.TextContent).Text; text != string(arguments) {
				t.Errorf("the engine saw %s, want %s", text, arguments)
			}
			got := e.Last()
			if got.Key != "k1" || got.KeySource != "meta" || got.Correlation.Protocol != revision || got.Correlation.Client != "go-client/2" || got.Correlation.RequestID == "" {
				t.Errorf("correlation %+v, key %q from %q", got.Correlation, got.Key, got.KeySource)
			}
			ours, ok := result.Meta["dev.singlepass/execution"].(map[string]any)
			if !ok || ours["execution_id"] != "act_01" || ours["recorded"] != false {
				t.Errorf("_meta is %v", result.Meta)
			}
			e.Expect("delivered socket_drained")
			tools, err := session.ListTools(context.Background(), nil)
			if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "echo" {
				t.Errorf("listing tools: %v, %v", tools, err)
			}
		})
	}
}

func TestACallRightBehindInitializeIsAnswered(t *testing.T) {
	e := enginetest.New(t)
	w := newWire(t, dial(t, newServer(t, e, nil), "socket"))
	w.send(initialize + "\n" + `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}`)
	if line := w.recv(); !strings.Contains(line, `"id":"init"`) {
		t.Errorf("first answer: %s", line)
	}
	if line := w.recv(); !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":7,"result":{"_meta":{"dev.singlepass/execution":{"execution_id":"act_01","state":"completed_result_not_delivered","recorded":false}},"content"`) {
		t.Errorf("second answer: %s", line)
	}
}
