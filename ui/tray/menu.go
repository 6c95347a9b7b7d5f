package tray

import (
	"path/filepath"
	"strings"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/visible"
	"singlepass.dev/ui/icon"
	"singlepass.dev/ui/watch"
)

// Command is what an entry of the menu does.
type Command string

// The commands. None of them approves anything: whoever can speak to the session bus can click this menu.
const (
	None     Command = ""
	Card     Command = "card" // show the window at a card
	Pending  Command = "pending"
	Unsettle Command = "unknown" // show the outcomes that are not known
	Activity Command = "activity"
	Unlock   Command = "unlock" // show the window at the passphrase
	Lock     Command = "lock"
	Quit     Command = "quit"
)

// Entry is one line of the menu.
type Entry struct {
	Label   string // empty: not shown
	Command Command
	Card    string // of command Card
}

// Look is everything that the tray shows.
type Look struct {
	Kind    icon.Kind
	Count   int
	Tooltip string
	Head    string // the first line, which does nothing
	Cards   []Entry
	Rest    []Entry
}

// slots is how many cards have a line of their own.
const slots = 8

// Words says a text in the person's language: by its key, and the names and values of what the text leaves open. Count chooses the form that n takes; the text has n as N.
type Words interface {
	Say(key string, pairs ...any) string
	Count(key string, n int, pairs ...any) string
}

// Of says what the tray shows of a state.
func Of(s watch.State, w Words) Look {
	face, count := s.Face()
	l := Look{Kind: icon.Kind(face), Count: count, Head: headline(s, face, count, w)}
	l.Tooltip = w.Say("tray.tooltip", "State", l.Head)
	for i, c := range s.Cards {
		if i == slots {
			l.Cards = append(l.Cards, Entry{Label: w.Count("tray.more", len(s.Cards)-slots), Command: Pending})
			break
		}
		l.Cards = append(l.Cards, Entry{Label: Name(c, w), Command: Card, Card: c.Card})
	}
	open := Entry{Label: w.Say("tray.open"), Command: Pending}
	var unknown, lock Entry
	if s.Link == watch.Up {
		if n := s.Unknown(); n > 0 {
			unknown = Entry{Label: w.Count("tray.settle", n), Command: Unsettle}
		}
		switch {
		case s.Status.Vault == "uninitialized":
			lock = Entry{Label: w.Say("tray.setup"), Command: Unlock}
		case s.Status.Vault != "unlocked":
			lock = Entry{Label: w.Say("tray.unlock"), Command: Unlock}
		default:
			lock = Entry{Label: w.Say("tray.lock"), Command: Lock}
		}
	}
	l.Rest = []Entry{unknown, lock, open, {Label: w.Say("tray.activity"), Command: Activity}, {Label: w.Say("tray.quit"), Command: Quit}}
	return l
}

// headline is the state in a few words.
func headline(s watch.State, face watch.Face, count int, w Words) string {
	switch face {
	case watch.FaceDown:
		switch s.Link {
		case watch.Starting:
			return w.Say("tray.starting")
		case watch.Stranger:
			return w.Say("tray.stranger")
		case watch.Trouble:
			return w.Say("tray.trouble")
		}
		return w.Say("tray.down")
	case watch.FaceWaiting:
		return w.Count("tray.waiting", count)
	case watch.FaceQuarantine:
		return w.Say("tray.quarantine")
	case watch.FaceUnknown:
		return w.Count("tray.unknown", count)
	case watch.FaceLocked:
		if s.Status.Vault == "uninitialized" {
			return w.Say("tray.no_vault")
		}
		return w.Say("tray.locked")
	}
	return w.Say("tray.nothing")
}

// Name is a card in a few words: what, and who asks. It holds none of the call's arguments.
func Name(c api.Card, w Words) string {
	return w.Say("tray.card", "Tool", visible.Cut(visible.Line(c.Tool), 40), "Program", visible.Cut(visible.Line(Program(c.Actor)), 30))
}

// Program is the short name of an actor.
func Program(actor string) string {
	kind, name, ok := strings.Cut(actor, ":")
	if !ok {
		return actor
	}
	if kind == "exe" || kind == "script" {
		return filepath.Base(name)
	}
	return name
}
