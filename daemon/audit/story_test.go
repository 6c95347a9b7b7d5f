package audit_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/journal"
)

// executionID is what a caller would give as Story.Key.
func executionID(l *chain.Line) []byte {
	const name = `"execution_id":"`
	i := bytes.Index(l.Entry, []byte(name))
	if i < 0 {
		return nil
	}
	rest := l.Entry[i+len(name):]
	return rest[:bytes.IndexByte(rest, '"')]
}

// counting demands that the entries of each execution are numbered one after the other.
func counting() *audit.Story {
	return &audit.Story{Key: executionID, Teller: func() func([]byte, *chain.Line) error {
		last := map[string]int{}
		return func(key []byte, l *chain.Line) error {
			var n int
			if _, err := fmt.Sscanf(string(l.AppendEvent(nil)[bytes.Index(l.AppendEvent(nil), []byte(`"n":`)):]), `"n":%d`, &n); err != nil {
				return err
			}
			before := last[string(key)]
			last[string(key)] = n
			if n != before+1 {
				return fmt.Errorf("%d follows %d", n, before)
			}
			return nil
		}
	}}
}

func TestAStoryIsToldInOrderForEachExecutionAndItsErrorsAreLocated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, _, err := journal.Open(journal.Config{Dir: dir, Now: clock, SegmentSize: 300 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var wrong journal.Position
	filler := strings.Repeat("x", 200)
	for n := 1; n <= 300; n++ {
		var batch []journal.Entry
		for e := range 30 {
			number := n
			if n == 200 && e == 7 {
				number = 201
			}
			batch = append(batch, journal.Entry{Event: fmt.Appendf(nil, `{"kind":"dispatched","execution_id":"act_%d","n":%d,"x":"%s"}`, e, number, filler)})
		}
		c := j.Append(batch...)
		if n%50 == 0 {
			if err := c.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n == 200 {
			wrong = c.First()
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, audit.Options{}); !r.OK() || r.Bytes < 3<<20 {
		t.Fatalf("%+v", r)
	}
	for _, workers := range []int{1, 2, 5} {
		r := verify(t, dir, audit.Options{Story: counting(), Workers: workers})
		// Entry 200 of act_7 says 201, and so does the one behind it.
		if len(r.Findings) != 2 || r.Findings[0].What != audit.WhatStory || r.Findings[0].Seq != wrong.Seq+7 || r.Findings[1].Seq != wrong.Seq+37 {
			t.Fatalf("%d workers:\n%s", workers, describe(r))
		}
	}
	// The slow way tells the same story.
	f := load(t, dir)
	name := chain.SegmentName(2)
	f[name] = append(f[name], "garbage\n"...)
	r := verify(t, f.store(t), audit.Options{Story: counting()})
	stories := 0
	for _, f := range r.Findings {
		if f.What == audit.WhatStory {
			stories++
		}
	}
	if stories != 2 || len(r.Findings) != 3 {
		t.Fatalf("behind damage:\n%s", describe(r))
	}
}
