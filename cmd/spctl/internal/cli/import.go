package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/home"
	"singlepass.dev/vault/material"
	"singlepass.dev/vault/secret"
)

// maxImport bounds a file that credentials are taken from.
const maxImport = 1 << 20

// found is one credential that a file holds. Its value lies in the bytes of the file.
type found struct {
	in    api.Credential
	value []byte
	where string // for people: which lines, or which variable
	whole bool   // it is the whole file
	among bool   // it is a file among others of a folder
}

// importCommand takes credentials over from where other programs keep them. The source is read and left alone: whoever used it still can, until the person deletes it.
func (a *app) importCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "import", Short: "take credentials over from other programs' files", Args: cobra.NoArgs, RunE: help,
		Long: `Takes credentials over from the files in which other programs keep them. The file is left as it is, and you are told
what to delete from it: until then whoever can read it, agents among them, still has the secret. FILE can be - for
standard input. Nothing secret is shown.`,
	}
	var perUse bool
	add := func(c *cobra.Command) *cobra.Command {
		c.Flags().BoolVar(&perUse, "per-use", false, "ask each time they are used, also within a session")
		c.Args = cobra.MaximumNArgs(1)
		group.AddCommand(c)
		return c
	}
	// taken reads the file, finds what is in it, and adds that.
	taken := func(c *cobra.Command, args []string, usual string, key *keyFlags, find func(b []byte) ([]found, error)) error {
		path := usual
		if len(args) == 1 {
			path = args[0]
		} else if usual == "" {
			return usage("name the file, or - for standard input")
		} else {
			path = filepath.Join(a.cfg.Getenv("HOME"), usual)
		}
		b, err := a.readSource(path)
		if err != nil {
			return err
		}
		defer clear(b)
		list, err := find(b)
		if err != nil {
			return usage("%s: %v", oneLine(path), err)
		}
		for i := range list {
			list[i].in.PerUse = perUse
		}
		return a.takeOver(c, path, list, key)
	}

	var machines []string
	var prefix string
	netrc := add(&cobra.Command{
		Use: "netrc [FILE]", Short: "logins of a .netrc file, as kind basic",
		Long: "Adds each login of a .netrc file (~/.netrc if none is named) as a credential of kind basic, named like its machine and for https://MACHINE/ alone.",
		RunE: func(c *cobra.Command, args []string) error {
			return taken(c, args, ".netrc", &keyFlags{}, func(b []byte) ([]found, error) { return fromNetrc(b, machines, prefix) })
		},
	})
	netrc.Flags().StringArrayVar(&machines, "machine", nil, "only this machine (repeatable)")
	netrc.Flags().StringVar(&prefix, "prefix", "", "what the credentials' names begin with")

	var in api.Credential
	var profile string
	aws := add(&cobra.Command{
		Use: "aws [FILE] --name NAME --target URL --region REGION --service SERVICE", Short: "a profile of an AWS credentials file, as kind aws-sigv4",
		Long: "Adds one profile of an AWS credentials file (~/.aws/credentials if none is named) as a credential of kind aws-sigv4.",
		RunE: func(c *cobra.Command, args []string) error {
			one := in
			one.Kind = "aws-sigv4"
			setParams(c, &one)
			return taken(c, args, ".aws/credentials", &keyFlags{}, func(b []byte) ([]found, error) {
				section, from, last, err := material.AWSProfile(b, profile)
				return []found{{in: one, value: section, where: lines(from, last)}}, err
			})
		},
	})
	aws.Flags().StringVar(&in.Name, "name", "", "the credential's name")
	aws.Flags().StringArrayVar(&in.Targets, "target", nil, "where it may be used (repeatable)")
	aws.Flags().StringVar(&profile, "profile", "default", "the profile")
	for _, p := range paramFlags {
		if p.name == "region" || p.name == "service" {
			aws.Flags().String(p.name, "", p.help)
			_ = aws.MarkFlagRequired(p.name)
		}
	}

	var of api.Credential
	var variable string
	env := add(&cobra.Command{
		Use: "env FILE --name NAME --target TARGET", Short: "variables of an environment file, as kind env or bearer",
		Long: `Adds the variables of an environment file: all of them for an upstream server that the daemon starts (--target
upstream:NAME), or one of them, named by --variable, which can also be a bearer token for a URL (--kind bearer).`,
		RunE: func(c *cobra.Command, args []string) error {
			return taken(c, args, "", &keyFlags{}, func(b []byte) ([]found, error) { return fromEnvironment(b, of, variable) })
		},
	})
	env.Flags().StringVar(&of.Name, "name", "", "the credential's name")
	env.Flags().StringArrayVar(&of.Targets, "target", nil, "where it may be used (repeatable)")
	env.Flags().StringVar(&of.Kind, "kind", "env", "env or bearer")
	env.Flags().StringVar(&variable, "variable", "", "only this variable")

	add(a.importSSHCommand(&perUse, taken))
	for _, c := range []*cobra.Command{aws, env} {
		_ = c.MarkFlagRequired("name")
		_ = c.MarkFlagRequired("target")
	}
	return group
}

func fromNetrc(b []byte, machines []string, prefix string) ([]found, error) {
	logins, err := material.Netrc(b)
	if err != nil {
		return nil, err
	}
	var list []found
	names := map[string]int{}
	for _, l := range logins {
		if l.Machine == "" || len(machines) > 0 && !slices.Contains(machines, l.Machine) { // the default entry is for no host in particular
			continue
		}
		name := prefix + l.Machine
		if names[name]++; names[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, names[name])
		}
		list = append(list, found{
			in:    api.Credential{Name: name, Kind: "basic", Username: l.Login, Targets: []string{"https://" + l.Machine + "/"}},
			value: l.Password, where: lines(l.From, l.Last),
		})
	}
	if len(list) == 0 {
		return nil, errors.New("there is no login for a machine in it, or not for the one that was named")
	}
	return list, nil
}

func fromEnvironment(b []byte, in api.Credential, variable string) ([]found, error) {
	if in.Kind != "env" && in.Kind != "bearer" || in.Kind == "bearer" && variable == "" {
		return nil, errors.New("--kind is env, or bearer with --variable")
	}
	all, err := material.Lines(b)
	if err != nil {
		return nil, err
	}
	if variable == "" {
		names := make([]string, len(all))
		for i, f := range all {
			names[i] = f.Name
		}
		return []found{{in: in, value: b, where: "the variables " + strings.Join(names, ", ")}}, nil
	}
	value := material.Get(all, variable)
	if value == nil {
		return nil, fmt.Errorf("there is no variable %s", variable)
	}
	if in.Kind == "env" {
		in.Place = variable
	}
	return []found{{in: in, value: value, where: "the variable " + variable}}, nil
}

func lines(from, last int) string {
	if from == last {
		return fmt.Sprintf("line %d", from)
	}
	return fmt.Sprintf("lines %d to %d", from, last)
}

// readSource reads the file that secrets are taken from; the caller wipes it.
func (a *app) readSource(path string) ([]byte, error) {
	if err := closeToOthers(); err != nil {
		return nil, err
	}
	if path != "-" {
		return home.ReadPrivate(path, maxImport)
	}
	b, err := io.ReadAll(io.LimitReader(a.cfg.In, maxImport+1))
	if err == nil && len(b) > maxImport {
		err = usage("standard input has more than %d bytes", maxImport)
	}
	if err != nil {
		clear(b)
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	return b, nil
}

// takeOver adds what was found, one by one, and says what to delete. What exists already is left alone, and the others are added all the same.
func (a *app) takeOver(c *cobra.Command, path string, list []found, key *keyFlags) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	var failed *api.Error
	var deletable []string
	whole, among := false, false
	for _, f := range list {
		key := *key
		if f.among {
			key.what = f.where
		}
		err := func() error {
			value := secret.New(slices.Clone(f.value))
			defer value.Wipe()
			return key.withKey(a, c, func(passphrase []byte) error {
				return exposed(value, func(b []byte) error {
					return o.AddCredential(c.Context(), api.CredentialRequest{Credential: f.in, Secret: b, KeyPassphrase: passphrase})
				})
			})
		}()
		if err != nil {
			var known *api.Error
			if !errors.As(err, &known) || known.Code != api.CodeExists && known.Code != api.CodeUsage && (known.Code != api.CodeKeyEncrypted || !f.among) {
				return err // it concerns all of them
			}
			fmt.Fprintf(a.cfg.Err, "spctl: %s of %s: %v\n", oneLine(f.where), oneLine(path), err)
			failed = known
			continue
		}
		fmt.Fprintf(a.out, "added %s (%s) from %s; it is only ever sent to %s\n", oneLine(f.in.Name), f.in.Kind, oneLine(f.where), oneLine(strings.Join(f.in.Targets, ", ")))
		deletable, whole, among = append(deletable, f.where), f.whole, f.among
	}
	switch {
	case len(deletable) == 0:
	case path == "-":
		fmt.Fprintln(a.out, "delete them where they came from: until then whoever can read that still has them")
	case whole:
		fmt.Fprintf(a.out, "%s was left as it is: delete it if nothing else uses it, or whoever can read it still has the key\n", oneLine(path))
	case among:
		fmt.Fprintf(a.out, "%s was left as it is: delete from it %s where nothing else uses them, or whoever can read it still has them\n", oneLine(path), oneLine(strings.Join(deletable, ", ")))
	default:
		fmt.Fprintf(a.out, "%s was left as it is: delete from it %s, or whoever can read it still has them\n", oneLine(path), oneLine(strings.Join(deletable, ", ")))
	}
	if failed != nil {
		return api.Errorf(failed.Code, "%d of %d were not added", len(list)-len(deletable), len(list))
	}
	return nil
}
