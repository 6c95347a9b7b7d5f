package vault_test

import (
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"singlepass.dev/vault"
)

// newKey makes a key pair: OpenSSH's private form, and the public line.
func newKey(t *testing.T) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(key, "somebody@example")
	must(t, err)
	p, err := ssh.NewPublicKey(pub)
	must(t, err)
	line := string(ssh.MarshalAuthorizedKey(p))
	return string(pem.EncodeToMemory(block)), line[:len(line)-1]
}

func sshCredential(name string, kind vault.CredentialKind) vault.Credential {
	t, err := vault.ParseTarget("ssh://deploy@db1.internal.example")
	if err != nil {
		panic(err)
	}
	return vault.Credential{Name: name, Kind: kind, Targets: []vault.Target{t}}
}

func TestAnSSHTargetIsOneAccountOnOneHost(t *testing.T) {
	target, err := vault.ParseTarget("ssh://Deploy@DB1.internal.example")
	must(t, err)
	if target.String() != "ssh://Deploy@db1.internal.example:22" {
		t.Errorf("read as %s", target)
	}
	c := vault.Credential{Targets: []vault.Target{target}}
	for text, want := range map[string]bool{
		"ssh://Deploy@db1.internal.example:22":   true,
		"ssh://Deploy@db1.internal.example":      true,
		"ssh://deploy@db1.internal.example:22":   false,
		"ssh://root@db1.internal.example:22":     false,
		"ssh://db1.internal.example:22":          false,
		"ssh://Deploy:x@db1.internal.example:22": false,
		"ssh://Deploy@db1.internal.example:2222": false,
		"ssh://Deploy@db2.internal.example:22":   false,
		"ssh://Deploy@db1.internal.example:22/x": false,
		"https://Deploy@db1.internal.example:22": false,
		"ssh://Deploy@db1.internal.example:22?a": false,
		"ssh://Deploy@db1.internal.example:22#x": false,
	} {
		u, err := url.Parse(text)
		must(t, err)
		if got := c.Allows(u); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	for _, text := range []string{
		"ssh://db1.internal.example", "ssh://@db1.internal.example", "ssh://deploy@", "ssh://deploy@db1.internal.example/x", "ssh://deploy@db1.internal.example?x", "ssh://-oProxyCommand@h",
		"ssh://deploy@h:0", "ssh:deploy@h", "ssh://a%20b@h",
	} {
		if target, err := vault.ParseTarget(text); err == nil {
			t.Errorf("%s was read as %s", text, target)
		}
	}
	if _, err := vault.ParseTarget("ssh://deploy:canary-not-a-secret@h"); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("a password in a target: %v", err)
	}
}

func TestAnSSHKeyIsKeptInOneFormAndOnlyForSSHTargets(t *testing.T) {
	v, _ := newHome(t).initialized()
	private, _ := newKey(t)
	must(t, v.AddCredential(sshCredential("db", vault.SSHKey), text(private)))
	_, value, err := v.UseCredential("db")
	must(t, err)
	block, rest := pem.Decode([]byte(reveal(t, value)))
	if block == nil || block.Type != "OPENSSH PRIVATE KEY" || len(rest) > 0 {
		t.Error("it is kept in another form")
	}
	if strings.Contains(reveal(t, value), "somebody") {
		t.Error("the comment is kept")
	}
	value.Wipe()
	for what, bad := range map[string]string{"a password": "hunter2", "nothing": " ", "half a key": private[:len(private)/2]} {
		if err := v.AddCredential(sshCredential("bad", vault.SSHKey), text(bad)); err == nil {
			t.Errorf("%s was taken as a key", what)
		}
	}
	c := bearer("web")
	c.Kind = vault.SSHKey
	if err := v.AddCredential(c, text(private)); err == nil {
		t.Error("a key for an https target was taken")
	}
	c = sshCredential("web", vault.Bearer)
	if err := v.AddCredential(c, text("x")); err == nil {
		t.Error("a bearer token for an ssh target was taken")
	}
	must(t, v.AddCredential(sshCredential("pw", vault.SSHPassword), text("canary-not-a-secret pass")))
	if err := v.RotateCredential("pw", text("a\nb")); err == nil {
		t.Error("a password with a line break was taken")
	}
}

func TestACertificateBelongsToItsKey(t *testing.T) {
	v, _ := newHome(t).initialized()
	private, public := newKey(t)
	other, _ := newKey(t)
	authority, err := ssh.ParsePrivateKey([]byte(other))
	must(t, err)
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(public))
	must(t, err)
	cert := &ssh.Certificate{Key: key, CertType: ssh.UserCert, ValidPrincipals: []string{"deploy"}, ValidBefore: ssh.CertTimeInfinity}
	must(t, cert.SignCert(zeros{}, authority))
	line := string(ssh.MarshalAuthorizedKey(cert))
	c := sshCredential("db", vault.SSHKey)
	c.Params.Certificate = line
	if err := v.AddCredential(c, text(private)); err == nil {
		t.Error("a certificate with a line break was kept as it is")
	}
	c.Params.Certificate = line[:len(line)-1]
	if err := v.AddCredential(c, text(other)); err == nil {
		t.Error("the certificate of another key was taken")
	}
	must(t, v.AddCredential(c, text(private)))
	if err := v.RotateCredential("db", text(other)); err == nil {
		t.Error("a rotation left the certificate without its key")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestHostsArePinnedOnceAndReplacedOnlyByRemoval(t *testing.T) {
	h := newHome(t)
	v, _ := h.initialized()
	_, one := newKey(t)
	_, two := newKey(t)
	_, err := v.Host("db1.internal.example", 22)
	wantError(t, err, vault.ErrNotFound)
	must(t, v.AddHost(vault.Host{Name: "db1.internal.example", Port: 22, Keys: []string{two, one, two}}))
	got, err := v.Host("db1.internal.example", 22)
	must(t, err)
	want := []string{one, two}
	slices.Sort(want)
	if !slices.Equal(got.Keys, want) || !got.Added.Equal(h.clock.Now()) {
		t.Errorf("pinned %+v", got)
	}
	wantError(t, v.AddHost(vault.Host{Name: "db1.internal.example", Port: 22, Keys: []string{one}}), vault.ErrExists)
	must(t, v.AddHost(vault.Host{Name: "2001:db8::1", Port: 2222, Keys: []string{one}}))
	all, err := v.Hosts()
	must(t, err)
	if len(all) != 2 || all[0].Address() != "[2001:db8::1]:2222" || all[1].Address() != "db1.internal.example:22" {
		t.Errorf("listed %+v", all)
	}
	must(t, v.RemoveHost("db1.internal.example", 22))
	wantError(t, v.RemoveHost("db1.internal.example", 22), vault.ErrNotFound)
	_, err = v.Host("db1.internal.example", 22)
	wantError(t, err, vault.ErrNotFound)
	for name, bad := range map[string]vault.Host{
		"no key": {Name: "a", Port: 22}, "no port": {Name: "a", Keys: []string{one}}, "another form": {Name: "A", Port: 22, Keys: []string{one}},
		"a comment": {Name: "a", Port: 22, Keys: []string{one + " me@home"}}, "no host key": {Name: "a", Port: 22, Keys: []string{"x"}},
	} {
		if err := v.AddHost(bad); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	v.Lock()
	_, err = v.Hosts()
	wantError(t, err, vault.ErrLocked)
}

func TestAHostIsReadInTheWaysInWhichPeopleWriteIt(t *testing.T) {
	for text, want := range map[string]vault.Host{
		"db1": {Name: "db1", Port: 22}, "DB1:2222": {Name: "db1", Port: 2222}, "[2001:DB8::1]:22": {Name: "2001:db8::1", Port: 22}, "2001:db8::1": {Name: "2001:db8::1", Port: 22},
		"[2001:db8::1]": {Name: "2001:db8::1", Port: 22},
	} {
		name, port, err := vault.ParseHost(text)
		must(t, err)
		if name != want.Name || port != want.Port {
			t.Errorf("%s: %s %d", text, name, port)
		}
	}
	for _, text := range []string{"", ":22", "a:0", "a:b", "a/b", "ssh://a", "a b", "1.2.3"} {
		if name, _, err := vault.ParseHost(text); err == nil {
			t.Errorf("%q was read as %s", text, name)
		}
	}
}

// What lies in vaults is read by every later version.
func TestTheFormsOfAHostAndAnSSHCredentialAreFrozen(t *testing.T) {
	h := vault.Host{Name: "db1", Port: 22, Keys: []string{"ssh-ed25519 AAAA"}, Added: time.Unix(1700000000, 0).UTC()}
	c := sshCredential("db", vault.SSHKey)
	c.Params.Certificate = "x y"
	for value, want := range map[any]string{
		&h:            `{"name":"db1","port":22,"keys":["ssh-ed25519 AAAA"],"added":"2023-11-14T22:13:20Z"}`,
		&c.Params:     `{"certificate":"x y"}`,
		&c.Targets[0]: `{"scheme":"ssh","host":"db1.internal.example","port":22,"path_prefix":"","user":"deploy"}`,
	} {
		if b, err := json.Marshal(value); err != nil || string(b) != want {
			t.Errorf("%s, frozen %s (%v)", b, want, err)
		}
	}
}
