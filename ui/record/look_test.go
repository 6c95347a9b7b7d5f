package record_test

import (
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
	"singlepass.dev/ui/record"
)

func states() []string {
	return []string{
		"accepted", "authorized", "dispatched", "unknown", "completed_result_not_delivered", "completed_result_delivered", "rejected", "expired", "withdrawn", "not_sent", "not_done",
	}
}

func TestEveryRecordLooksAsItDid(t *testing.T) {
	for _, state := range states() {
		t.Run(state, func(t *testing.T) { looktest.Markup(t, show(t, looktest.Record(state, 3), nil).window, state) })
	}
	for name, change := range map[string]func(*api.Record, *api.Card) *api.Card{
		"card-delivered": func(_ *api.Record, c *api.Card) *api.Card { return c },
		"card-error":     func(r *api.Record, c *api.Card) *api.Card { r.Outcome, r.TargetStatus = "target_error", 500; return c },
		"card-pruned":    func(r *api.Record, c *api.Card) *api.Card { r.Pruned = true; return c },
		"card-other-process": func(r *api.Record, c *api.Card) *api.Card {
			c.ExecutionID, c.Question, c.Answers = r.ExecutionID, "session", []string{"once", "session", "recorded", "deny"}
			return c
		},
		"asked": func(r *api.Record, _ *api.Card) *api.Card {
			*r = looktest.Record("unknown", 2)
			r.Class = "status_query"
			r.Checks = []api.Check{{At: looktest.Now, Finding: "cannot_tell", Source: "status_query", By: "operator", Evidence: "GET /v1/releases/act_… answered 503", Times: 3}}
			return nil
		},
		"by-operator": func(r *api.Record, _ *api.Card) *api.Card {
			r.OutcomeSource, r.TargetStatus = "operator", 0
			return nil
		},
		"disputed": func(r *api.Record, _ *api.Card) *api.Card { r.Callers[0].Disputed = true; return nil },
		"clock-back": func(r *api.Record, _ *api.Card) *api.Card {
			r.CompletedAt = r.DispatchedAt.Add(-time.Hour)
			r.Timeline[3].AfterMS = -3600000
			return nil
		},
		"hostile": func(r *api.Record, _ *api.Card) *api.Card {
			r.Tool, r.Target, r.Callers[0].Client = "pay\u202eyap", "https://xn--80ak6aa92e.com/\u200b", "claude\x1b[2J\nDONE"
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := looktest.Record("completed_result_delivered", 1)
			c := change(&r, repeat())
			looktest.Markup(t, show(t, r, c).window, name)
		})
	}
	t.Run("run again", func(t *testing.T) {
		g := show(t, looktest.Record("completed_result_delivered", 1), repeat())
		g.tap(t, "Run it again…")
		g.arm()
		looktest.Markup(t, g.window, "again")
	})
	t.Run("verdict", func(t *testing.T) {
		g := show(t, looktest.Record("unknown", 2), nil)
		g.tap(t, "Decide what happened…")
		g.arm()
		looktest.Radios(g.View)[0].SetSelected("It happened")
		looktest.Markup(t, g.window, "verdict")
	})
}

func TestAWordAgainstTheTargetsLooksAsItDid(t *testing.T) {
	for name, c := range map[string]struct{ finding, word string }{"against-not-done": {"not_done", "It happened"}, "against-done": {"done", "It did not happen"}} {
		t.Run(name, func(t *testing.T) {
			g := show(t, asked(c.finding), nil)
			g.decide(t, c.word, "seen in its log")
			g.arm()
			looktest.Markup(t, g.window, name)
		})
	}
	t.Run("awaits", func(t *testing.T) { looktest.Markup(t, show(t, awaits(), nil).window, "awaits") })
	t.Run("recorded", func(t *testing.T) {
		r := looktest.Record("withdrawn", 1)
		r.Code, r.Reason = api.RecordedInstead, "the recorded result of act_01KKQ4V8Z0000000000000000A was handed out instead"
		looktest.Markup(t, show(t, r, nil).window, "recorded")
	})
}

func TestPicturesOfRecords(t *testing.T) {
	for _, p := range []struct {
		name, state string
		callers     int
		card        *api.Card
		variant     fyne.ThemeVariant
		w, h, scale float32
	}{
		{"unknown-light", "unknown", 3, nil, theme.VariantLight, 900, 720, 1},
		{"unknown-dark", "unknown", 3, nil, theme.VariantDark, 900, 720, 1},
		{"delivered-light", "completed_result_delivered", 1, repeat(), theme.VariantLight, 900, 720, 1},
		{"delivered-dark", "completed_result_delivered", 1, repeat(), theme.VariantDark, 900, 720, 1},
		{"dispatched-dark", "dispatched", 12, nil, theme.VariantDark, 900, 640, 1},
		{"stored-narrow", "completed_result_not_delivered", 2, nil, theme.VariantLight, 420, 900, 1},
		{"double", "unknown", 2, nil, theme.VariantLight, 640, 520, 2},
	} {
		t.Run(p.name, func(t *testing.T) {
			looktest.Start(t, p.variant, "en_US.UTF-8")
			clock := looktest.NewClock()
			v, err := record.New(record.Config{Daemon: &daemon{}, Now: clock.Now, After: clock.After})
			if err != nil {
				t.Fatal(err)
			}
			v.Update(looktest.Record(p.state, p.callers), p.card)
			clock.Pass(look.ArmingDelay)
			looktest.Picture(t, v, p.w, p.h, p.scale, p.name)
		})
	}
}
