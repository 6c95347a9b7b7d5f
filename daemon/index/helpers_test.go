package index_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
)

// key is a vault's key for the index.
func key(name string) index.MAC {
	return func(domain string, message []byte) ([32]byte, error) {
		m := hmac.New(sha256.New, []byte("canary-not-a-secret-"+name))
		fmt.Fprintf(m, "%d:%s", len(domain), domain)
		m.Write(message)
		return [32]byte(m.Sum(nil)), nil
	}
}

func open(t testing.TB, path string) *index.Index {
	t.Helper()
	ix, err := index.Open(index.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// unlocked opens an index and authenticates it. It is checked and closed at the end.
func unlocked(t testing.TB, path string) *index.Index {
	t.Helper()
	ix := open(t, path)
	if err := ix.Authenticate(key("a")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ix.Check(); err != nil {
			t.Errorf("check: %v", err)
		}
		if err := ix.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return ix
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "index.db") }

func fold(t testing.TB, ix *index.Index, entries []index.Entry) {
	t.Helper()
	if err := ix.Fold(entries); err != nil {
		t.Fatal(err)
	}
}

// catchUp folds what the index has not seen.
func catchUp(t testing.TB, ix *index.Index, j *journal) {
	t.Helper()
	fold(t, ix, j.entries[ix.Position().Seq:])
}

func flush(t testing.TB, ix *index.Index) {
	t.Helper()
	if err := ix.Flush(); err != nil {
		t.Fatal(err)
	}
}

// journal makes a random story that execution.Apply finds possible, and remembers it as plainly as can be: it is the model.
type journal struct {
	rng      *rand.Rand
	now      time.Time
	entries  []index.Entry
	order    []string // execution ids as they were accepted
	x        map[string]execution.Execution
	args     map[string]index.Position
	results  map[string]index.Position
	last     map[string]index.Position
	runs     []string                 // as they were first seen
	facts    map[[2]string]index.Fact // by run and kind
	refusals []index.Fact             // of calls, as they were
	grants   map[string]index.Grant
	mended   uint64
}

func newJournal(seed uint64) *journal {
	return &journal{
		rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		x: map[string]execution.Execution{}, args: map[string]index.Position{}, results: map[string]index.Position{}, last: map[string]index.Position{},
		facts: map[[2]string]index.Fact{}, grants: map[string]index.Grant{},
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (j *journal) append(event any, sealed bool) index.Entry {
	b, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	seq := uint64(len(j.entries) + 1)
	e := index.Entry{
		Position: index.Position{Seq: seq, Hash: sha256.Sum256(b), Segment: int(seq/1000) + 1, Offset: int64(seq) * 100},
		Time:     j.now, Event: b, Sealed: sealed,
	}
	j.entries = append(j.entries, e)
	return e
}

// tell appends n entries.
func (j *journal) tell(n int) *journal {
	for range n {
		j.now = j.now.Add(time.Duration(j.rng.IntN(5000)) * time.Millisecond)
		switch p := j.rng.IntN(20); {
		case p == 0:
			j.run(pick(j.rng, index.RunSeen, index.SessionAuthorized, index.SessionEnded, index.RunEnded))
		case p == 1 && j.rng.IntN(2) == 0:
			j.grant()
		case p == 1:
			e := j.append(map[string]string{"kind": pick(j.rng, "call_refused", "call_refused", "something_else"), "reason": "vault is locked"}, false)
			if bytes.Contains(e.Event, []byte(index.CallRefused)) {
				j.refusals = append(j.refusals, index.Fact{At: e.Time, Seq: e.Seq, Event: e.Event})
			}
		case p < 5 || len(j.order) == 0:
			j.accept()
		default:
			j.change()
		}
	}
	return j
}

func (j *journal) run(kind string) {
	run := fmt.Sprintf("run_%d", j.rng.IntN(30))
	// A map would put other members first; the chain wants the kind there.
	e := j.append(struct {
		Kind string `json:"kind"`
		Run  string `json:"run"`
		By   string `json:"by,omitempty"`
	}{kind, run, pick(j.rng, "", "operator")}, false)
	j.facts[[2]string{run, kind}] = index.Fact{At: e.Time, Seq: e.Seq, Event: e.Event}
	if !slices.Contains(j.runs, run) {
		j.runs = append(j.runs, run)
	}
}

func (j *journal) grant() {
	kind := pick(j.rng, index.GrantGiven, index.GrantGiven, index.GrantEnded, "quarantine_accepted")
	id := fmt.Sprintf("grant_%d", j.rng.IntN(6))
	seq := j.append(struct {
		Kind  string `json:"kind"`
		Grant string `json:"grant"`
	}{kind, id}, false).Seq
	g := j.grants[id]
	g.ID = id
	switch {
	case kind == "quarantine_accepted":
		j.mended = seq
		return
	case kind == index.GrantEnded:
		g.Ended = seq
	case g.Given == 0:
		g.Given = seq
	}
	j.grants[id] = g
}

func (j *journal) accept() {
	r := j.rng
	run := fmt.Sprintf("run_%d", r.IntN(3))
	ev := execution.Event{
		Kind: execution.KindAccepted, ID: fmt.Sprintf("act_%026d", len(j.order)),
		Acceptance: &execution.Acceptance{
			Tool: pick(r, "deploy", "delete", "read"), Channel: "http", Target: pick(r, "https://a.example/", "https://b.example/"),
			Credential: pick(r, "", "deploy-service"), Class: pick(r, execution.Classes()...), Actor: pick(r, "deb:agent", "exe:/opt/agent"),
			Run: run, Scope: pick(r, "run:"+run, "key:1", "key:2", "durable"), Fingerprint: "hmac-sha256:" + pick(r, "00", "00", "00", "01"),
			AttachWindow: time.Hour, AfterDelivery: execution.Ask, Retention: pick(r, 0, time.Minute, time.Hour),
		},
		Caller: &execution.Caller{Call: fmt.Sprint(len(j.entries)), Run: run},
	}
	j.apply(ev)
}

func (j *journal) change() {
	r := j.rng
	for { // some event is possible soon: caller_attached always is
		id := j.order[len(j.order)-1-min(r.IntN(len(j.order)), r.IntN(200))]
		ev := execution.Event{
			Kind: pick(r, execution.Kinds()[1:]...), ID: id, By: "operator", Attempt: len(j.x[id].Attempts) + r.IntN(2),
			Outcome: pick(r, execution.Success, execution.TargetError), Source: pick(r, "", execution.FromLate, execution.FromOperator),
			Reason: pick(r, "", "connection reset"), Waiting: r.IntN(2) == 0, Evidence: "drained", Call: fmt.Sprint(r.IntN(len(j.entries) + 1)),
		}
		if slices.Contains([]execution.Kind{execution.KindInconclusive, execution.KindNotDone, execution.KindObserved}, ev.Kind) && r.IntN(2) == 0 {
			ev.Finding, ev.Times = pick(r, execution.FoundRunning, execution.FoundNotDone, execution.FoundDone), r.IntN(3)
		}
		if ev.Kind == execution.KindAttached {
			ev.Caller = &execution.Caller{Call: fmt.Sprint(len(j.entries)), Run: "run_0"}
		}
		if ev.Kind == execution.KindPruned && r.IntN(4) > 0 {
			continue
		}
		if j.apply(ev) {
			return
		}
	}
}

func (j *journal) apply(ev execution.Event) bool {
	ev.At = j.now
	x, err := execution.Apply(j.x[ev.ID], ev)
	if err != nil {
		return false
	}
	if ev.Kind == execution.KindAccepted {
		j.order = append(j.order, ev.ID)
	}
	sealed := (ev.Kind == execution.KindAccepted || ev.Kind == execution.KindObserved) && j.rng.IntN(5) > 0
	e := j.append(ev, sealed)
	switch {
	case x.Pruned:
		delete(j.args, ev.ID)
		delete(j.results, ev.ID)
	case sealed && ev.Kind == execution.KindAccepted:
		j.args[ev.ID] = e.Position
	case sealed:
		j.results[ev.ID] = e.Position
	}
	j.x[ev.ID], j.last[ev.ID] = x, e.Position
	return true
}

// all returns the executions that f chooses, newest first.
func (j *journal) all(f func(execution.Execution) bool) []execution.Execution {
	found := []execution.Execution{}
	for _, id := range slices.Backward(j.order) {
		if x := j.x[id]; f(x) {
			found = append(found, x)
		}
	}
	return found
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(got, want) { // cmp is slow
		return
	}
	if d := cmp.Diff(want, got, cmp.Transformer("empty", func(x []execution.Execution) []execution.Execution {
		if len(x) == 0 {
			return nil
		}
		return x
	})); d != "" {
		t.Fatalf("%s (-model +index):\n%s", what, d)
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// compare asks the index everything that the model can answer.
func (j *journal) compare(t testing.TB, ix *index.Index) {
	t.Helper()
	list := must[[]execution.Execution](t)
	same(t, "position", ix.Position(), j.entries[len(j.entries)-1].Position)
	counts := map[execution.State]int{}
	for _, s := range execution.States() {
		counts[s] = len(j.all(func(x execution.Execution) bool { return x.State == s }))
	}
	same(t, "counts", ix.Counts(), counts)
	newest := map[[2]string]string{}
	for _, id := range j.order {
		newest[[2]string{j.x[id].Actor, j.x[id].Scope}] = id
	}
	for _, id := range j.order {
		x, found, err := ix.Get(id)
		if !found || err != nil {
			t.Fatalf("getting %s: %v, %v", id, found, err)
		}
		same(t, id, x, j.x[id])
		for kind, positions := range map[execution.Kind]map[string]index.Position{execution.KindAccepted: j.args, execution.KindObserved: j.results} {
			p, found, err := ix.Payload(id, kind)
			want, has := positions[id]
			if err != nil || found != has || p != want {
				t.Fatalf("payload %s of %s is at %v (%v, %v), not at %v", kind, id, p, found, err, want)
			}
		}
		if _, last, _, err := ix.Changed(id); err != nil || last != j.last[id] {
			t.Fatalf("%s was changed at %v (%v), not at %v", id, last, err, j.last[id])
		}
		same(t, "matches of "+id, list(ix.Match(x.Actor, x.Scope, x.Fingerprint)), j.matches(x))
		newest := newest[[2]string{x.Actor, x.Scope}]
		k, found, err := ix.MatchKey(x.Actor, x.Scope)
		if err != nil || found != strings.HasPrefix(x.Scope, "key:") || found && k.ID != newest {
			t.Fatalf("key %s finds %s (%v, %v), not %s", x.Scope, k.ID, found, err, newest)
		}
	}
	unfinished := j.all(func(x execution.Execution) bool { return x.State.Open() && x.Run == "run_1" && x.Actor == "deb:agent" })
	slices.Reverse(unfinished)
	same(t, "open executions", list(ix.OpenExecutions(index.Filter{Run: "run_1", Actor: "deb:agent"})), unfinished)
	j.compareLists(t, ix)
	j.compareRuns(t, ix)
}

func (j *journal) matches(x execution.Execution) []execution.Execution {
	// The model keeps the list as the index promises: the newest eight, and what was open when it would have been dropped and still is.
	n := 0
	return j.all(func(y execution.Execution) bool {
		if y.Actor != x.Actor || y.Scope != x.Scope || y.Fingerprint != x.Fingerprint {
			return false
		}
		n++
		return n <= 8 || y.State.Open()
	})
}

func (j *journal) compareLists(t testing.TB, ix *index.Index) {
	t.Helper()
	list := must[[]execution.Execution](t)
	middle := j.x[j.order[len(j.order)/2]].AcceptedAt
	for _, q := range []index.Query{
		{},
		{States: []execution.State{execution.Unknown, execution.Accepted}},
		{Tool: "deploy", Run: "run_1"},
		{Actor: "deb:agent", Credential: "deploy-service"},
		{Since: middle},
		{Until: middle, States: []execution.State{execution.Delivered}},
		{Text: "B.EXAMPLE"},
		{Text: "connection RESET"},
		{Text: "no such thing"},
		{Tool: "unknown"},
	} {
		want := j.all(func(x execution.Execution) bool {
			text := strings.ToLower(strings.Join([]string{x.ID, x.Tool, x.Target, x.Actor, x.Credential, x.Reason}, "\n"))
			return (q.States == nil || slices.Contains(q.States, x.State)) && (q.Tool == "" || q.Tool == x.Tool) && (q.Run == "" || q.Run == x.Run) &&
				(q.Actor == "" || q.Actor == x.Actor) && (q.Credential == "" || q.Credential == x.Credential) &&
				!x.AcceptedAt.Before(q.Since) && (q.Until.IsZero() || x.AcceptedAt.Before(q.Until)) && strings.Contains(text, strings.ToLower(q.Text))
		})
		var got []execution.Execution
		for q.Limit = 7; ; q.Before = got[len(got)-1].ID { // page by page
			p := list(ix.List(q))
			got = append(got, p...)
			if len(p) < q.Limit {
				break
			}
		}
		same(t, fmt.Sprintf("list %+v", q), got, want)
	}
	for _, after := range []time.Duration{0, time.Minute, 2 * time.Hour} {
		now := j.now.Add(after)
		want := j.all(func(x execution.Execution) bool {
			return !x.State.Open() && !x.Pruned && x.Retention > 0 && !x.ChangedAt.Add(x.Retention).After(now)
		})
		slices.Reverse(want)
		same(t, "prunable", list(ix.Prunable(now, len(j.order))), want)
	}
}

func (j *journal) compareRuns(t testing.TB, ix *index.Index) {
	t.Helper()
	var ids []string
	for before := ""; ; before = ids[len(ids)-1] {
		runs, err := ix.Runs(before, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			ids = append(ids, r.ID)
			for kind, f := range map[string]index.Fact{index.RunSeen: r.Seen, index.SessionAuthorized: r.Authorized, index.SessionEnded: r.Revoked, index.RunEnded: r.Ended} {
				want := j.facts[[2]string{r.ID, kind}]
				same(t, r.ID+" "+kind, f, want)
			}
		}
		if len(runs) < 4 {
			break
		}
	}
	slices.Reverse(ids)
	same(t, "runs", ids, j.runs)
	j.compareRefusals(t, ix)
	for n := range 6 {
		id := fmt.Sprintf("grant_%d", n)
		got, counts, err := ix.Grant(id)
		if err != nil {
			t.Fatal(err)
		}
		want, known := j.grants[id]
		want.ID = id
		same(t, id, got, want)
		same(t, id+" counts", counts, known && want.Given > j.mended && want.Ended == 0)
	}
}

func (j *journal) compareRefusals(t testing.TB, ix *index.Index) {
	t.Helper()
	collect := func(since time.Time, limit int) (got []index.Fact) {
		if err := ix.Refusals(since, func(f index.Fact) bool {
			got = append(got, f)
			return len(got) != limit
		}); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(got)
		return got
	}
	n := len(j.refusals)
	same(t, "refused calls", collect(time.Time{}, 0), j.refusals[:n:n])
	if n > 2 {
		same(t, "the newest refused calls", collect(time.Time{}, 2), j.refusals[n-2:])
		since := j.refusals[n/2].At
		from := slices.IndexFunc(j.refusals, func(f index.Fact) bool { return !f.At.Before(since) })
		same(t, "refused calls since", collect(since, 0), j.refusals[from:])
	}
}

func dump(t testing.TB, ix *index.Index) map[string]string {
	t.Helper()
	return maps.Clone(must[map[string]string](t)(ix.Dump()))
}

func notAuthentic(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, index.ErrNotAuthentic) {
		t.Fatalf("%s: %v", what, err)
	}
}
