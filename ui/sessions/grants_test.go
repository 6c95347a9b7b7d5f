package sessions_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/looktest"
)

// standing is a daemon with two standing grants, and a process that has a session by each.
func standing() *daemon {
	one := api.Grant{
		Grant: "grant_01K0A", Actor: "deb:assistant", Package: "deb:assistant", Exe: "/usr/bin/assistant", Digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Via: "bridge",
		Through: []string{"/usr/local/bin/spctl"}, Chain: []string{"/usr/bin/bash", "/usr/libexec/gnome-terminal-server", "user 0"}, Scope: "action", Tool: "deploy_release", ContractDigest: "sha256:0b",
		By: "operator", Card: "card_7", Run: "run_0", At: looktest.Now.Add(-time.Hour), Until: looktest.Now.Add(30*24*time.Hour - time.Hour), Runs: []string{"run_1"},
	}
	two := one
	two.Grant, two.Tool, two.Scope, two.Card, two.Chain, two.Runs = "grant_01K0B", "rotate_key", "arguments", "card_8", nil, []string{"run_1", "run_2"}
	agent := api.Process{PID: 4242, Exe: "/usr/bin/assistant"}
	return &daemon{
		grants: []api.Grant{one, two},
		list: []api.Session{
			{Run: "run_1", Actor: "deb:assistant", By: "operator", At: looktest.Now.Add(-time.Minute), Agent: agent, Assurance: "installed by the system and not writable by you", Level: api.AssuranceSystem, Scope: "action", Tool: "deploy_release", Until: one.Until, Grant: one.Grant},
			{Run: "run_1", Actor: "deb:assistant", By: "operator", At: looktest.Now.Add(-2 * time.Minute), Agent: agent, Assurance: "installed by the system and not writable by you", Level: api.AssuranceSystem, Scope: "arguments", Tool: "rotate_key", Until: one.Until, Grant: two.Grant},
		},
	}
}

func TestStandingGrantsAreListedWithAllThatTheyAreBoundTo(t *testing.T) {
	v, w := show(t, standing(), theme.VariantLight)
	shown := strings.Join(looktest.Texts(v), "\n")
	for _, s := range []string{
		"Standing grants", "assistant  ·  deploy_release", "deploy_release only, under the contract", "rotate_key only, with the arguments of card_8, under the contract", "/usr/bin/assistant", "sha256:9f86d081884c7d65",
		"bridge, /usr/local/bin/spctl", "/usr/bin/bash, /usr/libexec/gnome-terminal-server, user 0", "13:02:30 (1 h ago)", "(29 days)", "1 process has a session by it.", "2 processes have a session by it.",
		"rotate_key only, with the arguments of grant_01K0B.", "Revoking this session ends the standing grant too.",
	} {
		if !strings.Contains(shown, s) {
			t.Errorf("it does not say %q:\n%s", s, shown)
		}
	}
	looktest.Markup(t, w, "grants")
}

func TestOnePressEndsOneStandingGrantAndWhatCameFromIt(t *testing.T) {
	d := standing()
	v, _ := show(t, d, theme.VariantLight)
	buttons := looktest.Buttons(v)
	if len(buttons) != 4 {
		t.Fatalf("%d buttons", len(buttons))
	}
	test.Tap(buttons[3]) // the older grant, below the sessions
	if !slices.Equal(d.revoked, []string{"grant_01K0A"}) {
		t.Errorf("revoked %v", d.revoked)
	}
	shown := strings.Join(looktest.Texts(v), "\n")
	if strings.Contains(shown, "deploy_release") || !strings.Contains(shown, "rotate_key") {
		t.Errorf("it shows %s", shown)
	}
}

func TestASessionByAStandingGrantIsEndedByThatGrant(t *testing.T) {
	d := standing()
	v, _ := show(t, d, theme.VariantLight)
	test.Tap(looktest.Buttons(v)[1])
	if !slices.Equal(d.revoked, []string{"grant_01K0B"}) {
		t.Errorf("revoked %v", d.revoked)
	}
}

func TestAStandingGrantThatCouldNotBeEndedStays(t *testing.T) {
	d := standing()
	v, _ := show(t, d, theme.VariantLight)
	d.err = api.Errorf(api.CodeNoDaemon, "gone")
	test.Tap(looktest.Buttons(v)[2])
	shown := strings.Join(looktest.Texts(v), "\n")
	if !strings.Contains(shown, "The daemon does not answer.") || !strings.Contains(shown, "grant_01K0B") {
		t.Errorf("it says %s", shown)
	}
}

func TestPictureOfStandingGrants(t *testing.T) {
	d := standing()
	d.list = d.list[:1]
	v, _ := show(t, d, theme.VariantDark)
	looktest.Picture(t, v, 900, 900, 1, "grants_dark")
}
