package card_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/card"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
)

// answers takes the answers of a person, and can refuse them.
type answers struct {
	taken []string
	err   error
}

func (a *answers) Answer(_ context.Context, card string, in api.CardAnswer) error {
	said := card + " " + in.Answer + " " + in.Reason
	if in.Scope != "" || in.Minutes != 0 {
		said += fmt.Sprintf("%s for %d minutes", in.Scope, in.Minutes)
	}
	a.taken = append(a.taken, said)
	return a.err
}

type rig struct {
	*card.View
	answers *answers
	clock   *looktest.Clock
	window  fyne.Window
}

func show(t *testing.T, c api.Card) *rig {
	t.Helper()
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	r := &rig{answers: &answers{}, clock: looktest.NewClock()}
	v, err := card.New(card.Config{Answerer: r.answers, Now: r.clock.Now, After: r.clock.After, Go: func(f func()) { f() }})
	if err != nil {
		t.Fatal(err)
	}
	r.View, r.window = v, looktest.Window(t, v, 860, 720)
	v.Update(c)
	return r
}

func (r *rig) arm() { r.clock.Pass(look.ArmingDelay) }

func (r *rig) button(t *testing.T, text string) *widget.Button {
	t.Helper()
	for _, b := range looktest.Buttons(r.View) {
		if b.Text == text {
			return b
		}
	}
	t.Fatalf("there is no button %q", text)
	return nil
}

func TestACardTakesNoAnswerBeforeItWasInSightForAWhile(t *testing.T) {
	r := show(t, looktest.Card())
	for _, text := range []string{"Deny", "Allow once", "Allow this session"} {
		test.Tap(r.button(t, text))
	}
	if len(r.answers.taken) > 0 {
		t.Fatalf("a click went through: %v", r.answers.taken)
	}
	r.arm()
	test.Tap(r.button(t, "Allow once"))
	if want := []string{looktest.Card().Card + " once "}; !slices.Equal(r.answers.taken, want) {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestACardThatComesIntoSightAgainIsArmedAnew(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	r.Sighted()
	test.Tap(r.button(t, "Allow once"))
	if len(r.answers.taken) > 0 {
		t.Fatalf("a click that was meant for what was there went through: %v", r.answers.taken)
	}
	r.arm()
	test.Tap(r.button(t, "Allow once"))
	if len(r.answers.taken) != 1 {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestOnePressIsOneAnswer(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	once := r.button(t, "Allow once")
	test.Tap(once)
	test.Tap(once)
	if len(r.answers.taken) != 1 {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestTheAgentReadsTheReason(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	test.Type(looktest.Entries(r.View)[0], "use the staging region")
	test.Tap(r.button(t, "Deny"))
	if want := []string{looktest.Card().Card + " deny use the staging region"}; !slices.Equal(r.answers.taken, want) {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestAReasonThatIsTooLongIsNotSent(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	looktest.Entries(r.View)[0].SetText(strings.Repeat("x", 1001))
	test.Tap(r.button(t, "Deny"))
	if len(r.answers.taken) > 0 {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestASessionIsOfferedOnlyWhereTheDecisionIsOne(t *testing.T) {
	c := looktest.Card()
	c.Question, c.Answers = "per_use", []string{"once", "deny"}
	r := show(t, c)
	for _, b := range looktest.Buttons(r.View) {
		if b.Text == "Allow this session" {
			t.Error("a session is offered")
		}
	}
}

func TestASessionCoversTheWholeProcessUnlessItIsNarrowed(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	test.Tap(r.button(t, "Allow this session"))
	if want := []string{looktest.Card().Card + " session "}; !slices.Equal(r.answers.taken, want) {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestASessionIsNarrowedByTheKeyboardAndSaysWhatItMeans(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	choices := looktest.Selects(r.View)
	right := &fyne.KeyEvent{Name: fyne.KeyRight}
	r.window.Canvas().Focus(choices[0])
	for _, want := range []string{"for the same action. It lasts until", "for the same action with the same arguments. It lasts until"} {
		choices[0].TypedKey(right)
		if shown := strings.Join(looktest.Texts(r.View), "\n"); !strings.Contains(shown, want) {
			t.Errorf("it does not say %q but\n%s", want, shown)
		}
	}
	choices[1].TypedKey(right)
	choices[1].TypedKey(right)
	if shown := strings.Join(looktest.Texts(r.View), "\n"); !strings.Contains(shown, "It lasts 15 minutes, or until the process ends if that is sooner. What asks every time still asks.") {
		t.Errorf("it does not say for how long:\n%s", shown)
	}
	r.arm()
	test.Tap(r.button(t, "Allow this session"))
	if want := []string{looktest.Card().Card + " session arguments for 15 minutes"}; !slices.Equal(r.answers.taken, want) {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestTheSecondHalfOfADoubleClickOnAChoiceAnswersNothing(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	looktest.Selects(r.View)[0].SetSelectedIndex(1)
	test.Tap(r.button(t, "Allow this session")) // which lies where the menu was
	if len(r.answers.taken) > 0 {
		t.Fatalf("a click went through: %v", r.answers.taken)
	}
	r.arm()
	test.Tap(r.button(t, "Allow this session"))
	if want := []string{looktest.Card().Card + " session action for 0 minutes"}; !slices.Equal(r.answers.taken, want) {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestWhatWasChosenForOneCardDoesNotCountForTheNext(t *testing.T) {
	r := show(t, looktest.Card())
	looktest.Selects(r.View)[0].SetSelectedIndex(2)
	looktest.Selects(r.View)[1].SetSelectedIndex(1)
	r.window.Canvas().Focus(looktest.Selects(r.View)[0])
	next := looktest.Card()
	next.Card, next.Fingerprint = "card_2", "hmac-sha256:6b"
	r.Update(next)
	if f := r.window.Canvas().Focused(); f != nil {
		t.Errorf("the focus is on %T", f)
	}
	r.arm()
	test.Tap(r.button(t, "Allow this session"))
	if want := []string{"card_2 session "}; !slices.Equal(r.answers.taken, want) {
		t.Errorf("got %v", r.answers.taken)
	}
}

func TestTheKeyboardReachesEveryAnswerAndStartsOnNone(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	c := r.window.Canvas()
	if c.Focused() != nil {
		t.Fatalf("the focus starts on %T", c.Focused())
	}
	var order []string
	for range 12 {
		c.FocusNext()
		name := ""
		switch f := c.Focused().(type) {
		case *widget.Button:
			name = f.Text
		case *widget.Select:
			name = f.Selected
		}
		if name != "" && !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	if want := []string{"As sent", "whatever this process asks for", "until the process ends", "Deny", "Allow once", "Allow this session"}; !slices.Equal(order, want) {
		t.Errorf("Tab goes through %v", order)
	}
}

func TestEscapeAnswersNothingWhereverTheFocusIs(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	c := r.window.Canvas()
	for range 8 {
		c.FocusNext()
		if f := c.Focused(); f != nil {
			f.TypedKey(&fyne.KeyEvent{Name: fyne.KeyEscape})
		}
		if f := c.OnTypedKey(); f != nil {
			f(&fyne.KeyEvent{Name: fyne.KeyEscape})
		}
	}
	if len(r.answers.taken) > 0 {
		t.Errorf("Esc answered %v", r.answers.taken)
	}
}

func TestTheFocusLeavesAnAllowingButtonWhenAnotherCardTakesThePlace(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	r.window.Canvas().Focus(r.button(t, "Allow once"))
	next := looktest.Card()
	next.Card, next.Fingerprint = "card_2", "hmac-sha256:6b"
	r.Update(next)
	r.arm()
	if f := r.window.Canvas().Focused(); f != nil {
		t.Errorf("the focus is on %T", f)
	}
}

func TestAnotherCallerDoesNotDisarmAndOtherWordsDo(t *testing.T) {
	c := looktest.Card()
	r := show(t, c)
	r.arm()
	test.Type(looktest.Entries(r.View)[0], "no")
	again := looktest.Record("accepted", 2)
	c.Record, c.Retry = &again, "2 calls belong to this execution"
	r.Update(c)
	if r.button(t, "Allow once").Disabled() || looktest.Entries(r.View)[0].Text != "no" {
		t.Error("another caller took away what the person had begun")
	}
	c.Fingerprint = "hmac-sha256:other"
	r.Update(c)
	if !r.button(t, "Allow once").Disabled() {
		t.Error("the button stayed while what it allows changed")
	}
}

func TestWhatTheDaemonRefusesIsSaidAndCanBeTriedAgain(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	r.answers.err = api.Errorf(api.CodeInternal, "the journal cannot be written").WithHint("look at the disk")
	test.Tap(r.button(t, "Allow once"))
	shown := test.RenderToMarkup(r.window.Canvas())
	if !strings.Contains(shown, "the journal cannot be written") || !strings.Contains(shown, "look at the disk") {
		t.Error("the error is not shown")
	}
	r.answers.err = nil
	test.Tap(r.button(t, "Allow once"))
	if len(r.answers.taken) != 2 {
		t.Errorf("got %v", r.answers.taken)
	}
	r.answers.err = errors.New("too late")
	test.Tap(r.button(t, "As sent"))
	if len(r.answers.taken) != 2 {
		t.Error("an answered card took another answer")
	}
}

func TestACardThatWasAnsweredElsewhereSaysByWhomAndTakesNoAnswer(t *testing.T) {
	r := show(t, looktest.Card())
	r.arm()
	once := r.button(t, "Allow once")
	r.Over(api.CardEvent{Event: "answered", Card: api.Card{Card: looktest.Card().Card}, By: "uid 1000 by ticket", Note: "deny"})
	test.Tap(once)
	if len(r.answers.taken) > 0 {
		t.Errorf("got %v", r.answers.taken)
	}
	if shown := test.RenderToMarkup(r.window.Canvas()); !strings.Contains(shown, "Denied uid 1000 by ticket") {
		t.Error("it does not say by whom")
	}
}

func TestTimeRunsOutAndAClockThatWasSetBackGivesNone(t *testing.T) {
	r := show(t, looktest.Card())
	r.clock.Pass(9 * 60e9)
	r.Tick()
	if shown := test.RenderToMarkup(r.window.Canvas()); !strings.Contains(shown, "0:40 left") {
		t.Error("the time that is left is not shown")
	}
	r.clock.Pass(-24 * 3600e9)
	r.Tick()
	if shown := test.RenderToMarkup(r.window.Canvas()); !strings.Contains(shown, "10:00 left") {
		t.Error("a clock that was set back gives more time than there was")
	}
}
