package cli

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
)

func (a *app) promptsCommand() *cobra.Command {
	return a.reading(&cobra.Command{
		Use: "prompts NAME", Short: "ask a server for its prompts, and show how they differ from the accepted ones", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error { return a.upstreamPrompts(c, args[0]) },
	})
}

// share is what the operator chose on the command line.
type share struct {
	resources, prompts bool
	named              []string
	approval           string
	yes                bool
}

func (a *app) shareCommand() *cobra.Command {
	var s share
	cmd := a.reading(&cobra.Command{
		Use: "share NAME", Short: "let agents read resources and prompts of a server, or no longer",
		Long: `Opens what a server has to read to agents, or closes it again. Both are closed until you open them. A reading needs an
unlocked vault and a process that you have let act, uses the server's credential, and is recorded.

Resources are what the server says they are at each time: nothing of them is pinned, and an agent can ask for any URI that
the server takes. Prompts are pinned: each one is shown, and agents get it by exactly this description; one that describes
itself otherwise is refused until you accept it too. What the texts of either say to an agent's model is the server's.

What you do not name stays as it is; --resources=false and --prompts=false close. With a passphrase file, or with --yes, it
does not ask.`,
		Example: `  spctl upstream share tracker --resources
  spctl upstream share tracker --prompts --prompt triage
  spctl upstream share tracker --resources=false --prompts=false`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error { return a.shareUpstream(c, args[0], s) },
	})
	f := cmd.Flags()
	f.BoolVar(&s.resources, "resources", false, "its resources")
	f.BoolVar(&s.prompts, "prompts", false, "its prompts, as they are now")
	f.StringArrayVar(&s.named, "prompt", nil, "with --prompts, only the prompt with this name (repeatable)")
	f.StringVar(&s.approval, "approval", "", "when you are asked: session, per_use")
	f.BoolVarP(&s.yes, "yes", "y", false, "do not ask")
	_ = cmd.RegisterFlagCompletionFunc("approval", cobra.FixedCompletions([]string{"session", "per_use"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) upstreamPrompts(c *cobra.Command, name string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.UpstreamPrompts(c.Context(), name)
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(a.out, "%s has no prompts\n", oneLine(name))
	}
	for i, p := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		if err := a.printPrompt(p); err != nil {
			return err
		}
	}
	return nil
}

// printPrompt shows a prompt to a person. All of it is the server's own words, so no character of it acts on the terminal.
func (a *app) printPrompt(p api.UpstreamPrompt) error {
	states := map[string]string{
		"accepted": "open", "new": "new: not open", "changed": "changed: refused until you accept it", "gone": "the server no longer has it", "invalid": "cannot be used",
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, oneLine(value))
		}
	}
	row("prompt", p.Name)
	row("state", states[p.State])
	row("problem", p.Problem)
	row("agents get it as", p.Agents)
	row("digest", p.Digest)
	row("title", p.Title)
	row("it says", p.Description)
	for _, one := range p.Arguments {
		words := one.Name
		if one.Required {
			words += " (required)"
		}
		row("argument", strings.TrimSuffix(words+": "+one.Description, ": "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if p.Diff != "" {
		fmt.Fprintf(a.out, "%s", p.Diff)
	}
	return nil
}

func (a *app) shareUpstream(c *cobra.Command, name string, s share) error {
	f := c.Flags()
	switch {
	case !f.Changed("resources") && !f.Changed("prompts") && s.approval == "":
		return usage("say what: --resources, --prompts").WithHint("spctl upstream share --help")
	case len(s.named) > 0 && !s.prompts:
		return usage("--prompt chooses among prompts: give --prompts too")
	case s.approval != "" && s.approval != "session" && s.approval != "per_use":
		return usage("%q is no approval: write session or per_use", oneLine(s.approval))
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	var in api.UpstreamShare
	if f.Changed("resources") {
		in.Resources = &s.resources
	}
	if s.approval != "" {
		perUse := s.approval == "per_use"
		in.PerUse = &perUse
	}
	if f.Changed("prompts") {
		in.Prompts = map[string]string{}
	}
	if s.prompts {
		list, err := o.UpstreamPrompts(c.Context(), name)
		if err != nil {
			return err
		}
		for _, want := range s.named {
			if !slices.ContainsFunc(list, func(p api.UpstreamPrompt) bool { return p.Name == want && p.Digest != "" }) {
				return api.Errorf(api.CodeMissing, "%s has no prompt %s", oneLine(name), oneLine(want)).WithHint("spctl upstream prompts %s", oneLine(name))
			}
		}
		for _, p := range list {
			if p.Digest == "" || len(s.named) > 0 && !slices.Contains(s.named, p.Name) {
				continue
			}
			in.Prompts[p.Name] = p.Digest
			if !a.json {
				if err := a.printPrompt(p); err != nil {
					return err
				}
			}
		}
		if len(in.Prompts) == 0 {
			return api.Errorf(api.CodeMissing, "%s has no prompt that can be opened", oneLine(name)).WithHint("spctl upstream prompts %s", oneLine(name))
		}
	}
	if !s.yes && !a.fromFile() && (s.resources || s.prompts) {
		if err := a.confirm("Let agents read this of " + oneLine(name) + "?"); err != nil {
			return err
		}
	}
	got, err := o.ShareUpstream(c.Context(), name, in)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(got)
	}
	fmt.Fprintf(a.out, "%s: %s\n", oneLine(got.Name), opened(got))
	return nil
}

// opened says what agents may read of a server.
func opened(u api.Upstream) string {
	var open []string
	if u.Resources {
		open = append(open, "its resources")
	}
	if u.Prompts > 0 {
		open = append(open, plural(u.Prompts, "prompt", ""))
	}
	if len(open) == 0 {
		return "agents read nothing of it"
	}
	s := "agents may read " + strings.Join(open, " and ")
	if u.ReadPerUse {
		s += "; you are asked each time"
	}
	return s
}
