package server_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/server"
	"singlepass.dev/vault"
)

// The file was written once. It is never regenerated: what it holds lies in vaults. Settings may be added to it.
func TestTheFormOfSettingsIsFrozen(t *testing.T) {
	b, err := os.ReadFile("testdata/settings-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Key        string
		Value      json.RawMessage
		Set, Reads string
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	all, err := server.ReadSettings(nil)
	if err != nil {
		t.Errorf("no settings stop connections: %v", err)
	}
	seen := map[string]bool{}
	for _, v := range vectors {
		key := strings.TrimPrefix(v.Key, "security.")
		seen[key] = true
		stored, err := server.WriteSetting(key, v.Set)
		if err != nil || stored.Key != v.Key || !bytes.Equal(stored.Value, v.Value) {
			t.Errorf("%s set to %s is stored as %s %s, %v", key, v.Set, stored.Key, stored.Value, err)
		}
		got, err := server.ReadSettings([]vault.Setting{{Key: v.Key, Value: v.Value}})
		if err != nil || got[key] != v.Reads {
			t.Errorf("%s stored as %s reads as %s, %v", key, v.Value, got[key], err)
		}
	}
	for key := range all {
		if !seen[key] {
			t.Errorf("no vector for %s", key)
		}
	}
}

func TestAProxySettingThatIsNotUnderstoodConnectsNowhere(t *testing.T) {
	for _, value := range []string{`"socks9://proxy.example:1"`, `7`, `""`} {
		for _, key := range []string{"security.proxy", "security.proxy_credential"} {
			if key == "security.proxy_credential" && strings.HasPrefix(value, `"socks`) {
				continue
			}
			if _, err := server.ReadSettings([]vault.Setting{{Key: key, Value: json.RawMessage(value)}}); err == nil {
				t.Errorf("%s %s: connections would be direct", key, value)
			}
		}
	}
	if _, err := server.ReadSettings([]vault.Setting{{Key: "security.idle_lock", Value: json.RawMessage(`7`)}, {Key: "security.of_the_future", Value: json.RawMessage(`{}`)}}); err != nil {
		t.Errorf("a setting about something else: %v", err)
	}
}

func TestAProxyGetsOnlyACredentialThatIsForIt(t *testing.T) {
	s := begin(t)
	for _, value := range []string{"proxy.example:3128", "http://user:canary-not-a-secret-word@proxy.example:3128", "socks5://proxy.example:1080"} {
		_, err := s.operator.ChangeSetting(t.Context(), "proxy", &value)
		wantCode(t, err, api.CodeUsage)
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error quotes a password: %v", err)
		}
	}
	if got := s.set("proxy", "https://proxy.example:3128"); got.Value != "https://proxy.example:3128" || got.Default != "none" {
		t.Errorf("changed: %+v", got)
	}
	name := "api" // bearer, and for another target
	_, err := s.operator.ChangeSetting(t.Context(), "proxy_credential", &name)
	wantCode(t, err, api.CodeUsage)
	name = "nobody"
	_, err = s.operator.ChangeSetting(t.Context(), "proxy_credential", &name)
	wantCode(t, err, api.CodeUsage)
	if got, err := s.operator.ChangeSetting(t.Context(), "proxy", nil); err != nil || got.Value != "none" {
		t.Errorf("back to none: %+v, %v", got, err)
	}
}
