package ui_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/driver/desktop"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/ui"
	"singlepass.dev/ui/looktest"
	"singlepass.dev/ui/watch"
	"singlepass.dev/vault/secret"
)

// operator is a daemon that has nothing, and notes what it was asked.
type operator struct{ asked chan string }

var errNothing = errors.New("nothing is here")

func (o operator) note(what string) { o.asked <- what }

func (o operator) Init(context.Context, api.InitRequest) (api.InitAnswer, error) {
	return api.InitAnswer{}, errNothing
}

func (o operator) Unlock(_ context.Context, in api.UnlockRequest) (api.Status, error) {
	o.note("unlock with " + string(in.Passphrase))
	return api.Status{Vault: "unlocked"}, nil
}
func (o operator) EarnTicket(context.Context, *secret.Bytes) error { return nil }

func (o operator) Lock(context.Context) (api.Status, error) {
	o.note("lock")
	return api.Status{Vault: "locked"}, nil
}
func (o operator) Answer(context.Context, string, api.CardAnswer) error { return nil }
func (o operator) Check(context.Context, string) (api.Checked, error) {
	return api.Checked{}, errNothing
}

func (o operator) Settle(context.Context, string, api.Verdict) (api.Record, error) {
	return api.Record{}, errNothing
}

func (o operator) Payload(context.Context, string) (api.Payload, error) {
	return api.Payload{}, errNothing
}

func (o operator) Activity(context.Context, client.Query) ([]api.Record, error) {
	o.note("activity")
	return nil, nil
}

func (o operator) Sessions(context.Context) ([]api.Session, error) {
	o.note("sessions")
	return nil, nil
}
func (o operator) RevokeSession(context.Context, string) error                { return nil }
func (o operator) Grants(context.Context) ([]api.Grant, error)                { return nil, nil }
func (o operator) RevokeGrant(context.Context, string) error                  { return nil }
func (o operator) Credentials(context.Context) ([]api.Credential, error)      { return nil, nil }
func (o operator) AddCredential(context.Context, api.CredentialRequest) error { return nil }
func (o operator) RemoveCredential(context.Context, string) error             { return nil }
func (o operator) RotateCredential(context.Context, string, []byte) error     { return nil }
func (o operator) AcceptQuarantine(context.Context, string) error             { return nil }
func (o operator) Settings(context.Context) ([]api.Setting, error)            { return nil, nil }
func (o operator) ChangeSetting(context.Context, string, *string) (api.Setting, error) {
	return api.Setting{}, errNothing
}

func (o operator) ChangeCredential(context.Context, string, api.CredentialChange) error { return nil }

func (o operator) Actions(context.Context) ([]api.Action, error) {
	o.note("actions")
	return nil, nil
}

func (o operator) AcceptAction(context.Context, api.ActionRequest) (api.Action, error) {
	return api.Action{}, errNothing
}

func (o operator) Upstreams(context.Context) ([]api.Upstream, error) { return nil, nil }
func (o operator) UpstreamTools(context.Context, string) ([]api.UpstreamTool, error) {
	return nil, errNothing
}

func (o operator) AcceptUpstreamTool(context.Context, string, api.UpstreamAccept) (api.UpstreamTool, error) {
	return api.UpstreamTool{}, errNothing
}

func (o operator) AddUpstream(context.Context, api.UpstreamRequest) (api.Upstream, error) {
	return api.Upstream{}, errNothing
}
func (o operator) RemoveUpstream(context.Context, string) error { return nil }
func (o operator) RemoveAction(context.Context, string) error   { return nil }

type follower struct{}

func (follower) Nudge()                       {}
func (follower) Answering(string) func()      { return func() {} }
func (follower) Seen(context.Context, string) {}

type room struct {
	*ui.Frame
	t      *testing.T
	window fyne.Window
	asked  chan string
	ended  []string
}

func furnish(t *testing.T) *room {
	t.Helper()
	looktest.Start(t, theme.VariantDark, "en_US.UTF-8")
	r := &room{t: t, window: test.NewWindow(nil), asked: make(chan string, 16)}
	t.Cleanup(r.window.Close)
	r.window.Resize(fyne.NewSize(1040, 720))
	var err error
	r.Frame, err = ui.New(ui.Config{
		Window: r.window, Operator: operator{r.asked}, Watch: follower{}, Now: looktest.NewClock().Now, Context: t.Context(),
		Go:    func(f func()) { f() },
		Close: func() { r.ended = append(r.ended, "close") }, Quit: func() { r.ended = append(r.ended, "quit") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shows says what is to be read in the window, without its line breaks.
func (r *room) shows() string {
	return strings.Join(strings.Fields(strings.Join(looktest.Texts(r.window.Content()), " ")), " ")
}

func (r *room) wants(texts ...string) {
	r.t.Helper()
	shown := r.shows()
	for _, s := range texts {
		if !strings.Contains(shown, s) {
			r.t.Errorf("%q is not to be read in:\n%s", s, shown)
		}
	}
}

// press presses a key together with Ctrl, as the window does where no field has the keyboard.
func (r *room) press(k fyne.KeyName) {
	r.window.Canvas().(interface{ TypedShortcut(fyne.Shortcut) }).TypedShortcut(&desktop.CustomShortcut{KeyName: k, Modifier: fyne.KeyModifierControl})
}

func (r *room) next() string {
	r.t.Helper()
	select {
	case s := <-r.asked:
		return s
	case <-time.After(20 * time.Second):
		r.t.Fatal("nothing was asked")
		return ""
	}
}

func state(events ...watch.Event) watch.State {
	s := watch.State{Link: watch.Starting}
	for _, e := range events {
		s = watch.Apply(s, e)
	}
	return s
}

func is(st api.Status) watch.Event { return watch.StatusKnown{Status: st} }

func TestWhateverIsWrongIsSaidOnEveryPageWithWhatToDo(t *testing.T) {
	r := furnish(t)
	for _, c := range []struct {
		name   string
		state  watch.State
		hosted bool
		texts  []string
	}{
		{"starting", state(), true, []string{"Looking for the daemon"}},
		{"no daemon", state(watch.LinkLost{Link: watch.Down}), true, []string{"The daemon is not running", "systemctl --user start singlepass", "No daemon"}},
		{"a stranger", state(watch.LinkLost{Link: watch.Stranger, Problem: "pid 7 is not spd", Hint: "find out what listens"}), true, []string{"Do not type your passphrase: pid 7 is not spd", "find out what listens"}},
		{"trouble", state(watch.LinkLost{Link: watch.Trouble, Problem: "strange answer"}), true, []string{"does not answer as it should: strange answer"}},
		{"locked", state(is(api.Status{Vault: "locked"})), true, []string{"The vault is locked", "Locked"}},
		{"no vault", state(is(api.Status{Vault: "uninitialized"})), true, []string{"No vault yet"}},
		{"not proven", state(is(api.Status{Vault: "unlocked", Pending: 2})), true, []string{"2 requests wait"}},
		{
			"quarantine", state(is(api.Status{Vault: "unlocked", Journal: "quarantine", Problem: "entry 4 was changed"}), watch.ProofChanged{Proven: true}), true,
			[]string{"The journal does not verify: entry 4 was changed", "spctl audit accept", "Journal in quarantine"},
		},
		{"no journal", state(is(api.Status{Vault: "unlocked", Journal: "unavailable", Problem: "disk full"}), watch.ProofChanged{Proven: true}), true, []string{"cannot be written: disk full"}},
		{"changed contracts", state(is(api.Status{Vault: "unlocked", Changed: 2}), watch.ProofChanged{Proven: true}), true, []string{"2 contract files are new or were changed"}},
		{"no tray", state(is(api.Status{Vault: "unlocked"}), watch.ProofChanged{Proven: true}), false, []string{"shows no tray icons", "Unlocked", "Nothing waits for you"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			r.SetState(c.state, c.hosted)
			r.wants(c.texts...)
		})
	}
}

func TestEveryPageIsReadWhenItIsShownAndAgainWhenItChanged(t *testing.T) {
	r := furnish(t)
	r.SetState(state(is(api.Status{Vault: "unlocked"}), watch.ProofChanged{Proven: true}), true)
	for i, want := range map[fyne.KeyName]string{fyne.Key2: "activity", fyne.Key3: "sessions", fyne.Key5: "actions"} {
		r.press(i)
		if got := r.next(); got != want {
			t.Errorf("key %s reads %s, want %s", i, got, want)
		}
		for len(r.asked) > 0 {
			<-r.asked // the chart of the day is a second question
		}
	}
	r.Show(ui.Sessions, "")
	r.next()
	r.SetState(state(is(api.Status{Vault: "unlocked", Sessions: 1}), watch.ProofChanged{Proven: true}), true)
	if got := r.next(); got != "sessions" {
		t.Errorf("one session more reads %s", got)
	}
	r.SetState(state(is(api.Status{Vault: "unlocked", Sessions: 1, Grants: 1}), watch.ProofChanged{Proven: true}), true)
	if got := r.next(); got != "sessions" {
		t.Errorf("one standing grant more reads %s", got)
	}
}

func TestNothingIsReadBeforeThePersonHasProvenPresence(t *testing.T) {
	r := furnish(t)
	r.SetState(state(is(api.Status{Vault: "unlocked"})), true)
	for _, p := range []ui.Page{ui.Activity, ui.Sessions, ui.Actions, ui.Pending} {
		r.Show(p, "")
	}
	if len(r.asked) > 0 {
		t.Errorf("%s was read", <-r.asked)
	}
}

func TestALockedVaultSaysThatItRefusedAgents(t *testing.T) {
	r := furnish(t)
	r.SetState(state(is(api.Status{Vault: "locked", LockedCalls: &api.LockedCalls{Calls: 3, Last: looktest.Now}})), true)
	r.wants("Agents called 3 times and were refused, the last time at 14:02, because the vault is locked.")
	r.SetState(state(is(api.Status{Vault: "locked"})), true)
	if shown := strings.Join(looktest.Texts(r.window.Content()), "\n"); strings.Contains(shown, "were refused, the last") {
		t.Errorf("it says %s", shown)
	}
}

func TestTheKeysOfTheFrame(t *testing.T) {
	r := furnish(t)
	r.press(fyne.KeyL)
	r.SetState(state(is(api.Status{Vault: "unlocked"}), watch.ProofChanged{Proven: true}), true)
	r.press(fyne.KeyL)
	if got := r.next(); got != "lock" {
		t.Errorf("Ctrl+L does %s", got)
	}
	if len(r.asked) > 0 {
		t.Error("Ctrl+L locked what was locked")
	}
	r.press(fyne.KeyW)
	r.press(fyne.KeyQ)
	if fmt.Sprint(r.ended) != "[close quit]" {
		t.Errorf("got %v", r.ended)
	}
}

func TestTheWindowHasRoomForEverythingOnASmallScreen(t *testing.T) {
	r := furnish(t)
	s := state(is(api.Status{Vault: "unlocked", Changed: 1}), watch.ProofChanged{Proven: true})
	for i := range 200 {
		c := looktest.Card()
		c.Card = fmt.Sprintf("card_%03d", i)
		s = watch.Apply(s, watch.CardSaid{Event: api.CardEvent{Event: "waiting", Card: c}})
	}
	r.SetState(s, false)
	r.wants("200 requests wait", "Waiting (200)")
	if m := r.window.Content().MinSize(); m.Width > 800 || m.Height > 600 {
		t.Errorf("the window needs %v", m)
	}
}
