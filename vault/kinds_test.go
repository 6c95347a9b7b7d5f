package vault_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	"singlepass.dev/vault"
)

func ofKind(t *testing.T, kind vault.CredentialKind, p vault.CredentialParams, targets ...string) vault.Credential {
	t.Helper()
	c := vault.Credential{Name: "x", Kind: kind, Params: p}
	for _, text := range targets {
		target, err := vault.ParseTarget(text)
		must(t, err)
		c.Targets = append(c.Targets, target)
	}
	return c
}

func TestVariablesGoToAnUpstreamServerAndNowhereElse(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	set := ofKind(t, vault.Env, vault.CredentialParams{}, "upstream:github")
	must(t, v.AddCredential(set, text("B=canary-not-a-secret\nA='1\n2'\n")))
	c, value, err := v.UseCredential("x")
	must(t, err)
	if got := reveal(t, value); got != "A=1\n2\x00B=canary-not-a-secret\x00" {
		t.Errorf("kept as %q", got)
	}
	if !c.AllowsUpstream("github") || c.AllowsUpstream("gitlab") {
		t.Error("the binding is wrong")
	}
	must(t, v.RotateCredential("x", text("C=3")))
	_, value, err = v.UseCredential("x")
	must(t, err)
	if got := reveal(t, value); got != "C=3\x00" {
		t.Errorf("after the rotation %q", got)
	}
	must(t, v.RemoveCredential("x"))
	must(t, v.AddCredential(ofKind(t, vault.Env, vault.CredentialParams{Variable: "TOKEN"}, "upstream:a", "upstream:b"), text("canary-not-a-secret")))
	_, value, err = v.UseCredential("x")
	must(t, err)
	if got := reveal(t, value); got != "TOKEN=canary-not-a-secret\x00" {
		t.Errorf("kept as %q", got)
	}
	must(t, v.RemoveCredential("x"))

	for name, bad := range map[string]struct {
		c     vault.Credential
		value string
		says  string
	}{
		"a URL":              {ofKind(t, vault.Env, vault.CredentialParams{}, "https://a.example"), "A=1", "cannot be used for target"},
		"an upstream":        {ofKind(t, vault.Bearer, vault.CredentialParams{}, "upstream:github"), "x", "cannot be used for target"},
		"a loader":           {ofKind(t, vault.Env, vault.CredentialParams{Variable: "LD_PRELOAD"}, "upstream:a"), "canary", "LD_PRELOAD"},
		"a loader in a file": {ofKind(t, vault.Env, vault.CredentialParams{}, "upstream:a"), "LD_PRELOAD=canary", "LD_PRELOAD"},
		"no set":             {ofKind(t, vault.Env, vault.CredentialParams{}, "upstream:a"), "canary", "line 1"},
	} {
		err := v.AddCredential(bad.c, text(bad.value))
		if err == nil || !strings.Contains(err.Error(), bad.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"upstream:", "upstream:A", "upstream://a", "upstream:a/b", "upstream:-a", "upstream:a.b"} {
		if target, err := vault.ParseTarget(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, target)
		}
	}
}

func TestParametersTravelAsNamesAndValues(t *testing.T) {
	var p vault.CredentialParams
	for i := range reflect.TypeOf(p).NumField() {
		reflect.ValueOf(&p).Elem().Field(i).SetString("v" + reflect.TypeOf(p).Field(i).Name)
	}
	set := p.Map()
	if len(set) != reflect.TypeOf(p).NumField() {
		t.Fatalf("%v", set)
	}
	back, err := vault.ParseParams(set)
	must(t, err)
	if back != p {
		t.Errorf("%+v became %+v", p, back)
	}
	for _, bad := range []map[string]string{{"unknown": "x"}, {"USERNAME": "x"}} {
		if p, err := vault.ParseParams(bad); err == nil {
			t.Errorf("%v was read as %+v", bad, p)
		}
	}
	if !maps.Equal(vault.CredentialParams{}.Map(), map[string]string{}) {
		t.Error("nothing set is something")
	}
}

func TestWhatACredentialAllowsChangesAndItsValueStays(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	must(t, v.AddCredential(ofKind(t, vault.Basic, vault.CredentialParams{Username: "u"}, "https://a.example/"), text("canary-not-a-secret")))
	other, err := vault.ParseTarget("https://b.example/")
	must(t, err)
	got, err := v.ChangeCredential("x", func(c *vault.Credential) {
		c.Targets, c.PerUse, c.AllowPrivate, c.Generic, c.GenericReads = []vault.Target{other}, true, true, true, true
		c.Name, c.Kind, c.Params.Username, c.Version = "y", vault.Bearer, "z", 9
	})
	must(t, err)
	kept, value, err := v.UseCredential("x")
	must(t, err)
	if !reflect.DeepEqual(got, kept) || kept.Name != "x" || kept.Kind != vault.Basic || kept.Params.Username != "u" || kept.Version != 1 ||
		!kept.PerUse || !kept.AllowPrivate || !kept.Generic || !kept.GenericReads || len(kept.Targets) != 1 || kept.Targets[0] != other || reveal(t, value) != "canary-not-a-secret" {
		t.Errorf("%+v", kept)
	}
	for name, bad := range map[string]func(*vault.Credential){
		"no target":             func(c *vault.Credential) { c.Targets = nil },
		"reads without generic": func(c *vault.Credential) { c.Generic = false },
		"a target of other kind": func(c *vault.Credential) {
			c.Targets = ofKind(t, vault.Env, vault.CredentialParams{}, "upstream:a").Targets
		},
	} {
		if _, err := v.ChangeCredential("x", bad); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if again, err := v.Credential("x"); err != nil || !reflect.DeepEqual(again, kept) {
		t.Errorf("a refused change left %+v, %v", again, err)
	}
	_, err = v.ChangeCredential("absent", func(*vault.Credential) {})
	wantError(t, err, vault.ErrNotFound)
	v.Lock()
	_, err = v.ChangeCredential("x", func(*vault.Credential) {})
	wantError(t, err, vault.ErrLocked)
}

// The file was written once; descriptions like these lie sealed in vaults. A field may be added; one that is renamed or lost is a break.
func TestTheDescriptionsOfAllKindsAreFrozen(t *testing.T) {
	frozen, err := os.ReadFile("testdata/credentials-v1.json")
	must(t, err)
	var lines []string
	for line := range strings.Lines(string(frozen)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	kinds := map[vault.CredentialKind]bool{}
	for _, line := range lines {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var c vault.Credential
		must(t, d.Decode(&c))
		must(t, c.Validate())
		again, err := json.Marshal(c)
		must(t, err)
		if string(again) != line {
			t.Errorf("read and written again:\n%s\n%s", again, line)
		}
		kinds[c.Kind] = true
	}
	for _, name := range vault.KindNames() {
		if !kinds[vault.CredentialKind(name)] && !strings.HasPrefix(name, "ssh-") { // they have a vector of their own
			t.Errorf("kind %s is not among them", name)
		}
	}
}

func TestGenericUseIsForRequestsAndCommands(t *testing.T) {
	c := ofKind(t, vault.Env, vault.CredentialParams{}, "upstream:a")
	c.Generic = true
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "generic use") {
		t.Errorf("of %s: %v", c.Kind, err)
	}
	for _, c := range []vault.Credential{
		ofKind(t, vault.SSHPassword, vault.CredentialParams{}, "ssh://root@a.example"), ofKind(t, vault.SSHKey, vault.CredentialParams{}, "ssh://root@a.example"),
	} {
		c.Generic = true
		must(t, c.Validate())
		c.GenericReads = true
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "generic reads") {
			t.Errorf("reads of %s: %v", c.Kind, err)
		}
	}
}
