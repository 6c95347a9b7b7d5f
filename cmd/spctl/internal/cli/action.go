package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/policy/source"
)

// maxContract bounds a contract's file.
const maxContract = 1 << 20

func (a *app) actionCommand() *cobra.Command {
	group := &cobra.Command{Use: "action", Short: "accept the contracts that say what agents may ask for", GroupID: "set", Args: cobra.NoArgs, RunE: help}
	check := a.reading(&cobra.Command{
		Use: "check FILE...", Short: "check contracts without the daemon", Args: cobra.MinimumNArgs(1),
		Long: `Reads contracts and says what is wrong: file, line, column and what to write instead. It needs neither daemon nor
passphrase; the spd that lies beside spctl reads them, since it is spd that will enforce them.`,
		RunE: func(c *cobra.Command, args []string) error { return a.checkActions(c.Context(), args) },
	})
	var yes bool
	accept := &cobra.Command{
		Use: "accept FILE...", Short: "put contracts into force, after showing what changes", Args: cobra.MinimumNArgs(1),
		Long: `Shows each contract, or how it differs from the one in force, and puts it into force once you say yes. From then on
exactly these bytes count: a file that is changed later has no effect until it is accepted too.

With a passphrase file, or with --yes, it does not ask again.`,
		RunE: func(c *cobra.Command, args []string) error { return a.acceptActions(c, args, yes) },
	}
	accept.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	list := a.reading(&cobra.Command{
		Use: "list", Short: "list the contracts in force, and those that wait", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.listActions(c) },
	})
	show := a.reading(&cobra.Command{
		Use: "show NAME", Short: "show a contract, and how its file differs from it", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error { return a.showAction(c, args[0]) },
	})
	remove := &cobra.Command{
		Use: "remove NAME", Short: "withdraw a contract; what was not sent yet is withdrawn too", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.RemoveAction(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is no longer in force; its file stays where it is\n", oneLine(args[0]))
			return nil
		},
	}
	schema := &cobra.Command{
		Use: "schema", Short: "print the JSON Schema of contracts, for editors", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			schema, err := askSpd(c.Context(), []string{"--action-schema"})
			if err != nil {
				return err
			}
			_, err = a.out.Write(schema)
			return err
		},
	}
	group.AddCommand(check, accept, list, show, remove, schema)
	return group
}

func readContract(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, api.Errorf(api.CodeMissing, "%v", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxContract+1))
	if err != nil {
		return nil, fmt.Errorf("reading contract: %w", err)
	}
	if len(b) > maxContract {
		return nil, usage("%s has more than %d bytes", file, maxContract)
	}
	return b, nil
}

// maxChecks bounds what spd says of contracts.
const maxChecks = 64 << 20

// checkContracts has spd read the files: it is the program that will enforce them, so no other version of the rules can say yes to what it would not.
func checkContracts(ctx context.Context, files []string) ([]api.ContractCheck, error) {
	out, err := askSpd(ctx, append([]string{"--check-actions", "--"}, files...))
	if err != nil {
		return nil, err
	}
	list := make([]api.ContractCheck, 0, len(files))
	for d := json.NewDecoder(bytes.NewReader(out)); len(list) < len(files); {
		var c api.ContractCheck
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("reading what spd says of the contracts: %w", err)
		}
		list = append(list, c)
	}
	return list, nil
}

// askSpd runs the spd that is installed beside spctl for a question that needs no daemon.
func askSpd(ctx context.Context, args []string) ([]byte, error) {
	spd := besideSelf("spd")
	if spd == "" {
		return nil, api.Errorf(api.CodeMissing, "spd does not lie beside spctl, and contracts are its to read").WithHint("install both programs into one folder")
	}
	cmd := exec.CommandContext(ctx, spd, args...) // #nosec G204 -- the spd that is installed beside this program
	var out, wrong limited
	out.left, wrong.left = maxChecks, 4096
	cmd.Stdout, cmd.Stderr = &out, &wrong
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == int(api.ExitNotFound):
		return nil, api.Errorf(api.CodeMissing, "%s", strings.TrimPrefix(firstLine(wrong.String()), "spd: "))
	case err != nil:
		return nil, fmt.Errorf("running %s: %w: %s", spd, err, firstLine(wrong.String()))
	}
	return out.Bytes(), nil
}

// limited keeps the first bytes that are written to it.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	keep := b[:min(len(b), l.left)]
	l.left -= len(keep)
	l.Buffer.Write(keep)
	return len(b), nil
}

func (a *app) checkActions(ctx context.Context, files []string) error {
	list, err := checkContracts(ctx, files)
	if err != nil {
		return err
	}
	bad := 0
	for _, line := range list {
		if !line.Valid {
			bad++
		}
		if a.json {
			if err := a.printJSON(line); err != nil {
				return err
			}
			continue
		}
		for _, p := range line.Problems {
			fmt.Fprintln(a.out, oneLine(p.String()))
		}
		if line.Valid {
			fmt.Fprintf(a.out, "%s: %s, %s\n", oneLine(line.File), oneLine(line.Action), oneLine(line.Class))
			fmt.Fprintf(a.out, "  an agent reads: %s\n", oneLine(strings.ReplaceAll(line.Description, "\n", " ")))
		}
	}
	if bad > 0 {
		return exitError{api.ExitFailed}
	}
	return nil
}

func (a *app) acceptActions(c *cobra.Command, files []string, yes bool) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	// All files are read and checked before the first is accepted, so that a mistake in the second does not leave half done.
	type contract struct {
		file  string
		src   []byte
		check api.ContractCheck
	}
	checks, err := checkContracts(c.Context(), files)
	if err != nil {
		return err
	}
	contracts := make([]contract, 0, len(files))
	for i, file := range files {
		src, err := readContract(file)
		if err != nil {
			return err
		}
		check := checks[i]
		switch {
		case check.Digest != source.Digest(src):
			return usage("%s was changed while it was read", file).WithHint("look at it, and accept it again")
		case !check.Valid && len(check.Problems) > 0:
			return usage("%s is not a contract: %s", file, check.Problems[0]).WithHint("spctl action check %s", file)
		case !check.Valid:
			return usage("%s is not a contract", file).WithHint("spctl action check %s", file)
		}
		abs, err := filepath.Abs(file)
		if err != nil {
			return fmt.Errorf("naming contract %s: %w", file, err)
		}
		contracts = append(contracts, contract{abs, src, check})
	}
	inForce, err := o.Actions(c.Context())
	if err != nil {
		return err
	}
	for _, it := range contracts {
		name := it.check.Action
		before := ""
		for _, old := range inForce {
			if old.Name == name && old.Accepted != "" {
				before = old.Source
			}
		}
		difference := source.Diff("in force", []byte(before), it.file, it.src)
		if difference == "" {
			fmt.Fprintf(a.out, "%s is in force already, with these bytes\n", oneLine(name))
			continue
		}
		fmt.Fprintf(a.out, "%s\n%s\n\n", difference, oneLine(strings.ReplaceAll(it.check.Description, "\n", " ")))
		if !yes && !a.fromFile() {
			if err := a.confirm("Put " + oneLine(name) + " into force?"); err != nil {
				return err
			}
		}
		got, err := o.AcceptAction(c.Context(), api.ActionRequest{Name: name, Digest: it.check.Digest, File: it.file, Source: it.src})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s is in force (%s)\n", oneLine(got.Name), oneLine(got.Accepted))
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func (a *app) listActions(c *cobra.Command) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.Actions(c.Context())
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "no contract is in force")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACTION\tSTATE\tLOST ANSWER\tCREDENTIAL\tTARGET")
	for _, action := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(action.Name), stateOf(action), oneLine(action.Class), oneLine(action.Credential), cut(action.Target, 60))
	}
	return w.Flush()
}

// stateOf says in words how a contract and its file stand.
func stateOf(action api.Action) string {
	words := map[string]string{
		"accepted": "in force",
		"new":      "new: not accepted",
		"changed":  "in force; its file was changed",
		"missing":  "in force; its file is gone",
		"invalid":  "not valid",
	}
	if text, ok := words[action.State]; ok {
		return text
	}
	return oneLine(action.State)
}

func (a *app) showAction(c *cobra.Command, name string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	action, err := o.Action(c.Context(), name)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(action)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, oneLine(value))
		}
	}
	row("action", action.Name)
	row("title", action.Title)
	row("state", stateOf(action))
	row("file", action.File)
	row("digest", action.Accepted)
	row("target", action.Target)
	row("credential", action.Credential)
	row("class", action.Class)
	row("lost answer", action.LostAnswer)
	for _, p := range action.Problems {
		row("problem", p)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if action.Source != "" {
		fmt.Fprintf(a.out, "\n%s", strings.TrimRight(action.Source, "\n")+"\n")
	}
	if action.Diff != "" {
		fmt.Fprintf(a.out, "\nthe file differs from what is in force:\n%s", action.Diff)
	}
	return nil
}
