package mcpserver_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/mcpserver/enginetest"
)

func toolCall(id, name string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{}}}`
}

func cancel(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

func ping(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }

func initialized(t *testing.T, e *enginetest.Engine, via string) *wire {
	t.Helper()
	w := newWire(t, dial(t, newServer(t, e, nil), via))
	w.initialize()
	return w
}

func (w *wire) expect(want ...string) {
	w.t.Helper()
	line := w.recv()
	for _, part := range want {
		if !strings.Contains(line, part) {
			w.t.Errorf("got %s, want it to hold %s", line, part)
		}
	}
}

func TestACancelledCallIsDetachedAndGetsNoAnswer(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall("1", "wait"))
	e.Expect("called wait")
	w.send(cancel("1"))
	e.Expect("detached")
	w.send(ping("2"))
	w.expect(`"id":2`)
	// The id is free again.
	w.send(toolCall("1", "echo"))
	w.expect(`"id":1,"result"`)
	e.Expect("delivered socket_drained")
}

func TestACancellationAfterDeliveryIsADispute(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall(`"\u0061"`, "echo"))
	w.expect(`"id":"\u0061","result"`)
	e.Expect("delivered socket_drained")
	w.send(cancel(`"a"`), cancel(`"a"`))
	e.Expect("disputed")
	w.send(ping("2"))
	w.expect(`"id":2`)
	if len(e.Events) != 0 {
		t.Errorf("a second cancellation was reported as well: %q", <-e.Events)
	}
}

func TestACancellationOfAnUnreadAnswerKeepsItFromCounting(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall("1", "echo"), ping("2"))
	for e.Count() == 0 { // until the call was taken
		select {
		case event := <-e.Events:
			t.Fatalf("an unread answer counts: %s", event)
		default:
		}
	}
	w.send(cancel("1"), ping("3"))
	// Reading everything takes the late answer too, as clients that timed out do.
	for range 2 {
		w.recv()
	}
	w.nc.(interface{ CloseWrite() error }).CloseWrite()
	if _, err := io.Copy(io.Discard, w.rd); err != nil {
		t.Fatal(err)
	}
	// The client may have begun to read before its cancellation was looked at; then the delivery is disputed.
	if len(e.Events) != 0 {
		e.Expect("delivered socket_drained")
		e.Expect("disputed")
	}
}

func TestWhatTheClientReadBeforeItsNextCallIsReportedBeforeThatCall(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	for i := range 50 {
		w.send(toolCall("1", "echo"))
		w.expect(`"id":1,"result"`)
		w.send(toolCall("2", "wait"))
		e.Expect("delivered socket_drained")
		e.Expect("called wait")
		e.Release <- struct{}{}
		w.expect(`"id":2,"result"`)
		w.send(ping("3"))
		w.expect(`"id":3`)
		e.Expect("delivered socket_drained")
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
}

func TestAnAgentThatReadsItsAnswerAndLeavesHasIt(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall("1", "echo"))
	w.expect(`"id":1,"result"`)
	w.nc.Close()
	e.Expect("delivered socket_drained")
}

func TestAnAgentThatLeavesWithoutReadingHasNothing(t *testing.T) {
	e := enginetest.New(t)
	s := newServer(t, e, nil)
	w := newWire(t, dial(t, s, "socket"))
	w.initialize()
	w.send(toolCall("1", "echo"))
	if _, err := w.rd.Peek(1); err != nil { // something is there, and more of it than this
		t.Fatal(err)
	}
	w.send(toolCall("2", "echo"), toolCall("3", "wait"))
	e.ExpectAny("called wait")
	w.nc.Close()
	e.ExpectAny("detached")
	for len(e.Events) > 0 {
		if event := <-e.Events; strings.HasPrefix(event, "delivered") && e.Deliveries() > 1 {
			t.Errorf("the engine saw %q for an answer that nobody read", event)
		}
	}
}

func TestASecondRequestWithAnIDInFlightIsRefusedAndTheFirstIsAnswered(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall("1", "wait"))
	e.Expect("called wait")
	w.send(toolCall("1", "echo"))
	w.expect(`"id":1,"error":{"code":-32600`, "still being handled")
	w.send(ping("1"))
	w.expect(`"id":1,"error":{"code":-32600`)
	e.Release <- struct{}{}
	w.expect(`"id":1,"result"`)
	if e.Count() != 1 {
		t.Errorf("the engine saw %d calls", e.Count())
	}
}

func TestAPanicEndsOneCallAndClaimsNothing(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall("1", "panic"))
	line := w.recv()
	if !strings.Contains(line, `"isError":true`) || !strings.Contains(line, "not known here") || strings.Contains(line, "canary") || strings.Contains(line, "nothing was sent") {
		t.Errorf("got %s", line)
	}
	w.send(toolCall("2", "echo"))
	w.expect(`"id":2,"result"`)
}

func TestAForgedWordAboutAnExecutionIsReplacedAndTheRestIsKept(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall("1", "meta"))
	want := `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"dev.singlepass/execution":{"execution_id":"act_01","state":"completed_result_not_delivered","recorded":true},"up":[1]},"content":[],"isError":false}}`
	if line := w.recv(); line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
}

func TestAResultThatCannotBeFramedIsAnErrorThatNamesTheExecution(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(toolCall("1", "broken"))
	w.expect(`"id":1,"error":{"code":-32603`, "act_01")
}

func TestACallBeforeInitializeIsRefused(t *testing.T) {
	e := enginetest.New(t)
	w := newWire(t, dial(t, newServer(t, e, nil), "socket"))
	w.send(toolCall("1", "echo"))
	w.expect(`"id":1,"error":{"code":-32600`, "before initialize")
	// A request that names its revision needs no initialize.
	modern := func(id, meta string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","_meta":{` + meta + `}}}`
	}
	w.send(modern("2", `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`))
	w.expect(`"id":2,"result"`, `"resultType":"complete"`, `"io.modelcontextprotocol/serverInfo":{"name":"singlepass"`)
	w.send(modern("3", `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`))
	w.expect(`"id":3,"error":{"code":-32602`, "clientCapabilities")
	w.send(modern("4", `"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}`))
	w.expect(`"id":4,"error":{"code":-32022`, `"supported":["2026-07-28"`)
	if e.Count() != 1 {
		t.Errorf("the engine saw %d calls", e.Count())
	}
}

func TestGarbageAndLongLinesAreRefusedAndTheConnectionGoesOn(t *testing.T) {
	e := enginetest.New(t)
	s := newServer(t, e, func(c *mcpserver.Config) { c.MaxMessage = 200 << 10 })
	w := newWire(t, dial(t, s, "socket"))
	w.initialize()
	w.send("hello")
	w.expect(`"id":null,"error":{"code":-32700`)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":"` + strings.Repeat("x", 300<<10) + `"}}}`)
	w.expect(`"id":null,"error":{"code":-32600`, "at most 204800 bytes")
	long := strings.Repeat("y", 150<<10)
	w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"a":"` + long + `"}}}`)
	w.expect(`"id":2,"result"`, long)
	if e.Count() != 1 {
		t.Errorf("the engine saw %d calls", e.Count())
	}
}

func TestTooManyCallsAreRefusedWithoutReachingTheEngine(t *testing.T) {
	e := enginetest.New(t)
	s := newServer(t, e, func(c *mcpserver.Config) { c.MaxCalls = 1 })
	w := newWire(t, dial(t, s, "socket"))
	w.initialize()
	w.send(toolCall("1", "wait"))
	e.Expect("called wait")
	w.send(toolCall("2", "echo"))
	w.expect(`"id":2,"result"`, `too_many_calls`, `"isError":true`)
	e.Release <- struct{}{}
	w.expect(`"id":1,"result"`)
}

func TestProgressComesBeforeTheAnswerAndCarriesItsToken(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":"p\u0031"}}}`)
	w.expect(`"method":"notifications/progress","params":{"progressToken":"p\u0031","progress":1,"total":2,"message":"half"}`)
	w.expect(`"id":1,"result"`)
}

func TestOnlyTheBridgesWordOnDeliveryCounts(t *testing.T) {
	delivered := `{"jsonrpc":"2.0","method":"notifications/dev.singlepass/delivered","params":{"requestId":1,"evidence":"pipe"}}`
	e := enginetest.New(t)
	w := initialized(t, e, "bridge")
	w.send(toolCall("1", "echo"))
	w.expect(`"id":1,"result"`)
	w.send(ping("2"))
	w.expect(`"id":2`)
	if len(e.Events) != 0 {
		t.Fatalf("before the bridge said so: %q", <-e.Events)
	}
	w.send(delivered, delivered)
	e.Expect("delivered bridge_pipe_drained")

	forged := enginetest.New(t)
	w = initialized(t, forged, "socket")
	w.send(toolCall("1", "wait"))
	forged.Expect("called wait")
	w.send(delivered)
	forged.Release <- struct{}{}
	w.expect(`"id":1,"result"`)
	forged.Expect("delivered socket_drained")
}

func TestAConnectionIsToldToTheEngineWhileItIsOpen(t *testing.T) {
	e := enginetest.New(t)
	w := initialized(t, e, "socket")
	if e.Connections() != 1 {
		t.Errorf("%d connections are open", e.Connections())
	}
	w.send(toolCall("1", "wait"))
	e.Expect("called wait")
	w.nc.Close()
	e.Expect("detached")
}

func TestAScriptThatPipesItsRequestsInGetsEveryAnswer(t *testing.T) {
	e := enginetest.New(t)
	w := newWire(t, dial(t, newServer(t, e, nil), "socket"))
	w.send(initialize, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, toolCall("2", "wait"))
	if err := w.nc.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	e.Expect("called wait")
	e.Release <- struct{}{}
	all, err := io.ReadAll(w.rd)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":"init","result"`, `"id":1,"result"`, `"id":2,"result"`} {
		if !strings.Contains(string(all), want) {
			t.Errorf("%s is missing in %s", want, all)
		}
	}
	e.Expect("delivered socket_drained")
}
