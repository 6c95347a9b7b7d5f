// Package approval holds the person's decisions as values: cards that ask, grants that a decision leaves behind, and sessions of runs.
//
// It is pure: no I/O, no clock, no randomness; ids and times come in as arguments. An approval is bound to exactly what the card showed (execution, fingerprint,
// effect, run and contract), is used once, and only before it expires. Nothing here says whether a call belongs to an earlier one, or what happened to it.
package approval

import (
	"errors"
	"fmt"
	"time"
)

// Question is what a card asks. The zero value is invalid.
type Question string

// The questions.
const (
	AskSession       Question = "session"         // may this run act at all?
	AskUse           Question = "per_use"         // may this one execution go ahead?
	AskSessionAndUse Question = "session_and_use" // both, settled by one card
	AskAgain         Question = "again"           // it was done and its result delivered: run it again, or hand out the recorded result?
)

// Answer is what the person says. The zero value is invalid.
type Answer string

// The answers.
const (
	Once     Answer = "once"     // this execution, and nothing else
	ForRun   Answer = "session"  // this execution, and a session for its run
	Deny     Answer = "deny"     //
	Recorded Answer = "recorded" // where the card shows a delivered execution: hand out its result
)

// Binding is what an approval is given for. Two bindings are the same approval only if every field is equal.
type Binding struct {
	Execution      string `json:"execution_id"`
	Fingerprint    string `json:"fingerprint"`
	EffectDigest   string `json:"effect_digest"`
	Run            string `json:"run"`
	ContractDigest string `json:"contract_digest"`
}

// Card is one question to the person. Binding.Execution is the execution that waits.
type Card struct {
	ID       string    `json:"card"`
	Question Question  `json:"question"`
	Binding  Binding   `json:"binding"`
	Why      []string  `json:"why"`                // in words: new process, credential asks each time, condition and its values, an earlier one expired
	Earlier  string    `json:"original,omitempty"` // the earlier execution that the person should see first
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
}

// Errors that a caller branches on.
var (
	ErrExpired  = errors.New("the card has expired")
	ErrMismatch = errors.New("the approval was given for something else")
	ErrUsed     = errors.New("the approval was used already")
)

// Grant is the right to dispatch one execution once.
type Grant struct {
	Card    string    `json:"card"`
	Binding Binding   `json:"binding"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires"`
	Used    bool      `json:"used"`
}

// Scope says what a session covers of its run. The zero value is that of sessions from before there were scopes: the run as a whole.
type Scope string

// The scopes. None goes beyond the run: another process of the same program is asked about again, unless a standing grant covers it.
const (
	ScopeRun       Scope = "run"       // whatever the run asks for, but for what is asked about at every use
	ScopeAction    Scope = "action"    // one action, under the contract that the card showed
	ScopeArguments Scope = "arguments" // one action with the arguments that the card showed, under that contract
)

// MaxFor bounds a session that ends by the clock.
const MaxFor = 24 * time.Hour

// Session is the person's authorization of one run. It lasts as long as the run and the daemon, or until its time is up; a lock suspends it.
type Session struct {
	Run   string    `json:"run"`
	Actor string    `json:"actor"`
	By    string    `json:"by"`
	Card  string    `json:"card,omitempty"`
	At    time.Time `json:"at"`

	Scope   Scope     `json:"scope,omitempty"`
	Subject Subject   `json:"subject,omitzero"` // with a scope narrower than the run
	Until   time.Time `json:"until,omitzero"`   // zero: as long as the run lives

	Grant string `json:"grant,omitempty"` // the standing grant that it came from, or that was given with it; it ends with that
}

// Subject is what a session can be narrowed to.
type Subject struct {
	Tool           string `json:"tool"`
	ContractDigest string `json:"contract_digest"`
	Arguments      string `json:"arguments,omitempty"` // SHA-256 of the canonical arguments
}

// InTheOpen returns the subject as it may stand where anybody of the user reads it: few arguments are so hard to guess that a digest without a key hides them. What they were is sealed with the execution of
// the card.
func (s Subject) InTheOpen() Subject {
	s.Arguments = ""
	return s
}

// Whole reports whether the session is in force and covers its run as a whole.
func (s Session) Whole(now time.Time) bool {
	return (s.Scope == "" || s.Scope == ScopeRun) && (s.Until.IsZero() || now.Before(s.Until))
}

// Covers reports whether the session is in force and covers the subject.
func (s Session) Covers(what Subject, now time.Time) bool {
	if !s.Until.IsZero() && !now.Before(s.Until) {
		return false
	}
	switch s.Scope {
	case "", ScopeRun:
		return true
	case ScopeAction:
		return s.Subject.Tool == what.Tool && s.Subject.ContractDigest == what.ContractDigest
	case ScopeArguments:
		return s.Subject == what
	}
	return false
}

// Decision is the person's answer to a card.
type Decision struct {
	Answer Answer    `json:"answer"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"` // with Deny: the agent reads it
	At     time.Time `json:"at"`

	// With ForRun: what the session covers, the run as a whole where it is empty, and for how long, while the run lives where it is 0.
	Scope   Scope         `json:"scope,omitempty"`
	For     time.Duration `json:"for,omitempty"`
	Subject Subject       `json:"-"` // what the card is about; a narrower scope needs it

	// Standing extends the session to the next runs of the program, as the grant with this id. For is then its time, which it needs, and Scope is action where it is empty.
	Standing bool   `json:"standing,omitempty"`
	Grant    string `json:"-"`
}

// Decide applies a decision to the card. It returns the grant, and the session where the answer makes one; both are nil for Deny and Recorded.
func (c Card) Decide(d Decision, actor string) (*Grant, *Session, error) {
	if !d.At.Before(c.Expires) {
		return nil, nil, fmt.Errorf("answering card %s: %w: it was valid until %s", c.ID, ErrExpired, c.Expires.UTC().Format(time.RFC3339))
	}
	if d.By == "" {
		return nil, nil, fmt.Errorf("answering card %s: who answers is missing", c.ID)
	}
	switch d.Answer {
	case Deny:
		return nil, nil, nil
	case Recorded:
		if c.Earlier == "" {
			return nil, nil, fmt.Errorf("answering card %s: there is no recorded result to hand out; answer once, session or deny", c.ID)
		}
		return nil, nil, nil
	case Once, ForRun:
	default:
		return nil, nil, fmt.Errorf("answering card %s: %q is no answer; use once, session or deny", c.ID, d.Answer)
	}
	g := &Grant{Card: c.ID, Binding: c.Binding, By: d.By, At: d.At, Expires: c.Expires}
	if d.Standing && d.Answer != ForRun {
		return nil, nil, fmt.Errorf("answering card %s: a standing grant goes with a session", c.ID)
	}
	if d.Answer == Once {
		return g, nil, nil
	}
	if c.Question == AskUse || c.Question == AskAgain {
		return nil, nil, fmt.Errorf("answering card %s: its run has a session already, and this action is asked about each time; answer once or deny", c.ID)
	}
	s := &Session{Run: c.Binding.Run, Actor: actor, By: d.By, Card: c.ID, At: d.At}
	most := MaxFor
	if d.Standing {
		most = MaxStanding
		switch {
		case d.Scope == ScopeRun:
			return nil, nil, fmt.Errorf("answering card %s: a standing grant is for one action, or for one action with its arguments; nobody can say yes today to all that a program may ask for later", c.ID)
		case d.Grant == "":
			return nil, nil, fmt.Errorf("answering card %s: the standing grant has no id", c.ID)
		case d.For == 0:
			return nil, nil, fmt.Errorf("answering card %s: a standing grant needs an end, at most %d days from now", c.ID, int(MaxStanding.Hours()/24))
		case d.Scope == "":
			d.Scope = ScopeAction
		}
		s.Grant = d.Grant
	}
	switch d.Scope {
	case "", ScopeRun:
	case ScopeAction, ScopeArguments:
		if d.Subject.Tool == "" || d.Subject.ContractDigest == "" || d.Scope == ScopeArguments && d.Subject.Arguments == "" {
			return nil, nil, fmt.Errorf("answering card %s: it asks about its run as a whole, so a session cannot be narrower", c.ID)
		}
		s.Scope, s.Subject = d.Scope, d.Subject
		if d.Scope == ScopeAction {
			s.Subject.Arguments = ""
		}
	default:
		return nil, nil, fmt.Errorf("answering card %s: %q is no scope; use run, action or arguments", c.ID, d.Scope)
	}
	if d.For != 0 {
		if d.For < time.Minute || d.For > most {
			if d.Standing {
				return nil, nil, fmt.Errorf("answering card %s: a standing grant lasts from one minute to %d days", c.ID, int(most.Hours()/24))
			}
			return nil, nil, fmt.Errorf("answering card %s: a session lasts from one minute to %d hours, or as long as its run", c.ID, int(most.Hours()))
		}
		s.Until = d.At.Round(0).Add(d.For) // by the clock on the wall: the monotonic one stands still while the machine sleeps
	}
	return g, s, nil
}

// Use spends the grant for what is about to be sent.
func (g Grant) Use(b Binding, now time.Time) (Grant, error) {
	switch {
	case g.Used:
		return g, fmt.Errorf("using the approval of card %s: %w", g.Card, ErrUsed)
	case g.Binding != b:
		return g, fmt.Errorf("using the approval of card %s: %w", g.Card, ErrMismatch)
	case !now.Before(g.Expires):
		return g, fmt.Errorf("using the approval of card %s: %w", g.Card, ErrExpired)
	}
	g.Used = true
	return g, nil
}
