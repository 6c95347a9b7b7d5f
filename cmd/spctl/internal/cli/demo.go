package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"singlepass.dev/cmd/spctl/internal/demo"
	"singlepass.dev/daemon/api"
)

func (a *app) demoCommands() []*cobra.Command {
	play := &cobra.Command{
		Use: "demo", Short: "play a lost answer and its retry, on a throw-away home", GroupID: "start", Args: cobra.NoArgs,
		Long: `Plays, with real programs on this machine and nothing else, what Singlepass is for: an agent orders something, the answer
is lost, the agent tries again, and the order is placed once. It needs no set-up, uses a home of its own, and ends by
itself.`,
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding spctl: %w", err)
			}
			spd := besideSelf("spd")
			if spd == "" {
				return api.Errorf(api.CodeMissing, "spd does not lie beside spctl (%s)", self).WithHint("build both: make build")
			}
			return demo.Run(c.Context(), demo.Config{
				Spctl: self, Spd: spd, Out: a.out, Card: a.printCard, Record: a.printRecord,
				Verify: func(ctx context.Context, dir string) error { return a.verify(ctx, []string{dir}, verifyFlags{}) },
			})
		},
	}
	agent := &cobra.Command{
		Use: demo.AgentCommand, Short: "the demo's agent", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding spctl: %w", err)
			}
			return demo.Agent(c.Context(), self, a.home, a.cfg.In, a.cfg.Out)
		},
	}
	return []*cobra.Command{play, agent}
}
