package mcpchan_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The test binary is also the upstream: started with MCPCHAN_CHILD in its environment it serves MCP on its standard streams.
func TestMain(m *testing.M) {
	if text := os.Getenv("MCPCHAN_TARGET"); text != "" {
		conformanceTarget(text)
		return
	}
	switch mode := os.Getenv("MCPCHAN_CHILD"); mode {
	case "":
		// Under the race detector a program waits for a second before it ends. What is started here need not.
		os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
		os.Exit(m.Run())
	case "sdk":
		if err := sdkServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			os.Exit(1)
		}
	default:
		child(mode)
	}
}

// sdkServer is the official Go SDK's server, with tools that show what comes through.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)
	s.AddTool(&mcp.Tool{Name: "echo", Description: "Says it again.", InputSchema: schema}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 2, Message: "half"})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "fail", Description: "Fails.", InputSchema: schema}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "it did not work"}}, IsError: true}, nil
	})
	s.AddTool(&mcp.Tool{Name: "ask", Description: "Asks.", InputSchema: schema}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "your passphrase?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(err)}}, IsError: err != nil}, nil
	})
	s.AddResource(&mcp.Resource{URI: "file:///a%20b?x=1#y", Name: "a", Title: "A", MIMEType: "text/plain", Size: 3, Icons: []mcp.Icon{{Source: "https://elsewhere.example/"}}},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: "<é>"}}}, nil
		})
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "db://{table}/{+row}", Name: "rows"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Blob: []byte(r.Params.URI)}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet", Description: "Greets.", Arguments: []*mcp.PromptArgument{{Name: "who", Required: true}}},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello " + r.Params.Arguments["who"]}}}}, nil
		})
	return s
}

func serveSDK(stateless bool) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sdkServer() }, &mcp.StreamableHTTPOptions{Stateless: stateless})
}

// bigResult has everything that decoding and writing anew would change.
const bigResult = `{"_meta":{"x.example/a": 1},"content":[{"type":"hologram","data":"AAA=","n":9007199254740993},{"type":"image","data":"aGk=","mimeType":"image/png"},{"text":"\u00e9<>&","type":"text"}],"structuredContent":{"z":1e400,"a":12345678901234567890,"dup":[1.0,1.10]}}`

// child is a server written on the wire, which does what a well-behaved SDK would not.
func child(mode string) {
	in := bufio.NewReader(os.Stdin)
	say := func(s string) {
		_, _ = os.Stdout.WriteString(s + "\n")
	}
	ledger := func(s string) {
		if path := os.Getenv("LEDGER"); path != "" {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				os.Exit(3)
			}
			_, _ = f.WriteString(s + "\n")
			_ = f.Sync()
			_ = f.Close()
		}
	}
	ledger("start")
	fmt.Fprintln(os.Stderr, "the secret is "+os.Getenv("BANK_TOKEN"))
	description := "Charges."
	if mode == "changed" {
		description = "Charges twice."
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Error  json.RawMessage `json:"error"`
		}
		if json.Unmarshal([]byte(line), &m) != nil {
			os.Exit(4)
		}
		answer := func(result string) { say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`) }
		refuse := func(code int, text string) {
			say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q,"data":{"n":9007199254740993}}}`, m.ID, code, text))
		}
		switch m.Method {
		case "server/discover":
			switch mode {
			case "falls over":
				os.Exit(5)
			case "does not know":
				continue // as a program that takes a request before initialize for noise
			}
			refuse(-32601, "Method not found")
		case "initialize":
			if mode == "refuses its token" {
				refuse(-32000, "the token "+os.Getenv("BANK_TOKEN")+" is over")
				continue
			}
			answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"wire","version":"1"}}`)
		case "tools/list":
			if mode == "refuses to list" {
				refuse(-32000, strings.Repeat("x", 295)+os.Getenv("BANK_TOKEN"))
				continue
			}
			answer(`{"tools":[{"name":"charge","description":"` + description + `","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			ledger("call " + strings.TrimSpace(line))
			switch mode {
			case "big":
				answer(bigResult)
			case "secret":
				answer(`{"content":[{"type":"text","text":"it is ` + os.Getenv("BANK_TOKEN") + `"}]}`)
			case "environment":
				b, _ := json.Marshal(strings.Join(os.Environ(), "\n"))
				answer(`{"content":[{"type":"text","text":` + string(b) + `}]}`)
			case "killed":
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				time.Sleep(time.Hour)
			case "error":
				refuse(-32602, "no such account")
			case "lost behind":
				refuse(-32005, "not reached")
			case "timed out behind":
				refuse(408, "Timed out while waiting for response to ClientRequest. Waited 5.0 seconds.")
			case "null error":
				say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":null,"result":{"content":[{"type":"text","text":"charged"}]}}`)
			case "null result":
				say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":null,"error":{"code":-32602,"message":"no such account"}}`)
			case "both":
				say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32602,"message":"no such account"},"result":{"content":[]}}`)
			case "neither":
				say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":null}`)
			case "asks":
				say(`{"jsonrpc":"2.0","id":"q1","method":"sampling/createMessage","params":{}}`)
				reply, _ := in.ReadString('\n')
				b, _ := json.Marshal(reply)
				answer(`{"content":[{"type":"text","text":` + string(b) + `}]}`)
			case "floods":
				for i := range 20_000 {
					say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%d","method":"sampling/createMessage","params":{}}`, i))
					say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"act_1.1","progress":%d}}`, i+1))
				}
				answer(`{"content":[{"type":"text","text":"charged"}]}`)
			case "input required":
				answer(`{"resultType":"input_required","inputRequests":{}}`)
			case "twice":
				answer(`{"content":[],"isError":false,"isError":true}`)
			case "no result":
				answer(`7`)
			case "talks":
				say("a log line on standard output")
				say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"the token is ` + os.Getenv("BANK_TOKEN") + `"}}`)
				say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"act_1.1","progress":3,"total":4,"message":"nearly"}}`)
				answer(`{"content":[]}`)
			case "long":
				answer(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}]}`)
			case "endless":
				_, _ = os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":"`)
				for {
					if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<20)); err != nil {
						os.Exit(0)
					}
				}
			case "silent":
				// It answers nothing, ever.
			default:
				answer(`{"content":[{"type":"text","text":"charged"}]}`)
			}
		}
	}
}
