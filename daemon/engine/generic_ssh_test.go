package engine_test

import (
	"slices"
	"strings"
	"testing"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/vault"
)

// allowCommands makes the credential db, which is for one account on a known host and for one on an unknown one, allow what edit says.
func (r *rig) allowCommands(edit func(*vault.Credential), others ...string) {
	r.t.Helper()
	elsewhere, err := vault.ParseTarget("ssh://deploy@db2.internal.example")
	if err != nil {
		r.t.Fatal(err)
	}
	r.keys.edit = func(c *vault.Credential) {
		edit(c)
		c.Targets = append(c.Targets, elsewhere)
	}
	c, err := r.keys.Credential("db")
	if err != nil {
		r.t.Fatal(err)
	}
	all := []vault.Credential{c}
	for _, name := range others {
		c.Name = name
		all = append(all, c)
	}
	r.SetCredentials(all)
	r.CredentialChanged("db")
}

func offersCommands(r *rig) bool {
	tools, _ := r.Tools(nil)
	return slices.ContainsFunc(tools, func(t call.Tool) bool { return t.Name == "ssh_run" })
}

const migrateNow = `{"host":"ssh://deploy@db1.internal.example","command":["./migrate","--to","2; id"],"directory":"/srv/shop","stdin":"yes"}`

func TestGenericCommandsAreThereForWhoeverTheOwnerAllowsThem(t *testing.T) {
	r := sshRig(t)
	a := newAgent("1")
	r.trust(a)
	r.allowCommands(nothing)
	if offersCommands(r) {
		t.Error("the tool is listed although nobody allowed it")
	}
	r.want(r.call(background, a, "ssh_run", migrateNow), api.CodeActionUnknown, 0)
	changed := r.ToolsChanged()
	r.allowCommands(generic)
	select {
	case <-changed:
	default:
		t.Error("nobody was told that the list changed")
	}
	if !offersCommands(r) || offers(r) {
		t.Error("the tool for commands is not listed, or the one for requests is")
	}
	r.want(r.call(background, a, "http_request", post), api.CodeActionUnknown, 0)
	for n := range 2 { // a session is not enough, for the second one neither
		done := r.begin(background, a, "ssh_run", strings.Replace(migrateNow, "2;", "2"+strings.Repeat("0", n)+";", 1))
		c := r.card()
		s := c.Effect.SSH
		if c.Card.Question != approval.AskUse || c.Execution.Class != execution.Irreversible || c.Effect.Auth.Credential != "db" || c.Effect.Auth.Kind != "ssh-key" ||
			s.Command != "'./migrate' '--to' '2"+strings.Repeat("0", n)+"; id'" || s.Directory != "/srv/shop" || string(s.Stdin) != "yes" || !slices.Equal(s.Host.Keys, r.keys.hostKeys) {
			t.Errorf("the card is %+v %+v", c, s)
		}
		r.answer(c, approval.Once)
		r.want(<-done, "", n+1)
	}
	sent := r.target.ledger[0]
	if !sent.SideEffect || sent.Permitted("ssh://deploy@db1.internal.example:22") != nil || sent.Permitted("ssh://root@db1.internal.example:22") == nil {
		t.Errorf("sent %+v, with another binding than the credential's", sent)
	}
	r.allowCommands(nothing)
	if offersCommands(r) {
		t.Error("the tool is still listed")
	}
	r.want(r.call(background, a, "ssh_run", strings.Replace(migrateNow, "2;", "3;", 1)), api.CodeActionUnknown, 2)
}

func TestALostGenericCommandIsNeverRunASecondTime(t *testing.T) {
	r := sshRig(t)
	a := newAgent("1")
	r.trust(a)
	r.allowCommands(generic)
	r.target.answer = func(int, channel.Request) channel.Outcome {
		return channel.Outcome{Verdict: channel.Unknown, Reason: "lost"}
	}
	done := r.begin(background, a, "ssh_run", migrateNow)
	r.answer(r.card(), approval.Once)
	first := <-done
	r.want(first, "", 1)
	again := func(name, arguments string) {
		t.Helper()
		if got := r.call(background, a, "ssh_run", arguments); got.ExecutionID != first.ExecutionID || got.State != execution.Unknown {
			t.Errorf("%s: %+v", name, got)
		}
	}
	again("as before", migrateNow)
	again("with the credential named", strings.Replace(migrateNow, `{"host"`, `{"credential":"db","host"`, 1))
	again("with the port written", strings.Replace(migrateNow, `db1.internal.example"`, `DB1.internal.example:22"`, 1))
	r.keys.hostLock.Lock()
	r.keys.hostKeys = []string{"ssh-ed25519 AAAA2"}
	r.keys.hostLock.Unlock()
	r.HostChanged("db1.internal.example:22")
	again("with another host key", migrateNow)
	r.SetActions(nil, nil)
	again("with other contracts", migrateNow)
	r.allowCommands(nothing)
	again("without the leave", migrateNow)
	r.allowCommands(generic, "other")
	again("with two credentials", migrateNow)
	r.want(first, "", 1)
}

func TestWhatWaitsAsAGenericCommandGoesWithItsCredentialOrHostKey(t *testing.T) {
	r := sshRig(t)
	a := newAgent("1")
	r.trust(a)
	for name, change := range map[string]func(){
		"the credential": func() { r.CredentialChanged("db") },
		"the host's key": func() { r.HostChanged("db1.internal.example:22") },
	} {
		r.allowCommands(generic)
		done := r.begin(background, a, "ssh_run", strings.Replace(migrateNow, "2;", name+";", 1))
		r.card()
		r.SetActions(nil, nil)
		if n := len(r.Cards()); n != 1 {
			t.Errorf("%d cards after contracts changed", n)
		}
		change()
		r.want(<-done, api.CodeWithdrawn, 0)
	}
}

func TestAGenericCommandStaysWithinTheBindingAndTheKnownHosts(t *testing.T) {
	r := sshRig(t)
	a := newAgent("1")
	r.trust(a)
	r.allowCommands(generic, "second")
	ask := func(arguments string) string {
		t.Helper()
		got := r.call(background, a, "ssh_run", arguments)
		r.want(got, api.CodeArguments, 0)
		return string(got.Result)
	}
	if text := ask(migrateNow); !strings.Contains(text, "several credentials cover this account") || !strings.Contains(text, "db, second") {
		t.Errorf("with two credentials: %s", text)
	}
	r.allowCommands(generic)
	for arguments, says := range map[string]string{
		strings.Replace(migrateNow, "deploy@", "root@", 1):                    "covers this account",
		strings.Replace(migrateNow, "db1.", "db3.", 1):                        "covers this account",
		strings.Replace(migrateNow, `example"`, `example:2222"`, 1):           "covers this account",
		strings.Replace(migrateNow, `{"host"`, `{"credential":"x","host"`, 1): "covers this account",
		strings.Replace(migrateNow, "ssh://", "https://", 1):                  "/host",
		`{"host":"ssh://deploy@db1.internal.example","command":"id"}`:         "/command",
	} {
		if text := ask(arguments); !strings.Contains(text, says) {
			t.Errorf("%s: %s", arguments, text)
		}
	}
	got := r.call(background, a, "ssh_run", strings.Replace(migrateNow, "db1.", "db2.", 1))
	r.want(got, api.CodeTargetNotBound, 0)
	if !strings.Contains(string(got.Result), "spctl host add db2.internal.example:22") {
		t.Errorf("of an unknown host the agent is told %s", got.Result)
	}
}
