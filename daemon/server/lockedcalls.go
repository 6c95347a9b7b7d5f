package server

import (
	"sync"
	"time"

	"singlepass.dev/daemon/api"
)

// lockedCalls counts the calls that were refused because the vault is locked, until it is opened, so that the person knows why an agent failed.
type lockedCalls struct {
	mu  sync.Mutex
	all api.LockedCalls // owner: mu
}

func (l *lockedCalls) count(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Calls++
	l.all.Last = now.UTC()
}

func (l *lockedCalls) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = api.LockedCalls{}
}

// seen returns the count, or nil where there were none.
func (l *lockedCalls) seen() *api.LockedCalls {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all.Calls == 0 {
		return nil
	}
	all := l.all
	return &all
}
