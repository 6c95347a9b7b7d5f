package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/policy"
)

// card is a question that waits for the person. Everything in it is guarded by Engine.mu.
type card struct {
	approval.Card
	run     *run
	l       *live               // the execution that waits; nil when only the run's session is asked for
	earlier execution.Execution // what the person should see first; zero when there is none
	tool    string
	done    chan struct{} // closed when the card is answered or void
	timer   *time.Timer
	said    []api.Said // Why, for other languages
}

func (c *card) because(list ...reason) {
	for _, r := range list {
		c.Why, c.said = append(c.Why, r.text), append(c.said, r.said)
	}
}

// CardView is a card with everything that a person needs to decide.
type CardView struct {
	Card      approval.Card
	Execution *execution.Execution // the execution that waits
	Effect    *effect.Effect       // exactly what will be sent
	Arguments []byte
	Earlier   *execution.Execution
	Peer      peer.Identity
	Since     time.Time // the run was first seen
	Calls     int       // the run's calls before
	Tool      string
	Attached  bool // a caller still waits
	WhySaid   []api.Said
}

// Errors that callers branch on.
var (
	ErrNoCard  = errors.New("no such card waits")
	ErrNoRun   = errors.New("no such run has a session")
	ErrUnknown = errors.New("no such execution")
	ErrAnswer  = errors.New("that is no answer to this card")
	ErrSettled = errors.New("the outcome of the execution is not unknown")
)

func (l *live) binding() approval.Binding {
	return approval.Binding{
		Execution: l.x.ID, Fingerprint: l.x.Fingerprint, EffectDigest: l.x.EffectDigest, Run: l.x.Run, ContractDigest: l.x.ContractDigest,
	}
}

func digestOf(e effect.Effect) (string, error) {
	d, err := e.Digest()
	if err != nil {
		return "", err
	}
	return digestText(d), nil
}

func digestText(sum [32]byte) string { return "sha256:" + hex.EncodeToString(sum[:]) }

// askLocked puts a new card before the person for an execution.
func (e *Engine) askLocked(l *live, q *request, d policy.Decision, again *earlier, perUse reason) {
	c := &card{
		Card: approval.Card{Question: question(d, again), Binding: l.binding()},
		run:  q.run, l: l, tool: l.x.Tool,
	}
	c.because(askWhy(d, perUse, again)...)
	if again != nil {
		c.earlier, c.Earlier = again.x, again.x.ID
	} else if x := e.lapsedLocked(l); x != nil {
		// An earlier card of the same intent was void before anybody answered: say so.
		c.because(reason{
			fmt.Sprintf("the same call waited before (%s) and %s: %s", x.ID, x.State, x.Reason),
			api.Say(api.WhyWaitedBefore, "execution", x.ID, "state", string(x.State), "reason", x.Reason),
		})
	}
	l.card = c
	e.openCardLocked(c)
}

// lapsedLocked finds an expired or withdrawn execution of the same intent.
func (e *Engine) lapsedLocked(l *live) *execution.Execution {
	best := func(x execution.Execution) bool {
		return x.ID != l.x.ID && x.Fingerprint == l.x.Fingerprint && (x.State == execution.Expired || x.State == execution.Withdrawn) &&
			e.cfg.Now().Sub(x.ChangedAt) <= x.AttachWindow
	}
	list := e.claims[claimKey{l.x.Actor, l.x.Scope, l.x.Fingerprint}]
	for i := len(list) - 1; i >= 0; i-- {
		if x := list[i].x; best(x) {
			return &x
		}
	}
	old, err := e.cfg.Records.Match(l.x.Actor, l.x.Scope, l.x.Fingerprint)
	if err != nil {
		return nil
	}
	if i := slices.IndexFunc(old, best); i >= 0 {
		return &old[i]
	}
	return nil
}

// askSessionLocked asks for the session of a run that wants the result of an execution of another run. All its calls wait on one card.
func (e *Engine) askSessionLocked(q *request, f *earlier) <-chan struct{} {
	if c := q.run.asking; c != nil {
		return c.done
	}
	c := &card{
		Card: approval.Card{
			Question: approval.AskSession, Earlier: f.x.ID,
			Binding: approval.Binding{Execution: f.x.ID, Fingerprint: f.x.Fingerprint, EffectDigest: f.x.EffectDigest, Run: q.run.id, ContractDigest: f.x.ContractDigest},
		},
		run: q.run, earlier: f.x, tool: f.x.Tool,
	}
	c.because(reason{"a process that has not been allowed to act yet asks for the result of an earlier execution; nothing will be sent for it", api.Say(api.WhyEarlierResult)})
	q.run.asking = c
	e.openCardLocked(c)
	return c.done
}

func (e *Engine) openCardLocked(c *card) {
	e.compareLocked(c.run)
	now := e.cfg.Now()
	c.ID, c.Created, c.Expires = "card_"+e.cfg.NewID(), now, now.Add(e.cfg.CardTTL)
	c.done = make(chan struct{})
	e.cards[c.ID] = c
	id := c.ID
	c.timer = time.AfterFunc(e.cfg.CardTTL, func() { e.expireCard(id) })
	e.publishCardLocked(c, "added", "")
}

// closeCardLocked takes the card off the table.
func (e *Engine) closeCardLocked(c *card, how, by string) {
	if e.cards[c.ID] != c {
		return
	}
	delete(e.cards, c.ID)
	c.timer.Stop()
	if c.l != nil {
		c.l.card = nil
	}
	if c.run.asking == c {
		c.run.asking = nil
	}
	close(c.done)
	e.publishCardLocked(c, how, by)
}

func (e *Engine) voidCardLocked(l *live, why string) {
	if l.card != nil {
		e.closeCardLocked(l.card, "void", why)
	}
}

func (e *Engine) expireCard(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cards[id]
	if c == nil {
		return
	}
	if c.l == nil {
		c.run.refusal = &runRefusal{code: api.CodeExpired, reason: "nobody answered the card in time", until: e.cfg.Now().Add(time.Minute)}
		e.closeCardLocked(c, "expired", "")
		return
	}
	e.endLocked(c.l, execution.KindExpired, api.CodeExpired, "nobody answered the card in time")
}

// Answer is the person's decision about a card.
func (e *Engine) Answer(_ context.Context, id string, d approval.Decision) error {
	if !d.Standing {
		e.mu.Lock()
		defer e.mu.Unlock()
		d.At = e.cfg.Now()
		return e.decideLocked(id, d)
	}
	g, err := e.giveStanding(id, &d)
	if err != nil {
		return err
	}
	e.mu.Lock()
	if err = e.decideLocked(id, d); err == nil {
		e.standing[g.ID] = g
		e.given++
		e.grants.Store(int64(len(e.standing)))
		e.mu.Unlock()
		return nil
	}
	commit := e.endStandingLocked(g.ID, "the card was over before it was answered", false)
	e.mu.Unlock()
	return errors.Join(err, e.recordEnd(g.ID, commit))
}

func (e *Engine) decideLocked(id string, d approval.Decision) error {
	c := e.cards[id]
	if c == nil {
		return fmt.Errorf("answering card %q: %w; list the waiting ones with spctl approvals", id, ErrNoCard)
	}
	if d.Answer != approval.Deny && c.run.check() != nil {
		return fmt.Errorf("answering card %q: %w: the process that asked has ended", id, ErrNoCard)
	}
	if c.l != nil {
		d.Subject = c.l.subject()
	}
	grant, session, err := c.Decide(d, c.run.identity.Actor)
	switch {
	case errors.Is(err, approval.ErrExpired):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if session != nil {
		e.openSessionLocked(c.run, session)
	}
	l := c.l
	e.closeCardLocked(c, string(d.Answer), d.By)
	if l == nil {
		switch {
		case session != nil:
		case d.Answer == approval.Once || d.Answer == approval.Recorded:
			if c.run.once == nil {
				c.run.once = map[string]bool{}
			}
			c.run.once[c.Earlier] = true
		default:
			c.run.refusal = &runRefusal{code: api.CodeDenied, reason: denialText(d), until: e.cfg.Now().Add(c.earlier.AttachWindow)}
		}
		return nil
	}
	switch d.Answer {
	case approval.Deny:
		_, err = e.stepLocked(l, change{ev: execution.Event{
			Kind: execution.KindRejected, ID: l.x.ID, By: d.By, Code: string(api.CodeDenied), Reason: denialText(d),
		}})
		e.leaveCountLocked(l)
	case approval.Recorded:
		// The person wants no second effect. The same repeat is not asked about again while the window lasts.
		e.recorded[c.Earlier] = true
		l.instead = c.Earlier
		_, err = e.stepLocked(l, change{ev: execution.Event{
			Kind: execution.KindWithdrawn, ID: l.x.ID, By: d.By, Code: string(api.RecordedInstead), Reason: "the recorded result of " + c.Earlier + " was handed out instead",
		}})
		e.leaveCountLocked(l)
	default:
		l.grant = grant
		if _, err = e.stepLocked(l, change{ev: execution.Event{Kind: execution.KindAuthorized, ID: l.x.ID, By: d.By}}); err == nil {
			e.proceedLocked(l)
		}
	}
	l.wakeLocked()
	e.retireLocked(l)
	return err
}

func denialText(d approval.Decision) string {
	if r := strings.TrimSpace(d.Reason); r != "" {
		return "the person said no: " + r
	}
	return "the person said no"
}

// Cards returns the waiting cards, oldest first.
func (e *Engine) Cards() []CardView {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cardsLocked()
}

func (e *Engine) cardsLocked() []CardView {
	out := make([]CardView, 0, len(e.cards))
	for _, c := range e.cards {
		out = append(out, e.viewLocked(c))
	}
	slices.SortFunc(out, func(a, b CardView) int { return strings.Compare(a.Card.ID, b.Card.ID) })
	return out
}

func (e *Engine) viewLocked(c *card) CardView {
	v := CardView{Card: c.Card, Peer: *c.run.identity, Since: c.run.first, Calls: c.run.calls, Tool: c.tool}
	v.Card.Why, v.WhySaid = slices.Clone(c.Why), slices.Clone(c.said)
	if c.l != nil {
		x, eff := c.l.x, c.l.effect
		v.Execution, v.Effect, v.Arguments, v.Attached = &x, &eff, c.l.args, e.attachedLocked(c.l)
	}
	if c.earlier.ID != "" {
		x := c.earlier
		if l, ok := e.live[x.ID]; ok {
			x = l.x
		}
		v.Earlier = &x
	}
	return v
}
