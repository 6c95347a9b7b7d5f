package e2e_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

// target is the ledger in a process of its own.
type target struct {
	*process
	url, file string
}

func startTarget(t *testing.T) *target {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger.jsonl")
	p := start(t, "target", exec.Command(build(t, "singlepass.dev/daemon/e2e/cmd/target"), file), false)
	var ready struct{ URL string }
	p.next("ready", event("ready")).into(t, &ready)
	return &target{process: p, url: ready.URL, file: file}
}

// plan says what becomes of the answers to the next effects.
func (tg *target) plan(modes ...ledger.Mode) {
	tg.t.Helper()
	tg.send(map[string]any{"op": "plan", "modes": modes})
	tg.next("acknowledgement", event("done"))
}

// status says how the target answers who asks what became of a key.
func (tg *target) status(st ledger.Status) {
	tg.t.Helper()
	tg.send(map[string]any{"op": "status", "status": st})
	tg.next("acknowledgement", event("done"))
}

// nextQuestion waits until the target was asked once more what became of a key.
func (tg *target) nextQuestion() {
	tg.t.Helper()
	tg.next("question", func(l line) bool {
		var e ledger.Event
		if l.Name != "entry" {
			return false
		}
		l.into(tg.t, &e)
		return strings.HasPrefix(e.Entry.Path, "/status/") || strings.HasPrefix(e.Entry.Path, "/jobs/")
	})
}

// release lets held answers go.
func (tg *target) release() {
	tg.t.Helper()
	tg.send(map[string]any{"op": "release"})
}

// nextEffect waits until one more effect is durable.
func (tg *target) nextEffect() ledger.Entry {
	tg.t.Helper()
	var e ledger.Event
	tg.next("effect", func(l line) bool {
		if l.Name != "entry" {
			return false
		}
		l.into(tg.t, &e)
		return e.Entry.Kind == ledger.Effect
	})
	return e.Entry
}

// entries returns the ledger's lines of one kind, read from the file.
func (tg *target) entries(kind ledger.Kind) []ledger.Entry {
	tg.t.Helper()
	all, err := ledger.ReadFile(tg.file)
	if err != nil {
		tg.t.Fatal(err)
	}
	var found []ledger.Entry
	for _, e := range all {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

// wantEffects says how often the target must have acted on an order.
func (tg *target) wantEffects(t *testing.T, order string, want int) {
	t.Helper()
	if got := tg.effects(order); len(got) != want {
		t.Errorf("the target acted %d times on %s, want %d: %+v", len(got), order, want, got)
	}
}

func (tg *target) effects(order string) []ledger.Entry { return tg.about(order, ledger.Effect) }

// about returns the ledger's lines of one kind about one order.
func (tg *target) about(order string, kind ledger.Kind) []ledger.Entry {
	tg.t.Helper()
	var found []ledger.Entry
	for _, e := range tg.entries(kind) {
		var body struct{ Order string }
		if json.Unmarshal(e.Body, &body) == nil && body.Order == order {
			found = append(found, e)
		}
	}
	return found
}
