package server

import (
	"fmt"
	"path/filepath"
	"slices"

	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/peer"
)

// maxWays bounds how many terminals and connections are followed to where they come from.
const maxWays = 16

// Origin says what speaks against a person's sitting at a process that is no agent's by its ancestors: what started it, what types into its terminal, and where it logged in from.
func (o *operatorSide) Origin(p control.Peer) control.Origin {
	return (&search{s: o.s}).origin(p.PID, p.Start)
}

// search follows one caller.
type search struct {
	s         *Server
	terminals *peer.Terminals // read once, and only where somebody has a terminal
	ways      int
	seen      []int // terminals
}

// origin looks at one process: the caller, or what the caller was reached through.
func (f *search) origin(pid int, start uint64) control.Origin {
	chain, err := f.s.peers.Lineage(pid)
	if err == nil && chain[0].Start != start {
		err = fmt.Errorf("process %d is another one by now", pid)
	}
	var by string
	if err == nil {
		by, err = peer.Unattended(chain)
	}
	if err != nil {
		f.s.log.Warn("looking where a caller at the operator's socket comes from", "pid", pid, "error", err)
		return control.Origin{Refused: "where it was started cannot be told"}
	}
	if by != "" {
		return control.Origin{Refused: "it was started by " + by + ", where no person sits"}
	}
	if o := f.ssh(chain); o.Refused != "" {
		return o
	}
	// What left its terminal's session by setsid is still in the hands of whoever has the terminal of its parents.
	for _, p := range beneath(chain, peer.Root(chain)) {
		seat, err := peer.SeatOf(p.PID)
		if err != nil {
			f.s.log.Warn("looking where a caller at the operator's socket comes from", "pid", pid, "error", err)
			return control.Origin{Refused: "which terminal it has cannot be told"}
		}
		if seat.Terminal >= 0 {
			return f.terminal(seat.Terminal)
		}
	}
	if unit, err := peer.ServedBy(chain); err == nil && unit != "" {
		return control.Origin{Doubt: "it has no terminal, and your service manager started it as " + unit}
	}
	return control.Origin{}
}

// ssh follows a login by SSH from this machine to what made the connection.
func (f *search) ssh(chain []peer.Process) control.Origin {
	login, err := f.s.peers.ThroughSSH(chain)
	if err != nil { // a container may forbid the question: whoever logged in to it is not kept out for that
		f.s.log.Warn("looking where a login by SSH comes from", "pid", chain[0].PID, "error", err)
		return control.Origin{}
	}
	if login == nil {
		return control.Origin{}
	}
	for _, c := range login.Clients {
		if f.ways++; f.ways > maxWays {
			return control.Origin{Refused: "it came by SSH from this machine, by too many connections to tell which"}
		}
		if why := f.agents(c); why != "" {
			return control.Origin{Refused: fmt.Sprintf("it came by SSH, and process %d, %s, has a connection to a server on this machine, so that it could be the one that logged in; end it first", c.PID, why)}
		}
		if login.Here {
			if o := f.origin(c.PID, c.Start); o.Refused != "" {
				return control.Origin{Refused: fmt.Sprintf("it came by SSH from this machine, where process %d connected; %s", c.PID, o.Refused)}
			}
		}
	}
	switch {
	case login.Hidden:
		return control.Origin{Refused: "it came by SSH, and a program that cannot be told has a connection to a server on this machine, so that it could be the one that logged in"}
	case login.Here && len(login.Clients) == 0 && !login.Others:
		return control.Origin{Refused: "it came by SSH from this machine, by a connection that is over"}
	}
	return control.Origin{}
}

// agents says why a process is an agent's, and nothing where it is not known as one's.
func (f *search) agents(p peer.Process) string {
	run, found, err := f.s.belongs(p.PID, p.Start)
	switch {
	case err != nil:
		f.s.log.Warn("looking whose a process is that a caller was reached through", "pid", p.PID, "error", err)
		return "of which it cannot be told whose it is"
	case found:
		return "of " + run
	}
	return ""
}

// terminal follows a terminal to who types into it.
func (f *search) terminal(n int) control.Origin {
	if f.terminals == nil {
		var err error
		if f.terminals, err = peer.ReadTerminals(); err != nil {
			f.s.log.Warn("looking who has the terminal of a caller", "error", err)
			return control.Origin{Refused: "who types into its terminal cannot be told"}
		}
	}
	if slices.Contains(f.seen, n) {
		return control.Origin{}
	}
	f.seen = append(f.seen, n)
	if f.ways++; f.ways > maxWays {
		return control.Origin{Refused: "its terminal leads through too many others"}
	}
	var doubt string
	for _, holder := range f.terminals.Holders(n) {
		if why := f.agents(holder); why != "" {
			return control.Origin{Refused: fmt.Sprintf("process %d types into its terminal, %s", holder.PID, why)}
		}
		behind := f.terminals.Behind(holder.PID)
		if len(behind) == 0 && filepath.Base(holder.Exe) == "tmux" {
			doubt = "no terminal is attached to its tmux"
		}
		var refused string
		free := len(behind) == 0
		for _, outer := range behind {
			o := f.terminal(outer)
			if o.Refused == "" {
				free = true
			} else {
				refused = o.Refused
			}
		}
		if !free {
			return control.Origin{Refused: "every terminal that it is shown in is an agent's: " + refused}
		}
	}
	return control.Origin{Doubt: doubt}
}
