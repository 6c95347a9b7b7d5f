package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/mcpserver/enginetest"
	"singlepass.dev/daemon/upstream"
)

func open() (call.Resources, []call.Prompt) {
	return call.Resources{
		Resources: []upstream.Resource{{URI: "singlepass+up:a", Name: "up: a"}}, Templates: []upstream.Resource{{URI: "singlepass+up:x/{b}", Name: "up: b"}},
		LeftOut: map[string]string{"other": "it has not answered in time"},
	}, []call.Prompt{
		{Name: "up.greet", Description: "Greets.", Arguments: []upstream.PromptArgument{{Name: "who", Required: true}}},
	}
}

// either runs a test with a client of each revision on each transport.
func either(t *testing.T, e func(*testing.T) *enginetest.Engine, opts *mcp.ClientOptions, test func(*testing.T, *enginetest.Engine, *mcp.ClientSession)) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		for _, over := range []string{"socket", "http"} {
			t.Run(revision+" over "+over, func(t *testing.T) {
				e := e(t)
				if over == "http" {
					url, _ := serveHTTP(t, e, oneRun, nil)
					test(t, e, connectHTTP(t, url, revision, opts))
				} else {
					test(t, e, connect(t, dial(t, newServer(t, e, nil), "socket"), revision, opts))
				}
			})
		}
	}
}

func sharing(t *testing.T) *enginetest.Engine {
	e := enginetest.New(t)
	resources, prompts := open()
	e.Share(resources, prompts, nil)
	return e
}

func TestClientsOfEitherRevisionListAndReadWhatIsOpen(t *testing.T) {
	either(t, sharing, nil, func(t *testing.T, e *enginetest.Engine, c *mcp.ClientSession) {
		if caps := c.InitializeResult(); caps != nil && (caps.Capabilities.Resources == nil || caps.Capabilities.Resources.Subscribe || caps.Capabilities.Prompts == nil) {
			t.Errorf("we say that we can %+v", caps.Capabilities)
		}
		list, err := c.ListResources(t.Context(), nil)
		if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != "singlepass+up:a" || list.Meta["dev.singlepass/left_out"] == nil {
			t.Fatalf("%+v (%v)", list, err)
		}
		templates, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 1 || templates.ResourceTemplates[0].URITemplate != "singlepass+up:x/{b}" {
			t.Fatalf("%+v (%v)", templates, err)
		}
		prompts, err := c.ListPrompts(t.Context(), nil)
		if err != nil || len(prompts.Prompts) != 1 || prompts.Prompts[0].Name != "up.greet" || !prompts.Prompts[0].Arguments[0].Required {
			t.Fatalf("%+v (%v)", prompts, err)
		}
		got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "singlepass+up:a"})
		if err != nil || len(got.Contents) != 1 || got.Contents[0].Text != "é" {
			t.Fatalf("%+v (%v)", got, err)
		}
		if said, _ := json.Marshal(got.Meta["dev.singlepass/execution"]); !strings.Contains(string(said), `"execution_id":"act_01"`) {
			t.Errorf("our word about it is %s", said)
		}
		e.ExpectAny("delivered " + map[bool]string{true: "socket_drained", false: "tcp_acknowledged"}[!strings.Contains(t.Name(), "http")])
		if last := e.Last(); last.Method != "resources/read" || last.Tool != "singlepass+up:a" || last.Arguments != nil {
			t.Errorf("the engine was asked %+v", last)
		}
		hello, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "up.greet", Arguments: map[string]string{"who": "you"}})
		if err != nil || len(hello.Messages) != 1 || hello.Messages[0].Content.(*mcp.TextContent).Text != `{"who":"you"}` {
			t.Fatalf("%+v (%v)", hello, err)
		}
		var wrong *jsonrpc.Error
		if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "singlepass+up:refused"}); !errors.As(err, &wrong) || !strings.Contains(string(wrong.Data), `"code":"vault_locked","next":"unlock"`) {
			t.Errorf("a refusal is %v %s", err, wrong.Data)
		}
		// An upstream that imitates our refusal is still told apart.
		if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "singlepass+up:error"}); !errors.As(err, &wrong) || wrong.Code != -32002 ||
			!strings.Contains(string(wrong.Data), `"upstream_error":{"code":-32002,"message":"no such thing","data":{"code":"vault_locked"}}`) {
			t.Errorf("an error is %v", err)
		}
		var ours struct{ Code string }
		if err := json.Unmarshal(wrong.Data, &ours); err != nil || ours.Code != "" {
			t.Errorf("it has our code %q (%v)", ours.Code, err)
		}
		if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "singlepass+up:a"}); err == nil && c.InitializeResult() != nil && c.InitializeResult().ProtocolVersion < "2026" {
			t.Error("something is subscribed to")
		}
	})
}

func TestWithoutAnythingOpenNothingIsOffered(t *testing.T) {
	either(t, func(t *testing.T) *enginetest.Engine { return enginetest.New(t) }, nil, func(t *testing.T, _ *enginetest.Engine, c *mcp.ClientSession) {
		if caps := c.InitializeResult(); caps != nil && (caps.Capabilities.Resources != nil || caps.Capabilities.Prompts != nil) {
			t.Errorf("we say that we can %+v", caps.Capabilities)
		}
		if list, err := c.ListResources(t.Context(), nil); err == nil && len(list.Resources) > 0 {
			t.Errorf("%+v", list)
		}
	})
}

func TestClientsAreToldWhenWhatIsOpenChanges(t *testing.T) {
	told := make(chan string, 1000)
	opts := &mcp.ClientOptions{
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { told <- "resources" },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { told <- "prompts" },
	}
	either(t, sharing, opts, func(t *testing.T, e *enginetest.Engine, _ *mcp.ClientSession) {
		for len(told) > 0 {
			<-told
		}
		resources, prompts := open()
		seen := map[string]bool{}
		for i := 0; len(seen) < 2; i++ { // the subscription of an event stream is not confirmed to a client
			e.Share(resources, prompts, nil)
			select {
			case kind := <-told:
				seen[kind] = true
			case <-time.After(300 * time.Millisecond):
				if i > 40 {
					t.Fatalf("the client was told of %v", seen)
				}
			}
		}
	})
}

func TestAListThatIsRefusedSaysWhy(t *testing.T) {
	either(t, func(t *testing.T) *enginetest.Engine {
		e := enginetest.New(t)
		e.Share(call.Resources{}, nil, &call.Answer{
			Code: api.CodeSessionNeeded, Result: json.RawMessage(`{"content":[{"type":"text","text":"session_needed: {}"}],"structuredContent":{"code":"session_needed"},"isError":true}`),
		})
		return e
	}, nil, func(t *testing.T, _ *enginetest.Engine, c *mcp.ClientSession) {
		var wrong *jsonrpc.Error
		if _, err := c.ListResources(t.Context(), nil); !errors.As(err, &wrong) || !strings.Contains(string(wrong.Data), `"code":"session_needed"`) {
			t.Errorf("%v", err)
		}
	})
}

func TestAReadingIsOneLineWhateverTheUpstreamWrote(t *testing.T) {
	e := sharing(t)
	w := initialized(t, e, "socket")
	w.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"singlepass+up:a","arguments":7}}`)
	w.expect(`"id":1,"result"`, `"n":12345678901234567890123`, `{"_meta":{"dev.singlepass/execution":{"execution_id":"act_01"`)
	e.Expect("delivered socket_drained")
	for _, params := range []string{`{}`, `{"uri":""}`, `{"uri":1}`, `{"uri":"a","uri":"b"}`, `{"uri":"` + strings.Repeat("x", 9000) + `"}`} {
		w.send(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":` + params + `}`)
		w.expect(`"id":2,"error":{"code":-32602`)
	}
}
