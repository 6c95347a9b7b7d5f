package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/peer"
)

// instant is an engine that answers at once.
type instant struct {
	call.Engine // for what no benchmark asks
	never       chan struct{}
}

var echoed = json.RawMessage(`{"content":[{"type":"text","text":"{\"service\":\"billing\",\"version\":\"1.2.3\"}"}]}`)

func (instant) Call(context.Context, call.Call) call.Answer {
	return call.Answer{ExecutionID: "act_01JZZZZZZZZZZZZZZZZZZZZZZZ", State: execution.NotDelivered, Result: echoed, Delivered: func(string) {}, Disputed: func() {}}
}
func (instant) Tools(*peer.Identity) ([]call.Tool, uint64) { return nil, 0 }
func (i instant) ToolsChanged() <-chan struct{}            { return i.never }
func (i instant) SharedChanged() <-chan struct{}           { return i.never }
func (instant) Shared() (resources, prompts bool)          { return false, false }
func (instant) Connected(*peer.Identity) func()            { return func() {} }

// pair is two ends of a unix socket.
func pair(b *testing.B) (client, server net.Conn) {
	b.Helper()
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("unix", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	return client, server
}

// BenchmarkRoundTrip measures echo calls of one raw client at 1 and 64 in flight, through our hot path and through the go-sdk's own server.
func BenchmarkRoundTrip(b *testing.B) {
	serve := map[string]func(net.Conn){
		"singlepass": func(nc net.Conn) {
			s, err := mcpserver.New(mcpserver.Config{Engine: instant{never: make(chan struct{})}, Logger: discard(), Version: "1"})
			if err != nil {
				b.Error(err)
				return
			}
			_ = s.ServeConn(context.Background(), nc, &peer.Identity{Run: "run_b", Via: "socket"})
		},
		"go-sdk": func(nc net.Conn) {
			s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
			s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: `{"service":"billing","version":"1.2.3"}`}}}, nil
			})
			session, err := s.Connect(context.Background(), &mcp.IOTransport{Reader: nc, Writer: nc}, nil)
			if err != nil {
				b.Error(err)
				return
			}
			_ = session.Wait()
		},
	}
	for _, name := range []string{"singlepass", "go-sdk"} {
		for _, inflight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, inflight), func(b *testing.B) {
				client, server := pair(b)
				var served sync.WaitGroup
				served.Go(func() { serve[name](server) })
				defer served.Wait()
				defer client.Close()
				pump(b, client, inflight)
			})
		}
	}
}

// pump sends b.N calls with so many in flight, and reads their answers.
func pump(b *testing.B, nc net.Conn, inflight int) {
	rd := bufio.NewReaderSize(nc, 64<<10)
	out := bufio.NewWriterSize(nc, 64<<10)
	line := func() {
		if _, err := rd.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Fprintf(out, "%s\n%s\n", initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	out.Flush()
	line()
	var buf []byte
	send := func(id int) {
		buf = append(buf[:0], `{"jsonrpc":"2.0","id":`...)
		buf = strconv.AppendInt(buf, int64(id), 10)
		buf = append(buf, `,"method":"tools/call","params":{"name":"echo","arguments":{"service":"billing","version":"1.2.3"}}}`+"\n"...)
		if _, err := out.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	sent := 0
	for ; sent < min(inflight, b.N); sent++ {
		send(sent)
	}
	out.Flush()
	for range b.N {
		line()
		if sent < b.N {
			send(sent)
			sent++
		}
		if rd.Buffered() == 0 {
			out.Flush()
		}
	}
	b.StopTimer()
	if rd.Buffered() != 0 {
		b.Fatal("there are more answers than calls")
	}
}
