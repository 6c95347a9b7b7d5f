package server

import (
	"fmt"
	"sync"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
)

// recordEvery bounds how often the journal says that somebody was refused: whoever may ask could fill it otherwise.
const recordEvery = 10 * time.Second

// tries counts what was turned away at the operator's socket, and what was taken there with a doubt.
type tries struct {
	mu      sync.Mutex
	all     api.Refused // owner: mu
	doubts  api.Doubts  // owner: mu
	refused entries     // owner: mu
	doubted entries     // owner: mu
}

// entries says when the journal is told, and how many times each entry stands for.
type entries struct {
	recorded time.Time
	since    int // since the journal said so last, this one included
}

func (e *entries) due(now time.Time) (record bool, stands int) {
	e.since++
	if now.Sub(e.recorded) < recordEvery {
		return false, 0
	}
	stands = e.since
	e.recorded, e.since = now, 0
	return true, stands
}

// count notes one that was turned away, and says whether the journal should, and how many it stands for.
func (t *tries) count(p control.Peer, code api.Code, why string, now time.Time) (record bool, stands int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if code == api.CodeAgentCaller {
		t.all.Agents++
	} else {
		t.all.WrongProofs++
	}
	t.all.Last, t.all.LastPID, t.all.LastCode, t.all.LastWhy = now.UTC(), p.PID, code, why
	return t.refused.due(now)
}

// doubt notes one that was taken.
func (t *tries) doubt(p control.Peer, why string, now time.Time) (record bool, stands int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubts.Count++
	t.doubts.Last, t.doubts.LastPID, t.doubts.LastWhy = now.UTC(), p.PID, why
	return t.doubted.due(now)
}

// seen returns the counts, or nil where there is nothing to see.
func (t *tries) seen() *api.Refused {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all.Last.IsZero() {
		return nil
	}
	all := t.all
	return &all
}

// doubtful returns the doubts, or nil where there were none.
func (t *tries) doubtful() *api.Doubts {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doubts.Count == 0 {
		return nil
	}
	all := t.doubts
	return &all
}

// refused makes a try visible: in the status, in the log, and in the journal.
func (s *Server) refused(p control.Peer, code api.Code, why string) {
	s.log.Warn("somebody was refused at the operator's socket", "code", code, "pid", p.PID)
	if record, stands := s.tries.count(p, code, why, time.Now()); record {
		s.note("operator_refused", p, string(code), stands)
	}
}

// doubted does the same for what was taken with a doubt.
func (s *Server) doubted(p control.Peer, why string) {
	s.log.Warn("the right passphrase came from where a person can hardly be sitting", "pid", p.PID, "why", why)
	if record, stands := s.tries.doubt(p, why, time.Now()); record {
		s.note("operator_doubted", p, why, stands)
	}
}

func (s *Server) note(kind string, p control.Peer, reason string, stands int) {
	note := engineNote{Kind: kind, By: fmt.Sprintf("process %d", p.PID), Reason: reason}
	if stands > 1 {
		note.Reason = fmt.Sprintf("%s, and %d more since the last entry", reason, stands-1)
	}
	if err := s.engine.Note(note); err != nil {
		s.log.Warn("recording what came to the operator's socket", "kind", kind, "error", err)
	}
}
