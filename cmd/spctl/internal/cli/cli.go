// Package cli is spctl's commands.
//
// Promises: exit codes are those of api.Exit. Errors are printed as "spctl: …", with "hint: …" below where there is something to do. Nothing that came from an agent or a target
// reaches the terminal with control characters, bidirectional overrides or invisible characters in it: they are shown as \uXXXX, also within JSON, where that means the same. No
// command takes a secret as an argument, and none prints one, but for the recovery kit, once.
//
// Frozen: the commands, their flags and their exit codes (docs/interface.md). What is printed for people may change; --json may gain fields.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/harden"
	"singlepass.dev/daemon/home"
)

// Config is what spctl runs with. Every field is required but Group.
type Config struct {
	Args     []string
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Version  string
	Group    *harden.Group // optional: the group that spctl was installed with
}

// app is one run of spctl.
type app struct {
	cfg      Config
	out, err io.Writer // cleaned
	now      func() time.Time

	home           string // --home
	passphraseFile string // --passphrase-file
	json           bool   // --json, where a command has it

	operator *client.Operator
	started  bool // a command's own work began: what fails before is a usage error
}

// Main runs one command and returns its exit code.
func Main(ctx context.Context, cfg Config) api.Exit {
	a := &app{cfg: cfg, out: clean(cfg.Out), err: clean(cfg.Err), now: time.Now}
	if a.cfg.Group == nil {
		a.cfg.Group = &harden.Group{}
	}
	if err := a.closeAtStart(); err != nil {
		return a.report(err)
	}
	root := a.root()
	root.SetArgs(cfg.Args)
	err := root.ExecuteContext(ctx)
	if a.operator != nil {
		a.operator.Close()
	}
	if err == nil {
		return api.ExitDone
	}
	return a.report(err)
}

// exitError ends spctl with a code and says nothing more: what there was to say is printed.
type exitError struct{ code api.Exit }

func (e exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

func (a *app) report(err error) api.Exit {
	var e *api.Error
	var quiet exitError
	var problem *home.Problem
	switch {
	case errors.As(err, &quiet):
		return quiet.code
	case errors.As(err, &e):
		fmt.Fprintf(a.err, "spctl: %s\n", oneLine(err.Error()))
		if e.Hint != "" {
			fmt.Fprintf(a.err, "hint: %s\n", oneLine(e.Hint))
		}
		return e.Code.Exit()
	case errors.As(err, &problem):
		fmt.Fprintf(a.err, "spctl: %s %s\nhint: %s\n", problem.Path, problem.What, problem.Fix)
		return api.ExitFailed
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(a.err, "spctl: interrupted")
		return api.ExitFailed
	case !a.started:
		fmt.Fprintf(a.err, "spctl: %s\nhint: spctl --help\n", oneLine(strings.TrimSpace(err.Error())))
		return api.ExitUsage
	}
	fmt.Fprintf(a.err, "spctl: %s\n", oneLine(err.Error()))
	return api.ExitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "spctl",
		Short: "use Singlepass: approve what agents ask for, see what was done, keep credentials",
		Long: `Singlepass lets an AI agent use your credentials without seeing them, asks you first, and makes sure
that a call whose answer was lost never becomes a second action.

Exit codes: 0 done, 1 failed, 2 usage, 3 vault locked, 4 operator proof needed or wrong, 5 not found,
6 refused by policy, 7 does not verify, 69 daemon not running.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Version:           a.cfg.Version,
		Args:              cobra.NoArgs,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(a.cfg.In)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("spctl {{.Version}}\n")
	root.PersistentFlags().StringVar(&a.home, "home", "", "folder of a profile of its own (or SINGLEPASS_HOME)")
	root.PersistentFlags().StringVar(&a.passphraseFile, "passphrase-file", "", "file with the passphrase, 0600 and yours (or SINGLEPASS_PASSPHRASE_FILE); without it, asked at the terminal")
	root.AddGroup(
		&cobra.Group{ID: "start", Title: "Begin:"}, &cobra.Group{ID: "decide", Title: "Decide:"}, &cobra.Group{ID: "look", Title: "See what was done:"},
		&cobra.Group{ID: "set", Title: "Set up:"},
	)
	root.AddCommand(a.vaultCommands()...)
	root.AddCommand(a.approvalCommands()...)
	root.AddCommand(a.activityCommands()...)
	root.AddCommand(a.credentialCommand(), a.hostCommand(), a.actionCommand(), a.upstreamCommand(), a.auditCommand(), a.mcpCommand(), a.connectCommand(), a.settingsCommand(), a.doctorCommand(), a.manCommand())
	root.AddCommand(a.demoCommands()...)
	root.InitDefaultCompletionCmd()
	a.mark(root)
	return root
}

// mark notes for every command that its own work began: whatever cobra refuses before that is a usage error.
func (a *app) mark(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.started = true
			return run(c, args)
		}
	}
	for _, child := range c.Commands() {
		a.mark(child)
	}
}

// places finds the home.
func (a *app) places() (home.Home, error) {
	return home.Resolve(a.home, a.cfg.Getenv)
}

// ask returns the client for the daemon. The proof is asked for only when a request needs it.
func (a *app) ask() (*client.Operator, error) {
	if a.operator == nil {
		h, err := a.places()
		if err != nil {
			return nil, err
		}
		if err := h.Check(); err != nil {
			return nil, err
		}
		a.operator = &client.Operator{Socket: h.OperatorSocket(), Proof: a.prove}
	}
	return a.operator, nil
}

// reading gives a command --json.
func (a *app) reading(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return c
}

// printJSON prints one value as one line.
func (a *app) printJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	_, err = a.out.Write(append(b, '\n'))
	return err
}

// printLines prints a list as JSON Lines.
func printLines[T any](a *app, list []T) error {
	for _, v := range list {
		if err := a.printJSON(v); err != nil {
			return err
		}
	}
	return nil
}

func usage(format string, args ...any) *api.Error { return api.Errorf(api.CodeUsage, format, args...) }
