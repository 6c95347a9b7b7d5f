// Command target runs the ledger in a process of its own, so that it outlives whatever the test kills.
//
// It prints JSON Lines: {"event":"ready","url":…} and then the ledger's events. It obeys JSON Lines on standard input,
// {"op":"plan","modes":[…]}, {"op":"status","status":…} and {"op":"release"}, and acknowledges each with {"event":"done"}; at the end of its input it exits.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"singlepass.dev/daemon/e2e/ledger"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "target:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: target LEDGER-FILE")
	}
	file, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening ledger: %w", err)
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(v any) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(v)
	}
	server, err := ledger.New(ledger.Config{File: file, Notify: func(e ledger.Event) { say(e) }})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(listener, server) }()
	say(map[string]string{"event": "ready", "url": "http://" + listener.Addr().String()})

	orders := make(chan error, 1)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			var order struct {
				Op     string
				Modes  []ledger.Mode
				Status ledger.Status
			}
			if err := json.Unmarshal(in.Bytes(), &order); err != nil {
				orders <- fmt.Errorf("reading order: %w", err)
				return
			}
			switch order.Op {
			case "plan":
				server.Plan(order.Modes...)
			case "status":
				server.SetStatus(order.Status)
			case "release":
				server.Release()
			default:
				orders <- fmt.Errorf("reading order: unknown op %q", order.Op)
				return
			}
			say(map[string]string{"event": "done"})
		}
		orders <- in.Err()
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case err := <-orders:
		return err
	}
}
