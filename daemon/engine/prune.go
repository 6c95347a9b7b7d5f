package engine

import (
	"context"
	"fmt"

	"singlepass.dev/daemon/execution"
)

// pruneBatch is how many executions are pruned at a time.
const pruneBatch = 256

// Prune erases the payloads of executions whose retention has passed and leaves their tombstones. It never touches what is open. It returns how many it pruned.
//
// The payload is erased first and the tombstone recorded after it: killed in between, the daemon finds the execution prunable again and erases what is erased already.
func (e *Engine) Prune(ctx context.Context) (int, error) {
	total := 0
	for {
		list, err := e.cfg.Records.Prunable(e.cfg.Now(), pruneBatch)
		if err != nil || len(list) == 0 {
			return total, err
		}
		var last Commit
		for _, x := range list {
			if x.State.Open() {
				continue
			}
			e.mu.Lock()
			l := e.reviveLocked(x)
			if l.wantedLocked() {
				e.mu.Unlock()
				continue // somebody is about to read it
			}
			l.readers++
			e.mu.Unlock()
			err := e.cfg.Records.Erase(ctx, x.ID)
			e.mu.Lock()
			l.readers--
			if err != nil {
				e.retireLocked(l)
				e.mu.Unlock()
				return total, fmt.Errorf("pruning %s: %w", x.ID, err)
			}
			commit, err := e.stepLocked(l, change{ev: execution.Event{Kind: execution.KindPruned, ID: x.ID}, lazy: true})
			l.result = nil
			e.retireLocked(l)
			e.mu.Unlock()
			if err != nil {
				return total, err
			}
			last = commit
			total++
		}
		if last == nil {
			return total, nil
		}
		select {
		case <-last.Done():
			if err := last.Err(); err != nil {
				return total, fmt.Errorf("recording what was pruned: %w", err)
			}
			e.cfg.Records.Settle()
		case <-ctx.Done():
			return total, ctx.Err()
		}
		if len(list) < pruneBatch {
			return total, nil
		}
	}
}
