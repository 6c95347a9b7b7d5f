package workers_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"singlepass.dev/daemon/workers"
)

func TestWhatIsGivenToACrewStartsAtOnceHoweverManyRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		c := workers.New(2, stop)
		var all sync.WaitGroup
		release := make(chan struct{})
		started := 0
		var mu sync.Mutex
		for range 100 {
			all.Add(1)
			c.Go(func() {
				defer all.Done()
				mu.Lock()
				started++
				mu.Unlock()
				<-release
			})
		}
		synctest.Wait()
		if started != 100 {
			t.Errorf("%d of 100 started while none had ended", started)
		}
		close(release)
		all.Wait()
		close(stop)
	})
}

func TestACrewUsesAGoroutineAgainAndKeepsNoMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		c := workers.New(2, stop)
		before := runtime.NumGoroutine()
		for range 3 {
			together := make(chan struct{})
			for range 10 {
				c.Go(func() { <-together })
			}
			close(together)
			synctest.Wait()
			if kept := runtime.NumGoroutine() - before; kept != 2 {
				t.Errorf("%d goroutines wait for work, not 2", kept)
			}
		}
		close(stop)
		synctest.Wait()
		if kept := runtime.NumGoroutine() - before; kept != 0 {
			t.Errorf("%d goroutines are left after the end", kept)
		}
		done := make(chan struct{})
		c.Go(func() { close(done) })
		<-done // what was sent is still finished when everything ends
	})
}
