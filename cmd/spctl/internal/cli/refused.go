package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
)

// refused lists the calls that were not accepted.
func (a *app) refused(c *cobra.Command, q client.Query, since string, follow bool) error {
	var err error
	if q.Since, err = parseSince(since, a.now()); err != nil {
		return err
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	if follow {
		for e, err := range o.WatchRefusals(c.Context(), q) {
			if err != nil {
				return err
			}
			if !a.json {
				a.printRefusal(a.out, e.Refusal)
			} else if err := a.printJSON(e); err != nil {
				return err
			}
		}
		return nil
	}
	list, err := o.Refusals(c.Context(), q)
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "nothing was refused")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHEN\tTOOL\tCODE\tACTOR\tWHY")
	for _, r := range list {
		a.printRefusal(w, r)
	}
	return w.Flush()
}

func (a *app) printRefusal(w io.Writer, r api.Refusal) {
	why := oneLine(r.Reason)
	if r.NotRecorded > 0 {
		why += fmt.Sprintf(" (%d more before it were only counted)", r.NotRecorded)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", local(r.At), cut(r.Tool, 32), oneLine(string(r.Code)), cut(r.Actor, 40), why)
}
