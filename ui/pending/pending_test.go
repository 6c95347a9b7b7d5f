package pending_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
	"singlepass.dev/ui/pending"
)

type daemon struct{ asked []string }

func (d *daemon) Answer(_ context.Context, card string, in api.CardAnswer) error {
	d.asked = append(d.asked, card+" "+in.Answer)
	return nil
}
func (*daemon) Check(context.Context, string) (api.Checked, error) { return api.Checked{}, nil }
func (*daemon) Settle(context.Context, string, api.Verdict) (api.Record, error) {
	return api.Record{}, nil
}
func (*daemon) Payload(context.Context, string) (api.Payload, error) { return api.Payload{}, nil }

type rig struct {
	*pending.View
	daemon   *daemon
	clock    *looktest.Clock
	window   fyne.Window
	answered []string
	seen     []string
}

func show(t testing.TB, s pending.State) *rig {
	t.Helper()
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	r := &rig{daemon: &daemon{}, clock: looktest.NewClock()}
	v, err := pending.New(pending.Config{
		Daemon: r.daemon, Now: r.clock.Now, After: r.clock.After, Go: func(f func()) { f() },
		Answered: func(id string) { r.answered = append(r.answered, id) }, Seen: func(id string) { r.seen = append(r.seen, id) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.View, r.window = v, looktest.Window(t, v, 1100, 720)
	v.Update(s)
	return r
}

func (r *rig) says(t *testing.T, texts ...string) {
	t.Helper()
	shown := strings.Join(looktest.Texts(r.View), "\n")
	for _, s := range texts {
		if !strings.Contains(shown, s) {
			t.Errorf("it does not say %q but\n%s", s, shown)
		}
	}
}

func cards(n int) []api.Card {
	list := make([]api.Card, n)
	for i := range list {
		c := looktest.Card()
		c.Card, c.ExecutionID, c.Tool = fmt.Sprintf("card_%d", i), fmt.Sprintf("act_%d", i), fmt.Sprintf("tool_%d", i)
		c.Run, c.Agent.PID = fmt.Sprintf("run_%d", i%3), 4000+i%3
		list[i] = c
	}
	return list
}

func TestNothingWaiting(t *testing.T) {
	r := show(t, pending.State{})
	r.says(t, "Nothing waits for you")
	looktest.Markup(t, r.window, "empty")
}

func TestOneCardHasTheWholeWindow(t *testing.T) {
	r := show(t, pending.State{Cards: cards(1)})
	if r.Chosen() != "card_0" {
		t.Errorf("%q is looked at", r.Chosen())
	}
	r.says(t, "claude wants to run tool_0")
	looktest.Markup(t, r.window, "one")
}

func TestCardsAreGroupedByProcessAndAnsweredSingly(t *testing.T) {
	r := show(t, pending.State{Cards: cards(5)})
	r.says(t, "claude  pid 4000", "2 wait", "claude  pid 4002", "1 waits")
	for _, b := range looktest.Buttons(r.View) {
		if strings.Contains(strings.ToLower(b.Text), "all ") || strings.HasSuffix(strings.ToLower(b.Text), " all") {
			t.Errorf("%q answers several", b.Text)
		}
	}
	if !r.Choose("card_4") {
		t.Fatal("card_4 is not there")
	}
	r.clock.Pass(look.ArmingDelay)
	for _, b := range looktest.Buttons(r.View) {
		if b.Text == "Allow once" {
			test.Tap(b)
		}
	}
	if !slices.Equal(r.daemon.asked, []string{"card_4 once"}) || !slices.Equal(r.answered, []string{"card_4"}) {
		t.Errorf("asked %v, told %v", r.daemon.asked, r.answered)
	}
}

func TestANewCardNeverTakesThePlaceOfTheOneThatIsLookedAt(t *testing.T) {
	list := cards(3)
	r := show(t, pending.State{Cards: list[1:2]})
	r.clock.Pass(look.ArmingDelay)
	r.Update(pending.State{Cards: []api.Card{list[0], list[1], list[2]}})
	if r.Chosen() != "card_1" {
		t.Errorf("%s took the place", r.Chosen())
	}
	for _, b := range looktest.Buttons(r.View) {
		if b.Text == "Allow once" && b.Disabled() {
			t.Error("a new card disarmed the one that is looked at")
		}
	}
}

func TestTheNextCardIsNotArmedWhenTheOneBeforeIsGone(t *testing.T) {
	list := cards(2)
	r := show(t, pending.State{Cards: list})
	r.clock.Pass(look.ArmingDelay)
	r.Update(pending.State{Cards: list[1:]})
	if r.Chosen() != "card_1" {
		t.Fatalf("%q is looked at", r.Chosen())
	}
	for _, b := range looktest.Buttons(r.View) {
		if strings.HasPrefix(b.Text, "Allow") && !b.Disabled() {
			t.Errorf("%q can be clicked through", b.Text)
		}
	}
}

func TestACardAnsweredElsewhereSaysSoWhereItStoodAndGoes(t *testing.T) {
	list := cards(2)
	r := show(t, pending.State{Cards: list})
	gone := api.CardEvent{Event: "answered", Card: list[0], By: "operator", Note: "deny"}
	r.Update(pending.State{Cards: list[1:], Gone: []api.CardEvent{gone}})
	r.says(t, "Denied by you.", "Over")
	if r.Chosen() != "card_0" {
		t.Errorf("%s took the place at once", r.Chosen())
	}
	r.Update(pending.State{Cards: list[1:]})
	if r.Chosen() != "card_1" {
		t.Errorf("%q is looked at", r.Chosen())
	}
}

func TestARepeatShowsTheRecordOfTheFirstInPlaceOfACard(t *testing.T) {
	c := looktest.Card()
	first := looktest.Record("completed_result_delivered", 1)
	c.Question, c.ExecutionID, c.Original, c.Answers = "again", "act_X", &first, []string{"once", "recorded", "deny"}
	r := show(t, pending.State{Cards: []api.Card{c}})
	r.says(t, "It already happened, at 13:52:39, and the agent has the result.", "Run it again…")
	for _, b := range looktest.Buttons(r.View) {
		if strings.HasPrefix(b.Text, "Allow") {
			t.Errorf("a bare %q is offered", b.Text)
		}
	}
}

func TestWhatNobodyKnowsWaitsBesideTheCardsOnce(t *testing.T) {
	unknown := looktest.Record("unknown", 2)
	r := show(t, pending.State{Cards: cards(1), Open: []api.Record{unknown}, Again: []api.Record{unknown}})
	r.says(t, "Outcome unknown")
	if !r.Choose(unknown.ExecutionID) {
		t.Fatal("it is not there")
	}
	r.says(t, "Nobody knows whether it happened.")
	if n := strings.Count(strings.Join(looktest.Texts(r.View), "\n"), "Outcome unknown"); n != 1 {
		t.Errorf("it is listed %d times", n)
	}
	if len(r.seen) > 0 {
		t.Error("what is not settled was taken off")
	}
}

func TestTwoHundredCards(t *testing.T) {
	list := cards(200)
	r := show(t, pending.State{Cards: list})
	began := time.Now()
	for i := range 20 {
		r.Update(pending.State{Cards: list[i:]})
	}
	t.Logf("20 updates of 200 cards took %v", time.Since(began))
	if !r.Choose("card_199") {
		t.Fatal("the last one cannot be reached")
	}
	if rows := len(all(r)); rows > 60 {
		t.Errorf("%d rows exist at once", rows)
	}
	looktest.Markup(t, r.window, "two-hundred")
}

func all(r *rig) []fyne.CanvasObject {
	var rows []fyne.CanvasObject
	for _, o := range test.LaidOutObjects(r.View) {
		if strings.Contains(fmt.Sprintf("%T", o), "pending.line") {
			rows = append(rows, o)
		}
	}
	return rows
}

func TestTheListIsReachedByTheKeyboard(t *testing.T) {
	r := show(t, pending.State{Cards: cards(4)})
	c := r.window.Canvas()
	c.FocusNext()
	list, ok := c.Focused().(*widget.List)
	if !ok {
		t.Fatalf("Tab reaches %T first", c.Focused())
	}
	for range 2 {
		list.TypedKey(&fyne.KeyEvent{Name: fyne.KeyDown})
	}
	list.TypedKey(&fyne.KeyEvent{Name: fyne.KeySpace})
	if r.Chosen() == "card_0" {
		t.Error("the keys do not choose")
	}
	list.TypedKey(&fyne.KeyEvent{Name: fyne.KeyEscape})
	if len(r.daemon.asked) > 0 {
		t.Errorf("a key in the list answered %v", r.daemon.asked)
	}
}

func TestPictureOfMany(t *testing.T) {
	for name, variant := range map[string]fyne.ThemeVariant{"light": theme.VariantLight, "dark": theme.VariantDark} {
		list := cards(6)
		first := looktest.Record("completed_result_delivered", 1)
		list[1].Original, list[1].Question, list[1].Answers = &first, "again", []string{"once", "recorded", "deny"}
		list[2].Question = "per_use"
		r := show(t, pending.State{})
		fyne.CurrentApp().Settings().SetTheme(looktest.Theme(variant))
		r.Update(pending.State{Cards: list, Open: []api.Record{looktest.Record("unknown", 2)}})
		r.Choose("card_1")
		r.clock.Pass(look.ArmingDelay)
		looktest.Picture(t, r.View, 1100, 720, 1, name)
	}
}
