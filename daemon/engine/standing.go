package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
)

// Standing keeps the grants that outlive their run, where an agent cannot change them, and says of whom one may be given. It is safe for concurrent use.
type Standing interface {
	// Program returns what a grant for the program of this run is bound to, or an error that says why there can be none. It looks at the living process.
	Program(*peer.Identity) (approval.Program, error)
	// Keep and Drop return when it is durable. What is not there is dropped without an error.
	Keep(approval.Standing) error
	Drop(id string) error
}

// ErrNoGrant says that there is no such standing grant.
var ErrNoGrant = errors.New("no such standing grant")

// maxStanding bounds how many grants a person has to look over.
const maxStanding = 64

// GrantEvent is what happened to a standing grant, as it stands in the journal, which has the last word on it: one that the journal does not know, or has seen the end of, is none, whatever the vault
// holds. The JSON form is frozen (testdata/grant-events-v1.jsonl): fields may be added, never renamed.
type GrantEvent struct {
	Kind     string             `json:"kind"` // grant_given, grant_ended
	Grant    string             `json:"grant"`
	By       string             `json:"by,omitempty"`       // grant_given
	Reason   string             `json:"reason,omitempty"`   // grant_ended
	Standing *approval.Standing `json:"standing,omitempty"` // grant_given; without the digest of arguments
}

// SetStanding puts the grants into force that the open vault holds and the journal bears out, and returns those that are over, with the reason. A session of one that is not among them ends.
func (e *Engine) SetStanding(list []approval.Standing) (over map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.cfg.Now()
	current := e.actions.Load().current
	over = map[string]string{}
	clear(e.standing)
	for _, g := range list {
		a := current[g.Subject.Tool]
		switch {
		case e.ended[g.ID] != "":
			over[g.ID] = e.ended[g.ID]
		case !g.InForce(now):
			over[g.ID] = "its time is up"
		case a != nil && a.digest != g.Subject.ContractDigest:
			over[g.ID] = contractChanged
		default:
			e.standing[g.ID] = g
		}
	}
	for _, r := range e.runsInOrder() {
		if n, _ := e.endSessionsLocked(r, "its standing grant is no longer in force", func(s approval.Session) bool {
			_, ok := e.standing[s.Grant]
			return s.Grant != "" && !ok
		}); n > 0 {
			e.withdrawUncoveredLocked(r, "the session has ended")
		}
	}
	e.given++
	e.grants.Store(int64(len(e.standing)))
	return over
}

const contractChanged = "the action's contract was changed"

func (e *Engine) runsInOrder() []*run {
	out := make([]*run, 0, len(e.runs))
	for _, r := range e.runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *run) int { return strings.Compare(a.id, b.id) })
	return out
}

// StandingView is a standing grant as the person sees it.
type StandingView struct {
	Grant approval.Standing
	Runs  []string // those that have a session by it
}

// StandingGrants returns the grants in force, the oldest first. While the vault is locked there are none to be seen.
func (e *Engine) StandingGrants() ([]StandingView, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locked {
		return nil, fmt.Errorf("listing standing grants: %w", vault.ErrLocked)
	}
	now := e.cfg.Now()
	out := make([]StandingView, 0, len(e.standing))
	for _, g := range e.standing {
		if !g.InForce(now) {
			continue
		}
		v := StandingView{Grant: g}
		for _, r := range e.runsInOrder() {
			if slices.ContainsFunc(r.sessions, func(s approval.Session) bool { return s.Grant == g.ID }) {
				v.Runs = append(v.Runs, r.id)
			}
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b StandingView) int { return strings.Compare(a.Grant.ID, b.Grant.ID) })
	return out, nil
}

// giveStanding makes the standing grant that an answer asks for, durable, before the card is answered. Nothing counts it yet.
func (e *Engine) giveStanding(card string, d *approval.Decision) (approval.Standing, error) {
	var none approval.Standing
	refuse := func(err error) (approval.Standing, error) {
		return none, fmt.Errorf("%w: a standing grant cannot be given: %w", ErrAnswer, err)
	}
	if e.cfg.Standing == nil {
		return refuse(errors.New("this daemon keeps none"))
	}
	e.mu.Lock()
	c := e.cards[card]
	if c == nil || e.locked || e.closing {
		e.mu.Unlock()
		return none, fmt.Errorf("answering card %q: %w; list the waiting ones with spctl approvals", card, ErrNoCard)
	}
	d.At, d.Grant = e.cfg.Now(), "grant_"+e.cfg.NewID()
	if c.l != nil {
		d.Subject = c.l.subject()
	}
	identity, actor := c.run.identity, c.run.identity.Actor
	_, session, err := c.Decide(*d, actor)
	a := e.actions.Load().current[d.Subject.Tool]
	switch {
	case err != nil:
	case e.quarant:
		err = errors.New("the journal is in quarantine")
	case e.inForceLocked() >= maxStanding:
		err = fmt.Errorf("there are %d, which is as many as can be looked over; revoke one (spctl grants)", maxStanding)
	case a == nil || a.digest != d.Subject.ContractDigest:
		err = errors.New("only an accepted action can have one")
	}
	e.mu.Unlock()
	switch {
	case errors.Is(err, approval.ErrExpired):
		return none, err
	case err != nil:
		return refuse(err)
	}
	program, err := e.cfg.Standing.Program(identity)
	if err != nil {
		return refuse(err)
	}
	g, err := session.Standing(program)
	if err != nil {
		return refuse(err)
	}
	// The journal first: what it does not know counts for nothing.
	noted := g
	noted.Subject = noted.Subject.InTheOpen()
	if err := e.Note(GrantEvent{Kind: "grant_given", Grant: g.ID, By: g.By, Standing: &noted}); err != nil {
		return none, fmt.Errorf("giving a standing grant: %w", err)
	}
	if err := e.cfg.Standing.Keep(g); err != nil {
		return none, errors.Join(fmt.Errorf("giving a standing grant: %w", err), e.Note(GrantEvent{Kind: "grant_ended", Grant: g.ID, Reason: "it could not be kept"}))
	}
	return g, nil
}

func (e *Engine) inForceLocked() (n int) {
	now := e.cfg.Now()
	for _, g := range e.standing {
		if g.InForce(now) {
			n++
		}
	}
	return n
}

// inherit gives the run of a call the session that a standing grant has for it, where nothing else covers the call. The living process is looked at outside of the lock, so everything is judged again
// afterwards.
func (e *Engine) inherit(q *request) {
	if e.grants.Load() == 0 || e.cfg.Standing == nil {
		return
	}
	e.mu.Lock()
	found, trusted := unfit{q.Peer, e.given, e.inheritableLocked(q, nil)}, q.run.trusted
	known := found == q.run.unfit
	e.mu.Unlock()
	if found.grant == "" || known {
		return
	}
	program, err := e.cfg.Standing.Program(q.Peer)
	if err == nil && q.Peer.Check != nil {
		err = q.Peer.Check()
	}
	if err == nil && !trusted { // else the records may not know it yet
		var barred bool
		if barred, err = e.cfg.Records.Barred(q.run.id); err == nil && barred {
			err = errors.New("its session was revoked before")
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inheritableLocked(q, nil) != found.grant {
		return // something else has changed meanwhile, which the call is judged by now
	}
	id := ""
	if err == nil {
		if id = e.inheritableLocked(q, &program); id == "" {
			err = errors.New("it is another program than the one that has the grant, or was started or connected in another way")
		} else {
			err = q.run.check()
		}
	}
	if err != nil {
		// It is looked at once for each connection, and not at every call: it asks the person now, as often as it likes.
		if q.run.unfit = found; !q.run.told {
			q.run.told = true
			e.cfg.Logger.Info("a standing grant does not cover this process", "run", q.run.id, "actor", q.Peer.Actor, "reason", err)
		}
		return
	}
	s := e.standing[id].Session(q.run.id, e.cfg.Now())
	e.openSessionLocked(q.run, &s)
	e.cfg.Logger.Info("a process got a session by a standing grant", "run", q.run.id, "actor", q.Peer.Actor, "grant", id, "tool", q.Tool)
}

// unfit is what a run was found unfit for: a grant of that time, by that connection.
type unfit struct {
	peer  *peer.Identity
	given uint64
	grant string
}

// inheritableLocked returns the grant by which the call's run would get a session now, or nothing; without a program, one that could be it.
func (e *Engine) inheritableLocked(q *request, p *approval.Program) (found string) {
	if e.locked || e.closing || e.down || e.quarant || len(e.standing) == 0 || q.run.ended || q.run.revoked || q.run.barred || len(q.readings) == 0 || q.set != e.actions.Load() {
		return ""
	}
	rd := q.readings[0]
	if rd.err != nil || rd.action == nil || rd.action.retired || q.set.current[q.Tool] != rd.action || e.mayActLocked(q, rd) {
		return ""
	}
	now, what := e.cfg.Now(), subjectOf(q.Tool, rd.action.digest, rd.prepared.Arguments)
	for _, g := range e.standing {
		own := g.Program
		if p != nil {
			own = *p
		}
		if own.Actor == q.Peer.Actor && g.Covers(own, what, now) && (found == "" || g.ID < found) {
			found = g.ID
		}
	}
	return found
}

// endStandingLocked ends a grant and the sessions that came from it, and returns the word on it that the journal gets. For a person's revocation what waits is withdrawn, and nothing is sent for its runs
// again by itself.
func (e *Engine) endStandingLocked(id, reason string, revoked bool) Commit {
	delete(e.standing, id)
	e.ended[id] = reason
	e.grants.Store(int64(len(e.standing)))
	for _, r := range e.runsInOrder() {
		if n, _ := e.endSessionsLocked(r, reason, func(s approval.Session) bool { return s.Grant == id }); n == 0 {
			continue
		}
		if revoked {
			e.revokedLocked(r)
		} else {
			e.withdrawUncoveredLocked(r, reason)
		}
	}
	return e.noteLocked(GrantEvent{Kind: "grant_ended", Grant: id, Reason: reason}, false)
}

// recordEnd waits until the end of a grant is durable. The journal's word suffices: what the vault still holds then counts for nothing, and goes at the next unlock.
func (e *Engine) recordEnd(id string, commit Commit) error {
	err := errors.New("it could not be encoded")
	if commit != nil {
		err = commit.Wait()
	}
	dropped := errors.New("this daemon keeps none")
	if e.cfg.Standing != nil {
		dropped = e.cfg.Standing.Drop(id)
	}
	switch {
	case err == nil && dropped != nil:
		e.cfg.Logger.Warn("taking an ended standing grant out of the vault; the next unlock does it", "grant", id, "error", dropped)
		return nil
	case err != nil && dropped == nil:
		return fmt.Errorf("the standing grant %s has ended, but that could not be recorded: %w", id, err)
	case err != nil:
		return fmt.Errorf("the standing grant %s has ended until the daemon stops, but that could neither be recorded nor taken out of the vault; revoke it again: %w", id, errors.Join(err, dropped))
	}
	return nil
}

// RevokeGrant ends a standing grant at once, with the sessions that came from it. What was not sent and has no other session is withdrawn.
func (e *Engine) RevokeGrant(id, by string) error {
	e.mu.Lock()
	_, found := e.standing[id]
	switch {
	case e.locked:
		e.mu.Unlock()
		return fmt.Errorf("revoking %q: %w", id, vault.ErrLocked)
	case !found && e.ended[id] == "":
		e.mu.Unlock()
		return fmt.Errorf("revoking %q: %w; list them with spctl grants", id, ErrNoGrant)
	}
	commit := e.endStandingLocked(id, "revoked by "+by, true)
	e.mu.Unlock()
	return e.recordEnd(id, commit)
}

// EndGrantsOf ends the grants for an action that the person removed.
func (e *Engine) EndGrantsOf(tool string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endGrantsLocked("the action was removed", func(g approval.Standing) bool { return g.Subject.Tool == tool })
}

// endGrantsLocked ends the grants that pass. It does not wait for the disk.
func (e *Engine) endGrantsLocked(reason string, pass func(approval.Standing) bool) {
	for id, g := range e.standing {
		if !pass(g) {
			continue
		}
		commit := e.endStandingLocked(id, reason, false)
		e.work.Go(func() {
			if err := e.recordEnd(id, commit); err != nil {
				e.cfg.Logger.Error("ending a standing grant", "grant", id, "error", err)
			}
		})
	}
}

// revokedLocked withdraws what a run may not do any more after the person ended a session of its. Without any, nothing is sent for it again by itself.
func (e *Engine) revokedLocked(r *run) {
	if r.revoked = len(r.sessions) == 0; r.revoked {
		e.endRunsExecutionsLocked(r, execution.KindWithdrawn, api.CodeWithdrawn, "the session was revoked")
		return
	}
	e.withdrawUncoveredLocked(r, "the session was revoked")
}

func (e *Engine) withdrawUncoveredLocked(r *run, reason string) {
	for _, l := range e.liveOf(func(l *live) bool {
		return l.x.Run == r.id && l.bySession && !e.coveredLocked(r, l.x.Tool, l.x.ContractDigest, l.args)
	}) {
		e.endLocked(l, execution.KindWithdrawn, api.CodeWithdrawn, reason)
	}
}

// directLocked is authorizerLocked for a call that is dispatched at once. Hardly any run has a session by a grant, so nothing is hashed for the others.
func (e *Engine) directLocked(q *request, rd reading) string {
	if !slices.ContainsFunc(q.run.sessions, func(s approval.Session) bool { return s.Grant != "" }) {
		return "session"
	}
	return e.authorizerLocked(q.run, subjectOf(q.Tool, rd.action.digest, rd.prepared.Arguments), e.cfg.Now())
}

// authorizerLocked says by what a run may do this without being asked about: its own session, or the standing grant that its session came from.
func (e *Engine) authorizerLocked(r *run, what approval.Subject, now time.Time) string {
	grant := ""
	for _, s := range r.sessions {
		if !s.Covers(what, now) {
			continue
		}
		if s.Grant == "" || s.Card != "" {
			return "session"
		}
		grant = cmp.Or(grant, s.Grant)
	}
	return cmp.Or(grant, "session")
}
