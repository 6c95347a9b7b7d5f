package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
)

func (a *app) auditCommand() *cobra.Command {
	group := &cobra.Command{Use: "audit", Short: "verify the journal, and prove what stands in it", GroupID: "look", Args: cobra.NoArgs, RunE: help}

	var v verifyFlags
	verify := a.reading(&cobra.Command{
		Use: "verify [DIR|FILE]", Short: "verify the journal from its files alone", Args: cobra.MaximumNArgs(1),
		Long: `Reads the journal's files and says whether every entry is as it was written: nothing changed, removed, put elsewhere,
added or cut off; and, unless --bytes-only, whether the executions in it could have gone that way. It needs neither
daemon nor passphrase, and can run while the daemon writes.

Where the end was cut off cleanly, only something that was kept elsewhere shows it: --head takes what spctl audit head
printed earlier, --key the key that spctl audit key printed, for the newest signed checkpoint. Without either the
journal is self-consistent only.`,
		Example: "  spctl audit verify\n  spctl audit verify --head 4711:5f0c…",
		RunE:    func(c *cobra.Command, args []string) error { return a.verify(c.Context(), args, v) },
	})
	verify.Flags().StringVar(&v.key, "key", "", "key that checkpoints are signed with")
	verify.Flags().StringVar(&v.head, "head", "", "entry that has to be there, as NUMBER:HASH")
	verify.Flags().StringVar(&v.checkpoint, "checkpoint", "", "file with a signed checkpoint (with --key; the journal's newest)")
	verify.Flags().BoolVar(&v.export, "export", false, "it is an export: payloads may be left out")
	verify.Flags().BoolVar(&v.bytesOnly, "bytes-only", false, "do not check what the entries mean")

	head := a.reading(&cobra.Command{
		Use: "head", Short: "print the journal's last entry, to be kept elsewhere", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.head(c.Context()) },
	})
	prove := &cobra.Command{
		Use: "prove EXECUTION", Short: "print proofs that an execution's entries stand in the journal, as JSON", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		Long: `Prints the entries of one execution, each with its path in the journal's tree (RFC 6962), so that somebody who has a
signed checkpoint can check them without the rest of the journal.`,
		RunE: func(c *cobra.Command, args []string) error { return a.proveEntries(c.Context(), args[0]) },
	}
	key := a.reading(&cobra.Command{
		Use: "key", Short: "print the key that checkpoints are verified with", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.key(c.Context()) },
	})
	var out string
	export := &cobra.Command{
		Use: "export --out DIR", Short: "copy the journal without what was asked for and answered", Args: cobra.NoArgs,
		Long: `Copies the journal's segments and leaves the sealed payloads out. The copy verifies: spctl audit verify --export DIR.`,
		RunE: func(*cobra.Command, []string) error { return a.export(out) },
	}
	export.Flags().StringVar(&out, "out", "", "folder to be made")
	_ = export.MarkFlagRequired("out")
	var reason string
	accept := &cobra.Command{
		Use: "accept --reason TEXT", Short: "end the quarantine of a journal that does not verify", Args: cobra.NoArgs,
		Long: `Opens a new segment that records what was found and your reason, and lets the daemon send again. What was found stays
as it is. Look at spctl audit verify first.`,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.AcceptQuarantine(c.Context(), reason); err != nil {
				return err
			}
			fmt.Fprintln(a.out, "the quarantine is over; the journal goes on in a new segment that records what was found")
			return nil
		},
	}
	accept.Flags().StringVar(&reason, "reason", "", "why you accept it; it stays in the journal")
	_ = accept.MarkFlagRequired("reason")
	group.AddCommand(verify, head, prove, key, export, accept)
	return group
}

type verifyFlags struct {
	key, head, checkpoint string
	export, bytesOnly     bool
}

// journal is the journal's folder.
func (a *app) journal() (string, error) {
	h, err := a.places()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(h.Journal()); errors.Is(err, fs.ErrNotExist) {
		return "", api.Errorf(api.CodeMissing, "there is no journal at %s", h.Journal())
	}
	return h.Journal(), nil
}

func (a *app) verify(ctx context.Context, args []string, f verifyFlags) error {
	path := ""
	if len(args) == 1 {
		path = args[0]
		if _, err := os.Stat(path); err != nil {
			return api.Errorf(api.CodeMissing, "%v", err)
		}
	} else {
		dir, err := a.journal()
		if err != nil {
			return err
		}
		path = dir
	}
	opts := audit.Options{Key: f.key, Withheld: f.export}
	if !f.bytesOnly {
		opts.Story = story()
	}
	if f.head != "" {
		head, err := audit.ParseHead(f.head)
		if err != nil {
			return usage("%v", err)
		}
		opts.Head = &head
	}
	if f.checkpoint != "" {
		b, err := os.ReadFile(f.checkpoint)
		if err != nil {
			return api.Errorf(api.CodeMissing, "%v", err)
		}
		opts.Checkpoint = b
	}
	r, err := audit.Verify(ctx, path, opts)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			OK                 bool   `json:"ok"`
			SelfConsistentOnly bool   `json:"self_consistent_only"`
			Path               string `json:"path"`
			audit.Report
		}{r.OK(), r.SelfConsistentOnly(), path, r})
	} else {
		a.printReport(path, r)
	}
	if err == nil && !r.OK() {
		err = exitError{api.ExitUnverified}
	}
	return err
}

// maxShown bounds the findings that are printed for people.
const maxShown = 20

func (a *app) printReport(path string, r audit.Report) {
	show := func(list []audit.Finding, format string) {
		for i, f := range list {
			if i == maxShown {
				fmt.Fprintf(a.out, "  and %d more (see --json)\n", len(list)-maxShown)
				break
			}
			text := f.String()
			if f.Entries > 1 {
				text += fmt.Sprintf(", %d lines in a row", f.Entries)
			}
			if f.Detail != "" {
				text += ": " + f.Detail
			}
			fmt.Fprintf(a.out, format, oneLine(text))
		}
	}
	if r.OK() {
		fmt.Fprintf(a.out, "%s verifies: %s in %s, up to %s\n", oneLine(path), entries(r.Entries), plural(r.Segments, "file", ""), r.Head)
	} else {
		fmt.Fprintf(a.out, "%s DOES NOT VERIFY: %s among %s\n", oneLine(path), plural(len(r.Findings), "finding", ""), entries(r.Entries))
		show(r.Findings, "  %s\n")
	}
	show(r.Accepted, "  accepted by the operator: %s\n")
	for _, c := range r.Cuts {
		fmt.Fprintf(a.out, "  a torn end of %d bytes, never acknowledged, was cut and recorded (%s)\n", c.Length, oneLine(c.Segment))
	}
	if r.Torn != nil {
		fmt.Fprintln(a.out, "  the last line is not whole: it is being written, or was when the machine stopped")
	}
	if r.Erased > 0 {
		fmt.Fprintf(a.out, "  %s erased on the record\n", plural(r.Erased, "payload", ""))
	}
	if r.Withheld > 0 {
		fmt.Fprintf(a.out, "  %s left out\n", plural(r.Withheld, "payload", ""))
	}
	if r.AgainstHead {
		fmt.Fprintln(a.out, "  held against the head that was given")
	}
	if c := r.AgainstCheckpoint; c != nil {
		fmt.Fprintf(a.out, "  held against the checkpoint of %s over %s\n", oneLine(c.Origin), entries(c.Size))
	}
	if r.OK() && r.SelfConsistentOnly() {
		fmt.Fprintln(a.out, "  self-consistent only: an end that was cut off cleanly would not show; give --head or --key")
	}
}

func entries(n uint64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

func (a *app) head(ctx context.Context) error {
	dir, err := a.journal()
	if err != nil {
		return err
	}
	head, root, err := audit.TreeHead(ctx, dir)
	if errors.Is(err, audit.ErrNotVerified) {
		return api.Errorf(api.CodeUnverified, "the journal does not verify").WithHint("spctl audit verify")
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(api.Head{Seq: head.Seq, Hash: head.Hash.String(), Root: root.String()})
	}
	fmt.Fprintln(a.out, head)
	return nil
}

func (a *app) key(ctx context.Context) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	s, err := o.Status(ctx)
	if err != nil {
		return err
	}
	switch {
	case s.Vault == "uninitialized":
		return api.Errorf(api.CodeUninitialized, "there is no vault yet").WithHint("spctl init")
	case s.Head == nil || s.Head.Key == "":
		return api.Errorf(api.CodeVaultLocked, "the key lies in the vault, and it is locked").WithHint("spctl unlock")
	}
	if a.json {
		return a.printJSON(struct {
			Key string `json:"key"`
		}{s.Head.Key})
	}
	fmt.Fprintln(a.out, oneLine(s.Head.Key))
	return nil
}

// segments lists the journal's files, in order.
func segments(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading journal: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, ok := chain.ParseSegmentName(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func (a *app) proveEntries(ctx context.Context, id string) error {
	dir, err := a.journal()
	if err != nil {
		return err
	}
	if strings.ContainsAny(id, "\"\\") {
		return usage("%q is no execution's id", id)
	}
	names, err := segments(dir)
	if err != nil {
		return err
	}
	// Within a JSON string a quotation mark is always escaped, so this text can only be the member itself.
	mark := []byte(`"execution_id":"` + id + `"`)
	var seqs []uint64
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("reading journal: %w", err)
		}
		for l := range chain.Lines(b) {
			if bytes.Contains(l.Entry, mark) {
				seqs = append(seqs, l.Seq)
			}
		}
	}
	if len(seqs) == 0 {
		return api.Errorf(api.CodeNotFound, "the journal has no entry of %q", id).WithHint("spctl activity")
	}
	out := struct {
		Execution  string        `json:"execution_id"`
		Checkpoint string        `json:"checkpoint,omitempty"` // the newest signed one, where there is one
		Proofs     []audit.Proof `json:"proofs"`
	}{Execution: id}
	if b, err := os.ReadFile(filepath.Join(dir, audit.CheckpointFile)); err == nil {
		out.Checkpoint = string(b)
	}
	size := uint64(0)
	for _, seq := range seqs {
		p, err := audit.ProveInclusion(ctx, dir, seq, size)
		if errors.Is(err, audit.ErrNotVerified) {
			return api.Errorf(api.CodeUnverified, "the journal does not verify, so nothing can be proven by it").WithHint("spctl audit verify")
		}
		if err != nil {
			return err
		}
		size = p.Size // all proofs are about one tree, also while the daemon writes
		out.Proofs = append(out.Proofs, p)
	}
	return a.printJSON(out)
}

func (a *app) export(out string) error {
	dir, err := a.journal()
	if err != nil {
		return err
	}
	names, err := segments(dir)
	if err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o700); err != nil {
		return fmt.Errorf("exporting journal: %w", err)
	}
	for _, name := range names {
		if err := exportSegment(filepath.Join(dir, name), filepath.Join(out, name)); err != nil {
			return fmt.Errorf("exporting journal: %w", err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, audit.CheckpointFile)); err == nil {
		if err := os.WriteFile(filepath.Join(out, audit.CheckpointFile), b, 0o600); err != nil { // #nosec G703 -- the folder that the person named
			return fmt.Errorf("exporting journal: %w", err)
		}
	}
	fmt.Fprintf(a.out, "%s written to %s; verify them with: spctl audit verify --export %s\n", plural(len(names), "file", ""), oneLine(out), oneLine(out))
	return nil
}

// exportSegment copies whole lines without their payloads. A line that is none is copied as it stands: it is evidence.
func exportSegment(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			break // the line that is being written, or the segment's unused zeros
		}
		b = rest
		if l, err := chain.Split(line); err == nil {
			_, _ = fmt.Fprintf(w, "{\"entry\":%s,\"hash\":\"%s\"}\n", l.Entry, l.Hash())
			continue
		}
		_, _ = w.Write(append(bytes.Clone(line), '\n'))
	}
	return errors.Join(w.Flush(), f.Close())
}
