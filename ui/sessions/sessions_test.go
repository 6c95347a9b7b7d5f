package sessions_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/looktest"
	"singlepass.dev/ui/sessions"
)

type daemon struct {
	list    []api.Session
	grants  []api.Grant
	revoked []string
	err     error
}

func (d *daemon) Grants(context.Context) ([]api.Grant, error) { return d.grants, d.err }

func (d *daemon) RevokeGrant(_ context.Context, grant string) error {
	d.revoked = append(d.revoked, grant)
	if d.err == nil {
		d.grants = slices.DeleteFunc(d.grants, func(g api.Grant) bool { return g.Grant == grant })
		d.list = slices.DeleteFunc(d.list, func(s api.Session) bool { return s.Grant == grant })
	}
	return d.err
}

func (d *daemon) Sessions(context.Context) ([]api.Session, error) { return d.list, d.err }
func (d *daemon) RevokeSession(_ context.Context, run string) error {
	d.revoked = append(d.revoked, run)
	return d.err
}

func two() []api.Session {
	return []api.Session{
		{
			Run: "run_1", Actor: "exe:/usr/bin/claude", By: "operator", At: looktest.Now.Add(-2 * time.Hour), Agent: api.Process{PID: 4242, Exe: "/usr/bin/claude"},
			Assurance: "installed by the system and not writable by you", Level: api.AssuranceSystem, Calls: 17,
		},
		{
			Run: "run_2", Actor: "script:/home/a/bin/agent.py", By: "operator", At: looktest.Now.Add(-3 * time.Minute), Agent: api.Process{PID: 5001, Exe: "/usr/bin/python3", Script: "/home/a/bin/agent.py"},
			Assurance: "yours, and unchanged since it was first seen", Level: api.AssuranceUnchanged, Suspended: true, Calls: 1, Scope: "run", Card: "card_1",
		},
		{
			Run: "run_2", Actor: "script:/home/a/bin/agent.py", By: "operator", At: looktest.Now.Add(-4 * time.Minute), Agent: api.Process{PID: 5001, Exe: "/usr/bin/python3", Script: "/home/a/bin/agent.py"},
			Assurance: "yours, and unchanged since it was first seen", Level: api.AssuranceUnchanged, Calls: 1, Scope: "arguments", Tool: "deploy_release", Card: "card_2", Until: looktest.Now.Add(11 * time.Minute),
		},
	}
}

func show(t *testing.T, d *daemon, v fyne.ThemeVariant) (*sessions.View, fyne.Window) {
	t.Helper()
	looktest.Start(t, v, "en_US.UTF-8")
	view, err := sessions.New(sessions.Config{Daemon: d, Now: looktest.NewClock().Now, Go: func(f func()) { f() }})
	if err != nil {
		t.Fatal(err)
	}
	w := looktest.Window(t, view, 900, 640)
	view.Load()
	return view, w
}

func TestSessionsSayWhoMayActSinceWhenAndHowOften(t *testing.T) {
	v, w := show(t, &daemon{list: two()}, theme.VariantLight)
	v.Seen("run_1", looktest.Now.Add(-5*time.Second))
	v.Update(two())
	shown := strings.Join(looktest.Texts(v), "\n")
	for _, s := range []string{"claude  pid 4242", "agent.py  pid 5001", "17 calls", "last at 14:02:25 (5.0 s ago)", "12:02:30 (2 h ago)", "Suspended while the vault is locked.", "/usr/bin/python3 /home/a/bin/agent.py"} {
		if !strings.Contains(shown, s) {
			t.Errorf("it does not say %q:\n%s", s, shown)
		}
	}
	looktest.Markup(t, w, "two")
}

func TestOnePressEndsOneSession(t *testing.T) {
	d := &daemon{list: two()}
	v, _ := show(t, d, theme.VariantLight)
	test.Tap(looktest.Buttons(v)[2]) // the oldest one, from before sessions named their cards
	if len(d.revoked) != 1 || d.revoked[0] != "run_1" {
		t.Errorf("revoked %v", d.revoked)
	}
	if strings.Contains(strings.Join(looktest.Texts(v), "\n"), "claude  pid 4242") {
		t.Error("it is still there")
	}
}

func TestOneOfTwoSessionsOfAProcessIsEndedAlone(t *testing.T) {
	d := &daemon{list: two()}
	v, _ := show(t, d, theme.VariantLight)
	test.Tap(looktest.Buttons(v)[1])
	if len(d.revoked) != 1 || d.revoked[0] != "card_2" {
		t.Errorf("revoked %v", d.revoked)
	}
	shown := strings.Join(looktest.Texts(v), "\n")
	if strings.Contains(shown, "deploy_release only") || !strings.Contains(shown, "agent.py  pid 5001") {
		t.Errorf("it says %s", shown)
	}
}

func TestASessionSaysWhatItCoversAndUntilWhen(t *testing.T) {
	v, _ := show(t, &daemon{list: two()}, theme.VariantLight)
	shown := strings.Join(looktest.Texts(v), "\n")
	for _, s := range []string{"Whatever it asks for. Until the process ends.", "deploy_release only, with the arguments of card_2. Until 14:13:30, or until the process ends if that is sooner."} {
		if !strings.Contains(shown, s) {
			t.Errorf("it does not say %q but\n%s", s, shown)
		}
	}
}

func TestARevocationThatFailedIsSaidAndTheSessionStays(t *testing.T) {
	d := &daemon{list: two()}
	v, _ := show(t, d, theme.VariantLight)
	d.err = api.Errorf(api.CodeNoDaemon, "gone")
	test.Tap(looktest.Buttons(v)[0])
	shown := strings.Join(looktest.Texts(v), "\n")
	if !strings.Contains(shown, "The daemon does not answer.") || !strings.Contains(shown, "agent.py  pid 5001") {
		t.Errorf("it says %s", shown)
	}
}

func TestNobodyMayAct(t *testing.T) {
	_, w := show(t, &daemon{}, theme.VariantLight)
	looktest.Markup(t, w, "none")
}

func TestPictureOfSessions(t *testing.T) {
	v, _ := show(t, &daemon{list: two()}, theme.VariantDark)
	looktest.Picture(t, v, 900, 560, 1, "dark")
}
