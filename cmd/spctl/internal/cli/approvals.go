package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"singlepass.dev/daemon/api"
)

func (a *app) approvalCommands() []*cobra.Command {
	var follow bool
	approvals := a.reading(&cobra.Command{
		Use: "approvals", Short: "list the cards that wait for your answer", GroupID: "decide", Args: cobra.NoArgs,
		Long: `Lists the cards that wait, with everything that is needed to answer them. With --follow it stays, and shows new cards
as they come; with --json as well, every line is one JSON object with the card's id as "card" and an "event": first
the waiting ones, then "added", "changed", "answered" and "void".`,
		RunE: func(c *cobra.Command, _ []string) error { return a.approvals(c, follow) },
	})
	approvals.Flags().BoolVarP(&follow, "follow", "f", false, "stay, and show what changes")

	var once, session, recorded bool
	var narrow narrowed
	approve := &cobra.Command{
		Use: "approve [CARD]", Short: "say yes to a card", GroupID: "decide", Args: cobra.MaximumNArgs(1), ValidArgsFunction: noFiles,
		Long: `Says yes. Without --once, --session or --recorded the card is shown first and the answer is asked for at the terminal;
without CARD as well, the only card that waits is taken.

  --once      this execution, and nothing else
  --session   this execution, and a session for the process that asked, for as long as it lives
              --for 15m   ends it after that time
              --only action     for this action alone; --only arguments: for this action with these arguments alone
              --standing --for 30d   for the next runs of that program as well, until then (30 days at most): for this
                                action alone, or with --only arguments for these arguments alone. Only for a program
                                that the system installed and you cannot write, and that is no interpreter; spctl
                                grants lists them
  --recorded  for a repeat of something already done: hand out the recorded result, and send nothing`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.approve(c, args, once, session, recorded, narrow)
		},
	}
	approve.Flags().BoolVar(&once, "once", false, "this execution only")
	approve.Flags().BoolVar(&session, "session", false, "and a session for its run")
	approve.Flags().BoolVar(&recorded, "recorded", false, "hand out the recorded result of the earlier execution")
	approve.Flags().StringVar(&narrow.only, "only", "", "with --session: `action` or arguments")
	approve.Flags().Var(&narrow.lasts, "for", "with --session: end it after this time, such as 15m, 2h or 30d")
	approve.Flags().BoolVar(&narrow.standing, "standing", false, "with --session and --for: the next runs of the program get it, too")
	approve.MarkFlagsMutuallyExclusive("once", "session", "recorded")

	var reason string
	deny := &cobra.Command{
		Use: "deny CARD", Short: "say no to a card; the agent reads the reason", GroupID: "decide", Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.Answer(c.Context(), args[0], api.CardAnswer{Answer: "deny", Reason: reason}); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "denied %s; nothing was sent\n", oneLine(args[0]))
			return nil
		},
	}
	deny.Flags().StringVar(&reason, "reason", "", "why; the agent gets to read it")

	sessions := a.reading(&cobra.Command{
		Use: "sessions", Short: "list the processes that may act", GroupID: "decide", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.sessions(c) },
	})
	revoke := &cobra.Command{
		Use: "revoke RUN|CARD", Short: "end the sessions of a process, or the one that a card gave; what was not sent yet is withdrawn",
		Long: `Ends the sessions of a process at once, or the one that a card gave. What was not sent yet and has no other is withdrawn.
A standing grant that such a session came from ends with it, and no other one gives the process a session again.`, Args: cobra.ExactArgs(1), ValidArgsFunction: noFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := a.ask()
			if err != nil {
				return err
			}
			if err := o.RevokeSession(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "the session of %s has ended\n", oneLine(args[0]))
			return nil
		},
	}
	one := &cobra.Command{Use: "session", Short: "end a session", GroupID: "decide", Args: cobra.NoArgs, RunE: help}
	one.AddCommand(revoke)
	return append([]*cobra.Command{approvals, approve, deny, sessions, one}, a.grantCommands()...)
}

func noFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) approvals(c *cobra.Command, follow bool) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	if !follow {
		cards, err := o.Cards(c.Context())
		if err != nil {
			return err
		}
		if a.json {
			return printLines(a, cards)
		}
		if len(cards) == 0 {
			fmt.Fprintln(a.out, "no card waits")
		}
		for _, card := range cards {
			a.printCard(card)
		}
		return nil
	}
	for e, err := range o.WatchCards(c.Context()) {
		if err != nil {
			return err
		}
		if a.json {
			if err := a.printJSON(e); err != nil {
				return err
			}
			continue
		}
		switch e.Event {
		case "answered":
			fmt.Fprintf(a.out, "%s was answered by %s\n\n", oneLine(e.Card.Card), oneLine(e.By))
		case "void":
			fmt.Fprintf(a.out, "%s is void: %s\n\n", oneLine(e.Card.Card), oneLine(e.Note))
		default:
			a.printCard(e.Card)
		}
	}
	return nil
}

// printCard shows everything that the answer depends on, the earlier record of a retried call first.
func (a *app) printCard(card api.Card) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %s\t%s\n", name, oneLine(value))
		}
	}
	fmt.Fprintf(a.out, "%s  %s\n", oneLine(card.Card), oneLine(card.Sentence))
	if card.Original != nil {
		row("earlier", fmt.Sprintf("%s, %s: %s", card.Original.ExecutionID, local(card.Original.ChangedAt), card.Original.Summary))
	}
	row("retry", card.Retry)
	for _, why := range card.Why {
		row("why asked", why)
	}
	row("action", card.Tool)
	row("target", card.Target)
	if card.Effect.Channel == "person" {
		row("its words", card.Effect.Body)
	}
	printEffect(w, card.Effect)
	row("credential", card.Credential)
	row("lost answer", card.LostAnswer)
	row("asked by", card.Actor)
	row("program", fmt.Sprintf("%s (%s), pid %d", card.Agent.Exe, card.Assurance, card.Agent.PID))
	if card.Agent.Script != "" {
		row("script", card.Agent.Script)
	}
	row("installed as", card.Package)
	row("says it is", card.Contains)
	for _, doubt := range card.Doubts {
		row("doubt", doubt)
	}
	for _, change := range card.Changes {
		row("changed", change)
	}
	if len(card.Chain) > 0 {
		names := make([]string, len(card.Chain))
		for i, p := range card.Chain {
			names[i] = fmt.Sprintf("%s (%d)", cmp.Or(p.Exe, "?"), p.PID)
		}
		row("started by", strings.Join(names, ", "))
	}
	row("run", fmt.Sprintf("%s, first seen %s, %s before", card.Run, local(card.Since), plural(card.CallsBefore, "call", "")))
	row("execution", card.ExecutionID)
	row("valid for", ago(card.Expires.Sub(a.now())))
	_ = w.Flush()
	fmt.Fprintln(a.out)
}

func (a *app) approve(c *cobra.Command, args []string, once, session, recorded bool, narrow narrowed) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	answer := ""
	switch {
	case once:
		answer = "once"
	case session:
		answer = "session"
	case recorded:
		answer = "recorded"
	}
	id := ""
	if len(args) == 1 {
		id = args[0]
	}
	if id == "" || answer == "" {
		card, err := a.oneCard(c, id)
		if err != nil {
			return err
		}
		a.printCard(card)
		if id, answer, err = a.askAnswer(card, answer); err != nil {
			return err
		}
	}
	in := api.CardAnswer{Answer: answer}
	if err := narrow.into(&in); err != nil {
		return err
	}
	if err := o.Answer(c.Context(), id, in); err != nil {
		return err
	}
	if in.Standing {
		answer += ", and so for the next runs of its program; spctl grants lists that"
	}
	fmt.Fprintf(a.out, "answered %s: %s\n", oneLine(id), answer)
	return nil
}

// narrowed is what a session is narrowed to.
type narrowed struct {
	only     string
	lasts    span
	standing bool
}

func (n narrowed) into(in *api.CardAnswer) error {
	if n == (narrowed{}) {
		return nil
	}
	if in.Answer != "session" {
		return usage("--only, --for and --standing say what a session is for; they go with --session")
	}
	lasts := time.Duration(n.lasts)
	if lasts%time.Minute != 0 || lasts < 0 {
		return usage("--for takes whole minutes, such as 15m, 2h or 30d")
	}
	if n.standing && lasts == 0 {
		return usage("a standing grant needs an end: --for 30d at most")
	}
	in.Scope, in.Minutes, in.Standing = n.only, int(lasts/time.Minute), n.standing
	return nil
}

// oneCard finds the card that is meant; without an id only if there is no choice.
func (a *app) oneCard(c *cobra.Command, id string) (api.Card, error) {
	if id != "" {
		return a.operator.Card(c.Context(), id)
	}
	cards, err := a.operator.Cards(c.Context())
	switch {
	case err != nil:
		return api.Card{}, err
	case len(cards) == 0:
		return api.Card{}, api.Errorf(api.CodeMissing, "no card waits")
	case len(cards) > 1:
		return api.Card{}, usage("%d cards wait; say which one", len(cards)).WithHint("spctl approvals")
	}
	return cards[0], nil
}

func (a *app) askAnswer(card api.Card, answer string) (string, string, error) {
	if answer != "" {
		return card.Card, answer, a.confirm("Approve it (" + answer + ")?")
	}
	choices := map[string]string{"o": "once", "once": "once", "d": "deny", "deny": "deny"}
	words := []string{"[o]nce"}
	if slices.Contains(card.Answers, "session") {
		choices["s"], choices["session"] = "session", "session"
		words = append(words, "[s]ession")
	}
	if slices.Contains(card.Answers, "recorded") {
		choices["r"], choices["recorded"] = "recorded", "recorded"
		words = append(words, "[r]ecorded result")
	}
	words = append(words, "[d]eny", "or leave it (Enter)")
	text, err := a.choose(strings.Join(words, ", ") + "? ")
	if err != nil {
		return "", "", err
	}
	answer, ok := choices[text]
	if !ok {
		return "", "", errNoAnswer
	}
	return card.Card, answer, nil
}

func (a *app) sessions(c *cobra.Command) error {
	o, err := a.ask()
	if err != nil {
		return err
	}
	list, err := o.Sessions(c.Context())
	if err != nil {
		return err
	}
	if a.json {
		return printLines(a, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "no process has a session")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tACTOR\tPID\tSINCE\tCALLS\tCOVERS")
	for _, s := range list {
		state := sessionCovers(s)
		if s.Suspended {
			state += "; suspended: the vault is locked"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\n", oneLine(s.Run), cut(s.Actor, 60), s.Agent.PID, local(s.At), s.Calls, state)
	}
	return w.Flush()
}

// sessionCovers says in words what a session is for.
func sessionCovers(s api.Session) string {
	text := "all that it asks for"
	switch s.Scope {
	case "action":
		text = oneLine(s.Tool)
	case "arguments":
		text = oneLine(s.Tool) + " with the arguments of " + oneLine(cmp.Or(s.Card, "its grant"))
	}
	if !s.Until.IsZero() {
		text += ", until " + local(s.Until)
	}
	if s.Grant != "" {
		text += ", by " + oneLine(s.Grant)
	}
	return text
}

// printEffect shows exactly what is sent, as rows of a table.
func printEffect(w io.Writer, e api.Effect) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %s\t%s\n", name, oneLine(value))
		}
	}
	text := func(s string) {
		if s == "" {
			return
		}
		for line := range strings.SplitSeq(s, "\n") {
			fmt.Fprintf(w, "  \t| %s\n", oneLine(line))
		}
	}
	switch {
	case e.Method != "":
		row("sends", e.Method+" "+e.URL)
		for _, f := range e.Header {
			fmt.Fprintf(w, "  \t%s\n", oneLine(f.Name+": "+f.Value))
		}
	case e.SSH != nil:
		row("runs on", e.SSH.Host)
		row("through", e.SSH.Jump)
		row("in", e.SSH.Directory)
		for _, f := range e.SSH.Env {
			row("with", f.Name+"="+f.Value)
		}
		fmt.Fprintf(w, "  command\t\n")
		text(e.SSH.Command)
		if e.Body != "" || e.BodyB64 != "" {
			fmt.Fprintf(w, "  input\t\n")
		}
	case e.MCP != nil:
		row("calls", e.MCP.Tool+" of "+e.MCP.Upstream)
	default:
		return
	}
	switch {
	case e.Body != "":
		text(e.Body)
	case e.BodyB64 != "":
		fmt.Fprintf(w, "  \t| %d bytes that are not text\n", e.Size)
	}
	if s := e.Status; s != nil {
		row("asks later", s.Method+" "+s.URL)
		for _, f := range s.Header {
			fmt.Fprintf(w, "  \t%s\n", oneLine(f.Name+": "+f.Value))
		}
		text(s.Body)
		row("only within", s.Within)
		for _, c := range s.Conditions {
			row(strings.ReplaceAll(c.Name, "_", " "), "if "+c.When)
		}
	}
}
