package actions_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/actions"
	"singlepass.dev/ui/looktest"
)

type daemon struct {
	list     []api.Action
	accepted []api.ActionRequest
	removed  []string
}

func (d *daemon) Actions(context.Context) ([]api.Action, error) { return d.list, nil }
func (d *daemon) AcceptAction(_ context.Context, in api.ActionRequest) (api.Action, error) {
	d.accepted = append(d.accepted, in)
	for i := range d.list {
		if d.list[i].Name == in.Name {
			d.list[i].State, d.list[i].Accepted, d.list[i].Diff = "accepted", in.Digest, ""
		}
	}
	return api.Action{}, nil
}

func (d *daemon) RemoveAction(_ context.Context, name string) error {
	d.removed = append(d.removed, name)
	return nil
}

const source = "action: deploy_release\nhttp:\n  method: POST\n  url: https://deploy.example/v2/releases\n"

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func contracts() []api.Action {
	return []api.Action{
		{
			Name: "status", Title: "Look how it is", State: "accepted", Class: "read_only", Channel: "http", Target: "https://status.example/v1", Accepted: digest("x"), Digest: digest("x"),
			File: "/a/status.yaml", Source: "action: status\n",
		},
		{
			Name: "deploy_release", Title: "Deploy a release", State: "changed", Class: "irreversible", Channel: "http", Target: "https://deploy.example/v1/releases", Credential: "deploy-service",
			Accepted: digest("old"), Digest: digest(source), File: "/a/deploy.yaml",
			Diff: "@@ -2,3 +2,3 @@\n http:\n   method: POST\n-  url: https://deploy.example/v1/releases\n+  url: https://deploy.example/v2/releases\n", Source: strings.ReplaceAll(source, "v2", "v1"),
		},
		{Name: "broken", State: "invalid", File: "/a/broken.yaml", Problems: []string{"/a/broken.yaml:3:1: replay: unknown field \u202e; write class"}},
		{Name: "gone", State: "missing", Class: "idempotent", Accepted: digest("g"), Target: "https://xn--80ak6aa92e.com/", Source: "action: gone\n"},
		{Name: "fresh", State: "new", Class: "status_query", Digest: digest("f"), File: "/a/fresh.yaml", Source: "action: fresh\n", Target: "https://fresh.example/"},
	}
}

func show(t *testing.T, d *daemon, read func(string) ([]byte, error), v fyne.ThemeVariant) (*actions.View, fyne.Window) {
	t.Helper()
	looktest.Start(t, v, "en_US.UTF-8")
	view, err := actions.New(actions.Config{Daemon: d, Read: read, Go: func(f func()) { f() }})
	if err != nil {
		t.Fatal(err)
	}
	w := looktest.Window(t, view, 1000, 760)
	view.Load()
	return view, w
}

func file(string) ([]byte, error) { return []byte(source), nil }

func tap(t *testing.T, v *actions.View, text string) {
	t.Helper()
	for _, b := range looktest.Buttons(v) {
		if b.Text == text {
			test.Tap(b)
			return
		}
	}
	t.Fatalf("there is no button %q", text)
}

func says(v *actions.View) string { return strings.Join(looktest.Texts(v), "\n") }

func TestEveryContractLooksAsItDid(t *testing.T) {
	for _, c := range contracts() {
		t.Run(c.Name, func(t *testing.T) {
			v, w := show(t, &daemon{list: contracts()}, file, theme.VariantLight)
			v.Choose(c.Name)
			looktest.Markup(t, w, c.Name)
		})
	}
	t.Run("none", func(t *testing.T) {
		_, w := show(t, &daemon{}, file, theme.VariantLight)
		looktest.Markup(t, w, "none")
	})
}

func TestWhatWaitsForThePersonStandsFirst(t *testing.T) {
	v, _ := show(t, &daemon{list: contracts()}, file, theme.VariantLight)
	if s := says(v); !strings.Contains(s, "Deploy a release") || !strings.Contains(s, "The accepted version stays in force until you accept the new one.") {
		t.Errorf("first is %s", s)
	}
}

func TestOnlyTheBytesThatWereShownAreAccepted(t *testing.T) {
	d := &daemon{list: contracts()}
	v, _ := show(t, d, file, theme.VariantLight)
	tap(t, v, "Accept the change")
	if len(d.accepted) != 1 || string(d.accepted[0].Source) != source || d.accepted[0].Digest != digest(source) || d.accepted[0].File != "/a/deploy.yaml" {
		t.Errorf("accepted %+v", d.accepted)
	}
	if !strings.Contains(says(v), "It is in force.") {
		t.Error("it does not say so")
	}
	for name, read := range map[string]func(string) ([]byte, error){
		"another file": func(string) ([]byte, error) { return []byte(source + "\n# one more line"), nil },
		"no file":      func(string) ([]byte, error) { return nil, errors.New("permission denied") },
	} {
		d := &daemon{list: contracts()}
		v, _ := show(t, d, read, theme.VariantLight)
		tap(t, v, "Accept the change")
		if len(d.accepted) > 0 {
			t.Errorf("%s: accepted %+v", name, d.accepted)
		}
	}
}

func TestAContractIsWithdrawnOnlyByASecondPress(t *testing.T) {
	d := &daemon{list: contracts()}
	v, _ := show(t, d, file, theme.VariantLight)
	tap(t, v, "Withdraw…")
	if len(d.removed) > 0 {
		t.Fatal("one press withdrew it")
	}
	if !strings.Contains(says(v), "Agents cannot ask for it any more.") {
		t.Error("what it will cause is not said")
	}
	tap(t, v, "Withdraw it")
	if len(d.removed) != 1 || d.removed[0] != "deploy_release" {
		t.Errorf("removed %v", d.removed)
	}
}

func TestAContractThatCannotBeReadIsNotOfferedToBeAccepted(t *testing.T) {
	v, _ := show(t, &daemon{list: contracts()}, file, theme.VariantLight)
	v.Choose("broken")
	if len(looktest.Buttons(v)) > 0 {
		t.Error("a broken contract has a button")
	}
	if !strings.Contains(says(v), `unknown field \u202e; write class`) {
		t.Error("what is wrong is not said")
	}
}

func TestPicturesOfActions(t *testing.T) {
	for name, variant := range map[string]fyne.ThemeVariant{"light": theme.VariantLight, "dark": theme.VariantDark} {
		v, _ := show(t, &daemon{list: contracts()}, file, variant)
		looktest.Picture(t, v, 1000, 760, 1, name)
	}
}
