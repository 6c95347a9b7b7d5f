package vaultview_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/driver/desktop"
	"fyne.io/fyne/v2/test"
	"fyne.io/fyne/v2/theme"
	"fyne.io/fyne/v2/widget"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
	"singlepass.dev/ui/vaultview"
	"singlepass.dev/vault/secret"
)

const (
	right  = "correct horse battery"
	canary = "canary-not-a-secret-vault"
	kit    = "SP1-AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGG-HHHH-JJJJ"
)

// daemon is a vault of one passphrase.
type daemon struct {
	asked       []string
	credentials []api.Credential
	settings    []api.Setting
	err         error
}

func (d *daemon) note(format string, args ...any) error {
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
	return d.err
}

func (d *daemon) Init(_ context.Context, in api.InitRequest) (api.InitAnswer, error) {
	err := d.note("init %s keyring=%v", in.Passphrase, !in.NoKeyring)
	return api.InitAnswer{RecoveryKit: kit, Status: open()}, err
}

func (d *daemon) Unlock(_ context.Context, in api.UnlockRequest) (api.Status, error) {
	if err := d.note("unlock %s %s", in.Passphrase, in.RecoveryKit); err != nil {
		return api.Status{}, err
	}
	if string(in.Passphrase) != right {
		return api.Status{}, api.Errorf(api.CodeProofWrong, "the passphrase is wrong")
	}
	return open(), nil
}

func (d *daemon) Lock(context.Context) (api.Status, error) { return locked(), d.note("lock") }
func (d *daemon) EarnTicket(_ context.Context, p *secret.Bytes) error {
	return p.Use(func(b []byte) error { return d.note("ticket %s", b) })
}

func (d *daemon) Credentials(context.Context) ([]api.Credential, error) { return d.credentials, nil }

func (d *daemon) AddCredential(_ context.Context, in api.CredentialRequest) error {
	return d.note("add %s %s %v %s %v per_use=%v %v %s", in.Name, in.Kind, in.Targets, in.Place+in.Username, in.Params, in.PerUse, in.Plaintext, in.Secret)
}

func (d *daemon) ChangeCredential(_ context.Context, name string, in api.CredentialChange) error {
	each := "as it was"
	if in.PerUse != nil {
		each = fmt.Sprint(*in.PerUse)
	}
	return d.note("change %s %v per_use %s", name, in.Targets, each)
}

func (d *daemon) RemoveCredential(_ context.Context, name string) error {
	return d.note("remove %s", name)
}

func (d *daemon) RotateCredential(_ context.Context, name string, value []byte) error {
	return d.note("rotate %s %s", name, value)
}

func (d *daemon) AcceptQuarantine(_ context.Context, reason string) error {
	return d.note("accept %s", reason)
}
func (d *daemon) Settings(context.Context) ([]api.Setting, error) { return d.settings, nil }
func (d *daemon) ChangeSetting(_ context.Context, key string, value *string) (api.Setting, error) {
	to := "default"
	if value != nil {
		to = *value
	}
	return api.Setting{}, d.note("set %s %s", key, to)
}

func open() api.Status {
	return api.Status{Vault: "unlocked", Keyring: "used", Journal: "ok", Head: &api.Head{Seq: 4711, Hash: "9f2c5e", Key: "singlepass+7f3a+AbCd"}, Since: looktest.Now.Add(-5 * time.Hour)}
}

func locked() api.Status {
	return api.Status{Vault: "locked", Keyring: "used", Journal: "ok", Reason: "locked after 15 min without use"}
}

func some() []api.Credential {
	return []api.Credential{
		{Name: "deploy-service", Kind: "bearer", Targets: []string{"https://deploy-api.internal.example/v1/"}, UsedBy: []string{"deploy_release"}, Rotated: looktest.Now.Add(-72 * time.Hour)},
		{Name: "billing", Kind: "basic", Username: "robot", Targets: []string{"https://billing.example/"}, PerUse: true},
	}
}

type rig struct {
	*vaultview.View
	daemon *daemon
	clock  *looktest.Clock
	window fyne.Window
	told   []string
}

func show(t *testing.T, s api.Status, proven bool) *rig {
	t.Helper()
	looktest.Start(t, theme.VariantLight, "en_US.UTF-8")
	g := &rig{daemon: &daemon{credentials: some(), settings: []api.Setting{{Key: "idle_lock", Value: "15m", Default: "15m", Meaning: "the vault locks when nothing used it for this long"}}}, clock: looktest.NewClock()}
	v, err := vaultview.New(vaultview.Config{
		Vault: g.daemon, Credentials: g.daemon, Keeper: g.daemon, Now: g.clock.Now, After: g.clock.After, Go: func(f func()) { f() },
		Changed: func(s api.Status) { g.told = append(g.told, s.Vault) },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.View, g.window = v, looktest.Window(t, v, 900, 1600)
	v.Update(s, proven)
	v.Focus()
	return g
}

func (g *rig) secrets() []*look.Secret {
	var list []*look.Secret
	for _, o := range test.LaidOutObjects(g.View) {
		if s, ok := o.(*look.Secret); ok {
			list = append(list, s)
		}
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
	t.Fatalf("there is no button %q", text)
}

func (g *rig) button(text string) *widget.Button {
	for _, b := range looktest.Buttons(g.View) {
		if b.Text == text {
			return b
		}
	}
	return nil
}

func (g *rig) says(t *testing.T, texts ...string) {
	t.Helper()
	shown := strings.Join(looktest.Texts(g.View), "\n")
	for _, s := range texts {
		if !strings.Contains(shown, s) {
			t.Errorf("it does not say %q:\n%s", s, shown)
		}
	}
}

func TestAPassphraseOpensTheVaultAndIsNeverEchoed(t *testing.T) {
	g := show(t, locked(), false)
	test.Type(g.secrets()[0], right)
	if shown := test.RenderToMarkup(g.window.Canvas()); strings.Contains(shown, "correct") || strings.Contains(shown, strings.Repeat("•", 3)) {
		t.Error("the passphrase, or how long it is, can be seen")
	}
	g.secrets()[0].TypedKey(&fyne.KeyEvent{Name: fyne.KeyReturn})
	if !slices.Equal(g.daemon.asked, []string{"unlock " + right + " "}) || !slices.Equal(g.told, []string{"unlocked"}) {
		t.Errorf("asked %q, told %q", g.daemon.asked, g.told)
	}
	if g.secrets()[0].Len() != 0 {
		t.Error("the field keeps the passphrase")
	}
}

func TestWrongTriesAreCountedAndTheWaitIsHeld(t *testing.T) {
	g := show(t, locked(), false)
	for range 2 {
		test.Type(g.secrets()[0], "wrong")
		g.tap(t, "Unlock")
	}
	g.says(t, "That is not the passphrase either. 2 tries here")
	g.daemon.err = api.Errorf(api.CodeTooManyTries, "too many tries").WithRetryAfter(30 * time.Second)
	test.Type(g.secrets()[0], right)
	g.tap(t, "Unlock")
	g.says(t, "Too many wrong tries. The next one is taken in 30 s.")
	n := len(g.daemon.asked)
	test.Type(g.secrets()[0], right)
	g.tap(t, "Unlock")
	if len(g.daemon.asked) != n {
		t.Error("a try was sent before its time")
	}
	g.daemon.err = nil
	g.clock.Pass(30 * time.Second)
	test.Type(g.secrets()[0], right)
	g.tap(t, "Unlock")
	if !slices.Equal(g.told, []string{"unlocked"}) {
		t.Errorf("told %q", g.told)
	}
}

func TestCapsLockIsSaidAsSoonAsALetterTellsIt(t *testing.T) {
	g := show(t, locked(), false)
	s := g.secrets()[0]
	s.KeyDown(&fyne.KeyEvent{Name: desktop.KeyShiftLeft})
	s.TypedRune('A')
	s.KeyUp(&fyne.KeyEvent{Name: desktop.KeyShiftLeft})
	if s.CapsLock() {
		t.Error("a letter with Shift is taken for Caps Lock")
	}
	s.TypedRune('B')
	if !s.CapsLock() {
		t.Error("a capital without Shift is not Caps Lock")
	}
	g.says(t, "Caps Lock is on.")
	s.TypedRune('1')
	if !s.CapsLock() {
		t.Error("a digit says nothing about Caps Lock")
	}
	s.TypedRune('c')
	if s.CapsLock() {
		t.Error("a small letter without Shift is Caps Lock")
	}
}

func TestNothingComesOutOfASecretField(t *testing.T) {
	g := show(t, locked(), false)
	s := g.secrets()[0]
	test.Type(s, canary)
	clipboard := test.NewClipboard()
	s.TypedShortcut(&fyne.ShortcutSelectAll{})
	s.TypedShortcut(&fyne.ShortcutCopy{Clipboard: clipboard})
	s.TypedShortcut(&fyne.ShortcutCut{Clipboard: clipboard})
	if clipboard.Content() != "" {
		t.Errorf("the clipboard has %q", clipboard.Content())
	}
	if text := fmt.Sprintf("%v %+v %s", s, s, test.RenderToMarkup(g.window.Canvas())); strings.Contains(text, canary) {
		t.Error("it can be printed")
	}
	clipboard.SetContent("pasted\n")
	s.Clear()
	s.TypedShortcut(&fyne.ShortcutPaste{Clipboard: clipboard})
	if s.Len() != len("pasted") {
		t.Errorf("%d characters were pasted", s.Len())
	}
}

func TestWhatWasTypedIsWipedWhenTheVaultIsShownOtherwise(t *testing.T) {
	g := show(t, locked(), false)
	s := g.secrets()[0]
	test.Type(s, right)
	g.Update(open(), true)
	if s.Len() != 0 {
		t.Error("the passphrase stayed")
	}
}

func TestTheRecoveryKitStandsInForALostKeyring(t *testing.T) {
	s := locked()
	s.Keyring, s.Reason = "unavailable", "no Secret Service"
	g := show(t, s, false)
	g.says(t, "The keyring is not available: no Secret Service.")
	test.Type(g.secrets()[0], right)
	test.Type(g.secrets()[1], kit)
	g.tap(t, "Unlock")
	if !slices.Equal(g.daemon.asked, []string{"unlock " + right + " " + kit}) {
		t.Errorf("asked %q", g.daemon.asked)
	}
}

func TestAnOpenVaultAsksOnceWhetherItIsThePerson(t *testing.T) {
	g := show(t, open(), false)
	g.says(t, "Is it you?")
	test.Type(g.secrets()[0], right)
	g.tap(t, "Continue")
	if !slices.Equal(g.daemon.asked, []string{"ticket " + right}) || !slices.Equal(g.told, []string{"unlocked"}) {
		t.Errorf("asked %q, told %q", g.daemon.asked, g.told)
	}
}

func TestTheFirstRunMakesAVaultAndHasTheKitConfirmed(t *testing.T) {
	g := show(t, api.Status{Vault: "uninitialized"}, false)
	g.says(t, "Step 1 of 2", "Make your vault")
	pass, again := g.secrets()[0], g.secrets()[1]
	test.Type(pass, "short")
	g.says(t, "7 characters more")
	test.Type(pass, " and longer")
	test.Type(again, "short and lonker")
	g.says(t, "The two are not the same yet.")
	g.tap(t, "Make the vault")
	if len(g.daemon.asked) > 0 {
		t.Fatalf("asked %q", g.daemon.asked)
	}
	again.Clear()
	test.Type(again, "short and longer")
	g.tap(t, "Make the vault")
	if !slices.Equal(g.daemon.asked, []string{"init short and longer keyring=true"}) {
		t.Fatalf("asked %q", g.daemon.asked)
	}
	g.says(t, "Step 2 of 2", kit, "It is shown this once.")
	g.Update(open(), true) // the daemon says that it is open: the kit stays
	g.says(t, kit)
	g.tap(t, "I have kept it")
	g.says(t, kit)
	looktest.Entries(g.View)[0].SetText("jjjj ")
	g.tap(t, "I have kept it")
	g.Update(open(), true)
	if shown := strings.Join(looktest.Texts(g.View), "\n"); strings.Contains(shown, kit) || !strings.Contains(shown, "The vault is open") {
		t.Errorf("after the kit it says %s", shown)
	}
}

func TestCredentialsAreDescribedAndNeverShown(t *testing.T) {
	g := show(t, open(), true)
	g.says(t, "deploy-service", "Bearer token", "https://deploy-api.internal.example/v1/", "deploy_release", "billing", "robot", "The journal is whole, 4711 entries", "Last verified", "idle_lock")
	for _, b := range looktest.Buttons(g.View) {
		if strings.Contains(b.Text, "Show") || strings.Contains(b.Text, "Reveal") || b.Text == "Copy" {
			t.Errorf("%q is offered", b.Text)
		}
	}
}

func TestACredentialIsAddedByItsKind(t *testing.T) {
	g := show(t, open(), true)
	g.tap(t, "Add a credential…")
	g.says(t, "Give it a name.")
	entries := looktest.Entries(g.View)
	entries[0].SetText("stripe key")
	g.says(t, "The name may hold no space.")
	entries[0].SetText("stripe")
	g.says(t, "Say where it may be sent.")
	entries[1].SetText("api.stripe.example")
	g.says(t, "api.stripe.example is no address")
	entries[1].SetText("http://api.stripe.example/v1/")
	g.says(t, "is not encrypted.")
	entries[1].SetText("https://api.stripe.example/v1/\nhttps://files.stripe.example/")
	g.says(t, "The value is missing.")
	if !g.button("Add").Disabled() {
		t.Error("it can be added without a value")
	}
	test.Type(g.secrets()[0], canary)
	g.tap(t, "Add")
	want := "add stripe bearer [https://api.stripe.example/v1/ https://files.stripe.example/]  map[] per_use=false false " + canary
	if !slices.Equal(g.daemon.asked, []string{want}) {
		t.Errorf("asked %q", g.daemon.asked)
	}
	g.says(t, "stripe is kept.")
	if strings.Contains(test.RenderToMarkup(g.window.Canvas()), canary) {
		t.Error("the value is shown")
	}
}

func TestEveryKindAsksForWhatItNeeds(t *testing.T) {
	g := show(t, open(), true)
	g.tap(t, "Add a credential…")
	var choose *widget.Select
	for _, o := range test.LaidOutObjects(g.View) {
		if s, ok := o.(*widget.Select); ok {
			choose = s
		}
	}
	for kind, names := range map[string][]string{
		"User name and password": {"User name"}, "Header of its own": {"Header"}, "Query parameter": {"Parameter"}, "OAuth 2": {"Token address", "Client id", "Grant"},
		"AWS signature": {"Region", "Service"}, "SSH key": {"Certificate (optional)"}, "Environment of a server": {"Variable (optional)"},
	} {
		choose.SetSelected(kind)
		g.says(t, names...)
	}
}

func TestARefusedCredentialIsSaidAndItsValueIsGone(t *testing.T) {
	g := show(t, open(), true)
	g.tap(t, "Add a credential…")
	looktest.Entries(g.View)[0].SetText("x")
	looktest.Entries(g.View)[1].SetText("https://x.example/")
	test.Type(g.secrets()[0], canary)
	g.daemon.err = api.Errorf(api.CodeExists, "there is a credential x already")
	g.tap(t, "Add")
	g.says(t, "there is a credential x already", "The value is missing.")
	if looktest.Entries(g.View)[0].Text != "x" || g.secrets()[0].Len() != 0 {
		t.Error("the form did not keep what it may keep, or kept the value")
	}
}

func TestACredentialIsRotatedRemovedBoundAndAskedAboutEachTime(t *testing.T) {
	g := show(t, open(), true)
	g.tap(t, "Rotate…")
	test.Type(g.secrets()[0], canary)
	g.tap(t, "Rotate")
	g.tap(t, "Remove…")
	g.says(t, "It cannot be brought back.", "These actions will be refused: deploy_release.")
	g.tap(t, "Remove it")
	g.tap(t, "Targets…")
	looktest.Entries(g.View)[0].SetText("https://other.example/")
	g.tap(t, "Save")
	for _, o := range test.LaidOutObjects(g.View) {
		if c, ok := o.(*widget.Check); ok && c.Text == "Ask every time it is used" && !c.Checked {
			c.SetChecked(true)
			break
		}
	}
	want := []string{
		"rotate deploy-service " + canary, "remove deploy-service", "change deploy-service [https://other.example/] per_use as it was", "change deploy-service [] per_use true",
	}
	if !slices.Equal(g.daemon.asked, want) {
		t.Errorf("asked %q", g.daemon.asked)
	}
}

func TestTheVaultIsLockedByOnePress(t *testing.T) {
	g := show(t, open(), true)
	g.tap(t, "Lock now")
	if !slices.Equal(g.daemon.asked, []string{"lock"}) || !slices.Equal(g.told, []string{"locked"}) {
		t.Errorf("asked %q, told %q", g.daemon.asked, g.told)
	}
}

func TestAQuarantineEndsOnlyWithAReason(t *testing.T) {
	s := open()
	s.Journal, s.Problem = "quarantine", "entry 17 of segment 1 is not what its hash says"
	g := show(t, s, true)
	g.says(t, "The journal is in quarantine", "entry 17 of segment 1")
	g.tap(t, "Accept and go on")
	if len(g.daemon.asked) > 0 {
		t.Fatalf("asked %q", g.daemon.asked)
	}
	looktest.Entries(g.View)[0].SetText("my own backup script")
	g.tap(t, "Accept and go on")
	if !slices.Equal(g.daemon.asked, []string{"accept my own backup script"}) {
		t.Errorf("asked %q", g.daemon.asked)
	}
}

func TestASettingIsChangedAndBroughtBack(t *testing.T) {
	g := show(t, open(), true)
	entries := looktest.Entries(g.View)
	entries[len(entries)-1].SetText("5m")
	g.tap(t, "Save")
	entries = looktest.Entries(g.View)
	entries[len(entries)-1].SetText("")
	g.tap(t, "Save")
	if !slices.Equal(g.daemon.asked, []string{"set idle_lock 5m", "set idle_lock default"}) {
		t.Errorf("asked %q", g.daemon.asked)
	}
}

func TestEveryFaceOfTheVaultLooksAsItDid(t *testing.T) {
	quarantine := open()
	quarantine.Journal, quarantine.Problem, quarantine.Keyring = "quarantine", "entry 17 of segment 1 is not what its hash says", "not_used"
	unavailable := locked()
	unavailable.Keyring, unavailable.Reason = "unavailable", "no Secret Service"
	for name, c := range map[string]struct {
		status api.Status
		proven bool
	}{
		"first": {api.Status{Vault: "uninitialized"}, false}, "locked": {locked(), false}, "no-keyring": {unavailable, false}, "proof": {open(), false}, "open": {open(), true}, "quarantine": {quarantine, true},
	} {
		t.Run(name, func(t *testing.T) { looktest.Markup(t, show(t, c.status, c.proven).window, name) })
	}
}

func TestPicturesOfTheVault(t *testing.T) {
	for name, c := range map[string]struct {
		status  api.Status
		variant fyne.ThemeVariant
		do      func(*rig)
	}{
		"locked-dark": {locked(), theme.VariantDark, func(g *rig) { test.Type(g.secrets()[0], "Abc") }},
		"open-light":  {open(), theme.VariantLight, func(*rig) {}},
		"first-light": {api.Status{Vault: "uninitialized"}, theme.VariantLight, func(g *rig) { test.Type(g.secrets()[0], "short") }},
		"add-dark":    {open(), theme.VariantDark, func(g *rig) { g.tap(t, "Add a credential…") }},
	} {
		t.Run(name, func(t *testing.T) {
			g := show(t, c.status, c.status.Vault == "unlocked")
			fyne.CurrentApp().Settings().SetTheme(looktest.Theme(c.variant))
			c.do(g)
			looktest.Picture(t, g.View, 900, 700, 1, name)
		})
	}
}
