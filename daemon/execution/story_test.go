package execution_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)

const id = "act_01J8ZQ4T0N4W5B6C7D8E9F0G1H"

func acceptance(class execution.Class) *execution.Acceptance {
	return &execution.Acceptance{
		Tool: "deploy_release", Channel: "http", Target: "https://deploy-api.internal.example/v1/releases", Class: class,
		Actor: "deb:agent", Run: "run_1", Scope: "run:run_1", Fingerprint: "hmac-sha256:01", EffectDigest: "sha256:02",
		AttachWindow: time.Hour, AfterDelivery: execution.Ask,
	}
}

// Each event a second after the one before.
type story struct {
	t  testing.TB
	x  execution.Execution
	at time.Time
}

func begin(t testing.TB, class execution.Class) *story {
	s := &story{t: t, at: start}
	return s.then(execution.Event{Kind: execution.KindAccepted, ID: id, Acceptance: acceptance(class), Caller: &execution.Caller{Call: "1", Run: "run_1"}})
}

func (s *story) then(events ...execution.Event) *story {
	s.t.Helper()
	for _, ev := range events {
		ev.ID, ev.At = id, s.at
		s.at = s.at.Add(time.Second)
		x, err := execution.Apply(s.x, ev)
		if err != nil {
			s.t.Fatal(err)
		}
		s.x = x
	}
	return s
}

func (s *story) is(state execution.State) *story {
	s.t.Helper()
	if s.x.State != state {
		s.t.Fatalf("state is %s, not %s", s.x.State, state)
	}
	return s
}

// The events of the stories.
var (
	authorized = execution.Event{Kind: execution.KindAuthorized, By: "operator"}
	rejected   = execution.Event{Kind: execution.KindRejected, By: "operator", Code: "denied"}
	expired    = execution.Event{Kind: execution.KindExpired, Reason: "vault was locked"}
	withdrawn  = execution.Event{Kind: execution.KindWithdrawn, Reason: "session was revoked"}
	gaveUp     = execution.Event{Kind: execution.KindGaveUp, Reason: "connection refused"}
	observed   = execution.Event{Kind: execution.KindObserved, Attempt: 1, Outcome: execution.Success, Status: 201, Result: "sha256:03", Source: execution.FromTarget}
	unknown    = execution.Event{Kind: execution.KindUnknown, Attempt: 1, Reason: "connection reset"}
	notDone    = execution.Event{Kind: execution.KindNotDone, Source: execution.FromQuery}
	doItAgain  = execution.Event{Kind: execution.KindNotDone, Source: execution.FromQuery, Waiting: true}
	awaited    = execution.Event{Kind: execution.KindAwaited, Attempt: 1, Status: 202, AskAfter: time.Minute, Reason: "the target took it"}
	asked      = execution.Event{Kind: execution.KindObserved, Attempt: 1, Outcome: execution.Success, Status: 200, Result: "sha256:03", Source: execution.FromQuery}
	noProof    = execution.Event{Kind: execution.KindInconclusive, Source: execution.FromQuery}
	delivered  = execution.Event{Kind: execution.KindDelivered, Call: "1", Evidence: "drained"}
	disputed   = execution.Event{Kind: execution.KindDisputed, Call: "1"}
	pruned     = execution.Event{Kind: execution.KindPruned}
	attached   = execution.Event{Kind: execution.KindAttached, Caller: &execution.Caller{Call: "2", Run: "run_1"}}
)

func dispatched(attempt int) execution.Event {
	return execution.Event{Kind: execution.KindDispatched, Attempt: attempt}
}

func sendFailed(attempt int) execution.Event {
	return execution.Event{Kind: execution.KindSendFailed, Attempt: attempt, Reason: "connection refused"}
}

func fingerprintOf(t testing.TB, x execution.Execution) string {
	t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestADeliveredResultIsKeptWithItsTimes(t *testing.T) {
	x := begin(t, execution.Idempotent).then(authorized, dispatched(1), observed, attached, delivered).is(execution.Delivered).x
	want := map[string]time.Time{"accepted": x.AcceptedAt, "authorized": x.AuthorizedAt, "dispatched": x.DispatchedAt, "completed": x.CompletedAt, "delivered": x.DeliveredAt}
	for i, what := range []string{"accepted", "authorized", "dispatched", "completed", "", "delivered"} {
		if what != "" && !want[what].Equal(start.Add(time.Duration(i)*time.Second)) {
			t.Errorf("%s at %v", what, want[what])
		}
	}
	if !x.ChangedAt.Equal(x.DeliveredAt) {
		t.Errorf("changed at %v: attaching a caller is no transition", x.ChangedAt)
	}
	if x.Result != "sha256:03" || x.TargetStatus != 201 || x.Outcome != execution.Success || x.Source != execution.FromTarget {
		t.Errorf("the outcome is %+v", x)
	}
	if x.Callers[0].Delivered != "drained" || x.Callers[1].Delivered != "" {
		t.Errorf("callers are %+v", x.Callers)
	}
}

func TestADisputedDeliveryCountsForOtherCallersOnly(t *testing.T) {
	second := execution.Event{Kind: execution.KindDelivered, Call: "2", Evidence: "drained"}
	s := begin(t, execution.Irreversible).then(authorized, dispatched(1), attached, observed, delivered, second)
	s.then(disputed).is(execution.Delivered) // the second caller still has it
	s.then(execution.Event{Kind: execution.KindDisputed, Call: "2"}).is(execution.NotDelivered)
	s.then(delivered).is(execution.Delivered)
	if s.x.Callers[0].Disputed || !s.x.Callers[1].Disputed {
		t.Errorf("callers are %+v", s.x.Callers)
	}
}

func TestProofThatASecondAttemptWasNotSentSaysNothingOfTheFirst(t *testing.T) {
	s := begin(t, execution.Idempotent).then(authorized, dispatched(1), unknown, dispatched(2), sendFailed(2)).is(execution.Unknown)
	if !s.x.InDoubt {
		t.Error("the first attempt is no longer in doubt")
	}
	x := begin(t, execution.Idempotent).then(authorized, dispatched(1), sendFailed(1)).is(execution.Authorized).x
	if x.InDoubt {
		t.Error("an attempt of which nothing was sent is in doubt")
	}
}

func TestTheCallersThatAreKeptAreBounded(t *testing.T) {
	s := begin(t, execution.ReadOnly)
	for i := range execution.MaxCallers + 9 {
		s.then(execution.Event{Kind: execution.KindAttached, Caller: &execution.Caller{Call: fmt.Sprint(i + 2)}})
	}
	if len(s.x.Callers) != execution.MaxCallers || s.x.Dropped != 10 {
		t.Errorf("%d callers are kept and %d counted", len(s.x.Callers), s.x.Dropped)
	}
	last := fmt.Sprint(execution.MaxCallers + 10)
	s.then(authorized, dispatched(1), observed, execution.Event{Kind: execution.KindDelivered, Call: last, Evidence: "drained"}).is(execution.Delivered)
}

func TestWhatWasAskedAndAnsweredIsKeptAndDecidesNothing(t *testing.T) {
	s := begin(t, execution.StatusQuery).then(authorized, dispatched(1), unknown)
	for i := range execution.MaxChecks + 3 {
		s.then(execution.Event{
			Kind: execution.KindInconclusive, Source: execution.FromQuery, Finding: execution.FoundDone, By: "daemon", Evidence: fmt.Sprintf("answer %d", i), Reason: "r", Times: i,
		}).is(execution.Unknown)
	}
	if n := len(s.x.Checks); n != execution.MaxChecks || s.x.Checks[0].Evidence != "answer 3" {
		t.Errorf("%d checks are kept, the first is %+v", n, s.x.Checks[0])
	}
	before := s.x
	s.then(execution.Event{Kind: execution.KindNotDone, Source: execution.FromQuery, Finding: execution.FoundNotDone, By: "operator"}).is(execution.NotDone)
	if last := s.x.LastCheck(); last.Finding != execution.FoundNotDone || last.By != "operator" || !last.At.Equal(s.x.ChangedAt) {
		t.Errorf("the last check is %+v", last)
	}
	if before.Checks[0].Evidence != "answer 3" || before.LastCheck().Evidence != fmt.Sprintf("answer %d", execution.MaxChecks+2) {
		t.Error("Apply changed the checks of its argument")
	}
	if x := s.then(pruned).x; len(x.Checks) > 0 || x.LastCheck() != (execution.Check{}) {
		t.Errorf("the tombstone still holds %+v", x.Checks)
	}
}

func TestATombstoneKeepsWhatRecognizesARepeat(t *testing.T) {
	before := begin(t, execution.Irreversible).then(authorized, dispatched(1), observed, delivered)
	kept := before.x.Acceptance
	x := before.then(pruned).x
	if x.Acceptance != kept || x.ID != id || x.State != execution.Delivered || !x.Pruned {
		t.Errorf("the tombstone is %+v", x)
	}
	if x.Result != "" || len(x.Callers)+len(x.Attempts) > 0 {
		t.Errorf("the tombstone still holds %+v", x)
	}
}

func TestAnErrorNamesTheExecutionItsStateAndTheEvent(t *testing.T) {
	s := begin(t, execution.StatusQuery).then(authorized, dispatched(1), unknown)
	ev := dispatched(2)
	ev.ID = id
	_, err := execution.Apply(s.x, ev)
	for _, part := range []string{id, "unknown", "dispatched", "status_query"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
}

func TestWhatTheTargetTookIsAwaitedUntilItTells(t *testing.T) {
	s := begin(t, execution.StatusQuery).then(authorized, dispatched(1))
	if s.x.Awaits() {
		t.Error("nobody has answered yet")
	}
	s.then(awaited, noProof, attached).is(execution.Dispatched)
	last := s.x.LastAttempt()
	if !s.x.Awaits() || last.AwaitedSince.IsZero() || last.AskAfter != time.Minute || !last.EndedAt.IsZero() || s.x.TargetStatus != 202 || len(s.x.Checks) != 0 {
		t.Errorf("it is %+v", s.x)
	}
	s.then(asked).is(execution.NotDelivered)
	if last = s.x.LastAttempt(); s.x.Awaits() || last.Outcome != execution.Success || last.EndedAt.IsZero() || s.x.TargetStatus != 200 || s.x.Source != execution.FromQuery {
		t.Errorf("it ended as %+v", s.x)
	}
}
