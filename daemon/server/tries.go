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

// tries counts what was turned away at the operator's socket.
type tries struct {
	mu       sync.Mutex
	all      api.Refused // owner: mu
	recorded time.Time   // owner: mu
	since    int         // owner: mu; refused since the journal said so last, this one included
}

// count notes one, and says whether the journal should, and how many it stands for.
func (t *tries) count(p control.Peer, code api.Code, now time.Time) (record bool, stands int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if code == api.CodeAgentCaller {
		t.all.Agents++
	} else {
		t.all.WrongProofs++
	}
	t.all.Last, t.all.LastPID, t.all.LastCode = now.UTC(), p.PID, code
	t.since++
	if now.Sub(t.recorded) < recordEvery {
		return false, 0
	}
	stands = t.since
	t.recorded, t.since = now, 0
	return true, stands
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

// refused makes a try visible: in the status, in the log, and in the journal.
func (s *Server) refused(p control.Peer, code api.Code) {
	record, stands := s.tries.count(p, code, time.Now())
	s.log.Warn("somebody was refused at the operator's socket", "code", code, "pid", p.PID)
	if !record {
		return
	}
	note := engineNote{Kind: "operator_refused", By: fmt.Sprintf("process %d", p.PID), Reason: string(code)}
	if stands > 1 {
		note.Reason = fmt.Sprintf("%s, and %d more since the last entry", code, stands-1)
	}
	if err := s.engine.Note(note); err != nil {
		s.log.Warn("recording that somebody was refused", "error", err)
	}
}
