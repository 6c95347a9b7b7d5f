package chain_test

import (
	"bytes"
	"slices"
	"testing"

	"singlepass.dev/daemon/chain"
)

// FuzzSplit: what Split accepts is, put together again, the same bytes; and an event that CheckEvent
// accepts comes back from its line as it was.
func FuzzSplit(f *testing.F) {
	for _, payload := range []string{"", "x", "xyz"} {
		raw, _ := line(f, 3, chain.LeafHash(nil), `{"kind":"dispatched","n":[1,{"a":"\u00e9"}]}`, payload)
		f.Add(raw[:len(raw)-1])
	}
	f.Add([]byte(`{"kind":"a"},"hash":"`))
	f.Add([]byte(`{"kind":"a","b":"\\\"}"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		kept := bytes.Clone(b)
		if l, err := chain.Split(b); err == nil {
			from, n := l.SealedRange()
			parts := slices.Concat([]byte(`{"entry":`), l.Entry, []byte(`,"hash":"`+l.Hash().String()+`"`))
			if n > 0 {
				parts = slices.Concat(parts, []byte(`,"sealed":"`), b[from:from+n], []byte(`"`))
			}
			if parts = append(parts, '}'); !bytes.Equal(parts, b) {
				t.Fatalf("the parts of\n%q\nare\n%q", b, parts)
			}
			if _, err := l.At(); err != nil {
				t.Fatalf("time %q was accepted: %v", l.Time, err)
			}
			l.CheckEntry() //nolint:errcheck // It must only not panic.
			l.Payload(nil) //nolint:errcheck
		}
		if chain.CheckEvent(b) == nil {
			raw, hash := chain.AppendLine(nil, 9, at, chain.LeafHash(nil), b, []byte("payload"))
			l, err := chain.Split(raw[:len(raw)-1])
			if err != nil {
				t.Fatalf("event %q: %v", b, err)
			}
			if h, ok := l.Verify(); !ok || h != hash || !bytes.Equal(l.AppendEvent(nil), b) || l.CheckEntry() != nil {
				t.Fatalf("event %q does not come back", b)
			}
			if len(raw) > chain.LineSize(b, []byte("payload")) {
				t.Fatalf("line of %d bytes, LineSize says %d", len(raw), chain.LineSize(b, []byte("payload")))
			}
		}
		if !bytes.Equal(b, kept) {
			t.Fatal("the input was changed")
		}
	})
}

// FuzzTorn: whatever the tail is, Torn neither panics nor takes one with a whole line for torn.
func FuzzTorn(f *testing.F) {
	raw, _ := line(f, 3, chain.LeafHash(nil), `{"kind":"a"}`, "")
	f.Add(raw[:40], int64(100))
	f.Add(append(raw[:12:12], make([]byte, 500)...), int64(500))
	f.Fuzz(func(t *testing.T, tail []byte, offset int64) {
		if offset < 0 || offset > 1<<40 {
			t.Skip()
		}
		torn := chain.Torn(tail, offset)
		if n := bytes.IndexByte(tail, '\n'); torn && n >= 0 && bytes.IndexByte(tail[:n], 0) < 0 {
			t.Fatal("a whole line was taken for torn")
		}
	})
}
