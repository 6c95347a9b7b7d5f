package attack_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func init() {
	roles["flood"] = flood
	roles["garbage"] = garbage
	roles["crowd"] = crowd
}

func agentSocket() (net.Conn, error) {
	return net.Dial("unix", filepath.Join(os.Getenv("SINGLEPASS_HOME"), "run/agent.sock"))
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// flood makes 10,000 calls at once and counts how they are answered; then it waits for its standard input to end.
func flood([]string) error {
	const calls = 10_000
	c, err := agentSocket()
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.WriteString(c, hello)
		for i := 1; i <= calls; i++ {
			if _, err := fmt.Fprintf(c, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"pay","arguments":{"order":"%d"}}}`+"\n", i, i); err != nil {
				return
			}
		}
	}()
	refused, other := 0, 0
	in := json.NewDecoder(c)
	for refused+other < calls-2048 {
		var m struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := in.Decode(&m); err != nil {
			return fmt.Errorf("after %d refusals and %d other answers: %w", refused, other, err)
		}
		if m.ID == 0 {
			continue
		}
		if strings.Contains(string(m.Result)+string(m.Error), "too many") || strings.Contains(string(m.Result), "too_many_calls") {
			refused++
		} else if other++; other == 1 {
			fmt.Println("another answer:", string(m.Result)+string(m.Error))
		}
	}
	fmt.Println("refused", refused, "other", other)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// garbage sends what no client would, each on a connection of its own.
func garbage([]string) error {
	for name, text := range map[string]string{
		"not UTF-8":                  hello + "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"pay\",\"arguments\":{\"order\":\"\xff\xfe\"}}}\n",
		"deep":                       hello + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":` + strings.Repeat(`{"order":`, 100_000) + "\n",
		"a huge number":              hello + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"order":` + strings.Repeat("9", 1_000_000) + "}}}\n",
		"a line too long":            hello + `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 8<<20) + "\"}\n",
		"no line end":                strings.Repeat("x", 8<<20),
		"calls before the handshake": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"order":"1"}}}` + "\n",
		"the handshake twice":        hello + hello,
		"one id, many times":         hello + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"order":"7"}}}`+"\n", 1000),
		"a storm of notifications":   hello + strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`+"\n", 50_000),
		"answers that nobody wanted": hello + strings.Repeat(`{"jsonrpc":"2.0","id":5,"result":{}}`+"\n", 10_000),
		"a batch":                    hello + "[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"tools/list"},`, 1000) + `{"jsonrpc":"2.0","id":2,"method":"ping"}]` + "\n",
		"an id that is an object":    hello + `{"jsonrpc":"2.0","id":{"a":1},"method":"tools/list"}` + "\n",
		"a NUL":                      hello + "{\"jsonrpc\":\"2.0\",\x00\"id\":1}\n",
	} {
		c, err := agentSocket()
		if err != nil {
			return fmt.Errorf("before %s: %w", name, err)
		}
		drained := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, c); close(drained) }()
		_, _ = io.WriteString(c, text) // may end early: the other side hung up
		_ = c.(*net.UnixConn).CloseWrite()
		<-drained
		_ = c.Close()
	}
	fmt.Println("sent")
	return nil
}

// crowd opens as many connections as it gets, half a line in each, and holds them.
func crowd([]string) error {
	var all []net.Conn
	for range 2000 {
		c, err := agentSocket()
		if err != nil {
			break
		}
		_, _ = io.WriteString(c, `{"jsonrpc":"2.0","id":1,"meth`)
		all = append(all, c)
	}
	fmt.Println("holding", len(all))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// plays starts a role that goes on, and waits for the line that says that it has begun.
func (s *stand) plays(role, until string) string {
	s.t.Helper()
	cmd := s.command("agent")
	cmd.Env = append(cmd.Env, "ATTACK_ROLE="+role)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	return collect(s.t, cmd, stdout).wait(until)
}

// works shows that another agent is served as if nothing were.
func (s *stand) works(order string) {
	s.t.Helper()
	began := time.Now()
	a := s.agent()
	id := a.pay(order)
	for {
		var card string
		for l := range strings.Lines(s.spctl("approvals", "--json")) {
			var c struct {
				Card  string
				Agent struct{ PID int }
			}
			if err := json.Unmarshal([]byte(l), &c); err != nil {
				s.t.Fatal(err)
			}
			if c.Agent.PID == a.cmd.Process.Pid {
				card = c.Card
			}
		}
		if card != "" {
			s.spctl("approve", card, "--session")
			break
		}
		if time.Since(began) > patience {
			s.t.Fatal("no card came for the agent that does nothing wrong")
		}
	}
	if l := a.answer(id); !strings.Contains(l, "receipt") {
		s.t.Errorf("the call ended as %s", l)
	}
}

func TestTenThousandCallsOfOneAgentAreItsOwnAffair(t *testing.T) {
	s := begin(t)
	l := s.plays("flood", "refused ")
	var refused, other int
	if _, err := fmt.Sscanf(l, "refused %d other %d", &refused, &other); err != nil || other > 0 {
		t.Errorf("it says %q", l)
	}
	if st := s.status(); st.Pending == 0 || st.Pending > 1024 {
		t.Errorf("%d cards wait", st.Pending)
	}
	s.works("of another")
	s.wantActed(1)
}

func TestWhatNoClientWouldSayEndsNothingButItself(t *testing.T) {
	s := begin(t)
	cmd := s.command("agent")
	cmd.Env = append(cmd.Env, "ATTACK_ROLE=garbage")
	if out, status := run(cmd); status != 0 || !strings.HasSuffix(out, "sent\n") {
		t.Fatalf("exit status %d\n%s", status, out)
	}
	s.works("after it")
	s.wantActed(1)
}

func TestAThousandHalfOpenConnectionsLeaveTheOperatorAndTheRunningAgentsAlone(t *testing.T) {
	s := begin(t)
	a := s.agent()
	s.paid(a, "before")
	s.plays("crowd", "holding ")
	if l := a.answer(a.pay("during")); !strings.Contains(l, "receipt") {
		t.Errorf("the call ended as %s", l)
	}
	s.status()
	s.spctl("activity")
	s.wantActed(2)
}
