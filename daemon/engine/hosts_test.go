package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/policy"
)

func sshAction(t testing.TB, name, host, user, approval string) *policy.Action {
	t.Helper()
	c, err := policy.Parse(name+".yaml", fmt.Appendf(nil, `action: %s
description: Migrates.
channel: ssh
input: {type: object, properties: {version: {type: string}}, required: [version]}
credential: db
approval: %s
ssh: {host: %s, user: %s, command: [./migrate, --, "{version}"]}
replay: {class: irreversible, attach_window: 1h}
`, name, approval, host, user))
	if err != nil {
		t.Fatal(err)
	}
	a, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sshRig(t *testing.T) *rig {
	return newRig(t, func(r *rig) {
		r.keys.hostKeys = []string{"ssh-ed25519 AAAA1"}
		r.actions = append(
			r.actions, sshAction(t, "migrate", "db1.internal.example", "deploy", "session"), sshAction(t, "migrate_asked", "db1.internal.example", "deploy", "per_use"),
			sshAction(t, "migrate_unknown", "db2.internal.example", "deploy", "session"), sshAction(t, "migrate_root", "db1.internal.example", "root", "session"),
		)
	})
}

func TestACommandGoesToAKnownHostWithTheKeysThatItHasToShow(t *testing.T) {
	r := sshRig(t)
	a := newAgent("1")
	r.trust(a)
	r.want(r.call(background, a, "migrate", `{"version":"2"}`), "", 1)
	sent := r.target.ledger[0]
	if c := sent.Effect.SSH; c == nil || c.Command != "'./migrate' '--' '2'" || !slices.Equal(c.Host.Keys, r.keys.hostKeys) || sent.Effect.Auth.Kind != "ssh-key" {
		t.Errorf("sent %+v", sent.Effect)
	}
	if err := sent.Permitted("ssh://deploy@db1.internal.example:22"); err != nil {
		t.Error(err)
	}
	if err := sent.Permitted("ssh://root@db1.internal.example:22"); err == nil {
		t.Error("another account is within the binding")
	}
	got := r.call(background, a, "migrate_unknown", `{"version":"2"}`)
	r.want(got, api.CodeTargetNotBound, 1)
	if !strings.Contains(string(got.Result), "db2.internal.example:22") {
		t.Errorf("the refusal is %s", got.Result)
	}
	r.want(r.call(background, a, "migrate_root", `{"version":"2"}`), api.CodeTargetNotBound, 1)
}

func TestAChangedHostKeyWithdrawsWhatWaitsForThatHost(t *testing.T) {
	r := sshRig(t)
	a := newAgent("1")
	r.trust(a)
	done := r.begin(background, a, "migrate_asked", `{"version":"2"}`)
	r.card()
	r.HostChanged("db9.internal.example:22")
	if len(r.Cards()) != 1 {
		t.Error("another host's change withdrew the card")
	}
	r.keys.hostLock.Lock()
	r.keys.hostKeys = []string{"ssh-ed25519 AAAA2"}
	r.keys.hostLock.Unlock()
	r.HostChanged("db1.internal.example:22")
	r.want(<-done, api.CodeWithdrawn, 0)
}

func TestWhatWasApprovedForOneHostKeyIsNotSentToAnother(t *testing.T) {
	r := sshRig(t)
	a := newAgent("1")
	r.trust(a)
	done := r.begin(background, a, "migrate_asked", `{"version":"2"}`)
	c := r.card()
	r.keys.hostLock.Lock()
	r.keys.hostKeys = []string{"ssh-ed25519 AAAA2"} // and nobody told the engine
	r.keys.hostLock.Unlock()
	r.answer(c, approval.Once)
	r.want(<-done, api.CodeNotSent, 0)
}
