package record_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/card"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
	"singlepass.dev/ui/record"
)

// daemon answers what a test says, and remembers what it was asked.
type daemon struct {
	asked   []string
	checked api.Checked
	settled api.Record
	payload api.Payload
	err     error
}

func (d *daemon) Answer(_ context.Context, card string, in api.CardAnswer) error {
	d.asked = append(d.asked, "answer "+card+" "+in.Answer+" "+in.Reason)
	return d.err
}

func (d *daemon) Check(_ context.Context, id string) (api.Checked, error) {
	d.asked = append(d.asked, "check "+id)
	return d.checked, d.err
}

func (d *daemon) Settle(_ context.Context, id string, in api.Verdict) (api.Record, error) {
	word := "not done"
	if in.Done {
		word = "done"
	}
	if in.Against != "" {
		word += " against " + in.Against
	}
	d.asked = append(d.asked, "settle "+id+" "+word+": "+in.Note)
	return d.settled, d.err
}

func (d *daemon) Payload(_ context.Context, id string) (api.Payload, error) {
	d.asked = append(d.asked, "payload "+id)
	return d.payload, d.err
}

type rig struct {
	*record.View
	daemon *daemon
	clock  *looktest.Clock
	window fyne.Window
}

func show(t *testing.T, r api.Record, c *api.Card) *rig {
	t.Helper()
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	g := &rig{daemon: &daemon{}, clock: looktest.NewClock()}
	v, err := record.New(record.Config{Daemon: g.daemon, Now: g.clock.Now, After: g.clock.After, Go: func(f func()) { f() }})
	if err != nil {
		t.Fatal(err)
	}
	g.View, g.window = v, looktest.Window(t, v, 900, 1400)
	v.Update(r, c)
	g.arm()
	return g
}

func (g *rig) arm() { g.clock.Pass(look.ArmingDelay) }

func (g *rig) buttons() []string {
	var list []string
	for _, b := range looktest.Buttons(g.View) {
		list = append(list, b.Text)
	}
	return list
}

func (g *rig) tap(t *testing.T, text string) {
	t.Helper()
	for _, b := range looktest.Buttons(g.View) {
		if b.Text == text {
			test.Tap(b)
			return
		}
	}
	t.Fatalf("there is no button %q among %q", text, g.buttons())
}

func (g *rig) says(t *testing.T, texts ...string) {
	t.Helper()
	shown := strings.Join(looktest.Texts(g.View), "\n")
	for _, s := range texts {
		if !strings.Contains(shown, s) {
			t.Errorf("it does not say %q but\n%s", s, shown)
		}
	}
}

// repeat is the card of a call that repeats a delivered one.
func repeat() *api.Card {
	c := looktest.Card()
	c.Question, c.ExecutionID, c.Answers = "again", "act_01KKQ4V8Z0000000000000000X", []string{"once", "recorded", "deny"}
	return &c
}

func TestNothingEverOffersABareApproval(t *testing.T) {
	for _, state := range states() {
		for _, c := range []*api.Card{nil, repeat()} {
			g := show(t, looktest.Record(state, 2), c)
			for _, text := range g.buttons() {
				if strings.HasPrefix(text, "Allow") || strings.HasPrefix(text, "Approve") || text == "Run it again" {
					t.Errorf("%s offers %q", state, text)
				}
			}
		}
	}
}

func TestACallThatCameAgainIsToldWhatBecameOfTheFirst(t *testing.T) {
	for state, says := range map[string][]string{
		"accepted":                       {"This call came again", "already waits for your answer", "there will be one action"},
		"authorized":                     {"This call came again", "about to be sent", "there will be one action"},
		"dispatched":                     {"This call came again", "Already sent at 13:52:38", "The answer has not come yet", "still under way", "the calls wait for the target's answer"},
		"unknown":                        {"This call came again", "Already sent at 13:52:38. Nobody knows whether it happened.", "No result is known.", "not sent again until somebody finds out"},
		"completed_result_not_delivered": {"This call came again", "It already happened, at 13:52:39. No agent has the result yet.", "the target is not asked again", "It was done.", "Status 201"},
		"completed_result_delivered":     {"This call came again", "It already happened, at 13:52:39, and the agent has the result.", "nothing is sent a second time"},
	} {
		g := show(t, looktest.Record(state, 2), nil)
		g.says(t, append(says, "deploy_release", "https://deploy-api.internal.example/v1/releases", "call 1", "call 2", "request 11 over stdio")...)
	}
}

func TestRunningItAgainTakesADecisionOfItsOwn(t *testing.T) {
	g := show(t, looktest.Record("completed_result_delivered", 1), repeat())
	g.tap(t, "Run it again…")
	g.says(t, "Send it a second time?", "the target acts a second time")
	g.tap(t, "Send a second time") // at the place of the first press, at once
	if len(g.daemon.asked) > 0 {
		t.Fatalf("a double click went through: %v", g.daemon.asked)
	}
	g.arm()
	g.tap(t, "Send a second time")
	if want := []string{"answer " + repeat().Card + " once "}; !slices.Equal(g.daemon.asked, want) {
		t.Errorf("asked %v", g.daemon.asked)
	}
	g.says(t, "Sent a second time, by your decision.")
}

func TestTheRecordedResultIsHandedOutAndNothingIsSent(t *testing.T) {
	g := show(t, looktest.Record("completed_result_delivered", 1), repeat())
	g.tap(t, "Hand out the recorded result")
	if want := []string{"answer " + repeat().Card + " recorded "}; !slices.Equal(g.daemon.asked, want) {
		t.Errorf("asked %v", g.daemon.asked)
	}
	g.says(t, "The recorded result was handed out. Nothing was sent.")
}

func TestARepeatIsDeniedWithAReason(t *testing.T) {
	g := show(t, looktest.Record("completed_result_delivered", 1), repeat())
	test.Type(looktest.Entries(g.View)[0], "once is enough")
	g.tap(t, "Deny")
	if want := []string{"answer " + repeat().Card + " deny once is enough"}; !slices.Equal(g.daemon.asked, want) {
		t.Errorf("asked %v", g.daemon.asked)
	}
}

func TestAnotherProcessIsHandedAResultOnlyByThePersonsWord(t *testing.T) {
	c := looktest.Card()
	c.Question, c.Answers = "session", []string{"once", "session", "recorded", "deny"}
	g := show(t, looktest.Record("completed_result_not_delivered", 1), &c)
	g.says(t, "Another process asks for this result")
	g.tap(t, "Hand out the result")
	if want := []string{"answer " + c.Card + " recorded "}; !slices.Equal(g.daemon.asked, want) {
		t.Errorf("asked %v", g.daemon.asked)
	}
}

func TestAVerdictSaysBeforeWhatItWillCauseAndIsWrittenWithItsNote(t *testing.T) {
	g := show(t, looktest.Record("unknown", 2), nil)
	g.daemon.settled = looktest.Record("not_done", 2)
	g.tap(t, "Decide what happened…")
	g.arm()
	g.tap(t, "Write it down")
	if len(g.daemon.asked) > 0 {
		t.Fatalf("a verdict without a choice: %v", g.daemon.asked)
	}
	verdict := looktest.Radios(g.View)[0]
	verdict.SetSelected("It happened")
	g.says(t, "Your word becomes the result.", "Nothing is sent.")
	verdict.SetSelected("It did not happen")
	g.says(t, "It is closed as not done.", "Nothing is sent now")
	test.Type(looktest.Entries(g.View)[0], "not in its log")
	g.tap(t, "Write it down")
	if want := []string{"settle " + looktest.Record("unknown", 1).ExecutionID + " not done: not in its log"}; !slices.Equal(g.daemon.asked, want) {
		t.Errorf("asked %v", g.daemon.asked)
	}
	g.says(t, "Written to the journal.", "It was sent, and the target did nothing.")
}

// asked is an unknown outcome of which the target said something when it was asked.
func asked(finding string) api.Record {
	r := looktest.Record("unknown", 2)
	r.Class = "status_query"
	r.Checks = []api.Check{{At: looktest.Now.Add(-time.Minute), Finding: finding, Source: "status_query", By: "operator", Evidence: "GET /v1/releases/act_… answered"}}
	return r
}

func (g *rig) decide(t *testing.T, word, note string) {
	t.Helper()
	g.tap(t, "Decide what happened…")
	g.arm()
	looktest.Radios(g.View)[0].SetSelected(word)
	test.Type(looktest.Entries(g.View)[0], note)
	g.tap(t, "Write it down")
}

func TestAWordAgainstTheTargetsTakesAConfirmationOfItsOwn(t *testing.T) {
	for _, c := range []struct{ finding, word, written, says string }{
		{"not_done", "It happened", "done", "it said: “The target did nothing.” Your word is: “It happened”."},
		{"done", "It did not happen", "not done", "it said: “The target did it.” Your word is: “It did not happen”."},
		{"failed", "It did not happen", "not done", "it said: “The target says that it failed.”"},
		{"running", "It did not happen", "not done", "it said: “It is still under way at the target.”"},
	} {
		g := show(t, asked(c.finding), nil)
		g.daemon.settled = looktest.Record("not_done", 2)
		g.decide(t, c.word, "seen there")
		if len(g.daemon.asked) > 0 {
			t.Fatalf("%s: it was written without a word about the target's: %v", c.finding, g.daemon.asked)
		}
		g.says(t, "The target said otherwise", "Asked at 14:01:30, "+c.says)
		g.tap(t, "Let my word stand against it") // at once, as a double click does
		if len(g.daemon.asked) > 0 {
			t.Fatalf("%s: a double click went through: %v", c.finding, g.daemon.asked)
		}
		g.arm()
		g.tap(t, "Let my word stand against it")
		if want := []string{"settle " + looktest.Record("unknown", 1).ExecutionID + " " + c.written + " against " + c.finding + ": seen there"}; !slices.Equal(g.daemon.asked, want) {
			t.Errorf("%s: asked %v", c.finding, g.daemon.asked)
		}
	}
}

// awaits is a call that the target took and is not done with.
func awaits() api.Record {
	r := looktest.Record("dispatched", 2)
	r.Class = "status_query"
	r.Attempts[0].AwaitedSince = r.DispatchedAt.Add(time.Second)
	return r
}

func TestACallThatTheTargetTookCanBeAskedAboutAndSettled(t *testing.T) {
	g := show(t, looktest.Record("dispatched", 2), nil)
	if slices.Contains(g.buttons(), "Decide what happened…") {
		t.Error("a call whose answer is awaited takes a verdict")
	}
	g.Update(awaits(), nil)
	g.arm()
	g.says(t, "The target took it and is not done yet.", "is asked until it is done", "The target took it 9 min ago.")
	g.tap(t, "Ask the target")
	if len(g.daemon.asked) != 1 {
		t.Fatalf("asked %v", g.daemon.asked)
	}
	r := awaits()
	r.Checks = asked("running").Checks
	g.Update(r, nil)
	g.arm()
	g.decide(t, "It did not happen", "it was rolled back")
	g.says(t, "it said: “It is still under way at the target.”")
	g.arm()
	g.tap(t, "Let my word stand against it")
	if len(g.daemon.asked) != 2 || !strings.HasPrefix(g.daemon.asked[1], "settle ") {
		t.Errorf("asked %v", g.daemon.asked)
	}
}

func TestAWordThatTheTargetSharesOrCouldNotSayIsWrittenAtOnce(t *testing.T) {
	for finding, word := range map[string]string{"not_done": "It did not happen", "done": "It happened", "cannot_tell": "It happened"} {
		g := show(t, asked(finding), nil)
		g.decide(t, word, "")
		if len(g.daemon.asked) != 1 {
			t.Errorf("%s, %q: asked %v", finding, word, g.daemon.asked)
		}
	}
}

func TestGoingBackFromAWordAgainstTheTargetsKeepsWhatWasTyped(t *testing.T) {
	g := show(t, asked("not_done"), nil)
	g.decide(t, "It happened", "seen there")
	g.arm()
	g.tap(t, "Back")
	if note, word := looktest.Entries(g.View)[0].Text, looktest.Radios(g.View)[0].Selected; note != "seen there" || word != "It happened" {
		t.Errorf("got %q and %q", note, word)
	}
	if len(g.daemon.asked) > 0 {
		t.Errorf("asked %v", g.daemon.asked)
	}
}

func TestAnotherWordOfTheTargetsIsShownBeforeOneStandsAgainstIt(t *testing.T) {
	g := show(t, asked("done"), nil)
	g.decide(t, "It did not happen", "")
	g.arm()
	g.Update(asked("running"), nil) // it was asked again, from elsewhere
	g.tap(t, "Let my word stand against it")
	if len(g.daemon.asked) > 0 {
		t.Fatalf("asked %v", g.daemon.asked)
	}
	g.says(t, "it said: “It is still under way at the target.”")
	g.Update(asked("cannot_tell"), nil)
	g.arm()
	g.tap(t, "Let my word stand against it")
	if len(g.daemon.asked) > 0 {
		t.Fatalf("asked %v", g.daemon.asked)
	}
	g.arm()
	g.tap(t, "Write it down")
	if len(g.daemon.asked) != 1 {
		t.Errorf("asked %v", g.daemon.asked)
	}
}

func TestARepeatThatGotTheRecordedResultIsNotCalledWithdrawn(t *testing.T) {
	r := looktest.Record("withdrawn", 1)
	r.Code, r.Reason = api.RecordedInstead, "the recorded result of act_1 was handed out instead"
	g := show(t, r, nil)
	g.says(t, "Answered with the recorded result", "Nothing was sent. It was answered with the recorded result of the earlier call.")
	if shown := strings.Join(looktest.Texts(g.View), "\n"); strings.Contains(shown, "Withdrawn") {
		t.Errorf("it says\n%s", shown)
	}
}

func TestTheTargetIsAskedAndItsWordShown(t *testing.T) {
	r := looktest.Record("unknown", 2)
	if slices.Contains(show(t, r, nil).buttons(), "Ask the target") {
		t.Error("a target that cannot be asked is offered to be asked")
	}
	r.Class = "status_query"
	for finding, says := range map[string]string{
		"done": "The target did it.", "not_done": "The target did nothing.", "failed": "The target says that it failed.", "running": "It is still under way at the target.",
		"could_not_determine": "It could not be determined.",
	} {
		g := show(t, r, nil)
		g.daemon.checked = api.Checked{Finding: finding, Text: "404 from /releases", Record: r}
		g.tap(t, "Ask the target")
		g.says(t, says, "404 from /releases")
	}
}

func TestRequestAndResultAreOpenedOnlyWhenAskedFor(t *testing.T) {
	g := show(t, looktest.Record("completed_result_delivered", 1), nil)
	e := looktest.Request()
	g.daemon.payload = api.Payload{Effect: &e, Arguments: []byte(`{"service":"billing"}`), Result: []byte(`{"content":[{"type":"text","text":"released"}]}`)}
	g.tap(t, "Show request and result")
	if want := []string{"payload " + looktest.Record("unknown", 1).ExecutionID}; !slices.Equal(g.daemon.asked, want) {
		t.Errorf("asked %v", g.daemon.asked)
	}
	g.says(t, "‹credential deploy-service›", `"text": "released"`)
}

func TestWhatTheDaemonRefusesIsSaid(t *testing.T) {
	g := show(t, looktest.Record("completed_result_delivered", 1), nil)
	g.daemon.err = api.Errorf(api.CodeVaultLocked, "the vault is locked").WithHint("unlock it first")
	g.tap(t, "Show request and result")
	g.says(t, "The vault is locked.", "Unlock it with your passphrase first.")
}

func TestWhatThePersonBeganStaysAndAChangeOfStateDoesNot(t *testing.T) {
	g := show(t, looktest.Record("unknown", 2), nil)
	g.tap(t, "Decide what happened…")
	g.Update(looktest.Record("unknown", 3), nil)
	if !slices.Contains(g.buttons(), "Write it down") {
		t.Error("another caller took away what the person had begun")
	}
	g.Update(looktest.Record("completed_result_not_delivered", 3), nil)
	if slices.Contains(g.buttons(), "Write it down") {
		t.Error("an outcome that is known takes a verdict")
	}
}

func TestTheFocusLeavesAButtonWhenAnotherRecordTakesThePlace(t *testing.T) {
	g := show(t, looktest.Record("completed_result_delivered", 1), repeat())
	for _, b := range looktest.Buttons(g.View) {
		if b.Text == "Hand out the recorded result" {
			g.window.Canvas().Focus(b)
		}
	}
	next := looktest.Record("unknown", 2)
	next.ExecutionID = "act_2"
	g.Update(next, nil)
	if _, ok := g.window.Canvas().Focused().(*widget.Button); ok {
		t.Error("the focus is on a button")
	}
}

func TestACardAnsweredElsewhereSaysSo(t *testing.T) {
	g := show(t, looktest.Record("completed_result_delivered", 1), repeat())
	e := api.CardEvent{Event: "answered", Card: api.Card{Card: repeat().Card}, By: "operator", Note: "recorded"}
	g.Over(e, card.Farewell(e))
	g.says(t, "The recorded result was handed out by you.")
	if slices.Contains(g.buttons(), "Run it again…") {
		t.Error("it can still be answered")
	}
}
