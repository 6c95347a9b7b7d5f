package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/home"
	"singlepass.dev/vault/material"
)

// sshFile is one file of a folder with SSH keys, as it is told to the person.
type sshFile struct {
	File        string `json:"file"`
	Type        string `json:"type,omitempty"`
	Bits        int    `json:"bits,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Encrypted   bool   `json:"encrypted"`
	Comment     string `json:"comment,omitempty"`
	Certificate string `json:"certificate,omitempty"` // the file of its certificate
	Problem     string `json:"problem,omitempty"`     // why it cannot be taken over

	value []byte
}

// sshImport is what the flags of import ssh say.
type sshImport struct {
	name, prefix string
	targets      []string
	keys         []string
	list         bool
	key          keyFlags
}

func (a *app) importSSHCommand(perUse *bool, taken func(*cobra.Command, []string, string, *keyFlags, func([]byte) ([]found, error)) error) *cobra.Command {
	var in sshImport
	c := a.reading(&cobra.Command{
		Use: "ssh [FILE | FOLDER]", Short: "SSH private keys, as kind ssh-key",
		Long: `Looks through ~/.ssh, or the folder that is named, shows each private key that it finds with its type, its fingerprint,
whether it is encrypted, and its comment, and why it leaves other files out; then it asks which of them to take over, and
for which account on which host. Scripts look with --list (or --json) and choose with --key and --target. Links and
files that others can read are left out. A certificate beside a key (KEY-cert.pub) is taken over with it.

One file that is named is taken over with --name and --target alone. The passphrase of an encrypted key is asked for once,
at the terminal or from --key-passphrase-file, and is not kept: the vault seals the key.`,
		Example: "  spctl credential import ssh\n  spctl credential import ssh --list\n  spctl credential import ssh --key id_ed25519 --target ssh://deploy@db1.internal.example",
		RunE: func(c *cobra.Command, args []string) error {
			if in.list || a.json || len(in.keys) > 0 || folder(args) || len(args) == 0 && in.name == "" {
				return a.importSSHFolder(c, args, in, *perUse)
			}
			if in.name == "" || len(in.targets) == 0 {
				return usage("one key needs a name and a target").WithHint("--name NAME --target ssh://USER@HOST")
			}
			one := api.Credential{Name: in.name, Kind: "ssh-key", Targets: in.targets}
			if err := in.key.certified(&one); err != nil {
				return err
			}
			return taken(c, args, ".ssh/id_ed25519", &in.key, func(b []byte) ([]found, error) {
				return []found{{in: one, value: b, where: "the key", whole: true}}, nil
			})
		},
	})
	f := c.Flags()
	f.StringVar(&in.name, "name", "", "the credential's name, for a single key; that of its file otherwise")
	f.StringVar(&in.prefix, "prefix", "", "what the credentials' names begin with")
	f.StringArrayVar(&in.targets, "target", nil, "the account on a host for which the keys may be used (repeatable)")
	f.StringArrayVar(&in.keys, "key", nil, "take this key of the folder, named by its file or its fingerprint, without asking (repeatable)")
	f.BoolVar(&in.list, "list", false, "only show what is there; nothing is taken over")
	in.key.add(c, true)
	return c
}

func folder(args []string) bool {
	if len(args) == 0 {
		return false
	}
	info, err := os.Stat(args[0])
	return err == nil && info.IsDir()
}

func (a *app) importSSHFolder(c *cobra.Command, args []string, in sshImport, perUse bool) error {
	dir := filepath.Join(a.cfg.Getenv("HOME"), ".ssh")
	if len(args) == 1 {
		dir = args[0]
	}
	if in.key.certificate != "" {
		return usage("--certificate-file is for a single key").WithHint("name the key's file, or put the certificate beside it as KEY-cert.pub")
	}
	if err := closeToOthers(); err != nil {
		return err
	}
	all, err := lookThrough(dir)
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range all {
			clear(f.value)
		}
	}()
	if a.json {
		return printLines(a, all)
	}
	keys := slices.DeleteFunc(slices.Clone(all), func(f sshFile) bool { return f.Problem != "" })
	chosen, err := pick(keys, in.keys)
	if err != nil {
		return err
	}
	if len(in.keys) == 0 {
		if err := a.printSSHFiles(dir, keys, all); err != nil || in.list || len(keys) == 0 {
			return err
		}
		if chosen, err = a.askWhich(keys); err != nil {
			return err
		}
	}
	if in.name != "" && len(chosen) != 1 {
		return usage("--name is for a single key").WithHint("--prefix PREFIX puts something before the names of their files")
	}
	list := make([]found, len(chosen))
	for i, f := range chosen {
		name := in.name
		if name == "" {
			name = in.prefix + f.File
		}
		targets := in.targets
		if len(targets) == 0 {
			if len(in.keys) > 0 {
				return usage("the keys need a target").WithHint("--target ssh://USER@HOST")
			}
			line, err := a.askLine(fmt.Sprintf("For which account may %s be used (ssh://USER@HOST)? ", oneLine(f.File)))
			if err != nil {
				return err
			}
			if targets = strings.Fields(line); len(targets) == 0 {
				return errNoAnswer
			}
		}
		list[i] = found{in: api.Credential{Name: name, Kind: "ssh-key", Targets: targets, PerUse: perUse}, value: f.value, where: f.File, among: true}
		if f.Certificate != "" {
			beside := keyFlags{certificate: filepath.Join(dir, f.Certificate)}
			if err := beside.certified(&list[i].in); err != nil {
				return err
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return a.takeOver(c, dir, list, &in.key)
}

// lookThrough tells what each file of a folder is. It opens no link, and reads whole only what begins as a private key does and is closed to others.
func lookThrough(dir string) ([]sshFile, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for SSH keys: %w", err)
	}
	if !info.IsDir() {
		return nil, usage("%s is no folder", oneLine(dir)).WithHint("name it with --name and --target to take one key over")
	}
	if err := home.CheckUnexchangeable(dir); err != nil {
		return nil, fmt.Errorf("looking for SSH keys: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for SSH keys: %w", err)
	}
	var all []sshFile
	for _, e := range entries {
		f := sshFile{File: e.Name()}
		path := filepath.Join(dir, f.File)
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			f.Problem = "is a symbolic link"
		case e.IsDir():
			f.Problem = "is a folder"
		case !e.Type().IsRegular():
			f.Problem = "is not a regular file"
		default:
			f.look(path)
		}
		all = append(all, f)
	}
	return all, nil
}

func (f *sshFile) look(path string) {
	start, err := home.Beginning(path, 256)
	if err != nil {
		f.Problem = reasonOf(err)
		return
	}
	if !material.IsSSHKey(start) {
		f.Problem = "is no private key"
		return
	}
	b, err := home.ReadPrivate(path, maxImport)
	if err != nil {
		f.Problem = reasonOf(err)
		return
	}
	var public []byte // a hint, where there is one
	if regular(path + ".pub") {
		public, _ = readPublic(path + ".pub")
	}
	k, err := material.LookAtSSHKey(b, public)
	if err != nil {
		clear(b)
		f.Problem = "cannot be taken over: " + err.Error()
		return
	}
	f.Type, f.Bits, f.Fingerprint, f.Encrypted, f.Comment, f.value = k.Type, k.Bits, k.Fingerprint, k.Encrypted, k.Comment, b
	if regular(path + "-cert.pub") {
		f.Certificate = f.File + "-cert.pub"
	}
}

func regular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// reasonOf is what is wrong with a file, and what mends it; its name stands before it.
func reasonOf(err error) string {
	var p *home.Problem
	if errors.As(err, &p) {
		return p.What + ": " + p.Fix
	}
	return err.Error()
}

// pick finds the keys that were named.
func pick(keys []sshFile, names []string) (chosen []sshFile, err error) {
	for _, name := range names {
		i := slices.IndexFunc(keys, func(f sshFile) bool { return f.File == name || f.Fingerprint == name && name != "" })
		if i < 0 {
			return nil, usage("there is no key %s that can be taken over", oneLine(name)).WithHint("spctl credential import ssh --list shows what is there")
		}
		if !slices.ContainsFunc(chosen, func(f sshFile) bool { return f.File == keys[i].File }) {
			chosen = append(chosen, keys[i])
		}
	}
	return chosen, nil
}

// askWhich has the person choose by number.
func (a *app) askWhich(keys []sshFile) (chosen []sshFile, err error) {
	line, err := a.askLine("Which of them shall be taken over (numbers, or Enter for none)? ")
	if err != nil {
		var e *api.Error
		if errors.As(err, &e) {
			return nil, usage("which keys to take over has to be said, and there is no terminal to ask at").WithHint("--list only looks; --key FILE --target ssh://USER@HOST takes one over")
		}
		return nil, err
	}
	for _, word := range strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > len(keys) {
			return nil, usage("%s is no number of the list; nothing was taken over", oneLine(word))
		}
		if !slices.ContainsFunc(chosen, func(f sshFile) bool { return f.File == keys[n-1].File }) {
			chosen = append(chosen, keys[n-1])
		}
	}
	if len(chosen) == 0 {
		return nil, errNoAnswer
	}
	return chosen, nil
}

func (a *app) printSSHFiles(dir string, keys, all []sshFile) error {
	fmt.Fprintf(a.out, "private keys in %s: %s\n", oneLine(dir), plural(len(keys), "key", ""))
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for i, f := range keys {
		kind := f.Type
		if f.Bits != 0 {
			kind += fmt.Sprintf(" (%d bits)", f.Bits)
		}
		locked := map[bool]string{true: "encrypted", false: "not encrypted"}[f.Encrypted]
		if f.Certificate != "" {
			locked += ", with a certificate"
		}
		fingerprint := f.Fingerprint
		if fingerprint == "" {
			fingerprint = "fingerprint not known without its passphrase"
		}
		fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\t%s\n", i+1, oneLine(f.File), oneLine(kind), oneLine(fingerprint), locked, oneLine(f.Comment))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	said := false
	for _, f := range all {
		beside := func(key sshFile) bool { return f.File == key.File+".pub" || f.File == key.Certificate }
		if f.Problem == "" || slices.ContainsFunc(keys, beside) { // what belongs to a key is no news
			continue
		}
		if !said {
			fmt.Fprintln(a.out, "left out:")
		}
		said = true
		fmt.Fprintf(a.out, "  %s %s\n", oneLine(f.File), oneLine(f.Problem))
	}
	return nil
}
