package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
)

// grantsOf keeps standing grants in memory, as the vault does in its file.
type grantsOf struct {
	mu   sync.Mutex
	kept map[string]approval.Standing
	fail error
	no   map[string]error // by run: why there can be none
}

func (g *grantsOf) Program(p *peer.Identity) (approval.Program, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return approval.Program{Actor: p.Actor, Exe: p.Agent.Exe, Digest: p.Agent.Digest, Via: p.Via, Through: p.Between(), Chain: p.Above()}, g.no[p.Run]
}

func (g *grantsOf) Keep(s approval.Standing) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail == nil {
		g.kept[s.ID] = s
	}
	return g.fail
}

func (g *grantsOf) Drop(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.kept, id)
	return g.fail
}

func (g *grantsOf) all() (list []approval.Standing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.kept {
		list = append(list, s)
	}
	return list
}

// standingRig is a rig that keeps standing grants, and whose clock no timer moves.
func standingRig(t *testing.T) (*rig, *grantsOf) {
	g := &grantsOf{kept: map[string]approval.Standing{}, no: map[string]error{}}
	hold := make(chan struct{})
	r := newRig(t, func(r *rig) { r.cfg.Standing, r.hold = g, hold })
	t.Cleanup(func() { close(hold) })
	return r, g
}

// give has a process of that name call, and answers its card with a standing grant.
func (r *rig) give(name, tool string, scope approval.Scope, lasts time.Duration) (*agent, string) {
	r.t.Helper()
	a := newAgent(name)
	done := r.begin(context.Background(), a, tool, `{"order":"1"}`, "first of "+name)
	c := r.card()
	d := approval.Decision{Answer: approval.ForRun, By: "operator", Scope: scope, For: lasts, Standing: true}
	if err := r.Answer(context.Background(), c.Card.ID, d); err != nil {
		r.t.Fatal(err)
	}
	if got := <-done; got.Code != "" {
		r.t.Fatalf("the call was refused: %s", got.Result)
	}
	list, err := r.StandingGrants()
	if err != nil || len(list) == 0 {
		r.t.Fatalf("no grant is listed: %v", err)
	}
	last := list[len(list)-1]
	if !slices.Contains(last.Runs, a.Run) {
		r.t.Errorf("the process that it was given in is not under it: %v", last.Runs)
	}
	return a, last.Grant.ID
}

const month = 30 * 24 * time.Hour

func TestTheNextRunsOfAProgramGetASessionByAStandingGrant(t *testing.T) {
	for _, scope := range []approval.Scope{approval.ScopeAction, approval.ScopeArguments} {
		t.Run(string(scope), func(t *testing.T) {
			r, _ := standingRig(t)
			_, id := r.give("1", "pay", scope, month)
			next := newAgent("2")
			answer := r.call(context.Background(), next, "pay", `{"order":"1"}`, "of the next")
			x := r.until(answer.ExecutionID, execution.NotDelivered)
			if x.AuthorizedBy != id || r.target.effects() != 2 {
				t.Errorf("authorized by %q, want %s; %d effects", x.AuthorizedBy, id, r.target.effects())
			}
			sessions := 0
			for _, v := range r.Runs() {
				if v.Identity.Run == next.Run {
					if sessions = len(v.Sessions); sessions == 1 && (v.Sessions[0].Grant != id || v.Sessions[0].Card != "" || v.Sessions[0].Scope != scope) {
						t.Errorf("its session is %+v", v.Sessions[0])
					}
				}
			}
			if sessions != 1 {
				t.Errorf("it has %d sessions", sessions)
			}
			if got := r.asked(next, "pay", `{"order":"2"}`, "others"); got != (scope == approval.ScopeArguments) {
				t.Errorf("other arguments: asked %v", got)
			}
			if !r.asked(next, "look", `{"order":"1"}`, "another action") {
				t.Error("another action was not asked about")
			}
			list, err := r.StandingGrants()
			if err != nil || len(list) != 1 || !slices.Equal(list[0].Runs, []string{"run_1", "run_2"}) {
				t.Errorf("listed %+v, %v", list, err)
			}
		})
	}
}

func TestAnotherProgramGetsNothingByAStandingGrant(t *testing.T) {
	r, g := standingRig(t)
	r.give("1", "pay", approval.ScopeAction, month)
	for what, change := range map[string]func(*agent){
		"a changed one":                  func(a *agent) { a.Agent.Digest = "sha256:01" },
		"a copy at another path":         func(a *agent) { a.Agent.Exe, a.Actor = "/home/a/agent", "exe:/home/a/agent" },
		"the actor's name, another file": func(a *agent) { a.Agent.Exe = "/home/a/agent" },
		"one that came by another way":   func(a *agent) { a.Via, a.Through = "bridge", []peer.Process{{Exe: "/usr/bin/spctl"}} },
		"one that another started":       func(a *agent) { a.Chain = []peer.Process{{Exe: "/usr/bin/other"}} },
		"one that cannot be told":        func(a *agent) { g.no[a.Run] = errors.New("another agent started it") },
		"one that becomes another one": func(a *agent) {
			n := 0
			a.Check = func() error { // once it has come in
				if n++; n > 1 {
					return errors.New("it has become another program")
				}
				return nil
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			a := newAgent("of " + what)
			a.Identity.Agent.PID = 4711
			g.mu.Lock()
			change(a)
			g.mu.Unlock()
			if !r.asked(a, "pay", `{"order":"`+what+`"}`, what) {
				t.Error("it was not asked about")
			}
		})
	}
	if r.target.effects() != 1 {
		t.Errorf("%d effects", r.target.effects())
	}
}

func TestWhatAsksAtEveryUseStillAsksUnderAStandingGrant(t *testing.T) {
	r, _ := standingRig(t)
	r.give("1", "charge", approval.ScopeAction, month) // approval: per_use
	next := newAgent("2")
	done := r.begin(context.Background(), next, "charge", `{"order":"2"}`)
	c := r.card()
	if c.Card.Question != approval.AskUse {
		t.Errorf("the card asks %q", c.Card.Question)
	}
	r.answer(c, approval.Deny)
	<-done
	// So does a credential that asks.
	r.give("3", "pay", approval.ScopeAction, month)
	r.keys.perUse.Store(true)
	done = r.begin(context.Background(), newAgent("4"), "pay", `{"order":"3"}`)
	if c = r.card(); c.Card.Question != approval.AskUse {
		t.Errorf("the card asks %q", c.Card.Question)
	}
	r.answer(c, approval.Deny)
	<-done
}

func TestAStandingGrantEnds(t *testing.T) {
	for what, end := range map[string]func(r *rig, g *grantsOf, id string) (anew string){
		"by its time": func(r *rig, _ *grantsOf, _ string) string {
			r.clock.add(month)
			return ""
		},
		"by the person": func(r *rig, _ *grantsOf, id string) string {
			if err := r.RevokeGrant(id, "operator"); err != nil {
				r.t.Fatal(err)
			}
			if err := r.RevokeGrant("grant_none", "operator"); !errors.Is(err, engine.ErrNoGrant) {
				r.t.Errorf("one that is not there: %v", err)
			}
			return id
		},
		"with a session that came from it": func(r *rig, _ *grantsOf, id string) string {
			if err := r.RevokeSession("run_1", "operator"); err != nil {
				r.t.Fatal(err)
			}
			return id
		},
		"with another contract, for good": func(r *rig, _ *grantsOf, id string) string {
			r.SetActions(append(r.actions[1:], contract(r.t, "pay", "irreversible", irreversible+"\n  after_delivery: new", "api", "session", inBinding)), nil)
			r.SetActions(r.actions, nil)
			return id
		},
		"with its action": func(r *rig, _ *grantsOf, id string) string {
			r.EndGrantsOf("pay")
			return id
		},
	} {
		t.Run(what, func(t *testing.T) {
			r, g := standingRig(t)
			first, id := r.give("1", "pay", approval.ScopeAction, month)
			kept := g.all()
			second := newAgent("2")
			if r.asked(second, "pay", `{"order":"2"}`, "2") {
				t.Fatal("it was asked about before the end")
			}
			ended := end(r, g, id)
			for _, a := range []*agent{first, second, newAgent("3")} {
				if !r.asked(a, "pay", `{"order":"of `+a.Run+`"}`, "after in "+a.Run) {
					t.Errorf("%s was not asked about", a.Run)
				}
			}
			if list, err := r.StandingGrants(); err != nil || len(list) != 0 {
				t.Errorf("still listed: %+v, %v", list, err)
			}
			if ended == "" {
				return
			}
			// The record of before, put back into the vault, revives nothing: neither under this daemon, nor by the journal under the next.
			if over := r.SetStanding(kept); over[id] == "" || !r.asked(newAgent("4"), "pay", `{"order":"4"}`, "4") {
				t.Errorf("it was revived: %v", over)
			}
			if !slices.Contains(r.kinds(), "grant_ended") {
				t.Error("its end is not in the journal")
			}
			r.records.Settle()
			if said, counts, err := r.records.Index().Grant(id); err != nil || counts || said.Given == 0 || said.Ended == 0 {
				t.Errorf("the journal says %+v, counts %v, %v", said, counts, err)
			}
		})
	}
}

func TestRevokingAStandingGrantWithdrawsWhatWaits(t *testing.T) {
	r, g := standingRig(t)
	first, id := r.give("1", "charge", approval.ScopeAction, month)
	done := r.begin(context.Background(), first, "charge", `{"order":"2"}`)
	c := r.card() // it asks for this use
	if err := r.RevokeGrant(id, "operator"); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.Code != api.CodeWithdrawn {
		t.Errorf("it came to %+v", got)
	}
	if err := r.Answer(context.Background(), c.Card.ID, approval.Decision{Answer: approval.Once, By: "operator"}); !errors.Is(err, engine.ErrNoCard) {
		t.Errorf("its card: %v", err)
	}
	if len(g.all()) != 0 {
		t.Errorf("the vault still has %v", g.all())
	}
}

func TestAProcessWhoseSessionWasRevokedGetsNoneByAGrantAlsoAfterARestart(t *testing.T) {
	r, g := standingRig(t)
	a := newAgent("1")
	done := r.begin(context.Background(), a, "pay", `{"order":"1"}`)
	c := r.within(approval.ScopeAction, 0)
	<-done
	done = r.begin(context.Background(), a, "look", `{"order":"1"}`)
	r.within(approval.ScopeAction, 0)
	<-done
	_, id := r.give("2", "pay", approval.ScopeAction, month)
	if err := r.RevokeSession(c.id, "operator"); err != nil { // the one for pay; that for look stays
		t.Fatal(err)
	}
	if !r.asked(a, "pay", `{"order":"2"}`, "2") || r.asked(a, "look", `{"order":"3"}`, "3") {
		t.Error("the grant gave back what was taken, or took more")
	}
	r.restart()
	if over := r.SetStanding(g.all()); len(over) != 0 {
		t.Fatalf("over: %v", over)
	}
	again := newAgent("1") // the same process, to a new daemon
	if !r.asked(again, "pay", `{"order":"4"}`, "4") {
		t.Error("after a restart, the grant gave back what was taken")
	}
	if r.asked(newAgent("3"), "pay", `{"order":"5"}`, "5") {
		t.Errorf("another process was asked about in spite of %s", id)
	}
	// Once the person gives it a session again, it is a process like any other.
	done = r.begin(context.Background(), again, "look", `{"order":"6"}`)
	r.within(approval.ScopeAction, 0)
	<-done
	if r.asked(again, "pay", `{"order":"7"}`, "7") {
		t.Error("it is barred for good")
	}
}

func TestALockedVaultAndAJournalThatDoesNotVerifyGiveNothingByAGrant(t *testing.T) {
	r, g := standingRig(t)
	_, id := r.give("1", "look", approval.ScopeAction, month)
	r.lock()
	if got := r.call(context.Background(), newAgent("2"), "look", `{"order":"2"}`); got.Code != api.CodeVaultLocked {
		t.Errorf("while locked: %+v", got)
	}
	if _, err := r.StandingGrants(); err == nil {
		t.Error("they are listed while the vault is locked")
	}
	if err := r.RevokeGrant(id, "operator"); err == nil || errors.Is(err, engine.ErrNoGrant) {
		t.Errorf("revoked while locked: %v", err)
	}
	// What the unlocked vault does not hold, or what is not borne out, is over, and so are the sessions that came from it.
	if _, err := r.records.Unlocked(r.keys); err != nil {
		t.Fatal(err)
	}
	r.SetStanding(nil)
	if err := r.Unlocked(); err != nil {
		t.Fatal(err)
	}
	if !r.asked(newAgent("3"), "look", `{"order":"3"}`, "3") {
		t.Error("it was not asked about")
	}
	for _, v := range r.Runs() {
		if len(v.Sessions) > 0 {
			t.Errorf("%s keeps %+v", v.Identity.Run, v.Sessions)
		}
	}
	r.SetStanding(g.all())
	r.SetQuarantine(true)
	if !r.asked(newAgent("4"), "look", `{"order":"4"}`, "4") { // a read works in quarantine, for whom the person lets
		t.Error("in quarantine it was not asked about")
	}
}

func TestAStandingGrantThatCannotBeKeptIsNone(t *testing.T) {
	r, g := standingRig(t)
	give := func(a *agent, change func(*approval.Decision)) error {
		done := r.begin(context.Background(), a, "pay", `{"order":"1"}`)
		c := r.card()
		d := approval.Decision{Answer: approval.ForRun, By: "operator", For: month, Standing: true}
		change(&d)
		err := r.Answer(context.Background(), c.Card.ID, d)
		if err == nil {
			t.Error("it was given")
			return nil
		}
		r.answer(c, approval.Deny) // the card still waits
		<-done
		return err
	}
	g.fail = errors.New("the disk is full")
	if err := give(newAgent("1"), func(*approval.Decision) {}); errors.Is(err, engine.ErrAnswer) {
		t.Errorf("a fault is said to be the answer's: %v", err)
	}
	g.fail = nil
	g.no["run_2"] = errors.New("its program is yours")
	for run, change := range map[string]func(*approval.Decision){
		"2": func(*approval.Decision) {},
		"3": func(d *approval.Decision) { d.Scope = approval.ScopeRun },
		"4": func(d *approval.Decision) { d.For = 2 * month },
		"5": func(d *approval.Decision) { d.For = 0 },
		"6": func(d *approval.Decision) { d.Answer = approval.Once },
	} {
		if err := give(newAgent(run), change); !errors.Is(err, engine.ErrAnswer) {
			t.Errorf("run %s: %v", run, err)
		}
	}
	if !r.asked(newAgent("7"), "pay", `{"order":"7"}`, "7") || len(g.all()) != 0 {
		t.Error("something was given")
	}
	if list, err := r.StandingGrants(); err != nil || len(list) > 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	if n := r.target.effects(); n != 0 {
		t.Errorf("%d effects", n)
	}
}

func TestACardThatIsOnlyAboutAResultGivesNoStandingGrant(t *testing.T) {
	r, g := standingRig(t)
	first := newAgent("1")
	r.trust(first)
	r.call(context.Background(), first, "pay", `{"order":"1"}`, "shared")
	second := newAgent("2")
	done := r.begin(context.Background(), second, "pay", `{"order":"1"}`, "shared")
	c := r.card()
	if err := r.Answer(context.Background(), c.Card.ID, approval.Decision{Answer: approval.ForRun, By: "operator", For: month, Standing: true}); !errors.Is(err, engine.ErrAnswer) {
		t.Errorf("answered with %v", err)
	}
	r.answer(c, approval.Once)
	<-done
	if len(g.all()) != 0 {
		t.Error("it was given")
	}
}

func TestAnEarlierExecutionIsJudgedByTheContractThatItWasAcceptedUnder(t *testing.T) {
	changed := func(r *rig) {
		r.SetActions(append(slices.Clone(r.actions[1:]), contract(t, "pay", "irreversible", irreversible+"\n  after_delivery: new", "api", "session", inBinding)), nil)
	}
	waits := func(r *rig, a *agent) bool {
		done := r.begin(context.Background(), a, "pay", `{"order":"1"}`, "shared")
		select {
		case got := <-done:
			if !got.Recorded {
				t.Errorf("it came to %+v", got)
			}
			return false
		case c := <-r.anyCard():
			r.answer(c, approval.Deny)
			<-done
			return true
		}
	}
	t.Run("a session for the one in force does not cover it", func(t *testing.T) {
		r := newRig(t)
		first := newAgent("1")
		r.trust(first)
		r.call(context.Background(), first, "pay", `{"order":"1"}`, "shared")
		changed(r)
		second := newAgent("2")
		done := r.begin(context.Background(), second, "pay", `{"order":"9"}`, "own")
		r.within(approval.ScopeAction, 0)
		<-done
		if !waits(r, second) {
			t.Error("the result of another process, of another contract, was handed out")
		}
	})
	t.Run("a session for the one of that time does", func(t *testing.T) {
		r := newRig(t)
		first := newAgent("1")
		r.trust(first)
		r.call(context.Background(), first, "pay", `{"order":"1"}`, "shared")
		second := newAgent("2")
		done := r.begin(context.Background(), second, "pay", `{"order":"9"}`, "own")
		r.within(approval.ScopeAction, 0)
		<-done
		changed(r)
		if waits(r, second) {
			t.Error("it was asked about what its session is for; nothing is sent for it")
		}
		if !r.asked(second, "pay", `{"order":"10"}`, "new") {
			t.Error("something new under the changed contract was not asked about")
		}
	})
}

func TestRevokingTheSessionsOfAGrantBarsAllItsProcesses(t *testing.T) {
	r, _ := standingRig(t)
	first, id := r.give("1", "pay", approval.ScopeAction, month)
	second := newAgent("2")
	if r.asked(second, "pay", `{"order":"2"}`, "2") {
		t.Fatal("it was asked about")
	}
	if err := r.RevokeSession(id, "operator"); err != nil {
		t.Fatal(err)
	}
	if list, err := r.StandingGrants(); err != nil || len(list) > 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	r.give("3", "pay", approval.ScopeAction, month) // for the program, but not for those two
	for _, a := range []*agent{first, second} {
		if !r.asked(a, "pay", `{"order":"of `+a.Run+`"}`, "again in "+a.Run) {
			t.Errorf("%s got a session by another grant", a.Run)
		}
	}
	if r.asked(newAgent("4"), "pay", `{"order":"4"}`, "4") {
		t.Error("another process was asked about")
	}
	if err := r.RevokeSession(id, "operator"); !errors.Is(err, engine.ErrNoRun) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestTheJournalsWordOnAStandingGrantIsFrozen(t *testing.T) {
	b, err := os.ReadFile("testdata/grant-events-v1.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 7, 22, 14, 0, 0, 0, time.UTC)
	events := []engine.GrantEvent{
		{Kind: "grant_given", Grant: "grant_1", By: "operator", Standing: &approval.Standing{
			Version: 1, ID: "grant_1", Program: approval.Program{Actor: "deb:agent", Package: "deb:agent", Exe: "/usr/bin/agent", Digest: "sha256:0a", Via: "bridge", Through: []string{"/usr/local/bin/spctl"}, Chain: []string{"/usr/bin/bash"}},
			Scope: approval.ScopeAction, Subject: approval.Subject{Tool: "pay", ContractDigest: "sha256:0b"}, By: "operator", Card: "card_1", Run: "run_1", At: at, Until: at.Add(time.Hour),
		}},
		{Kind: "grant_ended", Grant: "grant_1", Reason: "revoked by operator"},
	}
	var got []byte
	for _, ev := range events {
		line, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		got = append(append(got, line...), '\n')
	}
	if string(got) != string(b) {
		t.Errorf("written:\n%s\nfrozen:\n%s", got, b)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		var ev engine.GrantEvent
		if err := json.Unmarshal([]byte(line), &ev); err != nil || !reflect.DeepEqual(ev, events[i]) {
			t.Errorf("read as %+v, %v", ev, err)
		}
	}
}

func TestTheJournalHasNoDigestOfArgumentsThatCouldBeGuessed(t *testing.T) {
	r, g := standingRig(t)
	r.give("1", "pay", approval.ScopeArguments, month)
	kept := g.all()[0].Subject.Arguments
	if kept == "" {
		t.Fatal("the grant is not for arguments")
	}
	if r.asked(newAgent("2"), "pay", `{"order":"1"}`, "2") {
		t.Error("it was asked about")
	}
	kinds := r.kinds()
	if !slices.Contains(kinds, "grant_given") || !slices.Contains(kinds, "session_authorized") {
		t.Fatalf("the journal has %v", kinds)
	}
	for _, file := range journalFiles(r.dir) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), strings.TrimPrefix(kept, "sha256:")) {
			t.Errorf("%s has it", file)
		}
	}
}
