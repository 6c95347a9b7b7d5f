package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
)

func (a *app) upstreamCommand() *cobra.Command {
	group := &cobra.Command{Use: "upstream", Short: "put MCP servers behind the gateway", GroupID: "set", Args: cobra.NoArgs, RunE: help}
	var in api.UpstreamRequest
	add := a.reading(&cobra.Command{
		Use: "add NAME (-- COMMAND ARG... | --url URL)", Short: "add an MCP server, which is started by the daemon or reached at a URL",
		Long: `Adds an MCP server. Its tools are only proposals until you accept them: spctl upstream accept.

A command is started by the daemon in the folder from which you add it (or --dir), with a small environment: PATH, HOME,
the language and time zone, what you give with --env, and its credentials of kind env. A credential for a URL goes into a
header of every request. The command's files are remembered by their digests, and a change of one is shown by
spctl upstream list; it is not prevented.`,
		Example: `  spctl upstream add ledger -- node ledger-server.mjs
  spctl upstream add tracker --url https://tracker.example/mcp --credential tracker`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in.Name, in.Command = args[0], args[1:]
			if c.ArgsLenAtDash() > 1 || c.ArgsLenAtDash() < 0 && len(args) > 1 {
				return usage("write the command behind --, as in: spctl upstream add %s -- COMMAND", oneLine(args[0]))
			}
			return a.addUpstream(c, in)
		},
	})
	f := add.Flags()
	f.StringVar(&in.URL, "url", "", "the server's URL")
	f.StringArrayVar(&in.Credentials, "credential", nil, "a credential that it is given (repeatable for a command)")
	f.StringArrayVar(&in.Env, "env", nil, "NAME=value in the command's environment; no place for a secret (repeatable)")
	f.StringVar(&in.Dir, "dir", "", "the folder in which the command runs")
	list := a.reading(&cobra.Command{
		Use: "list", Short: "list the MCP servers behind the gateway", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.listUpstreams(c) },
	})
	tools := a.reading(&cobra.Command{
		Use: "tools NAME", Short: "ask a server for its tools, and show how they differ from the accepted ones", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error { return a.upstreamTools(c, args[0]) },
	})
	var choice acceptance
	accept := a.reading(&cobra.Command{
		Use: "accept NAME", Short: "put tools of a server into force, after showing what they say of themselves",
		Long: `Shows each tool that is new or changed, or the one given with --tool, and puts it into force once you say yes. From then
on exactly this description and schema count: a tool that describes itself otherwise is withheld until you accept it too.

What a lost answer means is your choice, never the server's: irreversible (the default: never sent again, you decide) or
read_only (sent again). A tool asks at every use, a read_only one once per session; --approval says otherwise. A tool that
was in force before keeps what you chose then.

With a passphrase file, or with --yes, it does not ask again.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error { return a.acceptTools(c, args[0], choice) },
	})
	f = accept.Flags()
	f.StringArrayVar(&choice.tools, "tool", nil, "the tool's name (repeatable); otherwise all that are new or changed")
	f.StringVar(&choice.class, "class", "", "what a lost answer means: irreversible, read_only")
	f.StringVar(&choice.approval, "approval", "", "when you are asked: session, per_use")
	f.StringVar(&choice.as, "as", "", "the name that agents call it by (with one --tool)")
	f.StringVar(&choice.total, "total", "", "how long one attempt may take, such as 90s or 1h")
	f.BoolVarP(&choice.yes, "yes", "y", false, "do not ask")
	_ = accept.RegisterFlagCompletionFunc("class", cobra.FixedCompletions([]string{"irreversible", "read_only"}, cobra.ShellCompDirectiveNoFileComp))
	_ = accept.RegisterFlagCompletionFunc("approval", cobra.FixedCompletions([]string{"session", "per_use"}, cobra.ShellCompDirectiveNoFileComp))
	remove := &cobra.Command{
		Use: "remove NAME", Short: "remove a server with its tools; what was not sent yet is withdrawn", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.RemoveUpstream(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is removed, with its tools\n", oneLine(args[0]))
			return nil
		},
	}
	group.AddCommand(add, list, tools, accept, a.promptsCommand(), a.shareCommand(), remove)
	return group
}

// addUpstream finds the program as this shell would, and sends what that means.
func (a *app) addUpstream(c *cobra.Command, in api.UpstreamRequest) error {
	if (len(in.Command) == 0) == (in.URL == "") {
		return usage("write a command behind --, or --url").WithHint("spctl upstream add --help")
	}
	if len(in.Command) > 0 {
		program, err := exec.LookPath(in.Command[0])
		if err != nil {
			return api.Errorf(api.CodeMissing, "the program %s is not found", oneLine(in.Command[0]))
		}
		if program, err = filepath.Abs(program); err != nil {
			return fmt.Errorf("naming the program: %w", err)
		}
		in.Command = append([]string{program}, in.Command[1:]...)
		if in.Dir == "" {
			if in.Dir, err = os.Getwd(); err != nil {
				return fmt.Errorf("naming the folder: %w", err)
			}
		}
		if in.Dir, err = filepath.Abs(in.Dir); err != nil {
			return fmt.Errorf("naming the folder: %w", err)
		}
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	got, err := o.AddUpstream(c.Context(), in)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(got)
	}
	fmt.Fprintf(a.out, "%s is added: %s\n", oneLine(got.Name), where(got))
	if got.Problem != "" {
		fmt.Fprintf(a.out, "it cannot be used yet: %s\n", oneLine(got.Problem))
		return nil
	}
	fmt.Fprintf(a.out, "waiting for you: %s. Look with spctl upstream tools %s, then spctl upstream accept %s\n", plural(got.Waiting, "tool", ""), oneLine(got.Name), oneLine(got.Name))
	return nil
}

func where(u api.Upstream) string {
	if u.URL != "" {
		return oneLine(u.URL)
	}
	return oneLine(strings.Join(u.Command, " "))
}

func (a *app) listUpstreams(c *cobra.Command) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.Upstreams(c.Context())
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "no MCP server is behind the gateway")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "UPSTREAM\tSTATE\tIN FORCE\tWAITING\tCREDENTIALS\tWHERE")
	for _, u := range list {
		state := map[string]string{"unknown": "not asked yet", "ready": "ready", "failed": "cannot be used"}[u.State]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", oneLine(u.Name), state, u.Accepted, u.Waiting, oneLine(strings.Join(u.Credentials, ", ")), cut(where(u), 80))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, u := range list {
		if u.Problem != "" {
			fmt.Fprintf(a.out, "%s: %s\n", oneLine(u.Name), oneLine(u.Problem))
		}
		if u.Resources || u.Prompts > 0 {
			fmt.Fprintf(a.out, "%s: %s\n", oneLine(u.Name), opened(u))
		}
		for _, file := range u.Files {
			if file.Changed != "" {
				fmt.Fprintf(a.out, "%s: %s is not what it was when you added it: %s\n", oneLine(u.Name), oneLine(file.Path), oneLine(file.Changed))
			}
		}
	}
	return nil
}

func (a *app) upstreamTools(c *cobra.Command, name string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.UpstreamTools(c.Context(), name)
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(a.out, "%s has no tools\n", oneLine(name))
	}
	for i, t := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		if err := a.printTool(t); err != nil {
			return err
		}
	}
	return nil
}

// printTool shows a tool to a person. All of it is the server's own words, so no character of it acts on the terminal.
func (a *app) printTool(t api.UpstreamTool) error {
	states := map[string]string{
		"accepted": "in force", "new": "new: not accepted", "changed": "changed: withheld until you accept it", "gone": "the server no longer has it: withheld",
		"invalid": "cannot be used",
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, oneLine(value))
		}
	}
	row("tool", t.Name)
	row("state", states[t.State])
	row("problem", t.Problem)
	row("agents call it", t.Action)
	row("class", t.Class)
	if t.Class != "" {
		row("approval", map[bool]string{true: "per_use", false: "session"}[t.PerUse])
	}
	row("digest", t.Digest)
	row("title", t.Title)
	row("it says", t.Description)
	row("its schema", string(t.InputSchema))
	if len(t.Claims) > 0 {
		row("it claims", string(t.Claims)+" (its own words, which decide nothing)")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if t.Diff != "" {
		fmt.Fprintf(a.out, "%s", t.Diff)
	}
	return nil
}

// acceptance is what the operator chose on the command line.
type acceptance struct {
	tools                      []string
	class, approval, as, total string
	yes                        bool
}

func (a *app) acceptTools(c *cobra.Command, name string, choice acceptance) error {
	perUse := map[string]*bool{"": nil, "session": new(bool), "per_use": new(bool)}
	*perUse["per_use"] = true
	asked, ok := perUse[choice.approval]
	switch {
	case !ok:
		return usage("%q is no approval: write session or per_use", oneLine(choice.approval))
	case choice.as != "" && len(choice.tools) != 1:
		return usage("--as names one tool: give one --tool")
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.UpstreamTools(c.Context(), name)
	if err != nil {
		return err
	}
	for _, want := range choice.tools {
		if !slices.ContainsFunc(list, func(t api.UpstreamTool) bool { return t.Name == want }) {
			return api.Errorf(api.CodeMissing, "%s has no tool %s", oneLine(name), oneLine(want)).WithHint("spctl upstream tools %s", oneLine(name))
		}
	}
	n := 0
	for _, t := range list {
		switch {
		case len(choice.tools) > 0 && !slices.Contains(choice.tools, t.Name):
			continue
		case len(choice.tools) == 0 && t.State != "new" && t.State != "changed":
			continue
		}
		n++
		if !a.json {
			if err := a.printTool(t); err != nil {
				return err
			}
		}
		if !choice.yes && !a.fromFile() {
			if err := a.confirm("Put " + oneLine(t.Action) + " into force?"); err != nil {
				return err
			}
		}
		in := api.UpstreamAccept{Tool: t.Name, Digest: t.Digest, Action: choice.as, Class: choice.class, PerUse: asked, Total: choice.total}
		if t.Accepted != "" { // what was chosen before holds until something else is chosen
			if in.Action == "" {
				in.Action = t.Action
			}
			if in.Class == "" {
				in.Class = t.Class
				if in.PerUse == nil {
					in.PerUse = &t.PerUse
				}
			}
		}
		got, err := o.AcceptUpstreamTool(c.Context(), name, in)
		if err != nil {
			return err
		}
		if a.json {
			if err := a.printJSON(got); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(a.out, "%s is in force (%s, %s)\n", oneLine(got.Action), oneLine(got.Class), oneLine(got.Accepted))
	}
	if n == 0 && !a.json {
		fmt.Fprintf(a.out, "%s has no tool that waits for you\n", oneLine(name))
	}
	return nil
}
