package bridge_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/peer"
)

// instant is an engine that answers at once.
type instant struct {
	call.Engine // for what no benchmark asks
	never       chan struct{}
}

func (instant) Call(context.Context, call.Call) call.Answer {
	return call.Answer{ExecutionID: "act_01JZZZZZZZZZZZZZZZZZZZZZZZ", Result: []byte(`{"content":[{"type":"text","text":"ok"}]}`), Delivered: func(string) {}, Disputed: func() {}}
}
func (instant) Tools(*peer.Identity) ([]call.Tool, uint64) { return nil, 0 }
func (i instant) ToolsChanged() <-chan struct{}            { return i.never }
func (i instant) SharedChanged() <-chan struct{}           { return i.never }
func (instant) Shared() (resources, prompts bool)          { return false, false }
func (instant) Connected(*peer.Identity) func()            { return func() {} }

// listenInstant serves the instant engine on a socket.
func listenInstant(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	s, err := mcpserver.New(mcpserver.Config{Engine: instant{never: make(chan struct{})}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "1"})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = s.ServeConn(context.Background(), nc, &peer.Identity{Run: "run_b", Via: "bridge"}) }()
		}
	}()
	b.Cleanup(func() { l.Close() })
	return path
}

func startBridge(b *testing.B, path string) (in io.WriteCloser, out *bufio.Reader, end func()) {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "BRIDGE_TEST_SOCKET="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return stdin, bufio.NewReaderSize(stdout, 64<<10), func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	}
}

const hello = initialize + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

// BenchmarkThroughTheBridge measures calls at 1 and 64 in flight through a bridge in a process of its own. Compare it with mcpserver's BenchmarkRoundTrip.
func BenchmarkThroughTheBridge(b *testing.B) {
	path := listenInstant(b)
	for _, inflight := range []int{1, 64} {
		b.Run(strconv.Itoa(inflight), func(b *testing.B) {
			in, rd, end := startBridge(b, path)
			defer end()
			out := bufio.NewWriterSize(in, 64<<10)
			line := func() {
				if _, err := rd.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
			fmt.Fprint(out, hello)
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
		})
	}
}

// BenchmarkStartToFirstAnswer measures a bridge from its start to the answer of initialize and one call. The process is the test binary, which is larger than spctl.
func BenchmarkStartToFirstAnswer(b *testing.B) {
	path := listenInstant(b)
	for b.Loop() {
		in, rd, end := startBridge(b, path)
		fmt.Fprint(in, hello+tool("1", "echo")+"\n")
		for range 2 {
			if _, err := rd.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		end()
		b.StartTimer()
	}
}
