package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
)

// states are the states that --state takes; the shell completes them.
var states = []string{
	"accepted", "authorized", "dispatched", "unknown", "completed_result_not_delivered", "completed_result_delivered", "rejected", "expired", "withdrawn", "not_sent", "not_done",
}

func (a *app) activityCommands() []*cobra.Command {
	var follow, refused bool
	var since string
	var q client.Query
	activity := a.reading(&cobra.Command{
		Use: "activity", Short: "list what was asked for and what came of it", GroupID: "look", Args: cobra.NoArgs,
		Long: `Lists executions, the newest first. With --follow it stays and shows every change; with --json every line is one
record. With --refused it lists the calls that were not accepted at all (the vault was locked, the arguments were
wrong, …): nothing was sent for them, and they have no execution.`,
		Example: "  spctl activity --since 24h\n  spctl activity --state unknown --json\n  spctl activity --refused --follow",
		RunE: func(c *cobra.Command, _ []string) error {
			if refused {
				return a.refused(c, q, since, follow)
			}
			return a.activity(c, q, since, follow)
		},
	})
	f := activity.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "stay, and show what changes")
	f.BoolVar(&refused, "refused", false, "the calls that were not accepted, instead of executions")
	f.StringVar(&q.Run, "run", "", "only this run")
	f.StringVar(&q.Tool, "tool", "", "only this tool")
	f.StringVar(&q.State, "state", "", "only this state")
	f.StringVar(&since, "since", "", "only since then: a duration (24h, 7d), or an RFC 3339 time")
	f.IntVar(&q.Limit, "limit", 0, "at most so many (200)")
	activity.MarkFlagsMutuallyExclusive("refused", "state")
	_ = activity.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))

	var payload bool
	show := a.reading(&cobra.Command{
		Use: "show EXECUTION", Short: "show one execution, step by step", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error { return a.show(c, args[0], payload) },
	})
	show.Flags().BoolVar(&payload, "payload", false, "with what was asked for, what was sent and what came back (the vault has to be open)")
	activity.AddCommand(show)

	check := a.reading(&cobra.Command{
		Use: "check EXECUTION", Short: "ask the target whether a lost call was carried out", GroupID: "decide", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		Long: `Asks by the contract's status query or marker, shows what was answered, and records it. It never sends the action
itself. "Could not be determined" changes nothing; "the target did nothing" is believed only after the time
that the contract gives.`,
		RunE: func(c *cobra.Command, args []string) error { return a.check(c, args[0]) },
	})
	var done, notDone, overrule bool
	var note string
	settle := a.reading(&cobra.Command{
		Use: "settle EXECUTION (--done | --not-done)", Short: "say whether a lost call was carried out", GroupID: "decide", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		Long: `Your word on an unknown outcome, after you looked for yourself. Where the target was asked, what it said is
shown first; a verdict against it needs --overrule. The verdict is recorded with what was shown.

  --done      the target did it: the verdict becomes the result, and a retry gets that
  --not-done  the target did nothing: the next call is a new execution`,
		RunE: func(c *cobra.Command, args []string) error { return a.settle(c, args[0], done, overrule, note) },
	})
	settle.Flags().BoolVar(&done, "done", false, "the target did it")
	settle.Flags().BoolVar(&notDone, "not-done", false, "the target did nothing")
	settle.Flags().BoolVar(&overrule, "overrule", false, "also against what the target said when it was asked")
	settle.Flags().StringVar(&note, "note", "", "what you saw; it stays in the journal")
	settle.MarkFlagsMutuallyExclusive("done", "not-done")
	settle.MarkFlagsOneRequired("done", "not-done")
	return []*cobra.Command{activity, check, settle}
}

// parseSince reads a duration back from now (with days), or a time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	var d time.Duration
	var days int
	if n, err := fmt.Sscanf(text, "%dd", &days); n == 1 && err == nil && strings.HasSuffix(text, "d") {
		d = time.Duration(days) * 24 * time.Hour
	} else if d, err = time.ParseDuration(text); err != nil {
		return time.Time{}, usage("--since %q is neither a duration nor an RFC 3339 time", text).WithHint("for instance 24h, 7d or 2026-01-31T12:00:00Z")
	}
	return now.Add(-d.Abs()), nil
}

func (a *app) activity(c *cobra.Command, q client.Query, since string, follow bool) error {
	var err error
	if q.Since, err = parseSince(since, a.now()); err != nil {
		return err
	}
	if q.State != "" && !slices.Contains(states, q.State) {
		return usage("%q is no state", q.State).WithHint("states are %s", strings.Join(states, ", "))
	}
	o, err := a.ask()
	if err != nil {
		return err
	}
	if !follow {
		list, err := o.Activity(c.Context(), q)
		if err != nil {
			return err
		}
		if a.json {
			return printLines(a, list)
		}
		if len(list) == 0 {
			fmt.Fprintln(a.out, "nothing was asked for")
			return nil
		}
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "EXECUTION\tACCEPTED\tTOOL\tTARGET\tWHAT CAME OF IT")
		for _, r := range list {
			a.printRow(w, r)
		}
		return w.Flush()
	}
	for e, err := range o.WatchActivity(c.Context(), q) {
		if err != nil {
			return err
		}
		if a.json {
			if err := a.printJSON(e); err != nil {
				return err
			}
			continue
		}
		a.printRow(a.out, e.Record)
	}
	return nil
}

func (a *app) printRow(w io.Writer, r api.Record) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(r.ExecutionID), local(r.AcceptedAt), cut(r.Tool, 32), cut(r.Target, 60), oneLine(r.Summary))
}

func (a *app) show(c *cobra.Command, id string, payload bool) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	r, err := o.Execution(c.Context(), id)
	if err != nil {
		return err
	}
	var p *api.Payload
	if payload {
		got, err := o.Payload(c.Context(), id)
		if err != nil {
			return err
		}
		p = &got
	}
	if a.json {
		return a.printJSON(struct {
			api.Record
			Payload *api.Payload `json:"payload,omitempty"`
		}{r, p})
	}
	a.printRecord(r)
	if p != nil {
		a.printPayload(*p)
	}
	return nil
}

func (a *app) printRecord(r api.Record) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, oneLine(value))
		}
	}
	row("execution", r.ExecutionID)
	row("what came of it", r.Summary)
	row("state", r.State)
	row("outcome", cmp.Or(r.Outcome, "not known"))
	row("reason", r.Reason)
	row("code", string(r.Code))
	row("action", r.Tool)
	row("target", r.Target)
	row("class", r.Class)
	row("credential", r.Credential)
	row("actor", r.Actor)
	row("run", r.Run)
	row("intent scope", r.IntentScope)
	row("authorized by", r.AuthorizedBy)
	row("again", r.Again)
	row("attempts", fmt.Sprint(len(r.Attempts)))
	row("fingerprint", r.Fingerprint)
	row("result", r.Result)
	_ = w.Flush()
	if len(r.Timeline) > 0 {
		fmt.Fprintln(a.out)
		a.printTimeline(r.Timeline)
	}
	for _, check := range r.Checks {
		times := ""
		if check.Times > 1 {
			times = fmt.Sprintf(", %d times", check.Times)
		}
		fmt.Fprintf(a.out, "  asked by %s%s: %s; %s\n", oneLine(check.By), times, foundText(check.Finding), oneLine(cmp.Or(check.Evidence, check.Reason)))
	}
	for _, caller := range r.Callers {
		parts := []string{"call " + caller.Call, "run " + caller.Run}
		for name, value := range map[string]string{"over": caller.Transport, "request": caller.RequestID, "protocol": caller.Protocol, "client says": caller.Client} {
			if value != "" {
				parts = append(parts, name+" "+value)
			}
		}
		slices.Sort(parts[2:])
		if caller.Delivered != "" {
			parts = append(parts, "delivered: "+caller.Delivered)
		}
		if caller.Disputed {
			parts = append(parts, "disputed by a later cancellation")
		}
		fmt.Fprintf(a.out, "  %s\n", oneLine(strings.Join(parts, ", ")))
	}
}

func (a *app) printTimeline(steps []api.Step) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for i, s := range steps {
		gap := ""
		if i > 0 {
			gap = took(s.AfterMS)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", s.At.Local().Format("15:04:05.000"), gap, oneLine(s.Text))
	}
	_ = w.Flush()
}

func (a *app) printPayload(p api.Payload) {
	if p.Erased {
		fmt.Fprintln(a.out, "\nthe payload was erased when its retention ended")
	}
	part := func(name string, raw json.RawMessage) {
		if len(raw) > 0 {
			fmt.Fprintf(a.out, "\n%s\n  %s\n", name, oneLine(string(raw)))
		}
	}
	part("arguments", p.Arguments)
	if e := p.Effect; e != nil {
		fmt.Fprintln(a.out, "\nsent")
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		printEffect(w, *e)
		_ = w.Flush()
	}
	part("answer", p.Answer)
	part("result", p.Result)
}

func (a *app) check(c *cobra.Command, id string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	got, err := o.Check(c.Context(), id)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(got)
	}
	fmt.Fprintf(a.out, "%s: %s\n", oneLine(id), foundText(got.Finding))
	for _, text := range []string{got.Text, got.Evidence} {
		if text != "" {
			fmt.Fprintln(a.out, "  "+oneLine(text))
		}
	}
	if len(got.Answer) > 0 {
		fmt.Fprintln(a.out, "  answer: "+oneLine(string(got.Answer)))
	}
	if got.Settled {
		fmt.Fprintf(a.out, "settled: %s\n", oneLine(got.Record.Summary))
	} else {
		fmt.Fprintln(a.out, "nothing changed")
	}
	return nil
}

// foundText puts a finding into words.
func foundText(finding string) string {
	text := map[string]string{
		"done": "the target did it", "failed": "the target says that it failed", "not_done": "the target did nothing", "running": "it is under way at the target",
		"cannot_tell": "could not be determined",
	}[finding]
	return cmp.Or(text, oneLine(finding))
}

func (a *app) settle(c *cobra.Command, id string, done, overrule bool, note string) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	before, err := o.Execution(c.Context(), id)
	if err != nil {
		return err
	}
	if n := len(before.Checks); n > 0 && (before.State == "unknown" || before.State == "dispatched") && !a.json {
		last := before.Checks[n-1]
		fmt.Fprintf(a.out, "the target was last asked %s: %s\n", local(last.At), foundText(last.Finding))
		if last.Reason != "" {
			fmt.Fprintln(a.out, "  "+oneLine(last.Reason))
		}
	}
	if against := before.Contradicts(done); against != "" && !overrule {
		return usage("the target said otherwise when it was asked: %s", foundText(against)).WithHint("spctl check %s asks it again; with --overrule your word stands against it", id)
	}
	r, err := o.Settle(c.Context(), id, api.Verdict{Done: done, Note: note, Against: before.Contradicts(done)})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "%s: %s\n", oneLine(r.ExecutionID), oneLine(r.Summary))
	return nil
}
