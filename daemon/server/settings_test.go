package server_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
)

func (s *stage) set(key, value string) api.Setting {
	s.t.Helper()
	got, err := s.operator.ChangeSetting(s.t.Context(), key, &value)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func TestSecuritySettingsOutliveTheDaemonAndAreRecorded(t *testing.T) {
	s := begin(t)
	if got := s.set("card_ttl", "90s"); got.Value != "1m30s" || got.Default != "10m0s" {
		t.Errorf("changed: %+v", got)
	}
	s.restart()
	if _, err := s.operator.Settings(t.Context()); err == nil {
		t.Error("a locked vault shows its settings")
	}
	value := "never"
	if _, err := s.operator.ChangeSetting(t.Context(), "idle_lock", &value); err == nil {
		t.Error("a locked vault takes a setting")
	}
	s.unlock()
	a := s.agent()
	a.send("pay", "1")
	if card := s.nextCard(); card.Expires.Sub(card.Created) != 90*time.Second {
		t.Errorf("a card waits from %s to %s", card.Created, card.Expires)
	}
	if got, err := s.operator.ChangeSetting(t.Context(), "card_ttl", nil); err != nil || got.Value != got.Default {
		t.Errorf("back to the default: %+v, %v", got, err)
	}
	journal, err := os.ReadDir(s.home.Journal())
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range journal {
		b, err := os.ReadFile(s.home.Journal() + "/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	if !strings.Contains(all.String(), `"setting_changed"`) || !strings.Contains(all.String(), `"1m30s"`) {
		t.Error("the journal does not say that a setting was changed")
	}
}

func TestASettingThatMakesNoSenseIsRefused(t *testing.T) {
	s := begin(t)
	for key, value := range map[string]string{"card_ttl": "never", "idle_lock": "1s", "lock_on_suspend": "maybe", "ticket_lifetime": "9000h"} {
		_, err := s.operator.ChangeSetting(t.Context(), key, &value)
		wantCode(t, err, api.CodeUsage)
	}
	value := "1"
	_, err := s.operator.ChangeSetting(t.Context(), "no_such_setting", &value)
	wantCode(t, err, api.CodeMissing)
}

func TestTheVaultLocksWhenNothingUsesIt(t *testing.T) {
	t.Parallel() // ten seconds are the least
	s := begin(t)
	s.set("idle_lock", "10s")
	a := s.agent()
	id := a.send("pay", "1")
	s.nextCard()
	// The person does nothing: the lock voids the card, and is then done and says why.
	if out := a.outcome(id); out.Code != api.CodeExpired && out.Code != api.CodeVaultLocked {
		t.Errorf("the call got %s", out.raw)
	}
	st := s.status()
	for until := time.Now().Add(patience); st.Reason == "" && time.Now().Before(until); {
		st = s.status()
	}
	if st.Vault != "locked" || !strings.Contains(st.Reason, "10s") {
		t.Errorf("the vault is %s because %s", st.Vault, st.Reason)
	}
}
