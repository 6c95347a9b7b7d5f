package cli

import (
	"io"

	"singlepass.dev/daemon/visible"
)

// cleaner lets nothing through that a terminal would act on. Everything that spctl prints goes through it, so that no command can forget. The form \uXXXX is JSON's own, so JSON
// stays what it was.
type cleaner struct{ w io.Writer }

func clean(w io.Writer) io.Writer { return cleaner{w} }

func (c cleaner) Write(p []byte) (int, error) {
	if _, err := io.WriteString(c.w, visible.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// oneLine escapes line breaks as well: a value must not be able to look like another line of ours.
func oneLine(s string) string { return visible.Line(s) }

// cut shortens a value for a table.
func cut(s string, n int) string { return visible.Cut(s, n) }
