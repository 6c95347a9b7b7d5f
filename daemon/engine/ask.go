package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

// askAction asks the person for a credential. It is the same for everybody and changes with no vault.
var askAction = sync.OnceValue(func() *boundAction {
	a, err := policy.AskForCredential()
	if err != nil {
		panic(err) // its schema is ours
	}
	return bind(a, false)
})

// How often an agent may ask: one question waits at a time, and so many begin within the period.
const (
	askPeriod = time.Hour
	askMost   = 5
)

// mayQuestionLocked says whether an actor may ask the person something now, and counts it.
func (e *Engine) mayQuestionLocked(actor string) bool {
	now := e.cfg.Now()
	for name, times := range e.asked {
		if e.asked[name] = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= askPeriod }); len(e.asked[name]) == 0 {
			delete(e.asked, name)
		}
	}
	waiting := slices.ContainsFunc(e.liveOf(func(l *live) bool { return l.x.Actor == actor && l.x.Tool == policy.AskTool }), func(l *live) bool {
		return l.x.State == execution.Accepted
	})
	if waiting || len(e.asked[actor]) >= askMost {
		return false
	}
	e.asked[actor] = append(e.asked[actor], now)
	return true
}

// yes is what an agent learns when the person approved: that, and nothing else.
func yes(a effect.Ask) channel.Outcome {
	return channel.Outcome{
		Verdict: channel.Success,
		Result:  toolResult(fmt.Sprintf("yes: the person says that there is a credential for %s now; make the call that needs it", a.Target), []byte(`{"answer":"yes"}`), false),
	}
}
