package server

import (
	"errors"
	"net"
	"sync"
	"time"
)

// maxAgents bounds the connections of agent.sock, so that no agent can use up the descriptors that the journal, the targets and the operator need.
const maxAgents = 1024

// accept serves connections, at most so many at a time, until the listener is closed, and returns when all of them have ended. A failure that passes (no descriptor is free) is waited out, as net/http does: a daemon
// that stopped accepting would look alive and serve nobody.
func accept(l net.Listener, most int, failed func(error), serve, refuse func(net.Conn)) {
	var serving sync.WaitGroup
	defer serving.Wait()
	places := make(chan struct{}, most)
	delay := time.Duration(0)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			failed(err)
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			time.Sleep(delay)
			continue
		}
		delay = 0
		select {
		case places <- struct{}{}:
			serving.Go(func() {
				defer func() { <-places }()
				serve(c)
			})
		default:
			refuse(c)
		}
	}
}
