package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// AgentCommand is the hidden command of spctl under which the demo's agent runs. The agent needs a process of its own: the daemon takes the bridge's parent for the agent, and an
// agent may not approve.
const AgentCommand = "demo-agent"

// said is one line of the agent's.
type said struct {
	Error     string `json:"error,omitempty"`
	Text      string `json:"text,omitempty"`
	Execution string `json:"execution_id,omitempty"`
	Recorded  bool   `json:"recorded,omitempty"`
}

// agent is the agent's process, as the demo sees it.
type agent struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startAgent(ctx context.Context, spctl, home string) (*agent, error) {
	cmd := exec.CommandContext(ctx, spctl, "--home", home, AgentCommand) // #nosec G204 -- this very program
	cmd.Env = environment()
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	return &agent{cmd, in, bufio.NewScanner(out)}, nil
}

// order tells the agent what to do next and returns what it says.
func (a *agent) order(ctx context.Context, what string) (said, error) {
	if _, err := fmt.Fprintln(a.in, what); err != nil {
		return said{}, fmt.Errorf("telling the agent to %s: %w", what, err)
	}
	type answer struct {
		s   said
		err error
	}
	got := make(chan answer, 1)
	go func() {
		var s said
		if !a.out.Scan() {
			got <- answer{err: errors.Join(errors.New("the agent has ended"), a.out.Err())}
			return
		}
		err := json.Unmarshal(a.out.Bytes(), &s)
		if err == nil && s.Error != "" {
			err = errors.New(s.Error)
		}
		got <- answer{s, err}
	}()
	select {
	case g := <-got:
		if g.err != nil {
			return said{}, fmt.Errorf("telling the agent to %s: %w", what, g.err)
		}
		return g.s, nil
	case <-ctx.Done():
		return said{}, ctx.Err()
	case <-time.After(patience):
		return said{}, fmt.Errorf("telling the agent to %s: it did not answer in time", what)
	}
}

func (a *agent) stop() {
	_ = a.in.Close()
	_ = a.cmd.Wait()
}

// Agent is the agent's own process: it calls, gives up when it is told so, calls again when it is told so, and ends with its input.
func Agent(ctx context.Context, spctl, home string, in io.Reader, out io.Writer) error {
	bridge := exec.Command(spctl, "--home", home, "mcp") // #nosec G204 -- this very program
	bridge.Env = environment()
	bridge.Stderr = os.Stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: "demo-agent", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: bridge}, nil)
	if err != nil {
		return fmt.Errorf("connecting to Singlepass: %w", err)
	}
	defer func() { _ = session.Close() }()
	call := func(ctx context.Context) (said, error) {
		r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "order_item", Arguments: json.RawMessage(arguments)})
		if err != nil {
			return said{}, err
		}
		return hear(r)
	}
	first, giveUp := context.WithCancel(ctx)
	defer giveUp()
	done := make(chan error, 1)
	go func() {
		_, err := call(first)
		done <- err
	}()
	orders, lines := bufio.NewScanner(in), json.NewEncoder(out)
	for orders.Scan() {
		var s said
		switch orders.Text() {
		case "give up":
			giveUp()
			if err := <-done; err == nil {
				s.Error = "the answer was there already"
			}
		case "retry":
			if s, err = call(ctx); err != nil {
				s.Error = err.Error()
			}
		}
		if err := lines.Encode(s); err != nil {
			return fmt.Errorf("answering the demo: %w", err)
		}
	}
	return nil
}

// hear takes from a result what an agent would read, and Singlepass's own word about it.
func hear(r *mcp.CallToolResult) (said, error) {
	var s said
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok && s.Text == "" {
			s.Text = t.Text
		}
	}
	if r.IsError {
		s.Error = s.Text
		return s, nil
	}
	b, err := json.Marshal(r.Meta["dev.singlepass/execution"])
	if err != nil {
		return s, fmt.Errorf("reading the result: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("reading the result: %w", err)
	}
	return s, nil
}
