package controltest

import (
	"fmt"
	"os"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
)

// Effect is a request with a credential.
func Effect() effect.Effect {
	return effect.Effect{
		Channel: effect.HTTP,
		HTTP: &effect.HTTPRequest{
			Method: "POST", URL: "https://pay.example/v1/transfers", Header: []effect.Field{{Name: "Content-Type", Value: "application/json"}}, Body: []byte(`{"amount":5}`),
		},
		Auth: &effect.Auth{Credential: "pay", Kind: "bearer"},
	}
}

// Accepted returns an accepted execution of the tool "transfer" whose id ends in the number.
func Accepted(n int, at time.Time) execution.Execution {
	x, err := execution.Apply(execution.Execution{}, execution.Event{
		Kind: execution.KindAccepted, ID: fmt.Sprintf("act_%026d", n), At: at,
		Acceptance: &execution.Acceptance{
			Tool: "transfer", Action: "transfer", Channel: "http", Target: "https://pay.example/v1/transfers", Credential: "pay", Class: execution.Irreversible,
			Actor: "exe:/usr/bin/agent", Run: "run_1", Scope: "run:run_1", Fingerprint: "hmac-sha256:00", AttachWindow: time.Hour, AfterDelivery: execution.Ask,
		},
		Caller: &execution.Caller{Call: "1", Run: "run_1", Transport: "stdio", RequestID: "1", At: at},
	})
	if err != nil {
		panic(err)
	}
	return x
}

// Unknown returns an execution that was sent and whose answer was lost.
func Unknown(n int, at time.Time) execution.Execution {
	x := Accepted(n, at)
	for i, e := range []execution.Event{
		{Kind: execution.KindAuthorized, By: "operator"}, {Kind: execution.KindDispatched, Attempt: 1}, {Kind: execution.KindUnknown, Attempt: 1, Reason: "connection reset"},
	} {
		e.ID, e.At = x.ID, at.Add(time.Duration(i+1)*time.Second)
		next, err := execution.Apply(x, e)
		if err != nil {
			panic(err)
		}
		x = next
	}
	return x
}

// Card returns a card for x.
func Card(id string, q approval.Question, x execution.Execution, at time.Time) control.CardView {
	return control.CardView{
		Card: approval.Card{
			ID: id, Question: q, Why: []string{"this process has no session yet"}, Created: at, Expires: at.Add(10 * time.Minute),
			Binding: approval.Binding{Execution: x.ID, Fingerprint: x.Fingerprint, Run: x.Run},
		},
		Execution: x, Effect: Effect(), Since: at, CallsBefore: 2,
		Peer: peer.Identity{
			Run: x.Run, Actor: x.Actor, Assurance: peer.UserOwned, Via: "bridge", Agent: peer.Process{PID: 4242, UID: os.Getuid(), Exe: "/usr/bin/agent"},
			Chain: []peer.Process{{PID: 4000, Exe: "/usr/bin/bash"}},
		},
	}
}
