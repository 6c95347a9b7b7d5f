package attack_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// play is what this program does when a test starts it as another one.
func play(role string) int {
	name, rest, _ := strings.Cut(role, " ")
	do, known := roles[name]
	if !known {
		fmt.Fprintln(os.Stderr, "there is no role", role)
		return 1
	}
	if err := do(strings.Fields(rest)); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// roles are filled by the files that hold the attacks.
var roles = map[string]func(args []string) error{}

func init() { roles["agent"] = actAsAgent }

// order is what the test tells an agent to do: to send a line of MCP, or to start a program of its own and wait for its end.
type order struct {
	Send string   `json:"send,omitempty"`
	Run  []string `json:"run,omitempty"`
	Env  []string `json:"env,omitempty"`
	Do   string   `json:"do,omitempty"` // a role, in the agent's own process
}

// report is what became of a program that an agent started.
type report struct {
	Ran    bool   `json:"ran"`
	Status int    `json:"status"`
	Out    string `json:"out"`
}

// actAsAgent is an agent with a shell: an MCP client that starts whatever it was talked into. Its argument is how it reaches the daemon: "socket", or the bridge's program.
func actAsAgent(args []string) error {
	in, to, bridge, err := reach(args[0])
	if err != nil {
		return err
	}
	if bridge != 0 {
		fmt.Printf("{\"bridge\":%d}\n", bridge)
	}
	out := make(chan string)
	go func() {
		for l := bufio.NewReader(in); ; {
			line, err := l.ReadString('\n')
			if err != nil {
				return
			}
			out <- line
		}
	}()
	go func() {
		for l := range out {
			fmt.Print(l)
		}
	}()
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<20)
	for orders.Scan() {
		var o order
		if err := json.Unmarshal(orders.Bytes(), &o); err != nil {
			return err
		}
		switch {
		case o.Send != "":
			if _, err := fmt.Fprintln(to, o.Send); err != nil {
				return err
			}
		case o.Do != "":
			r := report{Ran: true, Out: "done"}
			name, rest, _ := strings.Cut(o.Do, " ")
			if err := roles[name](strings.Fields(rest)); err != nil {
				r.Out, r.Status = err.Error(), 1
			}
			b, _ := json.Marshal(r)
			out <- string(b) + "\n"
		default:
			cmd := exec.Command(o.Run[0], o.Run[1:]...)
			cmd.Env = append(os.Environ(), "ATTACK_ROLE=")
			cmd.Env = append(cmd.Env, o.Env...)
			text, status := run(cmd)
			b, _ := json.Marshal(report{true, status, text})
			out <- string(b) + "\n"
		}
	}
	return nil
}

// reach connects to the daemon: by the socket, or by the bridge whose program that is.
func reach(way string) (in io.Reader, to io.Writer, pid int, err error) {
	if way == "socket" {
		nc, err := net.Dial("unix", filepath.Join(os.Getenv("SINGLEPASS_HOME"), "run/agent.sock"))
		return nc, nc, 0, err
	}
	bridge := exec.Command(way, "mcp")
	stdout, err := bridge.StdoutPipe()
	if err != nil {
		return nil, nil, 0, err
	}
	stdin, err := bridge.StdinPipe()
	if err != nil {
		return nil, nil, 0, err
	}
	bridge.Stderr = os.Stderr
	if err := bridge.Start(); err != nil {
		return nil, nil, 0, err
	}
	return stdout, stdin, bridge.Process.Pid, nil
}

// agent is such an agent, as the test has it.
type agent struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *lines
	next   int
	bridge int // pid
}

// agent starts an agent that reaches the daemon by the installed bridge.
func (s *stand) agent() *agent {
	s.t.Helper()
	return s.agentBy(filepath.Join(s.bin, "spctl"))
}

func (s *stand) agentBy(way string) *agent {
	s.t.Helper()
	return s.agentOf("agent", way)
}

// agentOf starts one that is that program.
func (s *stand) agentOf(program, way string) *agent {
	s.t.Helper()
	return s.agentBegun(s.command(program), way)
}

// agentIn starts an agent in a terminal, as its session's first program.
func (s *stand) agentIn(terminal *os.File) *agent {
	s.t.Helper()
	cmd := s.command("agent")
	cmd.ExtraFiles = []*os.File{terminal}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 3
	return s.agentBegun(cmd, filepath.Join(s.bin, "spctl"))
}

// agentBegun starts an agent by a command.
func (s *stand) agentBegun(cmd *exec.Cmd, way string) *agent {
	s.t.Helper()
	cmd.Env = append(cmd.Env, "ATTACK_ROLE=agent "+way)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	a := &agent{t: s.t, cmd: cmd, stdin: stdin, out: collect(s.t, cmd, stdout)}
	if way != "socket" {
		if _, err := fmt.Sscanf(a.out.wait(`{"bridge":`), `{"bridge":%d}`, &a.bridge); err != nil {
			s.t.Fatal(err)
		}
	}
	a.answer(a.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "Singlepass", "version": "1"}}))
	a.order(order{Send: `{"jsonrpc":"2.0","method":"notifications/initialized"}`})
	return a
}

func (a *agent) order(o order) {
	a.t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(a.stdin, "%s\n", b); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) ask(method string, params any) int {
	a.t.Helper()
	a.next++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.next, "method": method, "params": params})
	if err != nil {
		a.t.Fatal(err)
	}
	a.order(order{Send: string(b)})
	return a.next
}

func (a *agent) answer(id int) string {
	a.t.Helper()
	return a.out.wait(fmt.Sprintf(`"id":%d,`, id))
}

// pay calls the action and returns the call's id.
func (a *agent) pay(order string) int {
	a.t.Helper()
	return a.ask("tools/call", map[string]any{"name": "pay", "arguments": map[string]any{"order": order}})
}

// runs starts a program as the agent's child, and waits for its end.
func (a *agent) runs(argv ...string) report {
	a.t.Helper()
	a.order(order{Run: argv})
	return a.reported()
}

// does plays a role in the agent's own process.
func (a *agent) does(role string) report {
	a.t.Helper()
	a.order(order{Do: role})
	return a.reported()
}

func (a *agent) reported() (r report) {
	a.t.Helper()
	l := a.out.wait(`{"ran":true`)
	if err := json.Unmarshal([]byte(l), &r); err != nil {
		a.t.Fatalf("reading %s: %v", l, err)
	}
	return r
}
