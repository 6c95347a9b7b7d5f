package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the man pages. cobra's own generator takes a Markdown renderer along; a page is simple enough to write in man(7) directly.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the man pages into a folder", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { // #nosec G301 -- manual pages are for everybody
				return fmt.Errorf("writing man pages: %w", err)
			}
			return writePages(c.Root(), args[0])
		},
	}
}

func writePages(c *cobra.Command, dir string) error {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(page(c, name)), 0o644); err != nil { // #nosec G306 -- manual pages are for everybody
		return fmt.Errorf("writing man pages: %w", err)
	}
	for _, child := range c.Commands() {
		if err := writePages(child, dir); err != nil {
			return err
		}
	}
	return nil
}

func page(c *cobra.Command, name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Singlepass\" \"User Commands\"\n", roff(strings.ToUpper(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", roff(name), roff(c.Short), roff(c.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	// Indented lines are tables and examples: they keep their form.
	literal := false
	for line := range strings.SplitSeq(cmp.Or(c.Long, c.Short+"."), "\n") {
		switch indented := strings.HasPrefix(line, "  "); {
		case indented && !literal:
			b.WriteString(".nf\n")
			literal = true
		case !indented && literal:
			b.WriteString(".fi\n")
			literal = false
		}
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(roff(line) + "\n")
	}
	if literal {
		b.WriteString(".fi\n")
	}
	flags := func(title string, set *pflag.FlagSet) {
		if !set.HasAvailableFlags() {
			return
		}
		fmt.Fprintf(&b, ".SH %s\n", title)
		set.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			b.WriteString(".TP\n")
			if f.Shorthand != "" {
				fmt.Fprintf(&b, "\\fB\\-%s\\fR, ", f.Shorthand)
			}
			fmt.Fprintf(&b, "\\fB\\-\\-%s\\fR", roff(f.Name))
			if f.Value.Type() != "bool" {
				fmt.Fprintf(&b, " \\fI%s\\fR", f.Value.Type())
			}
			fmt.Fprintf(&b, "\n%s\n", roff(f.Usage))
		})
	}
	flags("OPTIONS", c.NonInheritedFlags())
	flags("GLOBAL OPTIONS", c.InheritedFlags())
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLE\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	b.WriteString(".SH EXIT STATUS\n0 done, 1 failed, 2 usage, 3 vault locked, 4 operator proof needed or wrong, 5 not found, 6 refused by policy, 7 does not verify, 69 daemon not running.\n")
	var also []string
	if c.HasParent() {
		also = append(also, strings.ReplaceAll(c.Parent().CommandPath(), " ", "-"))
	}
	for _, child := range c.Commands() {
		if !child.Hidden && child.Name() != "help" {
			also = append(also, strings.ReplaceAll(child.CommandPath(), " ", "-"))
		}
	}
	if len(also) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, n := range also {
			also[i] = fmt.Sprintf("\\fB%s\\fR(1)", roff(n))
		}
		b.WriteString(strings.Join(also, ", ") + "\n")
	}
	return b.String()
}

// roff escapes text for man(7): the escape character, hyphens that are to be copied as they stand, and a first character that would start a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
