package chain_test

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/chain"
)

var at = time.Date(2026, 3, 1, 12, 30, 45, 120_000_000, time.UTC)

func line(t testing.TB, seq uint64, prev chain.Hash, event, payload string) ([]byte, chain.Hash) {
	t.Helper()
	if err := chain.CheckEvent([]byte(event)); err != nil {
		t.Fatalf("event %s: %v", event, err)
	}
	return chain.AppendLine(nil, seq, at, prev, []byte(event), []byte(payload))
}

func TestALineIsExactlyItsParts(t *testing.T) {
	raw, hash := line(t, 7, chain.LeafHash([]byte("before")), `{"kind":"dispatched","execution_id":"act_1"}`, "")
	want := `{"entry":{"seq":7,"time":"2026-03-01T12:30:45.12Z","prev":"` + chain.LeafHash([]byte("before")).String() +
		`","kind":"dispatched","execution_id":"act_1"},"hash":"` + hash.String() + "\"}\n"
	if string(raw) != want {
		t.Fatalf("line\n%s\nwant\n%s", raw, want)
	}
	l, err := chain.Split(raw[:len(raw)-1])
	if err != nil {
		t.Fatal(err)
	}
	got, ok := l.Verify()
	if !ok || got != hash || l.Hash() != hash || l.Seq != 7 || string(l.Kind) != "dispatched" || l.Size() != len(raw) {
		t.Fatalf("split differs: %+v", l)
	}
	if !l.Follows(6, chain.LeafHash([]byte("before"))) || l.Follows(5, l.Prev()) || l.Follows(6, hash) {
		t.Fatal("Follows does not tell the entry before")
	}
	if s := string(l.AppendEvent(nil)); s != `{"kind":"dispatched","execution_id":"act_1"}` {
		t.Fatalf("event %s", s)
	}
	if when, err := l.At(); err != nil || !when.Equal(at) {
		t.Fatalf("time %v %v", when, err)
	}
	if want := sha256.Sum256(append([]byte{0}, l.Entry...)); hash != want {
		t.Fatal("hash is not the RFC 6962 leaf hash")
	}
	if l.PayloadState() != chain.PayloadNone {
		t.Fatal("a payload out of nowhere")
	}
}

func TestAPayloadCanBeErasedOrWithheldAndTheEntryStillVerifies(t *testing.T) {
	for _, payload := range []string{"x", "xy", "xyz", strings.Repeat("sealed bytes", 100)} {
		raw, hash := line(t, 1, chain.Hash{}, `{"kind":"accepted"}`, payload)
		l, err := chain.Split(raw[:len(raw)-1])
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.Payload(nil); err != nil || string(got) != payload {
			t.Fatalf("payload %q, %v", got, err)
		}
		off, n := l.SealedRange()
		erased := bytes.Clone(raw)
		copy(erased[off:], strings.Repeat("-", n))
		e, err := chain.Split(erased[:len(erased)-1])
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := e.Verify(); !ok || h != hash || e.PayloadState() != chain.PayloadErased {
			t.Fatalf("erased: %v %s", ok, e.PayloadState())
		}
		withheld := append(bytes.Clone(raw[:off-len(`,"sealed":"`)]), '}')
		w, err := chain.Split(withheld)
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := w.Verify(); !ok || h != hash || w.PayloadState() != chain.PayloadWithheld {
			t.Fatalf("withheld: %v %s", ok, w.PayloadState())
		}
	}
}

func TestEveryChangedByteIsRefusedOrDoesNotVerify(t *testing.T) {
	for _, payload := range []string{"", "x", "xy", "xyz"} {
		raw, _ := line(t, 12, chain.LeafHash(nil), `{"kind":"dispatched","n":[1,{"a":"\u00e9"}]}`, payload)
		raw = raw[:len(raw)-1]
		for i := range raw {
			for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128} {
				changed := bytes.Clone(raw)
				changed[i] ^= mask
				l, err := chain.Split(changed)
				if err != nil {
					continue
				}
				if _, ok := l.Verify(); !ok {
					continue
				}
				if _, err := l.Payload(nil); payload != "" && err != nil {
					continue
				}
				t.Fatalf("byte %d with bit %#x of %s goes unnoticed", i, mask, raw)
			}
		}
		for i := range raw {
			if _, err := chain.Split(raw[:i]); err == nil {
				t.Fatalf("cut after %d bytes: accepted", i)
			}
			if _, err := chain.Split(raw[i+1:]); err == nil {
				t.Fatalf("first %d bytes missing: accepted", i+1)
			}
		}
	}
}

func TestAnEventThatTheChainCannotCarryIsRefused(t *testing.T) {
	for event, want := range map[string]string{
		``:                                "start",
		`{"kind":"Up"}`:                   "word",
		`{"kind":""}`:                     "word",
		`{"execution_id":"x","kind":"a"}`: "start",
		`{"kind":"a","seq":1}`:            "reserved",
		`{"kind":"a","time":1}`:           "reserved",
		`{"kind":"a","prev":1}`:           "reserved",
		`{"kind":"a","payload_digest":1}`: "reserved",
		`{"kind":"a","kind":"b"}`:         "repeated",
		`{"kind":"a","\u0073eq":1}`:       "escape",
		`{"kind":"a"} `:                   "after",
		`{"kind":"a"},"hash":"0"`:         "after",
		`{"kind":"a", "b":1}`:             "compact",
		"{\"kind\":\"a\",\"b\":\"\n\"}":   "compact",
		`{"kind":"a","b":01}`:             "compact",
		`{"kind":"a","b":1.}`:             "compact",
		`{"kind":"a","b":"\x"}`:           "compact",
		`{"kind":"a","b":"\u00g0"}`:       "compact",
		`{"kind":"a","b":[1,]}`:           "compact",
		`{"kind":"a",}`:                   "compact",
		`{"kind":"a","b":tru}`:            "compact",
		`{"kind":"a"`:                     "compact",
		"{\"kind\":\"a\",\"b\":\"\xff\"}": "UTF-8",
		`{"kind":"a","b":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`: "nested",
	} {
		err := chain.CheckEvent([]byte(event))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something about %q", event, err, want)
		}
	}
	for _, event := range []string{
		`{"kind":"a"}`, `{"kind":"a","b":{}}`, `{"kind":"a","b":[],"c":-0.5e+3,"d":[true,false,null,"\"\\\/\b\f\n\r\t\u00E9"]}`,
		`{"kind":"a","b":{"seq":1,"kind":2}}`,
	} {
		if err := chain.CheckEvent([]byte(event)); err != nil {
			t.Errorf("%s: %v", event, err)
		}
	}
}

func TestNeitherSplittingNorAppendingAllocates(t *testing.T) {
	event := []byte(`{"kind":"dispatched","execution_id":"act_1"}`)
	buf, _ := chain.AppendLine(nil, 1, at, chain.Hash{}, event, []byte("payload"))
	if n := testing.AllocsPerRun(100, func() {
		buf, _ = chain.AppendLine(buf[:0], 1, at, chain.Hash{}, event, []byte("payload"))
		l, err := chain.Split(buf[:len(buf)-1])
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := l.Verify(); !ok || l.CheckEntry() != nil || chain.CheckEvent(event) != nil {
			t.Fatal("does not verify")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
