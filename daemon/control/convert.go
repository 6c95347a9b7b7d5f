package control

import (
	"cmp"
	"encoding/base64"
	"time"
	"unicode"
	"unicode/utf8"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
)

// Record is how an execution is shown.
func Record(x execution.Execution) api.Record {
	r := api.Record{
		ExecutionID: x.ID, Fingerprint: x.Fingerprint, Tool: x.Tool, Action: x.Action, Actor: x.Actor, ActorDigest: x.ActorDigest, Run: x.Run, IntentScope: x.Scope,
		Channel: x.Channel, Target: x.Target, Credential: x.Credential, Class: string(x.Class), State: string(x.State), Outcome: string(x.Outcome),
		OutcomeSource: string(x.Source), TargetStatus: x.TargetStatus, AcceptedAt: utc(x.AcceptedAt), AuthorizedAt: utc(x.AuthorizedAt), AuthorizedBy: x.AuthorizedBy,
		DispatchedAt: utc(x.DispatchedAt), CompletedAt: utc(x.CompletedAt), DeliveredAt: utc(x.DeliveredAt), ChangedAt: utc(x.ChangedAt), Result: x.Result,
		ContractDigest: x.ContractDigest, EffectDigest: x.EffectDigest, Reason: x.Reason, Code: api.Code(x.Code), Again: x.Again, InDoubt: x.InDoubt, Pruned: x.Pruned,
		Attempts: []api.Attempt{}, Callers: []api.Caller{}, CallersDropped: x.Dropped,
		Timeline: timeline(x), Summary: summary(x),
	}
	for _, a := range x.Attempts {
		r.Attempts = append(r.Attempts, api.Attempt{
			Number: a.Number, DispatchedAt: utc(a.DispatchedAt), EndedAt: utc(a.EndedAt), Outcome: string(a.Outcome), Reason: a.Reason, AwaitedSince: utc(a.AwaitedSince),
		})
	}
	for _, c := range x.Callers {
		c.At = utc(c.At)
		r.Callers = append(r.Callers, api.Caller(c))
	}
	for _, c := range x.Checks {
		r.Checks = append(r.Checks, api.Check{
			At: utc(c.At), Finding: string(c.Finding), Source: string(c.Source), By: c.By, Evidence: c.Evidence, Reason: c.Reason, Times: c.Times,
		})
	}
	return r
}

// utc keeps the zero time zero, so that omitzero leaves it out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// mask stands where the secret will be. Its marks are not ASCII, so that no header value can imitate it.
func mask(credential string) string { return "‹credential " + credential + "›" }

// Effect is how an effect is shown: exactly what is sent, with the credential masked in its place.
func Effect(e effect.Effect) api.Effect {
	out := api.Effect{Channel: string(e.Channel)}
	switch {
	case e.HTTP != nil:
		out = httpRequest(*e.HTTP, e.Auth)
	case e.SSH != nil:
		c := e.SSH
		out.SSH = &api.SSH{Host: c.Host.Address(), Keys: c.Host.Keys, Command: c.Command, Directory: c.Directory, Marker: c.Marker != nil}
		if c.Jump != nil {
			out.SSH.Jump = c.Jump.Address()
		}
		for _, f := range c.Env {
			out.SSH.Env = append(out.SSH.Env, api.Field(f))
		}
		body(&out, c.Stdin)
	case e.MCP != nil:
		out.MCP = &api.MCP{Upstream: e.MCP.Upstream, Tool: e.MCP.Tool, URL: e.MCP.URL, Command: e.MCP.Command}
		if e.MCP.Method != "" {
			out.MCP.Tool = e.MCP.Method
		}
		body(&out, e.MCP.Arguments)
	case e.Ask != nil:
		out.URL = e.Ask.Target
		body(&out, []byte(e.Ask.Purpose))
	}
	if e.Status != nil {
		status := httpRequest(e.Status.HTTP, e.Status.Auth)
		s := e.Status
		status.Within = s.Within
		for _, c := range []api.Condition{{Name: "accepted", When: s.Accepted}, {Name: "done", When: s.Done}, {Name: "failed", When: s.Failed}, {Name: "not_done", When: s.NotDone}, {Name: "running", When: s.Running}} {
			if c.When != "" {
				status.Conditions = append(status.Conditions, c)
			}
		}
		out.Status = &status
	}
	return out
}

func httpRequest(r effect.HTTPRequest, auth *effect.Auth) api.Effect {
	out := api.Effect{Channel: string(effect.HTTP), Method: r.Method, URL: r.URL}
	for _, f := range r.Header {
		out.Header = append(out.Header, api.Field(f))
	}
	if auth != nil {
		secret := mask(auth.Credential)
		switch auth.Kind {
		case "oauth2":
			out.Header = append(out.Header, api.Field{Name: "Authorization", Value: "Bearer ‹access token of credential " + auth.Credential + "›"})
		case "aws-sigv4":
			out.Header = append(out.Header, api.Field{Name: "Authorization", Value: "AWS4-HMAC-SHA256 " + auth.Region + "/" + auth.Service + " ‹signature by credential " + auth.Credential + "›"})
		case "client-cert": // shown by its name alone: it is in no field
		case "bearer":
			out.Header = append(out.Header, api.Field{Name: "Authorization", Value: "Bearer " + secret})
		case "basic":
			out.Header = append(out.Header, api.Field{Name: "Authorization", Value: "Basic " + auth.Username + ":" + secret})
		case "query":
			separator := "?"
			for _, c := range out.URL {
				if c == '?' {
					separator = "&"
				}
			}
			out.URL += separator + auth.Place + "=" + secret
		default:
			out.Header = append(out.Header, api.Field{Name: auth.Place, Value: secret})
		}
	}
	body(&out, r.Body)
	return out
}

func body(out *api.Effect, b []byte) {
	switch out.Size = len(b); {
	case len(b) == 0:
	case isText(b):
		out.Body = string(b)
	default:
		out.BodyB64 = base64.StdEncoding.EncodeToString(b)
	}
}

func isText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}

// Card is how a card is shown.
func Card(v CardView) api.Card {
	c := api.Card{
		Card: v.Card.ID, Question: string(v.Card.Question), Sentence: v.Sentence, ExecutionID: v.Card.Binding.Execution, Fingerprint: v.Card.Binding.Fingerprint,
		Tool: v.Execution.Tool, Action: v.Execution.Action, Target: v.Execution.Target, Effect: Effect(v.Effect), Credential: v.Execution.Credential,
		Class: string(v.Execution.Class), LostAnswer: v.LostAnswer, Why: v.Card.Why, WhySaid: v.WhySaid, Actor: v.Peer.Actor, Run: v.Card.Binding.Run, Via: v.Peer.Via,
		Agent: process(v.Peer.Agent), Assurance: string(v.Peer.Assurance), Level: level(v.Peer.Assurance), Since: utc(v.Since), CallsBefore: v.CallsBefore, Created: utc(v.Card.Created), Expires: utc(v.Card.Expires),
		Answers: answers(v), Retry: v.Retry, Package: v.Peer.Package, Contains: v.Peer.Contains, Doubts: v.Peer.Doubts, Changes: v.Peer.Changes,
		DoubtsSaid: v.Peer.DoubtsSaid, ChangesSaid: v.Peer.ChangesSaid,
	}
	if c.Sentence == "" {
		c.Sentence = sentence(v)
	}
	if v.Effect.Ask != nil {
		c.LostAnswer = "Nothing is sent anywhere: the agent learns your yes or no."
	}
	if c.LostAnswer == "" {
		c.LostAnswer = LostAnswer(v.Execution.Class)
	}
	if c.Why == nil {
		c.Why = []string{}
	}
	if len(c.WhySaid) != len(c.Why) {
		c.WhySaid = make([]api.Said, len(c.Why))
	}
	for _, p := range v.Peer.Chain {
		c.Chain = append(c.Chain, process(p))
	}
	own := Record(v.Execution)
	c.Record = &own
	if v.Earlier != nil {
		earlier := Record(*v.Earlier)
		c.Original = &earlier
	}
	return c
}

// level is the code of a level of assurance; what has none cannot be told.
func level(a peer.Assurance) api.Assurance {
	switch a {
	case peer.SystemOwned:
		return api.AssuranceSystem
	case peer.UserOwned:
		return api.AssuranceFirst
	case peer.Unchanged:
		return api.AssuranceUnchanged
	case peer.Changed:
		return api.AssuranceChanged
	}
	return api.AssuranceCannotTell
}

// answers lists what makes sense; package approval has the last word.
func answers(v CardView) []string {
	list := []string{string(approval.Once)}
	if v.Card.Question == approval.AskSession || v.Card.Question == approval.AskSessionAndUse {
		list = append(list, string(approval.ForRun))
	}
	if v.Earlier != nil && v.Earlier.State.Completed() {
		list = append(list, string(approval.Recorded))
	}
	return append(list, string(approval.Deny))
}

func process(p peer.Process) api.Process {
	return api.Process{PID: p.PID, UID: p.UID, Exe: p.Exe, Script: p.Script, Digest: p.Digest, Began: utc(p.Began)}
}

// Grant is how a standing grant is shown, with the runs that have a session by it.
func Grant(g approval.Standing, runs []string) api.Grant {
	return api.Grant{
		Grant: g.ID, Actor: g.Program.Actor, Package: g.Program.Package, Exe: g.Program.Exe, Digest: g.Program.Digest, Via: g.Program.Via, Through: g.Program.Through, Chain: g.Program.Chain,
		Scope: string(g.Scope), Tool: g.Subject.Tool, ContractDigest: g.Subject.ContractDigest, By: g.By, Card: g.Card, Run: g.Run, At: utc(g.At), Until: utc(g.Until), Runs: runs,
	}
}

// Session is how a session is shown.
func Session(v SessionView) api.Session {
	return api.Session{
		Run: v.Session.Run, Actor: v.Session.Actor, By: v.Session.By, Card: v.Session.Card, At: utc(v.Session.At), Agent: process(v.Peer.Agent),
		Assurance: string(v.Peer.Assurance), Level: level(v.Peer.Assurance), Suspended: v.Suspended, Calls: v.Calls, Package: v.Peer.Package, Contains: v.Peer.Contains, Doubts: v.Peer.Doubts, Changes: v.Peer.Changes,
		Scope: cmp.Or(string(v.Session.Scope), string(approval.ScopeRun)), Tool: v.Session.Subject.Tool, Until: utc(v.Session.Until), Grant: v.Session.Grant,
	}
}
