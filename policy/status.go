package policy

import (
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/effect"
)

// maxStatusAnswer bounds what is read of the answer to a status request: all of it is looked at.
const maxStatusAnswer = 4 << 20

// statusQuery reads what belongs to class status_query: over HTTP the request that asks and what its answers mean, and for every channel how long to wait.
func (p *parser) statusQuery(class, accepted, status, wait *node, path string, c *Contract) {
	r := &c.Replay
	if accepted != nil {
		r.Accepted = p.accepted(accepted, sub(path, "accepted"), c)
	}
	switch {
	case c.Channel != effect.HTTP && status != nil:
		p.problem(status, sub(path, "status"), "remove it", "a status request belongs to channel http")
	case c.Channel == effect.HTTP && status == nil:
		p.problem(class, sub(path, "status"), "write `status: {method: GET, url: …, done: …, not_done: …}`, or use class irreversible", "class status_query needs a status request that asks the target what happened")
	case c.Channel == effect.HTTP:
		r.Status = p.status(status, sub(path, "status"), c)
	}
	p.wait(class, wait, sub(path, "wait"), r)
}

func (p *parser) status(n *node, path string, c *Contract) *Status {
	s := &Status{Credential: c.Credential}
	if c.Replay.Accepted != nil {
		p.answers = &s.Fields
		defer func() { p.answers = nil }()
	}
	p.origin = ""
	if c.HTTP != nil {
		p.origin = c.HTTP.origin
	}
	var within *node
	condition := func(name, hint string, source *string, compiled **judgement) field {
		return field{name, hint, func(n *node, path string) { *source, *compiled = p.judgement(n, path, c.input) }}
	}
	p.request(n, path, c.input, &s.HTTP, []string{"GET", "HEAD", "POST"}, maxStatusAnswer,
		field{"credential", "", func(n *node, path string) {
			if n.kind == null {
				s.Credential = ""
				return
			}
			s.Credential, _ = p.pattern(n, path, credentialName(), "write the name of a credential in the vault, or null for none")
		}},
		field{"within", "", func(n *node, path string) {
			within = n
			s.Within = p.within(n, path)
		}},
		condition("done", "write `done: 'status == 200 && body.state == \"finished\"'`, which holds when the action was carried out", &s.Done, &s.done),
		condition("not_done", "", &s.NotDone, &s.notDone),
		condition("failed", "", &s.Failed, &s.failed),
		condition("running", "", &s.Running, &s.running),
	)
	if n.kind != object || c.input == nil || c.HTTP == nil {
		return s
	}
	s.ownContentType = s.namesContentType()
	p.answerRules(n, within, path, s)
	byID, byArgument := s.HTTP.uses()
	byArgument = byArgument || len(s.Fields) > 0 // an answer of its own is about one execution
	for _, j := range []*judgement{s.done, s.notDone, s.failed, s.running} {
		if j != nil {
			byID, byArgument = byID || j.id, byArgument || j.args
		}
	}
	sent, _ := c.HTTP.uses()
	switch {
	case byID && !sent:
		p.problem(n, path, "write {execution_id} into a header field, the query, the URL or the body of http, where the target keeps it",
			"it asks for {execution_id}, but the action never sends it, so the target cannot know it: every answer would be \"not done\"")
	case !byID && !byArgument:
		p.problem(n, path, "use {execution_id} or an argument in its url, query, headers or body, or execution_id or args in its conditions",
			"it asks nothing about this one execution: every execution would get the same answer")
	}
	return s
}

func (p *parser) wait(class, n *node, path string, r *Replay) {
	w := &r.Wait
	w.Poll = DefaultPoll
	if n != nil {
		p.object(n, path, []field{
			{"poll", "", func(n *node, path string) { w.Poll, _ = p.duration(n, path, time.Second, time.Hour) }},
			{"not_done_after", "", func(n *node, path string) { w.NotDoneAfter, _ = p.duration(n, path, time.Second, 30*24*time.Hour) }},
			{"give_up_after", "", func(n *node, path string) { w.GiveUpAfter, _ = p.duration(n, path, time.Second, 30*24*time.Hour) }},
		})
	}
	if r.Status != nil && r.Status.NotDone != "" && w.NotDoneAfter == 0 && n.get("not_done_after") == nil {
		at := class
		if n != nil {
			at = n
		}
		p.problem(at, sub(path, "not_done_after"), "write how long it can take until something that was done shows in the status, such as `wait: {not_done_after: 30s}`",
			"a not_done condition needs to know from when on it may be believed")
	}
	if w.GiveUpAfter == 0 {
		w.GiveUpAfter = max(DefaultGiveUpAfter, 2*w.NotDoneAfter)
		if r.Accepted != nil {
			w.GiveUpAfter = max(DefaultAcceptedFor, w.GiveUpAfter)
		}
	} else if w.GiveUpAfter <= w.NotDoneAfter {
		p.problem(n, path, "write a give_up_after that is longer than not_done_after", "\"not done\" would never be believed: it is asked for %s, and believed after %s",
			plainDuration(w.GiveUpAfter), plainDuration(w.NotDoneAfter))
	}
}

// namesContentType says whether the contract sets the body's type itself.
func (h *HTTP) namesContentType() bool {
	return slices.ContainsFunc(h.Headers, func(p Pair) bool { return p.Name == "Content-Type" })
}

// uses says whether the request carries the execution's id, and whether it carries an argument.
func (h *HTTP) uses() (id, argument bool) {
	look := func(t template) {
		for _, p := range t {
			id = id || p.name == executionID
			argument = argument || p.name != "" && p.name != executionID && !strings.HasPrefix(p.name, answerPrefix)
		}
	}
	for _, segment := range h.path {
		look(segment)
	}
	for _, pairs := range [][]Pair{h.Headers, h.Query, h.form} {
		for _, pair := range pairs {
			look(pair.template)
		}
	}
	if h.body != nil {
		look(*h.body)
	}
	h.json.walk(look)
	return id, argument
}

// walk calls f with every text in the template.
func (t *jsonTemplate) walk(f func(template)) {
	if t == nil {
		return
	}
	f(t.text)
	for _, m := range t.members {
		m.value.walk(f)
	}
	for _, item := range t.items {
		item.walk(f)
	}
}
