package mcpchan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"singlepass.dev/daemon/channel"
)

const headerTool = `{"type":"object","properties":{` +
	`"region":{"type":"string","x-mcp-header":"Region"},` +
	`"count":{"type":"integer","x-mcp-header":"Count"},` +
	`"dry":{"type":"boolean","x-mcp-header":"Dry-Run"},` +
	`"note":{"type":"string"},` +
	`"inner":{"type":"object","properties":{"tenant":{"type":"string","x-mcp-header":"Tenant"}}},` +
	`"list":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"Nothing"}}}}}}`

// The official Go SDK refuses a request whose headers are not what the schema asks for.
func TestArgumentsThatAToolWantsInHeadersAreSentThere(t *testing.T) {
	for name, arguments := range map[string]string{
		"all":             `{"count":-42,"dry":true,"inner":{"tenant":"a b"},"region":"eu-1"}`,
		"none":            `{"note":"x"}`,
		"null":            `{"inner":null,"region":null}`,
		"not ASCII":       `{"inner":{"tenant":"é"},"region":"Zürich\nX-Other: 1"}`,
		"outer space":     `{"region":" a "}`,
		"a sentinel":      `{"region":"=?base64?YQ==?="}`,
		"empty":           `{"region":""}`,
		"large":           `{"count":9007199254740991}`,
		"false":           `{"dry":false}`,
		"something along": `{"list":[{"x":"y"}],"region":"eu-1"}`,
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
			s.AddTool(&mcp.Tool{Name: "deploy", InputSchema: json.RawMessage(headerTool)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				got = string(r.Params.Arguments)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
			})
			r := overHTTP(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
			if o := r.Do(t.Context(), r.request("deploy", arguments)); o.Verdict != channel.Success || got != arguments {
				t.Errorf("%+v %s", o, o.Result)
			}
		})
	}
}

func TestTheHeadersOfArgumentsAreOursAlone(t *testing.T) {
	var seen http.Header
	r := onTheWireWith(t, func(q *http.Request, method string) string {
		switch method {
		case "server/discover":
			return `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		case "tools/list":
			return `{"tools":[{"name":"deploy","inputSchema":` + headerTool + `}]}`
		case "tools/call":
			seen = q.Header.Clone()
		}
		return `{"content":[]}`
	})
	if o := r.Do(t.Context(), r.request("deploy", `{"count":1.5,"dry":"yes","inner":{"tenant":["a"]},"region":"`+strings.Repeat("r", 100)+`"}`)); o.Verdict != channel.Success {
		t.Errorf("%+v", o)
	}
	for name, want := range map[string]string{"Mcp-Param-Region": strings.Repeat("r", 100), "Mcp-Param-Count": "", "Mcp-Param-Dry-Run": "yes", "Mcp-Param-Tenant": "", "Mcp-Name": "deploy", "Authorization": "Bearer " + canary} {
		if got := seen.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestAnArgumentThatIsTooLongForAHeaderIsNotSent(t *testing.T) {
	calls := 0
	r := onTheWireWith(t, func(_ *http.Request, method string) string {
		switch method {
		case "server/discover":
			return `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		case "tools/list":
			return `{"tools":[{"name":"deploy","inputSchema":` + headerTool + `}]}`
		}
		calls++
		return `{"content":[]}`
	})
	if o := r.Do(t.Context(), r.request("deploy", `{"region":"`+strings.Repeat("r", 20<<10)+`"}`)); o.Verdict != channel.NotSent || calls != 0 {
		t.Errorf("%+v after %d calls", o, calls)
	}
}

func TestAToolWhoseHeadersCannotBeSentIsNotUsed(t *testing.T) {
	for name, schema := range map[string]string{
		"a number":     `{"a":{"type":"number","x-mcp-header":"A"}}`,
		"an object":    `{"a":{"type":"object","x-mcp-header":"A"}}`,
		"no type":      `{"a":{"x-mcp-header":"A"}}`,
		"two types":    `{"a":{"type":["string","null"],"x-mcp-header":"A"}}`,
		"no name":      `{"a":{"type":"string","x-mcp-header":""}}`,
		"not a name":   `{"a":{"type":"string","x-mcp-header":"A: b\r\nX"}}`,
		"no text":      `{"a":{"type":"string","x-mcp-header":7}}`,
		"null":         `{"a":{"type":"string","x-mcp-header":null}}`,
		"a name twice": `{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"object","properties":{"c":{"type":"string","x-mcp-header":"a"}}}}`,
		"more than so many": func() string {
			var all []string
			for i := range 40 {
				all = append(all, fmt.Sprintf(`"p%d":{"type":"string","x-mcp-header":"P%d"}`, i, i))
			}
			return "{" + strings.Join(all, ",") + "}"
		}(),
	} {
		r := onTheWireWith(t, func(_ *http.Request, method string) string {
			if method == "server/discover" {
				return `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
			}
			return `{"tools":[{"name":"deploy","inputSchema":{"type":"object","properties":` + schema + `}}]}`
		})
		l, err := r.List(t.Context(), "bank")
		if err != nil || len(l.Tools) != 1 || l.Tools[0].Err == nil || l.Tools[0].Pin != "" {
			t.Errorf("%s: %+v (%v)", name, l, err)
		}
	}
}
