package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/bridge"
)

func (a *app) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "be the MCP server of an agent (its configuration starts this)", GroupID: "set", Args: cobra.NoArgs,
		Long: `Speaks MCP on standard input and output and forwards it to the daemon. An agent's configuration starts it; see
spctl connect. It holds no credential and decides nothing. The agent is the process that started it.`,
		RunE: func(c *cobra.Command, _ []string) error {
			out, ok := a.cfg.Out.(*os.File)
			if !ok {
				return errors.New("running the bridge: standard output is not a file of the system")
			}
			if in, ok := a.cfg.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
				// The daemon would take the person's own shell for the agent, and refuse every decision made in it.
				return usage("standard input is a terminal: this is started by an agent, not by a person").WithHint("spctl connect")
			}
			h, err := a.places()
			if err != nil {
				return err
			}
			if err := h.Check(); err != nil {
				return err
			}
			// What goes to the agent is the protocol itself, so it bypasses the cleaning of what people read.
			err = bridge.Run(c.Context(), bridge.Config{Stdin: a.cfg.In, Stdout: out, Stderr: a.err, Socket: h.AgentSocket(), Connecting: a.cfg.Group.With})
			if errors.Is(err, bridge.ErrNotRunning) {
				return api.Errorf(api.CodeNoDaemon, "%v", err).WithHint("start it: systemctl --user start singlepass, or run spd in another terminal")
			}
			return err
		},
	}
}
