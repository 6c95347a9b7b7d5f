package records_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/journal"
	"singlepass.dev/daemon/records"
)

type keys struct{ private hpke.PrivateKey }

func newKeys(t *testing.T) keys {
	t.Helper()
	scalar, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := hpke.NewDHKEMPrivateKey(scalar)
	if err != nil {
		t.Fatal(err)
	}
	return keys{private}
}

func (k keys) PublicSealingKey() []byte                          { return k.private.PublicKey().Bytes() }
func (k keys) UseSealingKey(f func(hpke.PrivateKey) error) error { return f(k.private) }
func (k keys) UseIndexKey(f func([]byte) error) error            { return f(make([]byte, 32)) }

func open(t *testing.T, dir string, k keys) *records.Records {
	t.Helper()
	r, err := records.Open(records.Config{Dir: dir, Now: time.Now, Random: rand.Reader, SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Unlocked(k); err != nil {
		t.Fatal(err)
	}
	return r
}

func add(t *testing.T, r *records.Records, ev execution.Event) error {
	t.Helper()
	if ev.Kind == execution.KindAccepted {
		ev.Acceptance = &execution.Acceptance{Tool: "pay", Class: execution.Idempotent, Actor: "exe:/a", Run: "run_1", Scope: "run:run_1", Fingerprint: "f " + ev.ID}
	}
	b, err := json.Marshal(&ev)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Append(engine.Entry{Event: b, ID: ev.ID, Kind: string(ev.Kind), At: time.Now()})
	<-c.Done()
	return c.Err()
}

// sent records an execution up to its dispatch.
func sent(t *testing.T, r *records.Records, id string) {
	t.Helper()
	for _, ev := range []execution.Event{
		{Kind: execution.KindAccepted, ID: id}, {Kind: execution.KindAuthorized, ID: id, By: "session"}, {Kind: execution.KindDispatched, ID: id, Attempt: 1},
	} {
		if err := add(t, r, ev); err != nil {
			t.Fatal(err)
		}
	}
}

func whole(t *testing.T, r *records.Records) {
	t.Helper()
	r.Settle()
	if at, head := r.Index().Position(), r.Journal().Head(); at.Seq != head.Seq || at.Hash != head.Hash {
		t.Fatalf("the index stands at entry %d and the journal at %d", at.Seq, head.Seq)
	}
	if err := r.Index().Check(); err != nil {
		t.Fatal(err)
	}
}

func state(t *testing.T, r *records.Records, id string) execution.State {
	t.Helper()
	x, _, err := r.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return x.State
}

func TestRecordsGoOnBehindABreakThatWasAccepted(t *testing.T) {
	for name, tamper := range map[string]func([]byte) []byte{
		"a changed line": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"act_2","attempt":1`), []byte(`"act_2","attempt":7`), 1)
		},
		"a missing line":    func(b []byte) []byte { return without(b, `"kind":"dispatched","execution_id":"act_2"`) },
		"a missing accept":  func(b []byte) []byte { return without(b, `"kind":"accepted","execution_id":"act_3"`) },
		"a missing end":     func(b []byte) []byte { return b[:bytes.Index(b, []byte(`"execution_id":"act_3"`))] },
		"nothing but zeros": func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, k := t.TempDir(), newKeys(t)
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			r := open(t, dir, k)
			for _, id := range []string{"act_1", "act_2", "act_3"} {
				sent(t, r, id)
			}
			whole(t, r)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			files, _ := filepath.Glob(filepath.Join(dir, "journal", "*"))
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Contains(b, []byte("act_2")) {
					continue
				}
				changed := tamper(bytes.Clone(b))
				if bytes.Equal(b, changed) {
					t.Fatal("nothing was changed")
				}
				if err := os.WriteFile(f, changed, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Remove(filepath.Join(dir, "index.db")); err != nil {
				t.Fatal(err)
			}
			r = open(t, dir, k)
			if r.Found().Quarantine == nil {
				t.Skip("the journal takes it for a torn tail")
			}
			if err := add(t, r, execution.Event{Kind: execution.KindAccepted, ID: "act_4"}); err == nil {
				t.Error("a journal in quarantine was written")
			}
			if _, err := r.Journal().AcceptQuarantine("looked at it", nil); err != nil {
				t.Fatal(err)
			}
			if err := r.Rebuild(); err != nil {
				t.Fatal(err)
			}
			whole(t, r)
			if name == "a changed line" {
				// What stands behind the break is whole, and says that something may have been sent.
				x, _, err := r.Find("act_3")
				if err != nil || x.State != execution.Dispatched || x.Class != execution.Irreversible {
					t.Errorf("of what stands behind the break is kept: %s, %s, %v", x.State, x.Class, err)
				}
			}
			sent(t, r, "act_5")
			// What the daemon still had in flight ends, whether the journal has its beginning or not.
			for _, id := range []string{"act_3", "act_5"} {
				if err := add(t, r, execution.Event{Kind: execution.KindUnknown, ID: id, Attempt: 1, Reason: "lost"}); err != nil {
					t.Fatal(err)
				}
			}
			whole(t, r)
			for range 2 {
				if s := state(t, r, "act_5"); s != execution.Unknown {
					t.Errorf("act_5 is %q", s)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r = open(t, dir, k)
				whole(t, r)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// without takes the line out that has the text in it.
func without(b []byte, text string) []byte {
	at := bytes.Index(b, []byte(text))
	if at < 0 {
		return b
	}
	from, to := bytes.LastIndexByte(b[:at], '\n')+1, at+bytes.IndexByte(b[at:], '\n')+1
	return append(b[:from:from], b[to:]...)
}

func TestWhatBecomesDurableWhileTheIndexIsRebuiltIsNotLost(t *testing.T) {
	dir, k := t.TempDir(), newKeys(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, k)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				sent(t, r, "act_"+time.Now().Format("150405.000000000"))
			}
		}
	})
	for range 30 {
		if err := r.Rebuild(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	writing.Wait()
	whole(t, r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLinesThatVerifyAndTellAnImpossibleStoryArePutInQuarantine(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := records.Open(records.Config{Dir: dir, Now: time.Now, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// Somebody who can write the files adds a line of his own while nothing runs.
	j, _, err := journal.Open(journal.Config{Dir: filepath.Join(dir, "journal"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(journal.Entry{Event: []byte(`{"kind":"dispatched","execution_id":"act_never_accepted","attempt":1}`)}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err = records.Open(records.Config{Dir: dir, Now: time.Now, Random: rand.Reader}); err != nil {
		t.Fatalf("the daemon would not start: %v", err)
	}
	defer r.Close()
	if r.Journal().Quarantine() == nil {
		t.Fatal("the story is believed")
	}
	if _, err := r.Journal().AcceptQuarantine("looked at", nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Rebuild(); err != nil {
		t.Fatal(err)
	}
	if _, found, err := r.Find("act_never_accepted"); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestARunIsBarredAfterItsSessionWasTakenUntilThePersonGivesAnother(t *testing.T) {
	dir, k := t.TempDir(), newKeys(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, k)
	barred := func() bool {
		t.Helper()
		r.Settle()
		b, err := r.Barred("run_1")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, step := range []struct {
		event string
		want  bool
	}{
		{`{"kind":"run_seen","run":"run_1"}`, false},
		{`{"kind":"session_authorized","run":"run_1","card":"card_1"}`, false},
		{`{"kind":"session_ended","run":"run_1","card":"card_1","reason":"its time is up"}`, false},
		{`{"kind":"session_authorized","run":"run_1","card":"card_2"}`, false},
		{`{"kind":"session_ended","run":"run_1","card":"card_2","revoked":true}`, true},
		{`{"kind":"session_ended","run":"run_2","card":"card_3"}`, true},
		{`{"kind":"session_ended","run":"run_1","card":"card_4","reason":"its time is up","revoked":true}`, true}, // another one that it still had
		{`{"kind":"session_authorized","run":"run_1","card":"card_5"}`, false},
	} {
		if err := r.Append(engine.Entry{Event: []byte(step.event), At: time.Now()}).Wait(); err != nil {
			t.Fatal(err)
		}
		if got := barred(); got != step.want {
			t.Errorf("after %s: %v", step.event, got)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
