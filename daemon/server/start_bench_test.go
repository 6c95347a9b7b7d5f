package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkStart is from the spawn of the bridge to the first result of a read_only action, and beside it the spawn of a program that does nothing, in turns.
func BenchmarkStart(b *testing.B) {
	d := newDaemonBench(b, partInstant, "https://api.example.com")
	agent := start(b, partStarts, d.env...)
	answers := bufio.NewScanner(agent.stdout)
	order := func() {
		if _, err := fmt.Fprintln(agent.stdin, "start"); err != nil {
			b.Fatal(err)
		}
	}
	took := func() time.Duration {
		if !answers.Scan() {
			b.Fatal("the agent has ended")
		}
		n, err := strconv.ParseInt(answers.Text(), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return time.Duration(n)
	}
	order()
	d.approve(b)
	took()
	var first, empty []time.Duration
	for b.Loop() {
		order()
		first = append(first, took())
		t := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		empty = append(empty, time.Since(t))
	}
	b.ReportMetric(float64(median(first).Microseconds())/1000, "first-result-ms")
	b.ReportMetric(float64(median(empty).Microseconds())/1000, "empty-program-ms")
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// startAndCall is the agent of BenchmarkStart.
func startAndCall(bridge string) error {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		began := time.Now()
		cmd := exec.Command(bridge, "mcp")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		fmt.Fprint(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`+"\n")
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return fmt.Errorf("%w: %s", err, line)
			}
			if bytes.Contains(line, []byte("serverInfo")) {
				fmt.Fprint(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"look","arguments":{"order":"1"}}}`+"\n")
			}
			if bytes.Contains(line, []byte("receipt")) {
				break
			}
		}
		took := time.Since(began)
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			return err
		}
		fmt.Println(took.Nanoseconds())
	}
	return orders.Err()
}
