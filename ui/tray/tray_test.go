package tray_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/bustest"
	"singlepass.dev/ui/icon"
	"singlepass.dev/ui/tray"
	"singlepass.dev/ui/watch"
)

// english is what the tests read, whatever the translations become.
type english struct{}

func (english) Say(key string, pairs ...any) string {
	text := map[string]string{
		"tray.tooltip": "Singlepass: {State}", "tray.open": "Open", "tray.setup": "Set up", "tray.unlock": "Unlock", "tray.lock": "Lock now", "tray.activity": "Activity", "tray.quit": "Quit",
		"tray.down": "not running", "tray.quarantine": "does not verify", "tray.no_vault": "no vault", "tray.locked": "locked", "tray.nothing": "unlocked", "tray.card": "{Tool}, asked by {Program}",
	}[key]
	for i := 0; i < len(pairs); i += 2 {
		text = strings.ReplaceAll(text, "{"+pairs[i].(string)+"}", fmt.Sprint(pairs[i+1]))
	}
	return text
}

func (english) Count(key string, n int, _ ...any) string {
	return fmt.Sprintf("%d %s", n, strings.TrimPrefix(key, "tray."))
}

var say english

func state(events ...watch.Event) watch.State {
	s := watch.State{Link: watch.Starting}
	for _, e := range events {
		s = watch.Apply(s, e)
	}
	return s
}

func status(st api.Status) watch.Event { return watch.StatusKnown{Status: st} }

func waits(ids ...string) (events []watch.Event) {
	events = append(events, status(api.Status{Vault: "unlocked", Journal: "ok"}), watch.ProofChanged{Proven: true})
	for _, id := range ids {
		events = append(events, watch.CardSaid{Event: api.CardEvent{Event: "waiting", Card: api.Card{
			Card: id, Tool: "deploy_" + id, Actor: "exe:/usr/bin/claude", Effect: api.Effect{Body: "canary-not-a-secret-body"}, Target: "https://deploy.example",
		}}})
	}
	return events
}

func text(l tray.Look) string {
	lines := []string{l.Head}
	for _, e := range append(l.Cards, l.Rest...) {
		if e.Label != "" {
			lines = append(lines, e.Label)
		}
	}
	return strings.Join(lines, "\n")
}

func TestTheMenuSaysWhatCanBeDoneNow(t *testing.T) {
	for _, c := range []struct {
		name  string
		state watch.State
		want  string
	}{
		{"no daemon", state(watch.LinkLost{Link: watch.Down}), "not running\nOpen\nActivity\nQuit"},
		{"locked", state(status(api.Status{Vault: "locked"})), "locked\nUnlock\nOpen\nActivity\nQuit"},
		{"no vault", state(status(api.Status{Vault: "uninitialized"})), "no vault\nSet up\nOpen\nActivity\nQuit"},
		{"unlocked", state(status(api.Status{Vault: "unlocked"})), "unlocked\nLock now\nOpen\nActivity\nQuit"},
		{"waiting", state(waits("a", "b")...), "2 waiting\ndeploy_a, asked by claude\ndeploy_b, asked by claude\nLock now\nOpen\nActivity\nQuit"},
		{"unknown", state(status(api.Status{Vault: "unlocked", Unknown: 2})), "2 unknown\n2 settle\nLock now\nOpen\nActivity\nQuit"},
		{"quarantine", state(status(api.Status{Vault: "unlocked", Journal: "quarantine"})), "does not verify\nLock now\nOpen\nActivity\nQuit"},
	} {
		if got := text(tray.Of(c.state, say)); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, got, c.want)
		}
	}
}

func TestManyCardsAreNamedUpToAPanelsHeight(t *testing.T) {
	var ids []string
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("%03d", i))
	}
	l := tray.Of(state(waits(ids...)...), say)
	if len(l.Cards) != 9 || l.Cards[8].Label != "192 more" || l.Count != 200 {
		t.Errorf("got %d entries, the last %q, count %d", len(l.Cards), l.Cards[len(l.Cards)-1].Label, l.Count)
	}
}

func TestNothingThatACallCarriesIsInTheMenuAndNamesCannotLie(t *testing.T) {
	e := waits("a")
	e = append(e, watch.CardSaid{Event: api.CardEvent{Event: "added", Card: api.Card{Card: "z", Tool: "pay\u202egnp.\n" + strings.Repeat("long", 50), Actor: "exe:/opt/evil\x1b[31m"}}})
	got := text(tray.Of(state(e...), say))
	if strings.Contains(got, "canary") || strings.Contains(got, "deploy.example") {
		t.Errorf("the menu holds the call: %s", got)
	}
	if strings.ContainsAny(got, "\u202e\x1b") || strings.Count(got, "\n") != 6 || strings.Contains(got, strings.Repeat("long", 15)) {
		t.Errorf("a name is not bounded: %q", got)
	}
}

// The library keeps its icon in a variable, so one test has it from its start to its end.
func TestAPanelShowsTheIconAndClicksReachUs(t *testing.T) {
	address := bustest.Start(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
	panel := bustest.NewPanel(t, address)
	clicks, taps, hosts := make(chan string, 16), make(chan bool, 16), make(chan bool, 16)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tr, err := tray.Start(ctx, tray.Config{
		Do:     func(c tray.Command, card string) { clicks <- string(c) + " " + card },
		Tapped: func() { taps <- true }, Hosted: func(h bool) { hosts <- h },
	}, tray.Of(state(status(api.Status{Vault: "locked"})), say))
	if err != nil {
		t.Fatal(err)
	}
	item := bustest.Await(t, "icon", panel.Items, func(*bustest.Item) bool { return true })
	bustest.Await(t, "host", hosts, func(h bool) bool { return h })

	picture := func(k icon.Kind, n int) []byte {
		png, err := icon.PNG(k, n, 64)
		if err != nil {
			t.Fatal(err)
		}
		return png
	}
	item.AwaitPicture("locked", picture(icon.Locked, 0))
	if got := item.Tooltip(); got != "Singlepass: locked" {
		t.Errorf("the tooltip is %q", got)
	}
	item.Click("Unlock")
	bustest.Await(t, "click on unlock", clicks, func(c string) bool { return c == "unlock " })

	tr.Show(tray.Of(state(waits("a", "b_c")...), say))
	item.AwaitPicture("two wait", picture(icon.Waiting, 2))
	item.Click("deploy_b_c")
	bustest.Await(t, "click on the card", clicks, func(c string) bool { return c == "card b_c" })

	tr.Show(tray.Of(state(waits("b_c")...), say))
	item.AwaitPicture("one waits", picture(icon.Waiting, 1))
	lines := item.AwaitMenu("one card", func(l []bustest.Line) bool { _, two := bustest.Has(l, "deploy_a"); return !two })
	if head := lines[0]; head.Label != "1 waiting" || head.Enabled {
		t.Errorf("the first line is %+v", head)
	}
	item.Click("Lock now")
	bustest.Await(t, "click on lock", clicks, func(c string) bool { return c == "lock " })
	item.Tap()
	bustest.Await(t, "tap", taps, func(bool) bool { return true })

	panel.Close()
	bustest.Await(t, "the panel's end", hosts, func(h bool) bool { return !h })
	again := bustest.NewPanel(t, address)
	bustest.Await(t, "the panel's return", hosts, func(h bool) bool { return h })
	bustest.Await(t, "icon in the new panel", again.Items, func(*bustest.Item) bool { return true })
	cancel()
	tr.Stop()
}

func TestWithoutASessionBusItSaysSo(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
	_, err := tray.Start(t.Context(), tray.Config{Do: func(tray.Command, string) {}, Tapped: func() {}}, tray.Look{Kind: icon.Down})
	if err == nil || !strings.Contains(err.Error(), "session bus") {
		t.Errorf("got %v", err)
	}
}
