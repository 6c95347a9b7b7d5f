package index_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
)

// stopped returns the path of a closed index with the journal's first n entries in it.
func stopped(t testing.TB, j *journal, n int) string {
	t.Helper()
	path := file(t)
	ix := open(t, path)
	if err := ix.Authenticate(key("a")); err != nil {
		t.Fatal(err)
	}
	fold(t, ix, j.entries[:n])
	if err := errors.Join(ix.Check(), ix.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// image is a file of which most is zero, without that.
type image struct {
	size  int64
	parts map[int64][]byte // by where they stand
}

func imageOf(whole []byte) image {
	const part = 4096
	m := image{int64(len(whole)), map[int64][]byte{}}
	zero := make([]byte, part)
	for at := 0; at < len(whole); at += part {
		if p := whole[at:min(at+part, len(whole))]; !bytes.Equal(p, zero[:len(p)]) {
			m.parts[int64(at)] = p
		}
	}
	return m
}

// restore writes the file.
func (m image) restore(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	fatal(t, err)
	for at, p := range m.parts {
		_, err := f.WriteAt(p, at)
		fatal(t, err)
	}
	fatal(t, errors.Join(f.Truncate(m.size), f.Close()))
}

// edit changes a stopped index with bbolt itself, as anybody could.
func edit(t testing.TB, path string, f func(rows, bins, table, head *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return f(tx.Bucket([]byte("rows")), tx.Bucket([]byte("bins")), tx.Bucket([]byte("table")), tx.Bucket([]byte("head")))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// askEverything returns the first error of authenticating an index and asking it for everything that the journal knows.
func askEverything(ix *index.Index, j *journal) error {
	if err := ix.Authenticate(key("a")); err != nil {
		return err
	}
	var errs []error
	for _, id := range j.order {
		x := j.x[id]
		_, _, err1 := ix.Get(id)
		_, err2 := ix.Match(x.Actor, x.Scope, x.Fingerprint)
		_, _, err3 := ix.MatchKey(x.Actor, x.Scope)
		errs = append(errs, err1, err2, err3)
	}
	_, err1 := ix.List(index.Query{Limit: len(j.order)})
	_, err2 := ix.Runs("", len(j.runs))
	_, err3 := ix.OpenExecutions(index.Filter{})
	err4 := ix.Refusals(time.Time{}, func(index.Fact) bool { return true })
	for id := range j.grants {
		_, _, err := ix.Grant(id)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, err1, err2, err3, err4)...)
}

func TestEveryRowAndBinThatIsRemovedOrChangedIsNoticed(t *testing.T) {
	j := newJournal(21).tell(120)
	path := stopped(t, j, len(j.entries))
	var keys [2][][]byte
	edit(t, path, func(rows, bins, _, _ *bbolt.Bucket) error {
		for i, b := range []*bbolt.Bucket{rows, bins} {
			for k := range bucketKeys(b) {
				keys[i] = append(keys[i], k)
			}
		}
		return nil
	})
	if len(keys[0]) < 8 || len(keys[1]) < 30 {
		t.Fatalf("only %d rows and %d bins", len(keys[0]), len(keys[1]))
	}
	whole := imageOf(must[[]byte](t)(os.ReadFile(path)))
	for what, change := range map[string]func(b *bbolt.Bucket, k, other []byte) error{
		"removed": func(b *bbolt.Bucket, k, _ []byte) error { return b.Delete(k) },
		"changed": func(b *bbolt.Bucket, k, _ []byte) error {
			v := bytes.Clone(b.Get(k))
			v[len(v)/2] ^= 1
			return b.Put(k, v)
		},
		"emptied": func(b *bbolt.Bucket, k, _ []byte) error { return b.Put(k, nil) },
		"swapped": func(b *bbolt.Bucket, k, other []byte) error { return b.Put(k, bytes.Clone(b.Get(other))) },
	} {
		t.Run(what, func(t *testing.T) {
			path := file(t)
			for which, keys := range keys {
				for i, k := range keys {
					whole.restore(t, path)
					edit(t, path, func(rows, bins, _, _ *bbolt.Bucket) error {
						return change([]*bbolt.Bucket{rows, bins}[which], k, keys[(i+1)%len(keys)])
					})
					ix := open(t, path) // an open execution without its row is noticed here already, and begins an empty index
					if ix.Position().Seq > 0 {
						notAuthentic(t, fmt.Sprintf("%s %s %q", []string{"row", "bin"}[which], what, k), askEverything(ix, j))
					}
					fatal(t, ix.Close())
				}
			}
		})
	}
}

func bucketKeys(b *bbolt.Bucket) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		c := b.Cursor()
		for k, _ := c.First(); k != nil && yield(bytes.Clone(k)); k, _ = c.Next() {
		}
	}
}

// Whoever edits the file can also compute its hashes again, which need no key. The root is what cannot be computed.
func TestAnExecutionRemovedWithAllItsHashesIsNoticed(t *testing.T) {
	j := newJournal(22).tell(300)
	path := stopped(t, j, len(j.entries))
	var victim string
	for _, id := range j.order {
		if j.x[id].State == execution.Expired {
			victim = id
		}
	}
	edit(t, path, func(_, bins, table, head *bbolt.Bucket) error {
		var raw struct {
			Salt [16]byte `json:"salt"`
		}
		if err := json.Unmarshal(head.Get([]byte("meta")), &raw); err != nil {
			return err
		}
		k := raw.Salt[:]
		for _, part := range []string{"execution", victim} {
			k = append(append(k, byte(len(part))), part...)
		}
		sum := sha256.Sum256(k)
		n := binary.BigEndian.Uint16(sum[:]) % 8192
		name := binary.BigEndian.AppendUint16(nil, n)
		var left []byte
		for listing := range slices.Chunk(bins.Get(name), 16+6) {
			if !bytes.Equal(listing[:16], sum[2:18]) {
				left = append(left, listing...)
			}
		}
		digest := make([]byte, 32)
		if len(left) > 0 {
			d := sha256.Sum256(left)
			digest = d[:]
		}
		chunk := bytes.Clone(table.Get([]byte{byte(n / 128)}))
		if bytes.Equal(chunk[int(n%128)*32:][:32], digest) {
			t.Error("the test computes the wrong bin")
		}
		copy(chunk[int(n%128)*32:], digest)
		return errors.Join(bins.Put(name, left), table.Put([]byte{byte(n / 128)}, chunk))
	})
	ix := open(t, path)
	if _, found, err := ix.Get(victim); found || err != nil {
		t.Fatalf("the edit is not whole: %v, %v", found, err)
	}
	if ix.Verified() {
		t.Error("an index is verified before anybody has checked it")
	}
	notAuthentic(t, "authenticating", ix.Authenticate(key("a")))
	if ix.Verified() {
		t.Error("an index that failed is verified")
	}

	// The remedy.
	if err := ix.Reset(); err != nil {
		t.Fatal(err)
	}
	catchUp(t, ix, j)
	if err := ix.Authenticate(key("a")); err != nil || !ix.Verified() {
		t.Fatalf("after rebuilding: %v", err)
	}
	j.compare(t, ix)
	if err := errors.Join(ix.Check(), ix.Close()); err != nil {
		t.Fatal(err)
	}
	again := unlocked(t, path)
	j.compare(t, again)
}

func TestWhatTheFileSaysOfItselfIsCoveredByTheRoot(t *testing.T) {
	j := newJournal(23).tell(200)
	path := stopped(t, j, len(j.entries))
	whole := imageOf(must[[]byte](t)(os.ReadFile(path)))
	for what, change := range map[string]func(m map[string]any, head *bbolt.Bucket) error{
		"position": func(m map[string]any, _ *bbolt.Bucket) error { m["position"].(map[string]any)["seq"] = 150; return nil },
		"hash": func(m map[string]any, _ *bbolt.Bucket) error {
			m["position"].(map[string]any)["hash"] = strings.Repeat("0", 64)
			return nil
		},
		"counts": func(m map[string]any, _ *bbolt.Bucket) error { m["counts"] = map[string]int{}; return nil },
		"open":   func(m map[string]any, _ *bbolt.Bucket) error { m["open"] = []int{}; return nil },
		"newest": func(m map[string]any, _ *bbolt.Bucket) error { m["newest"] = ""; return nil },
		"number": func(m map[string]any, _ *bbolt.Bucket) error { m["executions"] = 1; return nil },
		"salt": func(m map[string]any, _ *bbolt.Bucket) error {
			m["salt"] = make([]int, 16)
			m["open"] = []int{}
			return nil
		},
		"no root":   func(_ map[string]any, head *bbolt.Bucket) error { return head.Delete([]byte("root")) },
		"zero root": func(_ map[string]any, head *bbolt.Bucket) error { return head.Put([]byte("root"), make([]byte, 32)) },
	} {
		whole.restore(t, path)
		edit(t, path, func(_, _, _, head *bbolt.Bucket) error {
			var m map[string]any
			if err := json.Unmarshal(head.Get([]byte("meta")), &m); err != nil {
				return err
			}
			if err := change(m, head); err != nil {
				return err
			}
			b, err := json.Marshal(m)
			return errors.Join(err, head.Put([]byte("meta"), b))
		})
		ix := open(t, path)
		if ix.Position().Seq == 0 {
			t.Errorf("%s: the file was not even opened", what)
		}
		notAuthentic(t, what, ix.Authenticate(key("a")))
		if err := ix.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnotherVaultsIndexIsNotBelieved(t *testing.T) {
	j := newJournal(24).tell(50)
	path := stopped(t, j, len(j.entries))
	ix := open(t, path)
	notAuthentic(t, "authenticating", ix.Authenticate(key("b")))
	locked := errors.New("vault is locked")
	if err := ix.Authenticate(func(string, []byte) ([32]byte, error) { return [32]byte{}, locked }); !errors.Is(err, locked) || errors.Is(err, index.ErrNotAuthentic) {
		t.Errorf("authenticating with a locked vault: %v", err)
	}
	if err := ix.Authenticate(nil); err == nil {
		t.Error("no key authenticates")
	}
	if err := ix.Authenticate(key("a")); err != nil {
		t.Errorf("with its own key: %v", err)
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAnOlderCopyOfTheFileOnlyCostsTheFoldingOfItsTail(t *testing.T) {
	j := newJournal(25).tell(400)
	path := stopped(t, j, 150)
	older := must[[]byte](t)(os.ReadFile(path))
	ix := open(t, path)
	if err := ix.Authenticate(key("a")); err != nil {
		t.Fatal(err)
	}
	catchUp(t, ix, j)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, older, 0o600); err != nil {
		t.Fatal(err)
	}
	ix = unlocked(t, path)
	same(t, "position", ix.Position(), j.entries[149].Position)
	catchUp(t, ix, j)
	j.compare(t, ix)
}

func TestAChangeWhileTheDaemonRunsIsNoticed(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, path string, older []byte){
		"a state in place": func(t *testing.T, path string, _ []byte) {
			b := must[[]byte](t)(os.ReadFile(path))
			from, to := []byte("\x08expired"), []byte("\x08unknown")
			if !bytes.Contains(b, from) {
				t.Fatal("nothing to change")
			}
			overwrite(t, path, bytes.ReplaceAll(b, from, to))
		},
		"an older copy": func(t *testing.T, path string, older []byte) { overwrite(t, path, older) },
		"zeros":         func(t *testing.T, path string, older []byte) { overwrite(t, path, make([]byte, len(older))) },
		"nothing":       func(t *testing.T, path string, _ []byte) { fatal(t, os.Truncate(path, 0)) },
		"a page":        func(t *testing.T, path string, _ []byte) { fatal(t, os.Truncate(path, 4096)) },
	} {
		t.Run(what, func(t *testing.T) {
			j := newJournal(26).tell(600)
			path := file(t)
			ix := open(t, path)
			fatal(t, ix.Authenticate(key("a")))
			fold(t, ix, j.entries[:300])
			flush(t, ix)
			older := must[[]byte](t)(os.ReadFile(path))
			catchUp(t, ix, j)
			flush(t, ix)
			change(t, path, older)
			notAuthentic(t, "asking everything", askEverything(ix, j))
			_, _, err := ix.Get(j.order[0])
			notAuthentic(t, "asking again", err)

			fatal(t, ix.Reset())
			catchUp(t, ix, j)
			flush(t, ix)
			j.compare(t, ix)
			fatal(t, errors.Join(ix.Check(), ix.Close()))
			j.compare(t, unlocked(t, path))
		})
	}
}

func TestAFlushOverAChangedFileIsRefused(t *testing.T) {
	j := newJournal(27).tell(400)
	path := file(t)
	ix := open(t, path)
	fatal(t, ix.Authenticate(key("a")))
	fold(t, ix, j.entries[:200])
	flush(t, ix)
	overwrite(t, path, make([]byte, 1<<20))
	if err := ix.Fold(j.entries[200:]); err == nil { // it may meet the damage first
		notAuthentic(t, "flushing", ix.Flush())
	} else {
		notAuthentic(t, "folding", err)
	}
	fatal(t, ix.Reset())
	catchUp(t, ix, j)
	j.compare(t, ix)
	fatal(t, ix.Close())
}

func TestACorruptFileIsRebuiltAndNeverCrashes(t *testing.T) {
	j := newJournal(28).tell(300)
	path := stopped(t, j, len(j.entries))
	whole := must[[]byte](t)(os.ReadFile(path))
	r := rand.New(rand.NewPCG(5, 5))
	garbage := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	cases := map[string][]byte{"empty": {}, "short": whole[:5000], "text": []byte("not a database\n"), "garbage": garbage(1 << 16)}
	for i := range 16 {
		b := bytes.Clone(whole)
		page := 16384 * (2 + r.IntN(len(b)/16384-2))
		copy(b[page+16:], garbage(1+r.IntN(16000))) // behind the page's header
		cases[string(rune('A'+i))] = b
	}
	for what, b := range cases {
		fatal(t, os.WriteFile(path, b, 0o600))
		ix := open(t, path)
		err := askEverything(ix, j)
		if err == nil && ix.Position().Seq > 0 {
			err = ix.Check() // a page that nobody reads, or the damage that only Check sees
		}
		if err != nil {
			notAuthentic(t, what, err)
			fatal(t, ix.Reset())
		}
		catchUp(t, ix, j)
		fatal(t, errors.Join(ix.Check(), ix.Close()))
	}
}

func TestALockedDaemonFoldsOnAndLeavesTheFileAsItIs(t *testing.T) {
	j := newJournal(29).tell(600)
	path := file(t)
	ix := open(t, path)
	fatal(t, ix.Authenticate(key("a")))
	fold(t, ix, j.entries[:300])
	flush(t, ix)
	ix.Lock()
	fold(t, ix, j.entries[300:500])
	flush(t, ix)
	if !ix.Verified() || ix.Pending() == 0 {
		t.Fatalf("verified %v, %d rows pending", ix.Verified(), ix.Pending())
	}
	fatal(t, ix.Crash())

	ix = open(t, path) // locked, as after a start
	same(t, "position", ix.Position(), j.entries[299].Position)
	fold(t, ix, j.entries[300:500])
	flush(t, ix)
	if ix.Verified() || ix.Pending() == 0 {
		t.Fatal("a file that nobody has authenticated was written")
	}
	fatal(t, ix.Authenticate(key("a")))
	flush(t, ix)
	if ix.Pending() != 0 {
		t.Fatal("after unlock rows are pending")
	}
	ix.Lock()
	catchUp(t, ix, j)
	j.compare(t, ix)
	fatal(t, ix.Authenticate(key("a")))
	fatal(t, errors.Join(ix.Check(), ix.Close()))
	ix = unlocked(t, path)
	same(t, "position", ix.Position(), j.entries[599].Position)
	j.compare(t, ix)
}

func TestAnIndexBegunBeforeTheFirstUnlockIsWrittenWithoutARoot(t *testing.T) {
	j := newJournal(30).tell(300)
	path := file(t)
	ix := open(t, path)
	catchUp(t, ix, j)
	flush(t, ix)
	if !ix.Verified() || ix.Pending() != 0 {
		t.Fatalf("verified %v, %d rows pending", ix.Verified(), ix.Pending())
	}
	fatal(t, ix.Crash())

	ix = open(t, path)
	notAuthentic(t, "authenticating a file without a root", ix.Authenticate(key("a")))
	fatal(t, ix.Reset())
	catchUp(t, ix, j)
	flush(t, ix)
	fatal(t, ix.Authenticate(key("a")))
	flush(t, ix) // nothing but the root is left to write
	fatal(t, ix.Crash())
	j.compare(t, unlocked(t, path))
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, 0)
	fatal(t, errors.Join(err, f.Close()))
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
