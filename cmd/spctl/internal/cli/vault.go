package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault/secret"
)

func (a *app) vaultCommands() []*cobra.Command {
	var noKeyring bool
	initialize := a.reading(&cobra.Command{
		Use: "init", Short: "make the vault, and print the recovery kit once", GroupID: "start", Args: cobra.NoArgs,
		Long: `Makes the vault: a passphrase of your own (at least 12 characters), and a secret of this machine that lies in the
operating system's keyring. The recovery kit that is printed replaces a lost keyring. It is shown this once: print it
or write it down, and keep it away from this machine.

--no-keyring makes a vault that the passphrase alone opens. Choose it on purpose: a copied vault file is then as
safe as the passphrase.`,
		Example: "  spctl init\n  spctl init --no-keyring --passphrase-file ~/.sp-passphrase",
		RunE:    func(c *cobra.Command, _ []string) error { return a.initialize(c, noKeyring) },
	})
	initialize.Flags().BoolVar(&noKeyring, "no-keyring", false, "the passphrase alone opens the vault (weaker)")

	var kitFile string
	unlock := a.reading(&cobra.Command{
		Use: "unlock", Short: "open the vault, so that agents can ask", GroupID: "start", Args: cobra.NoArgs,
		Long: `Opens the vault with the passphrase and the keyring's secret. Where the keyring is lost, the recovery kit takes its
place: --recovery-kit-file names a file of yours (0600) that holds it. A new secret is then put into the keyring.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.unlock(c, kitFile) },
	})
	unlock.Flags().StringVar(&kitFile, "recovery-kit-file", "", "file with the recovery kit, in place of a lost keyring")

	lock := a.reading(&cobra.Command{
		Use: "lock", Short: "shut the vault: nothing new is sent, waiting calls end", GroupID: "start", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			s, err := o.Lock(c.Context())
			if err != nil {
				return err
			}
			return a.printStatus(s)
		},
	})
	status := a.reading(&cobra.Command{
		Use: "status", Short: "show whether the vault is open, and what waits for you", GroupID: "start", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			s, err := o.Status(c.Context())
			if err != nil {
				return err
			}
			return a.printStatus(s)
		},
	})

	var newFile string
	change := &cobra.Command{
		Use: "change", Short: "change the passphrase", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.changePassphrase(c, newFile) },
	}
	change.Flags().StringVar(&newFile, "new-passphrase-file", "", "file with the new passphrase, 0600 and yours")
	passphrase := &cobra.Command{Use: "passphrase", Short: "change the passphrase", GroupID: "set", Args: cobra.NoArgs, RunE: help}
	passphrase.AddCommand(change)
	return []*cobra.Command{initialize, unlock, lock, status, passphrase}
}

// help is for commands that only group others.
func help(c *cobra.Command, _ []string) error { return c.Help() }

func (a *app) initialize(c *cobra.Command, noKeyring bool) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	s, err := o.Status(c.Context())
	if err != nil {
		return err
	}
	if s.Vault != "uninitialized" {
		return api.Errorf(api.CodeConflict, "there is a vault already").WithHint("spctl unlock")
	}
	var passphrase *secret.Bytes
	if a.fromFile() {
		passphrase, err = a.passphrase(c.Context(), "")
	} else {
		passphrase, err = a.newPassphrase(c.Context(), "", "New passphrase (at least 12 characters): ")
	}
	if err != nil {
		return err
	}
	defer passphrase.Wipe()
	var answer api.InitAnswer
	if err := exposed(passphrase, func(b []byte) (err error) {
		answer, err = o.Init(c.Context(), api.InitRequest{Passphrase: b, NoKeyring: noKeyring})
		return err
	}); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	if answer.RecoveryKit != "" {
		fmt.Fprintf(a.out, "The vault is made and open.\n\nRecovery kit (shown this once; print it, and keep it away from this machine):\n\n    %s\n\n", answer.RecoveryKit)
		fmt.Fprintln(a.out, "It replaces a lost keyring, together with the passphrase. Nothing replaces a forgotten passphrase.")
		return nil
	}
	fmt.Fprintln(a.out, "The vault is made and open. It has no keyring: the passphrase alone opens it, and nothing replaces a forgotten one.")
	return nil
}

func (a *app) unlock(c *cobra.Command, kitFile string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	s, err := o.Status(c.Context())
	if err != nil {
		return err
	}
	if s.Vault == "uninitialized" {
		return api.Errorf(api.CodeUninitialized, "there is no vault yet").WithHint("spctl init")
	}
	in := api.UnlockRequest{}
	if kitFile != "" {
		kit, err := readSecret(kitFile)
		if err != nil {
			return err
		}
		defer kit.Wipe()
		if err := kit.Use(func(b []byte) error { in.RecoveryKit = append(in.RecoveryKit, b...); return nil }); err != nil {
			return err
		}
		defer clear(in.RecoveryKit)
	}
	passphrase, err := a.passphrase(c.Context(), "Passphrase: ")
	if err != nil {
		return err
	}
	defer passphrase.Wipe()
	if err := exposed(passphrase, func(b []byte) (err error) {
		in.Passphrase = b
		s, err = o.Unlock(c.Context(), in)
		return err
	}); err != nil {
		return err
	}
	return a.printStatus(s)
}

func (a *app) changePassphrase(c *cobra.Command, newFile string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	if _, err := o.Status(c.Context()); err != nil {
		return err
	}
	before, err := a.passphrase(c.Context(), "Passphrase: ")
	if err != nil {
		return err
	}
	defer before.Wipe()
	after, err := a.newPassphrase(c.Context(), newFile, "New passphrase (at least 12 characters): ")
	if err != nil {
		return err
	}
	defer after.Wipe()
	if err := exposed(before, func(old []byte) error {
		return exposed(after, func(new []byte) error {
			return o.ChangePassphrase(c.Context(), api.PassphraseRequest{Old: old, New: new})
		})
	}); err != nil {
		return err
	}
	fmt.Fprintln(a.out, "The passphrase is changed. An older copy of the vault file still opens with the old one.")
	return nil
}

func (a *app) printStatus(s api.Status) error {
	if a.json {
		return a.printJSON(s)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, oneLine(fmt.Sprintf(format, args...)))
	}
	vault := s.Vault
	switch s.Vault {
	case "locked":
		vault += " (open it: spctl unlock)"
	case "uninitialized":
		vault += " (make it: spctl init)"
	}
	if s.Reason != "" {
		vault += ": " + s.Reason
	}
	row("vault", "%s", vault)
	if l := s.LockedCalls; l != nil {
		row("", "%s refused since it was locked, the last at %s (see spctl activity --refused)", plural(l.Calls, "call", ""), l.Last.Local().Format("15:04:05"))
	}
	if s.Keyring != "" {
		row("keyring", "%s", map[string]string{"used": "used", "not_used": "not used: the passphrase alone opens the vault", "unavailable": "unavailable (see spctl doctor)"}[s.Keyring])
	}
	row("waiting for you", "%s", plural(s.Pending, "card", " (see spctl approvals)"))
	row("unknown outcomes", "%s", plural(s.Unknown, "execution", " (see spctl activity --state unknown)"))
	if r := s.Refused; r != nil {
		row("refused", "since the daemon started, wrong proofs: %d, callers that may not ask: %d; the last at %s from process %d%s", r.WrongProofs, r.Agents, r.Last.Local().Format("15:04:05"), r.LastPID, because(r.LastWhy))
	}
	if d := s.Doubts; d != nil {
		row("in doubt", "taken since the daemon started, from where you could hardly be: %d; the last at %s from process %d%s", d.Count, d.Last.Local().Format("15:04:05"), d.LastPID, because(d.LastWhy))
	}
	if r := s.RefusedClients; r != nil {
		row("refused HTTP", "since the daemon started, requests of agents without a token that counts: %d; the last at %s from process %d (%s): %s",
			r.Count, r.Last.Local().Format("15:04:05"), r.LastPID, oneLine(r.LastActor), oneLine(r.LastWhy))
	}
	journal := s.Journal
	if s.Problem != "" {
		journal += ": " + s.Problem
	}
	row("journal", "%s", journal)
	if s.Head != nil {
		row("head", "%d:%s", s.Head.Seq, s.Head.Hash)
	}
	row("sessions", "%d", s.Sessions)
	row("standing grants", "%d", s.Grants)
	actions := fmt.Sprintf("%d accepted", s.Actions)
	if s.Changed > 0 {
		actions += fmt.Sprintf(", %d new or changed (see spctl action list)", s.Changed)
	}
	row("actions", "%s", actions)
	if s.MCPURL != "" {
		row("MCP", "%s", s.MCPURL)
	}
	row("daemon", "%s, pid %d, since %s", s.Version, s.PID, local(s.Since))
	return w.Flush()
}
