package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// MaxStanding bounds a standing grant.
const MaxStanding = 30 * 24 * time.Hour

// Program is what a standing grant is bound to: the program of the run that it was given in, as the operating system proved it, and the way by which that program was started and reached the daemon.
// A run whose program differs in anything is another program.
type Program struct {
	Actor   string   `json:"actor"`
	Package string   `json:"package,omitempty"`
	Exe     string   `json:"exe"`
	Digest  string   `json:"digest"` // of the executable
	Via     string   `json:"via"`
	Through []string `json:"through,omitempty"` // what stands between the program and the daemon
	Chain   []string `json:"chain,omitempty"`   // its ancestors, nearest first
}

// Same reports whether both are one program, started and connected in one way.
func (p Program) Same(q Program) bool {
	return p.Actor == q.Actor && p.Package == q.Package && p.Exe == q.Exe && p.Digest == q.Digest && p.Via == q.Via && slices.Equal(p.Through, q.Through) && slices.Equal(p.Chain, q.Chain)
}

func (p Program) whole() bool { return p.Actor != "" && p.Exe != "" && p.Digest != "" && p.Via != "" }

// Standing is the person's word that the next runs of a program may do one thing, too: each gets a session from it without being asked about. It always names an action under one contract, and always
// ends. What is asked about at every use still is.
//
// The JSON form is frozen as version 1 (testdata/standing-v1.json), and lies sealed in the vault. A field that is not known is an error and not ignored, because it may be one that narrows: a program that
// adds one writes another version, and an older program then takes the grant for none.
type Standing struct {
	Version int     `json:"v"`
	ID      string  `json:"grant"`
	Program Program `json:"program"`
	Scope   Scope   `json:"scope"` // action or arguments
	Subject Subject `json:"subject"`

	By    string    `json:"by"`
	Card  string    `json:"card"`
	Run   string    `json:"run"` // the one whose card it was
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
}

const standingVersion = 1

// Standing returns the standing grant that a decision made beside the session.
func (s Session) Standing(p Program) (Standing, error) {
	g := Standing{
		Version: standingVersion, ID: s.Grant, Program: p, Scope: s.Scope, Subject: s.Subject, By: s.By, Card: s.Card, Run: s.Run, At: s.At.Round(0).UTC(), Until: s.Until.Round(0).UTC(),
	}
	return g, g.check()
}

func (g Standing) check() error {
	lasts := g.Until.Sub(g.At)
	switch {
	case g.Version != standingVersion:
		return fmt.Errorf("a standing grant of version %d is not known here", g.Version)
	case g.ID == "" || g.By == "" || !g.Program.whole():
		return errors.New("a standing grant needs an id, who gave it, and a whole program")
	case g.Subject.Tool == "" || g.Subject.ContractDigest == "":
		return errors.New("a standing grant needs an action and its contract")
	case g.Scope != ScopeAction && g.Scope != ScopeArguments, (g.Scope == ScopeArguments) != (g.Subject.Arguments != ""):
		return fmt.Errorf("a standing grant is for one action or for one action with its arguments, not for %q", g.Scope)
	case g.At.IsZero() || lasts < time.Minute || lasts > MaxStanding:
		return fmt.Errorf("a standing grant lasts from one minute to %d days", int(MaxStanding.Hours()/24))
	}
	return nil
}

// InForce reports whether the grant's time has begun and is not up. A clock that says that it was not given yet is wrong, and nothing follows from it.
func (g Standing) InForce(now time.Time) bool {
	return g.check() == nil && !now.Before(g.At) && now.Before(g.Until)
}

// Covers reports whether the grant is in force and lets a run of this program do this.
func (g Standing) Covers(p Program, what Subject, now time.Time) bool {
	return g.InForce(now) && g.Program.Same(p) && g.Session("", now).Covers(what, now)
}

// Session is what a run of the program gets from the grant.
func (g Standing) Session(run string, now time.Time) Session {
	return Session{Run: run, Actor: g.Program.Actor, By: g.By, At: now, Scope: g.Scope, Subject: g.Subject, Until: g.Until, Grant: g.ID}
}

// Encode returns the JSON form.
func (g Standing) Encode() ([]byte, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return json.Marshal(g)
}

// DecodeStanding reads the JSON form, strictly.
func DecodeStanding(b []byte) (Standing, error) {
	var g Standing
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		return Standing{}, fmt.Errorf("reading a standing grant: %w", err)
	}
	if d.More() {
		return Standing{}, errors.New("reading a standing grant: something follows it")
	}
	if err := g.check(); err != nil {
		return Standing{}, fmt.Errorf("reading a standing grant: %w", err)
	}
	return g, nil
}
