package server

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"

	"singlepass.dev/daemon/peer"
	"singlepass.dev/vault"
)

// Accept is accept, for its tests.
var Accept = accept

// OfThisUser is the listener of loopback, with another word on whose a connection is.
func OfThisUser(l net.Listener, most int, owner func(local, remote netip.AddrPort) (int, error), refused func(why string)) net.Listener {
	of := newOfThisUser(l, most, func(_ net.Conn, why string) { refused(why) }).(*ofThisUser)
	if owner != nil {
		of.owner = owner
	}
	return of
}

// The bounds of load.
const (
	Crowd = crowd
	Calm  = calm
)

// Load is load.
type Load struct{ l load }

// NewLoad returns a Load that tells.
func NewLoad(tell func(loaded bool)) *Load { return &Load{load{tell: tell}} }

// Begin counts a call in.
func (l *Load) Begin() { l.l.begin() }

// End counts it out.
func (l *Load) End() { l.l.end() }

// Family is the memory of agents, with its questions.
type Family struct{ f family }

// Met remembers an agent in a control group.
func (f *Family) Met(id *peer.Identity, unit string) {
	f.f.kin = append(f.f.kin, kin{id.Run, id.Agent, id.Chain, unit, 0})
}

// MetIn remembers an agent in a terminal's session.
func (f *Family) MetIn(id *peer.Identity, session int) {
	f.f.kin = append(f.f.kin, kin{id.Run, id.Agent, id.Chain, "", session})
}

// LeftInSession finds the agent in whose session a process was left.
func (f *Family) LeftInSession(orphans []peer.Process, sessionOf func(int) int) (string, bool) {
	return f.f.leftInSession(orphans, sessionOf)
}

// LeftBy finds the agent that a process was left by.
func (f *Family) LeftBy(root peer.Process, unit string) (string, bool) { return f.f.leftBy(root, unit) }

// LeftByUpstream says whether an orphan is of an upstream server.
var LeftByUpstream = leftByUpstream

// ReadSettings returns what stored settings say, by their keys, and why nothing is connected to, if so.
func ReadSettings(stored []vault.Setting) (values map[string]string, noTargets error) {
	now := readSettings(stored, slog.New(slog.DiscardHandler))
	values = map[string]string{}
	for _, s := range allSettings {
		values[s.key] = s.text(&now)
	}
	return values, now.noTargets
}

// WriteSetting returns what is stored when a setting is set.
func WriteSetting(key, value string) (vault.Setting, error) {
	for _, s := range allSettings {
		if s.key == key {
			next := defaultSettings()
			if err := s.set(&next, value); err != nil {
				return vault.Setting{}, err
			}
			key, stored := s.written(&next)
			return vault.Setting{Key: key, Value: stored}, nil
		}
	}
	return vault.Setting{}, errors.New("there is no such setting")
}
