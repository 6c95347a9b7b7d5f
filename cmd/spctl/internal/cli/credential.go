package cli

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

var kinds = []string{"bearer", "basic", "header", "query", "oauth2", "aws-sigv4", "client-cert", "ssh-key", "ssh-password", "env"}

// paramFlags are what kinds need besides the value; none of it is secret.
var paramFlags = []struct{ name, help string }{
	{"token-url", "where access tokens are got, for kind oauth2; it is part of the binding"},
	{"client-id", "the client's id, for kind oauth2"},
	{"grant", "client_credentials or refresh_token, for kind oauth2"},
	{"scope", "the scope to ask for, for kind oauth2"},
	{"audience", "the audience to ask for, for kind oauth2 where the endpoint wants one"},
	{"resource", "the resource to ask for (RFC 8707), for kind oauth2 where the endpoint wants one"},
	{"client-auth", "how the client proves itself, for kind oauth2: basic (the default) or post"},
	{"region", "the region, for kind aws-sigv4"},
	{"service", "the service as signatures name it, for kind aws-sigv4: s3, lambda, execute-api, …"},
}

// setParams moves the flags of paramFlags that were given into the request.
func setParams(c *cobra.Command, in *api.Credential) {
	for _, p := range paramFlags {
		if f := c.Flags().Lookup(p.name); f != nil && f.Changed {
			if in.Params == nil {
				in.Params = map[string]string{}
			}
			in.Params[strings.ReplaceAll(p.name, "-", "_")] = f.Value.String()
		}
	}
}

const (
	genericHelp      = "allow what no contract describes, within the targets, by the tools http_request and ssh_run: each use is shown and asked for"
	authoritiesHelp  = "file of certificate authorities (PEM) that are trusted at its https targets in place of the system's, such as a company's own"
	genericReadsHelp = "with --generic: GET and HEAD change nothing at the targets, so a session is enough for them"
)

// valueFlags are the ways in which a secret comes in. There is no flag that takes the secret itself: it would stand in the process list and in the shell's history.
type valueFlags struct {
	file  string
	stdin bool
}

func (v *valueFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&v.file, "value-file", "", "file with the secret, 0600 and yours")
	c.Flags().BoolVar(&v.stdin, "value-stdin", false, "read the secret from standard input")
	c.MarkFlagsMutuallyExclusive("value-file", "value-stdin")
}

func (v *valueFlags) read(a *app, c *cobra.Command) (*secret.Bytes, error) {
	if err := closeToOthers(); err != nil {
		return nil, err
	}
	switch {
	case v.file != "":
		return readSecret(v.file)
	case v.stdin:
		return a.readStdin()
	}
	return a.newPassphrase(c.Context(), "", "The credential's value: ")
}

func (a *app) credentialCommand() *cobra.Command {
	group := &cobra.Command{Use: "credential", Short: "keep credentials; none is ever shown", GroupID: "set", Args: cobra.NoArgs, RunE: help}

	var in api.CredentialRequest
	var value valueFlags
	var key, rotatedKey keyFlags
	var authorities string
	add := &cobra.Command{
		Use: "add NAME --kind KIND --target URL", Short: "add a credential", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		Long: `Adds a credential. It is only ever sent to its targets: scheme, host, port and path prefix have to fit. The value comes
from a file (--value-file), from standard input (--value-stdin), or is asked for at the terminal.

  bearer       Authorization: Bearer VALUE
  basic        Authorization: Basic, with --username; the value is the password
  header       a header of its own, named by --name
  query        a query parameter, named by --name
  oauth2       Authorization: Bearer, with an access token that the daemon gets from --token-url for --client-id, by
               --grant client_credentials (the value is the client secret) or --grant refresh_token (the value is the
               refresh token, or lines of refresh_token= and client_secret=)
  aws-sigv4    the request is signed (AWS Signature Version 4), for --region and --service; the value is a file of
               AWS_ACCESS_KEY_ID=, AWS_SECRET_ACCESS_KEY= and perhaps AWS_SESSION_TOKEN= lines, one profile of an AWS
               credentials file, or the JSON of "aws configure export-credentials"
  client-cert  a TLS client certificate; the value is a PEM file of certificate and private key
  ssh-key      an SSH private key, perhaps with --certificate-file, for --target ssh://USER@HOST; an encrypted one is kept
               without its passphrase, since the vault seals it
  ssh-password the password of an account, for --target ssh://USER@HOST
  env          variables for an upstream server that the daemon starts, with --target upstream:NAME; the value is
               a file of NAME=value lines, or with --name the value of that one variable`,
		Example: "  spctl credential add deploy --kind bearer --target https://deploy.internal.example/v1/ --value-stdin < token",
		RunE: func(c *cobra.Command, args []string) error {
			in.Name = args[0]
			setParams(c, &in.Credential)
			if err := key.certified(&in.Credential); err != nil {
				return err
			}
			if authorities != "" {
				b, err := readPublic(authorities)
				if err != nil {
					return err
				}
				if in.Params == nil {
					in.Params = map[string]string{}
				}
				in.Params["authorities"] = string(b)
			}
			return a.addCredential(c, in, &value, &key)
		},
	}
	f := add.Flags()
	f.StringVar(&in.Kind, "kind", "", strings.Join(kinds, ", "))
	f.StringArrayVar(&in.Targets, "target", nil, "where it may be sent: scheme, host, port and path prefix (repeatable)")
	f.StringVar(&in.Place, "name", "", "the header, query parameter or variable, for kinds header, query and env")
	f.StringVar(&in.Username, "username", "", "the user name, for kind basic")
	f.BoolVar(&in.PerUse, "per-use", false, "ask each time it is used, also within a session")
	f.BoolVar(&in.Generic, "generic", false, genericHelp)
	f.BoolVar(&in.GenericReads, "generic-reads", false, genericReadsHelp)
	f.BoolVar(&in.AllowPrivate, "allow-private", false, "a target's name may lead into a private network or to this machine")
	f.BoolVar(&in.Plaintext, "allow-plaintext", false, "allow http to hosts other than this machine: everybody on the way can read the credential")
	f.StringVar(&authorities, "ca-file", "", authoritiesHelp)
	for _, p := range paramFlags {
		f.String(p.name, "", p.help)
	}
	value.add(add)
	key.add(add, true)
	_ = add.MarkFlagRequired("kind")
	_ = add.MarkFlagRequired("target")
	_ = add.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))

	list := a.reading(&cobra.Command{
		Use: "list", Short: "list the credentials", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.listCredentials(c) },
	})
	show := a.reading(&cobra.Command{
		Use: "show NAME", Short: "describe a credential; its value is never shown", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error { return a.showCredential(c, args[0]) },
	})
	var changed api.CredentialChange
	var perUse, private, generic, genericReads, system bool
	var newAuthorities string
	change := &cobra.Command{
		Use: "change NAME", Short: "change what a credential allows, and keep its value", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		Long: "Changes what a credential allows. What is not named stays as it is; --target replaces all targets. What had not been sent is withdrawn.",
		RunE: func(c *cobra.Command, args []string) error {
			any := len(changed.Targets) > 0
			for flag, set := range map[string]func(){
				"per-use": func() { changed.PerUse = &perUse }, "allow-private": func() { changed.AllowPrivate = &private },
				"generic": func() { changed.Generic = &generic }, "generic-reads": func() { changed.GenericReads = &genericReads },
			} {
				if c.Flags().Changed(flag) {
					any = true
					set()
				}
			}
			if newAuthorities != "" {
				b, err := readPublic(newAuthorities)
				if err != nil {
					return err
				}
				text := string(b)
				changed.Authorities, any = &text, true
			}
			if system {
				changed.Authorities, any = new(string), true
			}
			if !any {
				return usage("nothing to change was named").WithHint("spctl credential change --help lists what can be changed")
			}
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.ChangeCredential(c.Context(), args[0], changed); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "changed %s; what had not been sent is withdrawn\n", oneLine(args[0]))
			return nil
		},
	}
	cf := change.Flags()
	cf.StringArrayVar(&changed.Targets, "target", nil, "where it may be sent, in place of the present targets (repeatable)")
	cf.BoolVar(&changed.Plaintext, "allow-plaintext", false, "allow http to hosts other than this machine in --target")
	cf.BoolVar(&perUse, "per-use", false, "ask each time it is used; --per-use=false asks by session")
	cf.BoolVar(&generic, "generic", false, genericHelp)
	cf.BoolVar(&genericReads, "generic-reads", false, genericReadsHelp)
	cf.BoolVar(&private, "allow-private", false, "a target's name may lead into a private network or to this machine")

	cf.StringVar(&newAuthorities, "ca-file", "", authoritiesHelp)
	cf.BoolVar(&system, "system-cas", false, "trust the system's certificate authorities at the targets again")
	change.MarkFlagsMutuallyExclusive("ca-file", "system-cas")

	var rotated valueFlags
	rotate := &cobra.Command{
		Use: "rotate NAME", Short: "replace a credential's value and keep its name", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			v, err := rotated.read(a, c)
			if err != nil {
				return err
			}
			defer v.Wipe()
			if err := rotatedKey.withKey(a, c, func(passphrase []byte) error {
				return exposed(v, func(b []byte) error {
					if passphrase != nil {
						return o.RotateKey(c.Context(), args[0], b, passphrase)
					}
					return o.RotateCredential(c.Context(), args[0], b)
				})
			}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "rotated %s; what had not been sent with the old value is withdrawn\n", oneLine(args[0]))
			return nil
		},
	}
	rotated.add(rotate)
	rotatedKey.add(rotate, false)
	remove := &cobra.Command{
		Use: "remove NAME", Short: "remove a credential", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.RemoveCredential(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "removed %s\n", oneLine(args[0]))
			return nil
		},
	}
	group.AddCommand(add, a.importCommand(), list, show, change, rotate, remove)
	return group
}

func (a *app) addCredential(c *cobra.Command, in api.CredentialRequest, value *valueFlags, key *keyFlags) error {
	if !slices.Contains(kinds, in.Kind) {
		return usage("%q is not a kind of credential", in.Kind).WithHint("available are %s", strings.Join(kinds, ", "))
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	v, err := value.read(a, c)
	if err != nil {
		return err
	}
	defer v.Wipe()
	if err := key.withKey(a, c, func(passphrase []byte) error {
		return exposed(v, func(b []byte) error {
			in.Secret, in.KeyPassphrase = b, passphrase
			return o.AddCredential(c.Context(), in)
		})
	}); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "added %s (%s); it is only ever sent to %s\n", oneLine(in.Name), in.Kind, oneLine(strings.Join(in.Targets, ", ")))
	return nil
}

func (a *app) listCredentials(c *cobra.Command) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.Credentials(c.Context())
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "no credential is kept")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tKIND\tASKS\tROTATED\tTARGETS")
	for _, cred := range list {
		asks := "by session"
		if cred.PerUse {
			asks = "each time"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(cred.Name), oneLine(cred.Kind), asks, local(cred.Rotated), oneLine(strings.Join(cred.Targets, ", ")))
	}
	return w.Flush()
}

// authoritiesOf names certificate authorities as people compare them.
func authoritiesOf(text string) (names []string) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return names
		}
		subject := "a certificate that cannot be read"
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			subject = c.Subject.String()
		}
		names = append(names, fmt.Sprintf("%s (SHA-256 %X)", subject, sha256.Sum256(block.Bytes)))
	}
}

func (a *app) showCredential(c *cobra.Command, name string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	cred, err := o.Credential(c.Context(), name)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(cred)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, oneLine(value))
		}
	}
	row("name", cred.Name)
	row("kind", cred.Kind)
	row("placed in", cred.Place)
	row("user name", cred.Username)
	for _, name := range slices.Sorted(maps.Keys(cred.Params)) {
		if name == "authorities" {
			for _, who := range authoritiesOf(cred.Params[name]) {
				row("trusts only", who)
			}
			continue
		}
		row(strings.ReplaceAll(name, "_", " "), cred.Params[name])
	}
	for _, t := range cred.Targets {
		row("target", t)
	}
	row("asks", map[bool]string{true: "each time", false: "by session"}[cred.PerUse])
	row("generic use", map[bool]string{true: "what no contract describes is asked for each time"}[cred.Generic])
	row("generic reads", map[bool]string{true: "GET and HEAD change nothing there; a session is enough"}[cred.GenericReads])
	row("private networks", map[bool]string{true: "a target's name may lead there"}[cred.AllowPrivate])
	row("added", local(cred.Created))
	row("rotated", local(cred.Rotated))
	row("version", fmt.Sprint(cred.Version))
	row("value", "kept in the vault; no command shows it")
	return w.Flush()
}
