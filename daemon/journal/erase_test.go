package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

func TestAnErasedPayloadIsGoneFromTheFileAndTheChainStillVerifies(t *testing.T) {
	cfg := config(newDir(t))
	cfg.SegmentSize = 3000
	j, _ := open(t, cfg)
	var at []journal.Position
	for i := range 20 {
		e := event(i)
		e.Sealed = fmt.Appendf(nil, "canary-not-a-secret-%02d", i)
		at = append(at, mustAppend(t, j, e).Last())
	}
	if err := j.Erase(t.Context(), at[3], at[17], at[4]); err != nil {
		t.Fatal(err)
	}
	if err := j.Erase(t.Context(), at[3]); err != nil {
		t.Fatalf("again: %v", err)
	}
	plain := mustAppend(t, j, event(99)).Last()
	if err := j.Erase(t.Context(), plain); !errors.Is(err, chain.ErrNoPayload) {
		t.Fatalf("an entry without a payload: %v", err)
	}
	closeNow(t, j)
	j, r := open(t, cfg)
	if r.Quarantine != nil {
		t.Fatal(r.Quarantine)
	}
	kinds(t, j)
	for i, p := range at {
		if err := j.ReadAt(p, func(d journal.Durable) error {
			l, err := chain.Split(d.Line)
			if err != nil {
				return err
			}
			want := chain.PayloadPresent
			if i == 3 || i == 4 || i == 17 {
				want = chain.PayloadErased
			}
			if l.PayloadState() != want {
				return fmt.Errorf("payload %d is %s", i, l.PayloadState())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
	present := 0
	for _, f := range files {
		present += bytes.Count(read(t, f), []byte(`"sealed":"Y2F`))
	}
	if present != 17 {
		t.Fatalf("%d payloads are left, want 17", present)
	}
}
