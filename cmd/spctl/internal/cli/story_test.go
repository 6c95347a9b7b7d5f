package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/execution"
)

// segment writes a journal of one segment with these events, each chained to the one before, and returns its path.
func segment(tb testing.TB, events func(add func(event []byte))) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), chain.SegmentName(1))
	at := time.Date(2026, 7, 22, 14, 0, 0, 0, time.UTC)
	var file []byte
	var prev chain.Hash
	seq := uint64(0)
	add := func(event []byte) {
		seq++
		file, prev = chain.AppendLine(file, seq, at, prev, event, nil)
	}
	add(fmt.Appendf(nil, `{"kind":"segment_opened","segment":"%s","tree_size":0}`, chain.SegmentName(1)))
	events(add)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// life is the ordinary life of an execution, one event for each state.
func life(id string) []execution.Event {
	return []execution.Event{
		{
			Kind: execution.KindAccepted, ID: id, Caller: &execution.Caller{Call: "run_1/1", Run: "run_1", Transport: "stdio", RequestID: "1"},
			Acceptance: &execution.Acceptance{
				Tool: "pay", Channel: "http", Target: "https://api.example.com/v1/pay", Class: execution.Irreversible, Actor: "exe:/usr/bin/agent", Run: "run_1", Scope: "run:run_1",
				Fingerprint: "hmac-sha256:0baf8aa3c65bc9fe19f2b751a8abbee8a2423d16e1c42731a63a4fd2694f1b16", EffectDigest: "sha256:00", AttachWindow: time.Hour, AfterDelivery: execution.Ask,
			},
		},
		{Kind: execution.KindAuthorized, ID: id, By: "session"},
		{Kind: execution.KindDispatched, ID: id, Attempt: 1},
		{Kind: execution.KindObserved, ID: id, Attempt: 1, Outcome: execution.Success, Status: 201, Result: "result_1", Source: execution.FromTarget},
		{Kind: execution.KindDelivered, ID: id, Call: "run_1/1", Evidence: "bridge_pipe_drained"},
	}
}

// A chain whose hashes are right may still tell of something that cannot have been, such as a second dispatch; who can write the journal can make such a chain.
func TestAuditVerifyReportsAStoryThatCannotBe(t *testing.T) {
	const id = "act_01JNZX5T7V9M3Q8R2W4Y6A0BCD"
	again := execution.Event{Kind: execution.KindDispatched, ID: id, Attempt: 2}
	for name, c := range map[string]struct {
		events []execution.Event
		want   string // of the last event; empty: the story is possible
	}{
		"an ordinary life":                {life(id), ""},
		"dispatched again once delivered": {append(life(id), again), "only an authorized execution can be dispatched"},
		"dispatched again once unknown": {
			append(life(id)[:3], execution.Event{Kind: execution.KindUnknown, ID: id, Attempt: 1, Reason: "connection lost"}, again), "never sent again",
		},
		"accepted twice":      {append(life(id), life(id)[0]), "it exists already"},
		"never accepted":      {life(id)[1:2], "it was never accepted"},
		"cancelled afterward": {append(life(id), execution.Event{Kind: execution.KindDisputed, ID: id, Call: "run_1/1"}), ""},
		"cancelled, and that again": {
			append(life(id), execution.Event{Kind: execution.KindDisputed, ID: id, Call: "run_1/1"}, execution.Event{Kind: execution.KindDisputed, ID: id, Call: "run_1/1"}),
			"nothing was delivered",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := segment(t, func(add func([]byte)) {
				for _, ev := range c.events {
					add(ev.AppendJSON(nil))
				}
			})
			r, err := audit.Verify(t.Context(), path, audit.Options{Story: story()})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if len(r.Findings) != 0 {
					t.Fatalf("findings: %+v", r.Findings)
				}
				return
			}
			if len(r.Findings) != 1 || r.Findings[0].What != audit.WhatStory || !strings.Contains(r.Findings[0].Detail, c.want) || r.Findings[0].Seq != uint64(len(c.events)+1) {
				t.Fatalf("findings: %+v, want one at entry %d with %q", r.Findings, len(c.events)+1, c.want)
			}
		})
	}
}

func TestAuditVerifyReportsAnEventWithTwoIDs(t *testing.T) {
	path := segment(t, func(add func([]byte)) {
		add([]byte(`{"kind":"authorized","execution_id":"act_1","execution_id":"act_2"}`))
	})
	r, err := audit.Verify(t.Context(), path, audit.Options{Story: story()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Detail, `of execution "act_2" and has "act_1" before that`) {
		t.Fatalf("findings: %+v", r.Findings)
	}
}
