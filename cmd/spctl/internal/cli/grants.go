package cli

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
)

func (a *app) grantCommands() []*cobra.Command {
	grants := a.reading(&cobra.Command{
		Use: "grants", Short: "list the standing grants: what the next runs of a program may do without asking", GroupID: "decide", Args: cobra.NoArgs,
		Long: `Lists the standing grants. One was given by spctl approve --session --standing: a new run of that program, started and
connected in the same way, gets a session for that action without a card. It ends by its time, with any change of the
program or of the action's contract, and by spctl grant revoke.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.grants(c) },
	})
	revoke := &cobra.Command{
		Use: "revoke GRANT", Short: "end a standing grant at once, with the sessions that came from it; what was not sent yet is withdrawn", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.RevokeGrant(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s has ended, and the sessions that came from it\n", oneLine(args[0]))
			return nil
		},
	}
	one := &cobra.Command{Use: "grant", Short: "end a standing grant", GroupID: "decide", Args: cobra.NoArgs, RunE: help}
	one.AddCommand(revoke)
	return []*cobra.Command{grants, one}
}

func (a *app) grants(c *cobra.Command) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.Grants(c.Context())
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "there is no standing grant")
		return nil
	}
	for i, g := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		if err := a.printGrant(g); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printGrant(g api.Grant) error {
	fmt.Fprintln(a.out, oneLine(g.Grant))
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %s\t%s\n", name, oneLine(value))
		}
	}
	covers := g.Tool
	if g.Scope == "arguments" {
		covers += " with the arguments of " + g.Card
	}
	row("covers", covers)
	row("contract", g.ContractDigest)
	row("program", g.Actor)
	row("executable", g.Exe)
	row("digest", g.Digest)
	row("installed as", g.Package)
	row("by way of", strings.Join(append([]string{g.Via}, g.Through...), ", "))
	row("started by", strings.Join(g.Chain, ", "))
	row("given", fmt.Sprintf("%s by %s, on %s of %s", local(g.At), g.By, g.Card, g.Run))
	row("until", fmt.Sprintf("%s (in %s)", local(g.Until), ago(g.Until.Sub(a.now()))))
	row("sessions", strings.Join(g.Runs, ", "))
	return w.Flush()
}

// span is a time as a person writes it: 15m, 2h or 30d.
type span time.Duration

func (s *span) String() string {
	if d := time.Duration(*s); d != 0 {
		return d.String()
	}
	return ""
}

func (s *span) Type() string { return "duration" }

func (s *span) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return fmt.Errorf("%q is no number of days; write for instance 30d", text)
		}
		*s = span(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no time; write for instance 15m, 2h or 30d", text)
	}
	*s = span(d)
	return nil
}
