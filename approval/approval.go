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

// Session is the person's authorization of one run. It lasts as long as the run and the daemon; a lock suspends it.
type Session struct {
	Run   string    `json:"run"`
	Actor string    `json:"actor"`
	By    string    `json:"by"`
	Card  string    `json:"card,omitempty"`
	At    time.Time `json:"at"`
}

// Decision is the person's answer to a card.
type Decision struct {
	Answer Answer    `json:"answer"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"` // with Deny: the agent reads it
	At     time.Time `json:"at"`
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
	if d.Answer == Once {
		return g, nil, nil
	}
	if c.Question == AskUse || c.Question == AskAgain {
		return nil, nil, fmt.Errorf("answering card %s: its run has a session already, and this action is asked about each time; answer once or deny", c.ID)
	}
	return g, &Session{Run: c.Binding.Run, Actor: actor, By: d.By, Card: c.ID, At: d.At}, nil
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
