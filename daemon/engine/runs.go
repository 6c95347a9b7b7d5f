package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
)

// run is one process instance of an actor. Everything in it is guarded by Engine.mu.
type run struct {
	id       string
	identity *peer.Identity
	sessions []approval.Session // those in force, oldest first; nothing removes one but its end
	first    time.Time
	last     time.Time
	calls    int
	conns    int
	ended    bool
	revoked  bool            // the person ended its session: nothing is sent for it again by itself
	barred   bool            // the person took a session from it: no standing grant gives it one, until the person does
	trusted  bool            // the person gave it a session under this daemon, and took none since
	unfit    unfit           // when it got no session by a standing grant, though one is for what it called
	told     bool            // that was logged
	asking   *card           // a card that asks for the session alone
	once     map[string]bool // earlier executions whose result the person let this run have, without a session
	judged   bool            // identity says how the program stands to its last session
	refusal  *runRefusal     // the answer to the last such card, so that a retry brings no new one
}

type runRefusal struct {
	code   api.Code
	reason string
	until  time.Time
}

// check proves again that the process lives and is still the same program.
func (r *run) check() error {
	if r.ended {
		return fmt.Errorf("run %s has ended", r.id)
	}
	if r.identity.Check == nil {
		return nil
	}
	return r.identity.Check()
}

// RunEvent is what happened to a run, as it stands in the journal: the session journal is the view of these entries.
type RunEvent struct {
	Kind     string         `json:"kind"` // run_seen, session_authorized, session_ended, run_ended
	Run      string         `json:"run"`
	Actor    string         `json:"actor,omitempty"`
	Identity *peer.Identity `json:"identity,omitempty"` // run_seen
	By       string         `json:"by,omitempty"`
	Card     string         `json:"card,omitempty"`
	Grant    string         `json:"grant,omitempty"` // the standing grant that the session came from, or that was given with it
	Reason   string         `json:"reason,omitempty"`

	Session *approval.Session `json:"session,omitempty"` // session_authorized
	Revoked bool              `json:"revoked,omitempty"` // session_ended: the person took one from the run, then or before, and gave it none since
}

// noteLocked appends an event that is no execution's. Nobody has to wait for it; the commit is nil where it could not even be encoded.
func (e *Engine) noteLocked(event any, lazy bool) Commit {
	b, err := json.Marshal(event)
	if err != nil {
		e.cfg.Logger.Error("encoding an event", "error", err)
		return nil
	}
	return e.cfg.Journal.Append(Entry{Event: b, At: e.cfg.Now(), Lazy: lazy})
}

// runLocked returns the run behind an identity, and makes it known at its first call.
func (e *Engine) runLocked(p *peer.Identity) *run {
	if r, ok := e.runs[p.Run]; ok {
		return r
	}
	now := e.cfg.Now()
	r := &run{id: p.Run, identity: p, first: now, last: now}
	e.runs[p.Run] = r
	e.noteLocked(RunEvent{Kind: "run_seen", Run: r.id, Actor: p.Actor, Identity: p}, true)
	if p.Ended != nil && !e.closing {
		e.work.Add(1)
		go func() {
			defer e.work.Done()
			select {
			case <-p.Ended:
				e.runEnded(r)
			case <-e.base.Done():
			}
		}()
	}
	return r
}

// Connected says that a peer has a connection, until the returned function is called. The run behind it is recorded from then on.
func (e *Engine) Connected(p *peer.Identity) (release func()) {
	e.mu.Lock()
	r := e.runLocked(p)
	r.conns++
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		r.conns--
	}
}

// runEnded ends the run's session and what waits for it. What is dispatched finishes and is recorded.
func (e *Engine) runEnded(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	_, _ = e.endSessionsLocked(r, "the process has ended", every)
	e.endRunsExecutionsLocked(r, execution.KindExpired, api.CodeRunEnded, "the process that asked has ended")
	e.noteLocked(RunEvent{Kind: "run_ended", Run: r.id, Actor: r.identity.Actor}, true)
	delete(e.runs, r.id)
	delete(e.limits, r.id)
}

func (e *Engine) endRunsExecutionsLocked(r *run, kind execution.Kind, code api.Code, reason string) {
	if r.asking != nil {
		e.closeCardLocked(r.asking, "void", reason)
	}
	for _, l := range e.liveOf(func(l *live) bool { return l.x.Run == r.id }) {
		e.endLocked(l, kind, code, reason)
	}
}

// liveOf returns the live executions that pass, in the order of their ids, so that what follows is the same every time.
func (e *Engine) liveOf(pass func(*live) bool) []*live {
	var out []*live
	for _, l := range e.live {
		if pass(l) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *live) int { return strings.Compare(a.x.ID, b.x.ID) })
	return out
}

// compareLocked says in the run's identity how its program stands to what it was in its last session. The vault is open whenever a person is asked.
func (e *Engine) compareLocked(r *run) {
	if e.cfg.Programs == nil || r.judged || len(r.sessions) > 0 {
		return
	}
	known, err := e.cfg.Programs.Known(r.identity.Actor)
	if err != nil {
		e.cfg.Logger.Warn("looking up what is known of a program", "run", r.id, "error", err)
		return
	}
	judged := r.identity.Judged(known)
	r.identity, r.judged = &judged, true
}

// rememberLocked keeps what the program of an authorized run is. Nothing waits for it: it decides nothing, and is what the next run's card is compared with.
func (e *Engine) rememberLocked(r *run, at time.Time) {
	if e.cfg.Programs == nil {
		return
	}
	identity := *r.identity
	e.work.Go(func() {
		known, err := e.cfg.Programs.Known(identity.Actor)
		if err == nil {
			err = e.cfg.Programs.Remember(identity.KnownAs(known, at))
		}
		if err != nil {
			e.cfg.Logger.Warn("remembering a program", "run", identity.Run, "error", err)
		}
	})
}

// openSessionLocked records the person's authorization of a run, and lets through what waited only for it.
func (e *Engine) openSessionLocked(r *run, s *approval.Session) {
	r.sessions, r.refusal, r.revoked = append(r.sessions, *s), nil, false
	if s.Card != "" {
		r.barred, r.trusted, r.unfit = false, true, unfit{}
	}
	if len(e.actions.Load().shared.resources) > 0 {
		e.sharedChangedLocked() // it may see them now
	}
	whole := s.Whole(e.cfg.Now())
	e.rememberLocked(r, s.At)
	noted := *s
	noted.Subject = noted.Subject.InTheOpen()
	e.noteLocked(RunEvent{Kind: "session_authorized", Run: r.id, Actor: s.Actor, By: s.By, Card: s.Card, Grant: s.Grant, Session: &noted}, true)
	if !s.Until.IsZero() {
		card, grant := s.Card, s.Grant
		e.cfg.After(s.Until.Sub(e.cfg.Now()), func() { e.sessionLapsed(r, card, grant) })
	}
	if whole && r.asking != nil && r.asking.ID != s.Card {
		e.closeCardLocked(r.asking, "session", s.By)
	}
	for _, l := range e.liveOf(func(l *live) bool {
		return l.x.Run == r.id && l.card != nil && l.card.ID != s.Card && s.Covers(l.subject(), e.cfg.Now())
	}) {
		by := e.authorizerLocked(r, l.subject(), e.cfg.Now())
		switch {
		case l.card.Question == approval.AskSession && l.card.Earlier == "":
			e.closeCardLocked(l.card, "session", s.By)
			if _, err := e.stepLocked(l, change{ev: execution.Event{Kind: execution.KindAuthorized, ID: l.x.ID, By: by}}); err == nil {
				l.bySession = true
				e.proceedLocked(l)
			}
			l.wakeLocked()
		case l.card.Earlier != "":
			// Whether it is done a second time is a question of its own.
			l.card.Question = approval.AskAgain
			e.publishCardLocked(l.card, "changed", "")
		case l.card.Question == approval.AskSessionAndUse:
			l.card.Question = approval.AskUse
			e.publishCardLocked(l.card, "changed", "")
		}
	}
}

// subject is what a narrow session would have to cover for the execution.
func (l *live) subject() approval.Subject {
	return subjectOf(l.x.Tool, l.x.ContractDigest, l.args)
}

func subjectOf(tool, contract string, arguments []byte) approval.Subject {
	s := approval.Subject{Tool: tool, ContractDigest: contract}
	if arguments != nil {
		sum := sha256.Sum256(arguments)
		s.Arguments = "sha256:" + hex.EncodeToString(sum[:])
	}
	return s
}

// wholeLocked reports whether the person let the run act as a whole.
func (e *Engine) wholeLocked(r *run) bool {
	return slices.ContainsFunc(r.sessions, func(s approval.Session) bool { return s.Whole(e.cfg.Now()) })
}

// mayActLocked reports whether the person let the run do what the call asks for.
func (e *Engine) mayActLocked(q *request, rd reading) bool {
	if rd.action == nil || rd.err != nil {
		return e.wholeLocked(q.run)
	}
	return e.coveredLocked(q.run, q.Tool, rd.action.digest, rd.prepared.Arguments)
}

// coveredLocked reports whether the person let the run do this.
func (e *Engine) coveredLocked(r *run, tool, contract string, arguments []byte) bool {
	if len(r.sessions) == 0 {
		return false
	}
	now := e.cfg.Now()
	if slices.ContainsFunc(r.sessions, func(s approval.Session) bool { return s.Whole(now) }) {
		return true // what most runs have, without a digest
	}
	what := subjectOf(tool, contract, arguments)
	return slices.ContainsFunc(r.sessions, func(s approval.Session) bool { return s.Covers(what, now) })
}

// endSessionsLocked ends the sessions that pass, and reports how many, with what the journal gets of the last. Nobody has to wait for that.
func (e *Engine) endSessionsLocked(r *run, reason string, pass func(approval.Session) bool) (ended int, last Commit) {
	r.sessions = slices.DeleteFunc(r.sessions, func(s approval.Session) bool {
		if !pass(s) {
			return false
		}
		ended++
		last = e.noteLocked(RunEvent{Kind: "session_ended", Run: r.id, Actor: r.identity.Actor, Card: s.Card, Grant: s.Grant, Reason: reason, Revoked: r.barred}, true)
		return true
	})
	return ended, last
}

func every(approval.Session) bool { return true }

// sessionLapsed ends a session whose time is up. What it let through and was not sent is asked about again when it is called again.
func (e *Engine) sessionLapsed(r *run, card, grant string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n, _ := e.endSessionsLocked(r, "its time is up", func(s approval.Session) bool { return s.Card == card && s.Grant == grant }); n == 0 {
		return
	}
	for _, l := range e.liveOf(func(l *live) bool {
		return l.x.Run == r.id && l.bySession && l.x.State == execution.Authorized && !l.busy
	}) {
		e.proceedLocked(l)
	}
}

// RevokeSession ends the sessions of a run at once, the one that a card gave, or those that a standing grant gave. What was not sent and has none any more is withdrawn. A standing grant that one came from
// ends with it: whoever takes the right from a process does not mean the next one to have it. The process gets no session by any other grant, after a restart of the daemon either.
func (e *Engine) RevokeSession(id, by string) error {
	e.mu.Lock()
	grants, recorded, err := e.revokeSessionLocked(id, by)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	commits := map[string]Commit{}
	for _, g := range grants {
		commits[g] = e.endStandingLocked(g, "a session that came from it was revoked by "+by, true)
	}
	e.mu.Unlock()
	if recorded != nil {
		if err = recorded.Wait(); err != nil {
			err = fmt.Errorf("the session of %q has ended, but that could not be recorded: %w", id, err)
		}
	}
	for _, g := range grants {
		err = errors.Join(err, e.recordEnd(g, commits[g]))
	}
	return err
}

func (e *Engine) revokeSessionLocked(id, by string) (grants []string, recorded Commit, err error) {
	pass, runs := every, []*run(nil)
	if r := e.runs[id]; r != nil {
		runs = append(runs, r)
	} else {
		pass, runs = func(s approval.Session) bool { return s.Card == id || s.Grant == id }, e.runsInOrder()
	}
	runs = slices.DeleteFunc(runs, func(r *run) bool { return !slices.ContainsFunc(r.sessions, pass) })
	if len(runs) == 0 {
		return nil, nil, fmt.Errorf("revoking the session of %q: %w; list them with spctl sessions", id, ErrNoRun)
	}
	for _, r := range runs { // one, unless it is a grant's
		for _, s := range r.sessions {
			if pass(s) && s.Grant != "" && !slices.Contains(grants, s.Grant) {
				grants = append(grants, s.Grant)
			}
		}
		r.barred, r.trusted = true, false
		_, recorded = e.endSessionsLocked(r, "revoked by "+by, pass)
		e.revokedLocked(r)
	}
	return grants, recorded, nil
}

// RunView is a run as the person sees it.
type RunView struct {
	Identity peer.Identity
	Sessions []approval.Session
	First    time.Time
	Last     time.Time
	Calls    int
	Waiting  int
	Online   bool
}

// Runs returns the runs that are alive, those seen last first.
func (e *Engine) Runs() []RunView {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]RunView, 0, len(e.runs))
	for _, r := range e.runs {
		v := RunView{Identity: *r.identity, First: r.first, Last: r.last, Calls: r.calls, Waiting: e.counts[r.id], Online: r.conns > 0}
		v.Sessions = slices.Clone(r.sessions)
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b RunView) int { return b.Last.Compare(a.Last) })
	return out
}

// KnowsAgent says whether one of the processes is the agent of a known run. An operator's call from beneath an agent is refused even with the right passphrase.
func (e *Engine) KnowsAgent(chain []peer.Process) (runID string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runs {
		for _, p := range chain {
			if a := r.identity.Agent; a.PID == p.PID && a.Start == p.Start {
				return r.id, true
			}
		}
	}
	return "", false
}
