package vault_test

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"singlepass.dev/vault"
)

func TestACredentialIsAddedUsedRotatedAndRemoved(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	c := bearer("deploy")
	c.PerUse = true
	c.Version, c.Created = 9, time.Unix(0, 0) // not the caller's to choose
	must(t, v.AddCredential(c, text("canary-not-a-secret-1")))
	wantError(t, v.AddCredential(bearer("deploy"), text("x")), vault.ErrExists)
	must(t, v.AddCredential(bearer("archive"), text("canary-not-a-secret-2")))
	h.clock.advance(time.Hour)
	must(t, v.RotateCredential("deploy", text("canary-not-a-secret-3")))
	wantError(t, v.RotateCredential("absent", text("x")), vault.ErrNotFound)

	all, err := v.Credentials()
	must(t, err)
	if len(all) != 2 || all[0].Name != "archive" || all[1].Name != "deploy" {
		t.Fatalf("listed %+v", all)
	}
	got, value, err := v.UseCredential("deploy")
	must(t, err)
	if reveal(t, value) != "canary-not-a-secret-3" || got.Version != 2 || !got.PerUse ||
		!got.Rotated.Equal(h.clock.Now()) || !got.Created.Equal(h.clock.Now().Add(-time.Hour)) {
		t.Errorf("after the rotation: %+v", got)
	}
	value.Wipe()
	_, value, err = v.UseCredential("deploy")
	must(t, err)
	if reveal(t, value) != "canary-not-a-secret-3" {
		t.Error("wiping what was handed out changed the vault")
	}
	must(t, v.RemoveCredential("deploy"))
	wantError(t, v.RemoveCredential("deploy"), vault.ErrNotFound)
	_, _, err = v.UseCredential("deploy")
	wantError(t, err, vault.ErrNotFound)
	_, err = v.Credential("deploy")
	wantError(t, err, vault.ErrNotFound)
	_, err = v.Credential("archive")
	must(t, err)
}

func TestContractsAndSettingsAreReplacedAndRemoved(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	must(t, v.AcceptContract(contract("b")))
	must(t, v.AcceptContract(contract("a")))
	changed := contract("b")
	changed.Digest = "sha256:11"
	must(t, v.AcceptContract(changed))
	all, err := v.Contracts()
	must(t, err)
	if len(all) != 2 || all[0].Action != "a" || all[1].Digest != "sha256:11" || !all[1].AcceptedAt.Equal(h.clock.Now()) {
		t.Errorf("contracts: %+v", all)
	}
	must(t, v.RemoveContract("b"))
	wantError(t, v.RemoveContract("b"), vault.ErrNotFound)
	for _, bad := range []vault.AcceptedContract{{}, {Action: "x", Source: []byte("x")}, {Action: "x", Digest: "x"}, {Action: strings.Repeat("x", 257), Digest: "x", Source: []byte("x")}} {
		if v.AcceptContract(bad) == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	must(t, v.SetSetting("a", []byte(`{"x":1}`))) // the same name as a contract is another record
	must(t, v.SetSetting("a", []byte(`{"x":2}`)))
	got, err := v.Setting("a")
	must(t, err)
	if string(got) != `{"x":2}` {
		t.Errorf("setting: %s", got)
	}
	must(t, v.SetSetting("A", []byte("1")))
	settings, err := v.Settings()
	must(t, err)
	if len(settings) != 2 || settings[0].Key != "A" || settings[1].Key != "a" || string(settings[1].Value) != `{"x":2}` {
		t.Errorf("settings: %+v", settings)
	}
	must(t, v.RemoveSetting("a"))
	wantError(t, v.RemoveSetting("a"), vault.ErrNotFound)
	_, err = v.Setting("a")
	wantError(t, err, vault.ErrNotFound)
	for _, bad := range []string{"", "{", "1 2"} {
		if v.SetSetting("k", []byte(bad)) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestOnlyCredentialsThatCanBeSentAsTheyAreAreTaken(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	with := func(f func(*vault.Credential)) vault.Credential {
		c := bearer("x")
		f(&c)
		return c
	}
	kind := func(k vault.CredentialKind, p vault.CredentialParams) vault.Credential {
		return with(func(c *vault.Credential) { c.Kind, c.Params = k, p })
	}
	for name, bad := range map[string]struct {
		c     vault.Credential
		value string
		says  string
	}{
		"no name":              {with(func(c *vault.Credential) { c.Name = "" }), "v", "name"},
		"a name like a path":   {with(func(c *vault.Credential) { c.Name = "../x" }), "v", "name"},
		"no kind":              {kind("", vault.CredentialParams{}), "v", "unknown kind"},
		"unknown kind":         {kind("cookie", vault.CredentialParams{}), "v", "unknown kind"},
		"oauth2 without grant": {kind(vault.OAuth2, vault.CredentialParams{}), "v", "grant"},
		"oauth2 to plain http": {kind(vault.OAuth2, vault.CredentialParams{Grant: "client_credentials", ClientID: "c", TokenURL: "http://a.example/token"}), "v", "https"},
		"oauth2 with a query":  {kind(vault.OAuth2, vault.CredentialParams{Grant: "client_credentials", ClientID: "c", TokenURL: "https://a.example/token?x=y"}), "v", "no query"},
		"aws without region":   {kind(vault.AWS, vault.CredentialParams{Service: "s3"}), "v", "region"},
		"aws without keys":     {kind(vault.AWS, vault.CredentialParams{Service: "s3", Region: "eu-west-1"}), "canary", "line 1"},
		"no certificate":       {kind(vault.Cert, vault.CredentialParams{}), "canary", "no certificate"},
		"no target":            {with(func(c *vault.Credential) { c.Targets = nil }), "v", "target"},
		"a target by hand":     {with(func(c *vault.Credential) { c.Targets[0].Host = "EXAMPLE.com" }), "v", "canonical"},
		"parameter of another": {kind(vault.Bearer, vault.CredentialParams{Header: "X"}), "v", "parameter"},
		"colon in user name":   {kind(vault.Basic, vault.CredentialParams{Username: "a:b"}), "v", "colon"},
		"no header name":       {kind(vault.Header, vault.CredentialParams{}), "v", "header"},
		"header with a break":  {kind(vault.Header, vault.CredentialParams{Header: "X\r\nY"}), "v", "header"},
		"framing header":       {kind(vault.Header, vault.CredentialParams{Header: "Content-Length"}), "v", "belongs"},
		"idempotency header":   {kind(vault.Header, vault.CredentialParams{Header: "idempotency-KEY"}), "v", "belongs"},
		"query name":           {kind(vault.Query, vault.CredentialParams{Query: "a&b"}), "v", "query"},
		"empty value":          {bearer("x"), "", "empty"},
		"line break":           {bearer("x"), "canary\n", "line break"},
		"injected header":      {kind(vault.Header, vault.CredentialParams{Header: "X"}), "canary\r\nHost: y", "control"},
		"bearer with a space":  {bearer("x"), "canary y", "RFC 6750"},
		"too long":             {bearer("x"), strings.Repeat("canary", 20000), "longer"},
	} {
		err := v.AddCredential(bad.c, text(bad.value))
		if err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error quotes the value: %v", name, err)
		}
	}
	for _, good := range []vault.Credential{
		kind(vault.Basic, vault.CredentialParams{Username: "user name"}),
		kind(vault.Basic, vault.CredentialParams{}),
		kind(vault.Header, vault.CredentialParams{Header: "X-Api-Key"}),
		kind(vault.Query, vault.CredentialParams{Query: "api_key"}),
	} {
		must(t, v.AddCredential(good, text("a value with spaces é")))
		must(t, v.RemoveCredential("x"))
	}
}

func TestTheFileShowsNeitherNamesNorValuesNorWhatWasRemoved(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	must(t, v.AddCredential(bearer("plainly-named"), text("canary-not-a-secret")))
	c := contract("visible_action")
	must(t, v.AcceptContract(c))
	must(t, v.SetSetting("visible_setting", []byte(`"visible_value"`)))
	before, err := os.ReadFile(h.path)
	must(t, err)
	for _, word := range []string{"plainly", "canary", "bearer", "api.example.com", "visible", "credential", "contract", "setting", ".yaml"} {
		if strings.Contains(string(before), word) {
			t.Errorf("the file shows %q", word)
		}
	}
}

func TestWhatIsRemovedOrRotatedIsOverwrittenInTheFile(t *testing.T) {
	for name, act := range map[string]func(*vault.Vault) error{
		"removed": func(v *vault.Vault) error { return v.RemoveCredential("a") },
		"rotated": func(v *vault.Vault) error { return v.RotateCredential("a", text("canary-not-a-secret-new")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := filled(t)
			stored := func() map[string]bool {
				boxes := map[string]bool{}
				h.update(func(b *bolt.Bucket) error {
					return b.ForEach(func(_, box []byte) error { boxes[string(box)] = true; return nil })
				})
				return boxes
			}
			before := stored()
			v := h.open()
			must(t, v.Unlock(t.Context(), text(passphrase)))
			must(t, act(v))
			file, err := os.ReadFile(h.path)
			must(t, err)
			must(t, v.Close())
			now := stored()
			gone := 0
			for box := range before {
				if now[box] {
					continue
				}
				gone++
				if strings.Contains(string(file), box[:48]) {
					t.Error("a box that is no record any more is still in the file")
				}
			}
			if gone != 2 { // description and value
				t.Errorf("%d boxes went", gone)
			}
			v = h.open()
			must(t, v.Unlock(t.Context(), text(passphrase)))
			if got, err := v.Contracts(); err != nil || len(got) != 1 {
				t.Errorf("overwriting freed pages hit a live one: %v, %v", got, err)
			}
		})
	}
}

func TestACredentialAllowsTheURLsOfItsTargets(t *testing.T) {
	c := bearer("x")
	second, err := vault.ParseTarget("https://other.example.com/a")
	must(t, err)
	c.Targets = append(c.Targets, second)
	for raw, want := range map[string]bool{
		"https://api.example.com/anything": true, "https://other.example.com/a/b": true,
		"https://other.example.com/b": false, "https://evil.example/": false,
	} {
		u, err := url.Parse(raw)
		must(t, err)
		if c.Allows(u) != want {
			t.Errorf("%s: %v", raw, !want)
		}
	}
}
