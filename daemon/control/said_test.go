package control_test

import (
	"slices"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/control/controltest"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/peer"
)

func TestEveryStepOfARecordHasACodeForOtherLanguages(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	seen := map[api.Sentence]bool{}
	for _, state := range execution.States() {
		for _, outcome := range []execution.Outcome{"", execution.Success} {
			x := controltest.Unknown(1, at)
			x.State, x.Outcome, x.ChangedAt, x.CompletedAt, x.DeliveredAt, x.Source = state, outcome, at.Add(time.Minute), at.Add(time.Minute), at.Add(time.Minute), execution.FromMarker
			x.Callers = append(x.Callers, execution.Caller{At: at.Add(time.Second)}, execution.Caller{At: at.Add(2 * time.Second)})
			x.Attempts = append(x.Attempts, execution.Attempt{Number: 2, DispatchedAt: at, AwaitedSince: at, EndedAt: at}, execution.Attempt{Number: 3, DispatchedAt: at, EndedAt: at, Outcome: execution.NothingSent})
			x.Checks = append(x.Checks, execution.Check{At: at, Finding: execution.FoundRunning, Times: 3})
			for _, code := range []string{"", string(api.RecordedInstead)} {
				x.Code = code
				for _, s := range control.Record(x).Timeline {
					if !slices.Contains(api.Sentences(), s.Said.Code) {
						t.Errorf("%s: the step %q has the code %q", state, s.Text, s.Said.Code)
					}
					seen[s.Said.Code] = true
				}
			}
		}
	}
	for _, code := range api.Sentences() {
		if string(code)[:5] == "step_" && !seen[code] {
			t.Errorf("no step has the code %s", code)
		}
	}
}

func TestACardSaysHowWellItsProgramIsKnownByACode(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for level, want := range map[peer.Assurance]api.Assurance{
		peer.SystemOwned: api.AssuranceSystem, peer.UserOwned: api.AssuranceFirst, peer.Unchanged: api.AssuranceUnchanged, peer.Changed: api.AssuranceChanged, peer.CannotTell: api.AssuranceCannotTell,
		"": api.AssuranceCannotTell,
	} {
		v := controltest.Card("card_1", approval.AskUse, controltest.Accepted(1, at), at)
		v.Peer.Assurance = level
		if got := control.Card(v); got.Level != want || got.Assurance != string(level) {
			t.Errorf("%q is %q", level, got.Level)
		}
		if got := control.Session(control.SessionView{Peer: v.Peer}); got.Level != want {
			t.Errorf("of a session %q is %q", level, got.Level)
		}
	}
}

func TestEveryReasonOfACardHasAPlaceForItsCode(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	v := controltest.Card("card_1", approval.AskUse, controltest.Accepted(1, at), at)
	v.Card.Why = []string{"one", "two"}
	if got := control.Card(v); len(got.WhySaid) != 2 || got.WhySaid[0].Code != "" {
		t.Errorf("got %+v", got.WhySaid)
	}
	v.WhySaid = []api.Said{api.Say(api.WhyNewProcess), api.Say(api.WhyDoneBefore)}
	if got := control.Card(v); got.WhySaid[1].Code != api.WhyDoneBefore {
		t.Errorf("got %+v", got.WhySaid)
	}
}

// Only the target can establish that it did nothing; a person's verdict is called one.
func TestWhatDidNotHappenIsSaidByWhoseWord(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for source, want := range map[execution.Source]string{
		execution.FromQuery:    "sent, and it is established that the target did nothing",
		execution.FromMarker:   "sent, and it is established that the target did nothing",
		execution.FromOperator: "sent, and the target did nothing, by the word of the operator",
	} {
		x := controltest.Unknown(1, at)
		x.State, x.Source = execution.NotDone, source
		if got := control.Record(x).Summary; got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
