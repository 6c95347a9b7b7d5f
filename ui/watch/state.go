// Package watch follows the daemon for the tray app: its status, the cards that wait, what happens to executions, and whether the daemon is there at all.
//
// Promises: one goroutine owns the state; everybody else gets a [State] that nobody changes afterwards. [Apply] is pure, and the only way the state changes. A daemon that was
// restarted, a socket that went and a vault that was locked leave no card and no record of before. Without the person's proof only the status is asked for.
//
// Non-promises: a state is as new as what the daemon has said; an answer to a card is decided by the daemon. Between two looks at the status (see [Config]) up to a few seconds pass where
// no stream is open, because the vault is locked or the person has not proven presence.
package watch

import (
	"slices"
	"strings"
	"time"

	"singlepass.dev/daemon/api"
)

// Link says how the daemon is reached.
type Link string

// The links.
const (
	Starting Link = "starting" // not asked yet
	Up       Link = "up"
	Down     Link = "down"     // nothing answers
	Stranger Link = "stranger" // something else than the installed spd answers
	Trouble  Link = "trouble"  // it answers, and not as it should
)

// State is what the tray app knows. Its slices and records are shared and never changed.
type State struct {
	Link    Link
	Problem string // why the link is not up, in the daemon's or the client's words
	Hint    string // what to do about it
	Status  api.Status
	Proven  bool         // the person has proven presence: cards and activity are known
	Cards   []api.Card   // those that wait, the oldest first
	Gone    []Gone       // those that ended lately and were not answered here
	Again   []Again      // calls that came again lately, the newest first
	Open    []api.Record // executions whose outcome is not known, the oldest first
	Recent  []api.Record // the newest executions, the newest first
	Denied  Denied       // calls that were refused because the vault is locked, as they are told to the person
}

// Denied are the calls that were refused since the vault was locked. It stands still for a while after it changed, however many more there are: an agent that tries again and again does not
// call the person each time.
type Denied struct {
	Calls int       // 0: none
	Last  time.Time // of those
	told  time.Time // when it came to this
}

// after is what is told once the daemon says how many there are now.
func (d Denied) after(now *api.LockedCalls, at time.Time) Denied {
	if now == nil {
		return Denied{}
	}
	since := at.Sub(d.told)
	if d.Calls > 0 && (now.Last.Equal(d.Last) || since >= 0 && since < tellDenied) {
		return d
	}
	return Denied{Calls: now.Calls, Last: now.Last, told: at}
}

// Gone is a card that was answered elsewhere or has become void.
type Gone struct {
	Card   api.Card
	Void   bool
	By     string
	Reason string
	At     time.Time
}

// Again is an execution to which another call attached in place of a new one.
type Again struct {
	Record api.Record
	At     time.Time
	Seen   bool // the person has looked at it
}

const (
	keepGone   = 12 * time.Second
	keepSeen   = 2 * time.Minute
	keepAgain  = 15 * time.Minute
	tellDenied = 10 * time.Minute
	maxAgain   = 20
	maxRecent  = 100
	maxGone    = 20
	maxWaiting = 1000 // the daemon bounds the cards of one run; this bounds what it could ever send
)

// Event is something that happened to the state.
type Event interface{ apply(*State) }

// Apply returns the state after an event. It changes neither.
func Apply(s State, e Event) State {
	e.apply(&s)
	return s
}

type (
	// StatusKnown: the daemon said how it is.
	StatusKnown struct {
		Status api.Status
		At     time.Time
	}
	// LinkLost: it did not answer, or not as it should.
	LinkLost struct {
		Link          Link
		Problem, Hint string
	}
	// ProofChanged: the person proved presence, or the proof is over.
	ProofChanged struct{ Proven bool }
	// CardsOpened: the stream of cards begins anew; the ones that wait follow.
	CardsOpened struct{}
	// CardSaid is one line of that stream.
	CardSaid struct {
		Event api.CardEvent
		Mine  bool // answered from here
		At    time.Time
	}
	// ActivityOpened: the stream of executions begins anew.
	ActivityOpened struct{}
	// RecordSaid is one line of that stream.
	RecordSaid struct {
		Event api.RecordEvent
		At    time.Time
	}
	// Seen: the person has looked at a call that came again.
	Seen struct{ Execution string }
	// TimePassed forgets what is shown for a while only.
	TimePassed struct{ Now time.Time }
)

func (e StatusKnown) apply(s *State) {
	restarted := s.Link == Up && (s.Status.PID != e.Status.PID || !s.Status.Since.Equal(e.Status.Since))
	s.Link, s.Problem, s.Hint, s.Status, s.Denied = Up, "", "", e.Status, s.Denied.after(e.Status.LockedCalls, e.At)
	if restarted || e.Status.Vault != "unlocked" {
		forget(s)
	}
}

func (e LinkLost) apply(s *State) {
	s.Link, s.Problem, s.Hint, s.Status, s.Denied = e.Link, e.Problem, e.Hint, api.Status{}, Denied{}
	forget(s)
}

func (e ProofChanged) apply(s *State) {
	if !e.Proven {
		forget(s)
	}
	s.Proven = e.Proven
}

// forget drops what only a person who has proven presence may see.
func forget(s *State) {
	*s = State{Link: s.Link, Problem: s.Problem, Hint: s.Hint, Status: s.Status, Denied: s.Denied}
}

func (CardsOpened) apply(s *State) { s.Cards = nil }

func (e CardSaid) apply(s *State) {
	id := e.Event.Card.Card
	at := slices.IndexFunc(s.Cards, func(c api.Card) bool { return c.Card == id })
	switch e.Event.Event {
	case "waiting", "added", "changed":
		cards := slices.Clone(s.Cards)
		if at >= 0 {
			cards[at] = e.Event.Card
		} else if len(cards) < maxWaiting {
			cards = append(cards, e.Event.Card)
		}
		slices.SortStableFunc(cards, func(a, b api.Card) int {
			if c := a.Created.Compare(b.Created); c != 0 {
				return c
			}
			return strings.Compare(a.Card, b.Card)
		})
		s.Cards = cards
	case "answered", "void":
		if at < 0 {
			return
		}
		if !e.Mine {
			gone := Gone{Card: s.Cards[at], Void: e.Event.Event == "void", By: e.Event.By, Reason: e.Event.Note, At: e.At}
			s.Gone = slices.Concat([]Gone{gone}, s.Gone)
			s.Gone = s.Gone[:min(len(s.Gone), maxGone)]
		}
		s.Cards = slices.Delete(slices.Clone(s.Cards), at, at+1)
	}
}

func (ActivityOpened) apply(s *State) { s.Open, s.Recent = nil, nil }

func (e RecordSaid) apply(s *State) {
	r := e.Event.Record
	before := slices.IndexFunc(s.Recent, func(x api.Record) bool { return x.ExecutionID == r.ExecutionID })
	more := e.Event.Event == "changed" && calls(r) > 1 && (before < 0 || calls(r) > calls(s.Recent[before]))
	recent := slices.Clone(s.Recent)
	switch {
	case before >= 0:
		recent[before] = r
	default:
		recent = slices.Insert(recent, 0, r)
		slices.SortStableFunc(recent, func(a, b api.Record) int { return b.AcceptedAt.Compare(a.AcceptedAt) })
		recent = recent[:min(len(recent), maxRecent)]
	}
	s.Recent = recent

	open := slices.DeleteFunc(slices.Clone(s.Open), func(x api.Record) bool { return x.ExecutionID == r.ExecutionID })
	if r.State == "unknown" {
		open = append(open, r)
		slices.SortStableFunc(open, func(a, b api.Record) int { return a.AcceptedAt.Compare(b.AcceptedAt) })
	}
	s.Open = open

	again := slices.Clone(s.Again)
	at := slices.IndexFunc(again, func(x Again) bool { return x.Record.ExecutionID == r.ExecutionID })
	switch {
	case more:
		if at >= 0 {
			again = slices.Delete(again, at, at+1)
		}
		again = slices.Insert(again, 0, Again{Record: r, At: e.At})
		s.Again = again[:min(len(again), maxAgain)]
	case at >= 0:
		again[at].Record = r
		s.Again = again
	}
}

func calls(r api.Record) int { return len(r.Callers) + r.CallersDropped }

func (e Seen) apply(s *State) {
	s.Again = slices.Clone(s.Again)
	for i := range s.Again {
		if s.Again[i].Record.ExecutionID == e.Execution {
			s.Again[i].Seen = true
		}
	}
}

func (e TimePassed) apply(s *State) {
	s.Gone = slices.DeleteFunc(slices.Clone(s.Gone), func(g Gone) bool { return e.Now.Sub(g.At) > keepGone })
	// What is not settled stays in sight however long it takes.
	s.Again = slices.DeleteFunc(slices.Clone(s.Again), func(a Again) bool {
		keep := keepAgain
		if a.Seen {
			keep = keepSeen
		}
		return !unsettled(a.Record) && e.Now.Sub(a.At) > keep
	})
}

func unsettled(r api.Record) bool {
	switch r.State {
	case "accepted", "authorized", "dispatched", "unknown":
		return true
	}
	return false
}

// temporary says whether the passing of time changes the state.
func (s State) temporary() bool { return len(s.Gone) > 0 || len(s.Again) > 0 }

// Waiting is how many cards wait: those that are known, or what the status says where they are not.
func (s State) Waiting() int {
	if s.Proven {
		return len(s.Cards)
	}
	return s.Status.Pending
}

// Unknown is how many executions wait for a verdict. The stream knows the newest ones, and the status knows all.
func (s State) Unknown() int {
	if s.Proven && len(s.Recent) < maxRecent {
		return len(s.Open)
	}
	return max(len(s.Open), s.Status.Unknown)
}

// Face is what a glance at the tray has to tell.
type Face string

// The faces, the most urgent first.
const (
	FaceDown       Face = "down"
	FaceWaiting    Face = "waiting"
	FaceQuarantine Face = "quarantine"
	FaceUnknown    Face = "unknown"
	FaceLocked     Face = "locked"
	FaceUnlocked   Face = "unlocked"
)

// Faces lists them all.
func Faces() []Face {
	return []Face{FaceDown, FaceWaiting, FaceQuarantine, FaceUnknown, FaceLocked, FaceUnlocked}
}

// Face says what the icon shows, and how many for the faces that count.
func (s State) Face() (face Face, count int) {
	switch {
	case s.Link == Starting || s.Link == Down || s.Link == Stranger || s.Link == Trouble:
		return FaceDown, 0
	case s.Waiting() > 0:
		return FaceWaiting, s.Waiting()
	case s.Status.Journal == "quarantine":
		return FaceQuarantine, 0
	case s.Unknown() > 0:
		return FaceUnknown, s.Unknown()
	case s.Status.Vault != "unlocked":
		return FaceLocked, 0
	}
	return FaceUnlocked, 0
}
