package server_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"singlepass.dev/daemon/server"
)

func TestOnlyACrowdOfCallsIsLoadAndItIsOverSomeTimeAfterTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []bool // owner: mu
		l := server.NewLoad(func(loaded bool) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, loaded)
		})
		call := func(n int) {
			for range n {
				l.Begin()
			}
			for range n {
				l.End()
			}
		}
		expect := func(when string, want ...bool) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("%s: told %v, not %v", when, told, want)
			}
		}
		for range 100 {
			call(server.Crowd - 1)
		}
		expect("few calls at a time")
		call(server.Crowd)
		expect("a crowd", true)
		time.Sleep(server.Calm - time.Second)
		call(server.Crowd)
		time.Sleep(server.Calm - time.Second)
		expect("a crowd came again before it was calm", true)
		time.Sleep(time.Second)
		expect("it is calm", true, false)
		call(server.Crowd)
		expect("the next crowd", true, false, true)
		time.Sleep(server.Calm)
		expect("calm again", true, false, true, false)
	})
}
