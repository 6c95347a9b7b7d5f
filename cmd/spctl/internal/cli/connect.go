package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"singlepass.dev/cmd/spctl/internal/connect"
)

func (a *app) connectCommand() *cobra.Command {
	clients := connect.Clients()
	names := make([]string, len(clients))
	var list strings.Builder
	for i, c := range clients {
		names[i] = c.Name
		fmt.Fprintf(&list, "\n  %-15s %s", c.Name, c.Title)
	}
	var yes, show bool
	var file string
	c := &cobra.Command{
		Use: "connect CLIENT", Short: "write Singlepass into an agent's configuration, after showing the change", GroupID: "set", Args: cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		Long: `Adds the MCP server "singlepass" to the configuration of an agent. The change is shown first; everything else in the file
stays as it is, and the earlier file is kept beside it. Any other client that can start an MCP server takes the command
that --print shows.
` + list.String(),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, client := range clients {
				if client.Name == args[0] {
					return a.connect(client, file, yes, show)
				}
			}
			return usage("%q is not a client that is known", args[0]).WithHint("known are %s; for any other, spctl connect %s --print shows what to enter", strings.Join(names, ", "), names[0])
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&show, "print", false, "only show the change")
	c.Flags().StringVar(&file, "file", "", "another configuration file of that client")
	return c
}

func (a *app) connect(client connect.Client, file string, yes, show bool) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding spctl: %w", err)
	}
	if file == "" {
		places, err := a.clientPlaces()
		if err != nil {
			return err
		}
		file = client.File(places)
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
	fmt.Fprintf(a.out, "%s\n", diff.Diff(file, before, file, after))
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
	fmt.Fprintf(a.out, "next: %s\n", client.Next)
	return nil
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
