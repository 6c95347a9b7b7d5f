package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
)

// hostFlags say which keys of a host are pinned.
type hostFlags struct {
	file         string
	fingerprints []string
}

func (a *app) hostCommand() *cobra.Command {
	group := &cobra.Command{Use: "host", Short: "keep the keys by which SSH hosts are known", GroupID: "set", Args: cobra.NoArgs, RunE: help}

	var flags hostFlags
	add := &cobra.Command{
		Use: "add HOST[:PORT]", Short: "pin a host's keys", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		Long: `Pins the keys of an SSH host: it has to show one of them each time. Without --key-file the host is asked for its keys. Whoever
answers can show any key, so compare the fingerprint with the one that the host itself says, at its console or from somebody
who runs it:

  ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub

You are asked for your word at the terminal; a script gives the fingerprint that it expects with --fingerprint, and only keys
that have one of these are pinned. A key that was pinned is replaced by removing the host and adding it again.`,
		Example: "  spctl host add db1.internal.example\n  spctl host add db1.internal.example:2222 --key-file ~/.ssh/known_hosts",
		RunE:    func(c *cobra.Command, args []string) error { return a.addHost(c, args[0], flags) },
	}
	add.Flags().StringVar(&flags.file, "key-file", "", "take the keys from a file: known_hosts, or the host's own .pub files")
	add.Flags().StringArrayVar(&flags.fingerprints, "fingerprint", nil, "pin the key that has this fingerprint, SHA256:…, without asking (repeatable)")

	list := a.reading(&cobra.Command{
		Use: "list", Short: "list the hosts and the fingerprints of their keys", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.listHosts(c) },
	})
	remove := &cobra.Command{
		Use: "remove HOST[:PORT]", Short: "let go of a host's keys", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.RemoveHost(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "removed %s; what had not been sent to it is withdrawn\n", oneLine(args[0]))
			return nil
		},
	}
	group.AddCommand(add, list, remove)
	return group
}

func (a *app) addHost(c *cobra.Command, address string, flags hostFlags) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	look := api.HostLook{Address: address}
	if flags.file != "" {
		if look.File, err = readPublic(flags.file); err != nil {
			return err
		}
	}
	found, err := o.LookHost(c.Context(), look)
	if err != nil {
		return err
	}
	switch {
	case len(flags.fingerprints) > 0:
		shown := found.Keys
		found.Keys = slices.DeleteFunc(slices.Clone(shown), func(k api.HostKey) bool { return !slices.Contains(flags.fingerprints, k.Fingerprint) })
		if len(found.Keys) == 0 {
			a.printKeys(found.Address, shown)
			return api.Errorf(api.CodeDenied, "none of its keys has the fingerprint that was given; nothing was pinned")
		}
	case flags.file != "" && a.fromFile():
	default:
		a.printKeys(found.Address, found.Keys)
		if err := a.confirm("Are these the fingerprints of " + oneLine(found.Address) + "?"); err != nil {
			var e *api.Error
			if errors.As(err, &e) {
				return e.WithHint("give the fingerprint that it has to have with --fingerprint")
			}
			return err
		}
	}
	if err := o.AddHost(c.Context(), found); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "added %s; it has to show %s\n", oneLine(found.Address), strings.Join(fingerprints(found.Keys), " or "))
	return nil
}

func fingerprints(keys []api.HostKey) []string {
	var out []string
	for _, k := range keys {
		kind, _, _ := strings.Cut(k.Key, " ")
		out = append(out, oneLine(k.Fingerprint)+" ("+oneLine(kind)+")")
	}
	return out
}

func (a *app) printKeys(address string, keys []api.HostKey) {
	fmt.Fprintf(a.out, "%s shows:\n", oneLine(address))
	for _, f := range fingerprints(keys) {
		fmt.Fprintf(a.out, "  %s\n", f)
	}
}

func (a *app) listHosts(c *cobra.Command) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.Hosts(c.Context())
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "no host is known")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tADDED\tKEYS")
	for _, h := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", oneLine(h.Address), local(h.Added), strings.Join(fingerprints(h.Keys), ", "))
	}
	return w.Flush()
}

// maxPublic bounds a file of public keys.
const maxPublic = 512 << 10

// readPublic reads a file that holds no secret.
func readPublic(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxPublic+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(b) > maxPublic {
		return nil, usage("%s is longer than %d bytes", file, maxPublic)
	}
	return b, nil
}

// keyFlags are what an SSH key may need besides itself.
type keyFlags struct {
	certificate, passphrase string
	what                    string // optional: which of several keys it is
}

func (k *keyFlags) add(c *cobra.Command, certificate bool) {
	if certificate {
		c.Flags().StringVar(&k.certificate, "certificate-file", "", "the OpenSSH certificate of the key (…-cert.pub), for kind ssh-key")
	}
	c.Flags().StringVar(&k.passphrase, "key-passphrase-file", "", "file with the passphrase of an encrypted SSH key, 0600 and yours; it is asked for at the terminal otherwise")
}

// certified puts the certificate into the request, without its comment.
func (k *keyFlags) certified(in *api.Credential) error {
	if k.certificate == "" {
		return nil
	}
	b, err := readPublic(k.certificate)
	if err != nil {
		return err
	}
	words := strings.Fields(string(b))
	if len(words) < 2 {
		return usage("%s is no SSH certificate", k.certificate).WithHint("give the file that ends with -cert.pub")
	}
	if in.Params == nil {
		in.Params = map[string]string{}
	}
	in.Params["certificate"] = words[0] + " " + words[1]
	return nil
}

// withKey sends a value, and again with the passphrase of the key if it turns out to be one that is encrypted.
func (k *keyFlags) withKey(a *app, c *cobra.Command, send func(passphrase []byte) error) error {
	if k.passphrase == "" {
		err := send(nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeKeyEncrypted {
			return err
		}
		prompt := "The key's passphrase: "
		if k.what != "" {
			prompt = "The passphrase of " + oneLine(k.what) + ": "
		}
		p, terminal := a.readTerminal(c.Context(), prompt)
		if terminal != nil {
			return err // it names the flag
		}
		defer p.Wipe()
		return exposed(p, send)
	}
	p, err := readSecret(k.passphrase)
	if err != nil {
		return err
	}
	defer p.Wipe()
	return exposed(p, send)
}
