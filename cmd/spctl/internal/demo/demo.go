// Package demo shows on a throw-away home what Singlepass is for: an answer gets lost, the agent tries again, and the target is asked once.
//
// Everything in it is real: the installed spd, the bridge that an agent would start, an MCP client in a process of its own, an HTTP target on the loopback interface that writes
// down what it does before it answers, and the operator's interface. Nothing of it touches the person's own home, and all of it is gone at the end.
package demo

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/home"
	"singlepass.dev/policy/source"
	"singlepass.dev/vault/secret"
)

// Config says what the demo runs with. Every field is required.
type Config struct {
	Spctl, Spd string // the programs
	Out        io.Writer
	Card       func(api.Card)                      // shows a card
	Record     func(api.Record)                    // shows a record and its timeline
	Verify     func(context.Context, string) error // verifies the journal in a folder and says so
}

// arguments are what the agent asks for, both times.
const arguments = `{"item":"espresso machine","quantity":1}`

// contract is accepted for the demo: the class is the strictest one, so nothing may ever be sent twice.
const contract = `action: order_item
title: Order something from the shop
description: Orders a number of one item. The shop ships at once and charges the card on file.
channel: http
input:
  type: object
  properties:
    item: {type: string}
    quantity: {type: integer, minimum: 1}
  required: [item, quantity]
  additionalProperties: false
credential: shop
approval: session
http:
  method: POST
  url: %s/orders
  json: {item: "{item}", quantity: "{quantity}"}
replay:
  class: irreversible
  attach_window: 1h
`

// patience bounds each wait, so that the demo ends by itself on any machine.
const patience = 30 * time.Second

// Run plays the demo.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Spctl == "" || cfg.Spd == "" || cfg.Out == nil || cfg.Card == nil || cfg.Record == nil || cfg.Verify == nil {
		return errors.New("running the demo: every field of its Config is required")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp("", "sp-demo-")
	if err != nil {
		return fmt.Errorf("making the demo's folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &demo{cfg: cfg, home: filepath.Join(dir, "h")}
	if d.shop, err = openShop(filepath.Join(dir, "ledger")); err != nil {
		return err
	}
	defer d.shop.close()

	d.say("An answer gets lost, the agent tries again: how often is the order placed?\n")
	if err := d.without(ctx); err != nil {
		return err
	}
	stop, err := d.startDaemon(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	return d.with(ctx)
}

type demo struct {
	cfg      Config
	home     string
	shop     *shop
	operator *client.Operator
	journal  string
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.cfg.Out, format+"\n", args...) }

// without is what happens when nothing stands between: the client does what every retry helper does.
func (d *demo) without(ctx context.Context) error {
	d.say("1. Without Singlepass")
	d.say("   A client orders from a shop on this machine. The shop takes the order, and the answer is lost on the way.")
	d.say("   The client cannot know, and does what every retry does: it sends the order again.")
	for range 2 {
		lost, release := d.shop.hold()
		attempt, giveUp := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			r, err := http.NewRequestWithContext(attempt, http.MethodPost, d.shop.url+"/orders", strings.NewReader(arguments))
			if err == nil {
				var resp *http.Response
				if resp, err = http.DefaultClient.Do(r); err == nil {
					_ = resp.Body.Close()
				}
			}
			done <- err
		}()
		err := wait(ctx, lost)
		giveUp()
		release()
		<-done
		if err != nil {
			return fmt.Errorf("waiting for the shop: %w", err)
		}
	}
	d.say("   The shop's ledger:")
	d.ledger()
	d.say("   Two machines, and two charges.\n")
	d.shop.reset()
	return nil
}

func (d *demo) ledger() {
	for i, line := range d.shop.lines() {
		d.say("      %d  %s", i+1, line)
	}
}

// startDaemon starts spd on the throw-away home and waits until it listens.
func (d *demo) startDaemon(ctx context.Context) (stop func() error, err error) {
	cmd := exec.CommandContext(ctx, d.cfg.Spd, "--home", d.home) // #nosec G204 -- the spd that is installed beside this program
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = environment()
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("starting spd: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting spd: %w", err)
	}
	var kept bytes.Buffer
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(log)
		for said := false; lines.Scan(); {
			var line struct {
				Msg string `json:"msg"`
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" && !said {
				said = true
				close(ready)
			}
			if !said {
				kept.Write(append(lines.Bytes(), '\n'))
			}
		}
	}()
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("spd did not end cleanly: %w", err)
		}
		return nil
	}
	select {
	case <-ready:
		return stop, nil
	case <-ended:
		_ = cmd.Wait()
		return nil, fmt.Errorf("spd did not start: %s", bytes.TrimSpace(kept.Bytes()))
	case <-time.After(patience):
		return nil, errors.Join(errors.New("spd did not start in time"), stop())
	}
}

// environment is ours, less what would lead a child to another home or to the person's passphrase.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SINGLEPASS_") && !strings.HasPrefix(v, "NOTIFY_SOCKET=") {
			env = append(env, v)
		}
	}
	return env
}

// prepare makes the vault, the credential and the contract, as a person would.
func (d *demo) prepare(ctx context.Context) error {
	h, err := home.Resolve(d.home, os.Getenv)
	if err != nil {
		return err
	}
	d.journal = h.Journal()
	passphrase := []byte(rand.Text())
	proof := secret.New(bytes.Clone(passphrase))
	d.operator = &client.Operator{
		Socket: h.OperatorSocket(), Daemon: d.cfg.Spd,
		Proof: func(context.Context) (string, *secret.Bytes, error) { return "Passphrase", proof, nil },
	}
	defer clear(passphrase)
	if _, err := d.operator.Init(ctx, api.InitRequest{Passphrase: passphrase, NoKeyring: true}); err != nil {
		return fmt.Errorf("making the demo's vault: %w", err)
	}
	add := api.CredentialRequest{Credential: api.Credential{Name: "shop", Kind: "bearer", Targets: []string{d.shop.url + "/"}}, Secret: []byte(d.shop.token)}
	if err := d.operator.AddCredential(ctx, add); err != nil {
		return fmt.Errorf("adding the demo's credential: %w", err)
	}
	src := fmt.Appendf(nil, contract, d.shop.url)
	if _, err := d.operator.AcceptAction(ctx, api.ActionRequest{Name: "order_item", Digest: source.Digest(src), File: "order_item.yaml", Source: src}); err != nil {
		return fmt.Errorf("accepting the demo's contract: %w", err)
	}
	return nil
}

// with is the same loss with Singlepass in between.
func (d *demo) with(ctx context.Context) error {
	d.say("2. With Singlepass")
	d.say("   A daemon on a throw-away home: the shop's credential lies in its vault, and a contract for order_item is in force.")
	d.say("   An agent, a real MCP client in a process of its own, starts `spctl mcp` and calls order_item %s", arguments)
	lost, release := d.shop.hold()
	defer release()
	agent, err := startAgent(ctx, d.cfg.Spctl, d.home)
	if err != nil {
		return err
	}
	defer agent.stop()
	card, err := d.nextCard(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the card: %w", err)
	}
	d.say("   You are asked first. This is the card:\n")
	d.cfg.Card(card)
	d.say("   (The demo answers for you: yes, for this session.)")
	if err := d.operator.Answer(ctx, card.Card, api.CardAnswer{Answer: "session"}); err != nil {
		return fmt.Errorf("answering the card: %w", err)
	}
	if err := wait(ctx, lost); err != nil {
		return fmt.Errorf("waiting for the shop: %w", err)
	}
	d.say("   The shop takes the order. Its answer is slow, and the agent's client gives up waiting: for the agent, the answer is lost.")
	if _, err := agent.order(ctx, "give up"); err != nil {
		return err
	}
	release()
	if _, err := d.until(ctx, card.ExecutionID, "completed_result_not_delivered"); err != nil {
		return err
	}
	d.say("   The agent calls again, with the same arguments. No card appears, because nothing new is sent.")
	answer, err := agent.order(ctx, "retry")
	if err != nil {
		return err
	}
	d.say("   It gets the recorded result of the first call:\n      %s", strings.Join(strings.Fields(answer.Text), " "))
	d.say("      execution %s, recorded: %t", answer.Execution, answer.Recorded)
	d.say("   The shop's ledger:")
	d.ledger()
	if n := len(d.shop.lines()); n != 1 || !answer.Recorded || answer.Execution != card.ExecutionID {
		return fmt.Errorf("the demo failed: the ledger has %d orders, and the answer was recorded: %t; please report this", n, answer.Recorded)
	}
	d.say("   One machine, one charge.\n")

	record, err := d.until(ctx, card.ExecutionID, "completed_result_delivered")
	if err != nil {
		return err
	}
	d.say("3. What the journal says")
	d.say("   Both calls belong to one execution:\n")
	d.cfg.Record(record)
	d.say("")
	if err := d.cfg.Verify(ctx, d.journal); err != nil {
		return err
	}
	d.say("\nThe demo's home is removed. To begin for yourself: spctl doctor, spctl init, spctl connect CLIENT.")
	return nil
}

// nextCard waits for the first card.
func (d *demo) nextCard(ctx context.Context) (api.Card, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for e, err := range d.operator.WatchCards(ctx) {
		if err != nil {
			return api.Card{}, err
		}
		if e.Event == "waiting" || e.Event == "added" {
			return e.Card, nil
		}
	}
	return api.Card{}, errors.New("none came in time")
}

// until waits for a state of an execution.
func (d *demo) until(ctx context.Context, id, state string) (api.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last := ""
	for e, err := range d.operator.WatchActivity(ctx, client.Query{}) {
		if err != nil {
			return api.Record{}, fmt.Errorf("watching execution %s: %w", id, err)
		}
		if e.ExecutionID != id {
			continue
		}
		if last = e.State; last == state {
			return e.Record, nil
		}
	}
	return api.Record{}, fmt.Errorf("execution %s did not become %s in time; it is %s", id, state, last)
}

// wait waits for something to happen, within patience.
func wait(ctx context.Context, happened <-chan struct{}) error {
	select {
	case <-happened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return errors.New("it did not happen in time")
	}
}
