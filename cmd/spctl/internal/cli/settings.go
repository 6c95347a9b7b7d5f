package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
)

func (a *app) settingsCommand() *cobra.Command {
	list := a.reading(&cobra.Command{
		Use: "settings", Short: "see and change the security settings, which lie in the vault", GroupID: "set", Args: cobra.NoArgs,
		Long: `How long the vault stays open, how long a card waits, what locks, and through which proxy targets are reached. These lie in the
vault and not in config.yaml, because an agent can edit files. A change is in force at once, and recorded.`,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			all, err := o.Settings(c.Context())
			if err != nil {
				return err
			}
			if a.json {
				return printLines(a, all)
			}
			w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "SETTING\tVALUE\tDEFAULT\tMEANING")
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", oneLine(s.Key), oneLine(s.Value), oneLine(s.Default), oneLine(s.Meaning))
			}
			return w.Flush()
		},
	})
	change := func(c *cobra.Command, key string, value *string) error {
		o, err := a.ask()
		if err != nil {
			return err
		}
		s, err := o.ChangeSetting(c.Context(), key, value)
		if err != nil {
			return err
		}
		return a.showSetting(s)
	}
	list.AddCommand(
		&cobra.Command{
			Use: "set SETTING VALUE", Short: "change one", Args: cobra.ExactArgs(2),
			RunE: func(c *cobra.Command, args []string) error { return change(c, args[0], &args[1]) },
		},
		&cobra.Command{
			Use: "reset SETTING", Short: "put one back to its default", Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error { return change(c, args[0], nil) },
		},
	)
	return list
}

func (a *app) showSetting(s api.Setting) error {
	fmt.Fprintf(a.out, "%s is %s (%s)\n", oneLine(s.Key), oneLine(s.Value), oneLine(s.Meaning))
	return nil
}
