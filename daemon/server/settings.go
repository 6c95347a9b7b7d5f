package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/vault"
)

// settings are what decides how easily something is approved or stays open. They lie in the vault, because an agent can edit files.
type settings struct {
	idleLock       time.Duration // 0: never
	cardTTL        time.Duration
	ticketLifetime time.Duration
	lockOnSuspend  bool
	lockOnScreen   bool
	lockOnSwitch   bool
	proxy          *url.URL // nil: none
	proxyWith      string   // the name of the credential for it; empty: none
	noTargets      error    // why nothing is connected to: they were not read yet, or one that says where connections go is not understood
}

func defaultSettings() settings {
	return settings{
		idleLock: 15 * time.Minute, cardTTL: 10 * time.Minute, ticketLifetime: 8 * time.Hour, lockOnSuspend: true, lockOnScreen: true, lockOnSwitch: true,
		noTargets: errors.New("the settings were not read yet; unlock the vault"),
	}
}

// settingPrefix is what their keys begin with in the vault.
const settingPrefix = "security."

// setting is one of them: how it is written, read and kept within bounds. What the keys mean is frozen; keys may be added.
type setting struct {
	key, meaning string
	text         func(s *settings) string
	set          func(s *settings, text string) error
	guards       bool // its default is not the careful one: where it is not understood, nothing is connected to
}

var allSettings = []setting{
	duration("idle_lock", "the vault locks when nothing used it for this long", func(s *settings) *time.Duration { return &s.idleLock }, 10*time.Second, 24*time.Hour, true),
	duration("card_ttl", "how long a card waits for you", func(s *settings) *time.Duration { return &s.cardTTL }, 10*time.Second, 24*time.Hour, false),
	duration("ticket_lifetime", "how long a program that stays, such as the tray, needs no passphrase", func(s *settings) *time.Duration { return &s.ticketLifetime }, time.Minute, 24*time.Hour, false),
	choice("lock_on_suspend", "the vault locks before the machine sleeps", func(s *settings) *bool { return &s.lockOnSuspend }),
	choice("lock_on_screen_lock", "the vault locks with the screen", func(s *settings) *bool { return &s.lockOnScreen }),
	choice("lock_on_user_switch", "the vault locks when another user's session comes to the front", func(s *settings) *bool { return &s.lockOnSwitch }),
	proxySetting,
	proxyCredentialSetting,
}

func duration(key, meaning string, field func(*settings) *time.Duration, least, most time.Duration, never bool) setting {
	return setting{
		key: key, meaning: meaning,
		text: func(s *settings) string {
			if *field(s) == 0 {
				return "never"
			}
			return field(s).String()
		},
		set: func(s *settings, text string) error {
			if never && text == "never" {
				*field(s) = 0
				return nil
			}
			d, err := time.ParseDuration(text)
			if err != nil || d < least || d > most {
				return fmt.Errorf("%q is not a time between %s and %s; write for instance 45s or 10m", text, least, most)
			}
			*field(s) = d
			return nil
		},
	}
}

func choice(key, meaning string, field func(*settings) *bool) setting {
	words := map[bool]string{true: "yes", false: "no"}
	return setting{
		key: key, meaning: meaning,
		text: func(s *settings) string { return words[*field(s)] },
		set: func(s *settings, text string) error {
			for value, word := range words {
				if text == word {
					*field(s) = value
					return nil
				}
			}
			return fmt.Errorf("%q is neither yes nor no", text)
		},
	}
}

// loadSettings reads them from the open vault and puts them into force. One that this version cannot read counts as its default, which is the careful one (or else nothing is connected to), and is named in the log.
func (s *Server) loadSettings() error {
	stored, err := s.vault.Settings()
	if err != nil {
		return err
	}
	before := s.settings.Load()
	now := readSettings(stored, s.log)
	s.settings.Store(&now)
	s.engine.SetCardTTL(now.cardTTL)
	if before.proxyText() != now.proxyText() || before.proxyWith != now.proxyWith {
		s.toTargets.Forget()
	}
	return nil
}

// readSettings puts what is stored into force.
func readSettings(stored []vault.Setting, log *slog.Logger) settings {
	now := defaultSettings()
	now.noTargets = nil
	for _, v := range stored {
		for _, known := range allSettings {
			if v.Key != settingPrefix+known.key {
				continue
			}
			var text string
			err := json.Unmarshal(v.Value, &text)
			if err == nil {
				err = known.set(&now, text)
			}
			if err != nil {
				log.Error("a security setting is not understood, so its default counts", "setting", known.key, "error", err)
				if known.guards {
					now.noTargets = fmt.Errorf("the setting %s is not understood, so nothing is connected to: set it anew with spctl settings", known.key)
				}
			}
		}
	}
	return now
}

// written is the form in which a setting is kept in the vault. It is frozen, as are the keys and what they mean.
func (setting setting) written(now *settings) (key string, value json.RawMessage) {
	value, _ = json.Marshal(setting.text(now)) // a string always encodes
	return settingPrefix + setting.key, value
}

func (setting setting) api(now *settings) api.Setting {
	usual := defaultSettings()
	return api.Setting{Key: setting.key, Value: setting.text(now), Default: setting.text(&usual), Meaning: setting.meaning}
}

// Settings lists the security settings; they are in the vault, so it has to be open.
func (o *operatorSide) Settings(context.Context) ([]api.Setting, error) {
	if o.s.vault.Status() != vault.Unlocked {
		return nil, vault.ErrLocked
	}
	now := o.s.settings.Load()
	list := make([]api.Setting, 0, len(allSettings))
	for _, known := range allSettings {
		list = append(list, known.api(now))
	}
	return list, nil
}

// ChangeSetting changes one, from now on; nil is its default.
func (o *operatorSide) ChangeSetting(_ context.Context, key string, value *string, by string) (api.Setting, error) {
	s := o.s
	s.unlocking.Lock()
	defer s.unlocking.Unlock()
	for _, known := range allSettings {
		if known.key != key {
			continue
		}
		var err error
		note := engineNote{Kind: "setting_changed", Setting: key, By: by}
		if value == nil {
			if err = s.vault.RemoveSetting(settingPrefix + key); errors.Is(err, vault.ErrNotFound) {
				err = nil
			}
		} else {
			next := *s.settings.Load()
			if err := known.set(&next, *value); err != nil {
				return api.Setting{}, api.Errorf(api.CodeUsage, "%s: %v", key, err)
			}
			if err := s.proxyFits(next); err != nil {
				return api.Setting{}, api.Errorf(api.CodeUsage, "%s: %v", key, err)
			}
			note.Value = known.text(&next)
			err = s.vault.SetSetting(known.written(&next))
		}
		if err != nil {
			return api.Setting{}, err
		}
		if err := s.loadSettings(); err != nil {
			return api.Setting{}, err
		}
		s.touch()
		return known.api(s.settings.Load()), s.engine.Note(note)
	}
	return api.Setting{}, api.Errorf(api.CodeMissing, "there is no setting %q", key).WithHint("spctl settings")
}
