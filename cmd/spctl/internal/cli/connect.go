package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"singlepass.dev/cmd/spctl/internal/connect"
	"singlepass.dev/daemon/httptoken"
)

func (a *app) connectCommand() *cobra.Command {
	clients := connect.Clients()
	names := make([]string, len(clients))
	var list strings.Builder
	for i, c := range clients {
		names[i] = c.Name
		fmt.Fprintf(&list, "\n  %-15s %s", c.Name, c.Title)
	}
	var f connectFlags
	c := a.reading(&cobra.Command{
		Use: "connect [CLIENT]", Short: "write Singlepass into an agent's configuration, after showing the change", GroupID: "set", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		Long: `Adds the MCP server "singlepass" to the configuration of an agent. The change is shown first; everything else in the file
stays as it is, and the earlier file is kept beside it. Any other client that can start an MCP server takes the command
that --print shows.
` + list.String() + `

With --http the client gets the URL of the daemon's own listener (mcp_http in config.yaml) and a token, which the daemon
requires of every request. The token is written nowhere but into that file, which is closed to others; the vault keeps a
keyed digest of it. It takes your passphrase. One client has one token: a new one ends the earlier one. --token-file makes a
token for a client that is not known here, and --revoke ends one. A token does not say who asks: that is still the process
that connects, and you are asked about it as ever.`,
		Example: "  spctl connect claude-code\n  spctl connect cursor --http\n  spctl connect my-agent --http --token-file my-agent.token\n  spctl connect --list\n  spctl connect --revoke my-agent",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			switch {
			case f.list:
				return a.listHTTPClients(c.Context())
			case f.revoke != "":
				return a.revokeHTTPClient(c.Context(), f.revoke)
			case f.tokenFile != "":
				return a.tokenFile(c.Context(), cmp.Or(f.name, args[0]), f.tokenFile)
			}
			for _, client := range clients {
				switch {
				case client.Name != args[0]:
				case f.http:
					return a.connectHTTP(c.Context(), client, cmp.Or(f.name, client.Name), f)
				default:
					return a.connect(client, f.file, f.yes, f.show)
				}
			}
			return usage("%q is not a client that is known", args[0]).
				WithHint("known are %s; for any other, spctl connect %s --print shows what to enter, and --http --token-file FILE makes a token", strings.Join(names, ", "), names[0])
		},
	})
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&f.show, "print", false, "only show the change")
	c.Flags().StringVar(&f.file, "file", "", "another configuration file of that client")
	c.Flags().BoolVar(&f.http, "http", false, "give the client the daemon's URL and a token, in place of a program to start")
	c.Flags().StringVar(&f.name, "name", "", "the token's name, where one client has several configurations (the client's by default)")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "with --http: only make a token, for any client, and write it into this new file")
	c.Flags().BoolVar(&f.list, "list", false, "list the clients that have a token")
	c.Flags().StringVar(&f.revoke, "revoke", "", "end the token of this name")
	return c
}

// connectFlags are what connect is told.
type connectFlags struct {
	yes, show, http, list         bool
	file, name, tokenFile, revoke string
}

// check refuses what does not go together.
func (f connectFlags) check(args []string) error {
	switch {
	case f.list && (f.revoke != "" || f.http || len(args) > 0), f.revoke != "" && (f.http || len(args) > 0):
		return usage("--list and --revoke stand alone")
	case f.list, f.revoke != "":
		return nil
	case len(args) == 0:
		return usage("a client is needed").WithHint("spctl connect --help names the ones that are known")
	case !f.http && (f.name != "" || f.tokenFile != ""):
		return usage("--name and --token-file are about tokens: add --http")
	case f.tokenFile != "" && (f.file != "" || f.show || f.yes):
		return usage("--token-file edits no configuration, so --file, --print and --yes have no meaning with it")
	}
	return nil
}

func (a *app) connect(client connect.Client, file string, yes, show bool) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding spctl: %w", err)
	}
	if file, err = a.configurationOf(client, file); err != nil {
		return err
	}
	args := []string{"mcp"}
	h, err := a.places()
	if err != nil {
		return err
	}
	if h.Root != "" {
		args = []string{"--home", h.Root, "mcp"}
	}
	before, err := connect.Read(file)
	if err != nil {
		return err
	}
	after, changed, err := connect.Edit(before, client.Path, client.Entry(self, args...))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if !changed {
		fmt.Fprintf(a.out, "%s has it already: %s\n", client.Title, oneLine(file))
		return nil
	}
	fmt.Fprintf(a.out, "%s\n", diff.Diff(file, httptoken.Redact(before), file, httptoken.Redact(after)))
	if show {
		return nil
	}
	if !yes {
		if err := a.confirm("Write it?"); err != nil {
			return err
		}
	}
	backup, err := connect.Write(file, before, after)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "written to %s\n", oneLine(file))
	if backup != "" {
		fmt.Fprintf(a.out, "the earlier file is kept as %s\n", oneLine(backup))
	}
	if entry, err := connect.Find(before, client.Path); err == nil {
		if _, token := connect.Token(entry); token != "" {
			name, _ := httptoken.Client(token)
			fmt.Fprintf(a.out, "the earlier entry had a token, which still counts: spctl connect --revoke %s\n", cmp.Or(name, client.Name))
		}
	}
	fmt.Fprintf(a.out, "next: %s\n", client.Next)
	return nil
}

// configurationOf is the file that was named, or else the client's own.
func (a *app) configurationOf(c connect.Client, file string) (string, error) {
	if file != "" {
		return file, nil
	}
	places, err := a.clientPlaces()
	if err != nil {
		return "", err
	}
	return c.File(places), nil
}

func (a *app) clientPlaces() (connect.Places, error) {
	user := a.cfg.Getenv("HOME")
	if user == "" {
		return connect.Places{}, usage("HOME is not set").WithHint("--file FILE names the configuration")
	}
	config := a.cfg.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(user, ".config")
	}
	project, err := os.Getwd()
	if err != nil {
		return connect.Places{}, fmt.Errorf("finding the working directory: %w", err)
	}
	return connect.Places{Home: user, Config: config, Project: project}, nil
}
