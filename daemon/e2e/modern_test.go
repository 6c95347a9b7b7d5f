package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An upstream at revision 2026-07-28 and a URL, by the official Go SDK, which refuses a request whose headers do not say what its body says.
func TestAnUpstreamAtTheNewestRevisionGetsArgumentsInHeadersAndIsRead(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "modern", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"}},"required":["region"]}`)
	server.AddTool(&mcp.Tool{Name: "deploy", Description: "Deploys.", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "deployed " + string(r.Params.Arguments) + " to " + r.Extra.Header.Get("Mcp-Param-Region")}}}, nil
	})
	server.AddResource(&mcp.Resource{URI: "docs://manual", Name: "manual"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "for " + r.Extra.Header.Get("Authorization")}}}, nil
	})
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		sdk.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)

	s := newStand(t, option{})
	s.agreeable()
	s.spctl("credential", "add", "modern", "--kind", "bearer", "--target", listener.URL, "--value-file", s.write("secret", canary))
	s.wipe("secret")
	s.spctl("upstream", "add", "modern", "--url", listener.URL+"/mcp", "--credential", "modern")
	if out := s.spctl("upstream", "accept", "modern", "--approval", "session"); !strings.Contains(out, "modern.deploy is in force") {
		t.Errorf("accepting said %s", out)
	}
	s.spctl("upstream", "share", "modern", "--resources")
	if out := s.spctl("upstream", "list", "--json"); !strings.Contains(out, `"revision":"2026-07-28"`) || !strings.Contains(out, `"resources":true`) {
		t.Errorf("it is listed as %s", out)
	}
	c := s.agent(clientKinds[2], "stdio")
	if r := c.mustCall(request{tool: "modern.deploy", args: map[string]any{"region": "Zürich", "count": 3}}); r.IsError || !strings.Contains(string(r.raw), "to =?base64?WsO8cmljaA==?=") {
		t.Errorf("%s", r.raw)
	}
	got, failed := c.ask("read", map[string]any{"uri": "singlepass+modern:docs://manual"})
	if !strings.Contains(got, `"uri":"singlepass+modern:docs://manual"`) || !strings.Contains(got, "for Bearer ") || leaks([]byte(got)) != nil {
		t.Errorf("%s %s", got, failed)
	}
	if got, failed := c.ask("resources", nil); !strings.Contains(got, "singlepass+modern:docs://manual") {
		t.Errorf("%s %s", got, failed)
	}
	wantClean(t, filesBelow(t, s.dir))
}
