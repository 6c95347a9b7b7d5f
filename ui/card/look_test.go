package card_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/theme"

	"singlepass.dev/daemon/api"
	"singlepass.dev/ui/card"
	"singlepass.dev/ui/look"
	"singlepass.dev/ui/looktest"
)

// kinds are cards in every state that one can be in.
func kinds() map[string]func(*api.Card) {
	return map[string]func(*api.Card){
		"session-and-use": func(*api.Card) {},
		"session":         func(c *api.Card) { c.Question, c.Why, c.WhySaid = "session", c.Why[:1], c.WhySaid[:1] },
		"per-use": func(c *api.Card) {
			c.Question, c.Answers, c.Why = "per_use", []string{"once", "deny"}, []string{"the credential ‹deploy-service› asks at every use"}
			c.WhySaid = []api.Said{api.Say(api.WhyCredential, "credential", "deploy-service")}
			c.Level = api.AssuranceSystem
		},
		"read-only-without-credential": func(c *api.Card) {
			c.Class, c.Credential, c.Effect = "read_only", "", api.Effect{Channel: "http", Method: "GET", URL: "https://status.example/v1/health"}
			c.Target, c.Level = "https://status.example/v1/health", api.AssuranceCannotTell
			c.Doubts, c.DoubtsSaid = []string{"process 99 traces it"}, []api.Said{api.Say(api.DoubtTraced, "process", "99")}
		},
		"attached": func(c *api.Card) {
			r := looktest.Record("accepted", 3)
			c.Record, c.Retry = &r, "3 calls belong to this execution; it is asked about and sent once"
		},
		"ssh": func(c *api.Card) {
			c.Class, c.Target, c.Tool = "status_query", "ssh://ops@db1.internal.example:22", "rotate_password"
			c.Effect = api.Effect{Channel: "ssh", Body: "line one\nline two\n", Size: 18, SSH: &api.SSH{
				Host: "ssh://ops@db1.internal.example:22", Command: `rotate-password --user 'billing app' --reason 'it'\''s time'`, Directory: "/srv/db", Marker: true,
				Env: []api.Field{{Name: "LANG", Value: "C.UTF-8"}}, Keys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4mExampleExampleExampleExample"},
			}}
		},
		"mcp": func(c *api.Card) {
			c.Target, c.Tool = "mcp://files/write_file", "files_write_file"
			c.Effect = api.Effect{Channel: "mcp", Body: `{"path":"/srv/notes.txt","text":"hello"}`, Size: 40, MCP: &api.MCP{
				Upstream: "files", Tool: "write_file", Command: []string{"mcp-files", "--root", "/srv/my files"},
			}}
		},
		"status-query": func(c *api.Card) {
			c.Class = "status_query"
			c.Effect.Status = &api.Effect{Channel: "http", Method: "GET", URL: "https://deploy-api.internal.example/v1/releases/act_01KKQ4V8Z0000000000000000A", Conditions: []api.Condition{
				{Name: "done", When: `status == 200 && body.state == "released"`}, {Name: "failed", When: `status == 200 && body.state == "failed"`}, {Name: "not_done", When: "status == 404"},
			}}
		},
		"taken-for-later": func(c *api.Card) {
			c.Class = "status_query"
			c.Effect.Status = &api.Effect{
				Channel: "http", Method: "GET", URL: "{answer:Location}", Header: []api.Field{{Name: "Authorization", Value: "Bearer ‹credential deploy-service›"}},
				Within: "https://deploy-api.internal.example/v1/jobs", Conditions: []api.Condition{
					{Name: "accepted", When: "status == 202"}, {Name: "done", When: `body.state == "done"`}, {Name: "not_done", When: "status == 404"}, {Name: "running", When: "status == 200"}, {Name: "later", When: "true"},
				},
			}
		},
		"hostile": func(c *api.Card) {
			c.Tool, c.Actor = "transfer\u202egnihtyna", "script:/home/a/.cache/\x1b[2Jagent.py"
			c.Agent.Script = "/home/a/.cache/\x1b[2Jagent.py"
			c.Target = "https://xn--80ak6aa92e.com/pay"
			c.Effect.URL, c.Effect.Body = "https://xn--80ak6aa92e.com/pay?note=\u202edrawkcab", "{\"to\":\"acc\u200bount\",\"note\":\"line\\u2028two \u202e\"}"
			c.Why, c.WhySaid = []string{"looks fine\nALLOWED BY POLICY"}, nil
		},
		"long":  func(c *api.Card) { c.Effect.Body = long() },
		"bytes": func(c *api.Card) { c.Effect.Body, c.Effect.BodyB64, c.Effect.Size = "", "AAECA//+/fz7+g==", 10 },
		"arabic": func(c *api.Card) {
			c.Effect.Body = `{"customer":"شركة النور للتجارة","city":"القاهرة","amount":5}`
		},
		"last-words": func(c *api.Card) { c.Expires = looktest.Now.Add(30 * time.Second) },
	}
}

// long is arguments of four thousand characters, with lines and without.
func long() string {
	lines := make([]string, 60)
	for i := range lines {
		lines[i] = fmt.Sprintf("step %d", i)
	}
	b, err := json.Marshal(map[string]any{"note": strings.Repeat("0123456789", 400), "steps": lines})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestEveryCardLooksAsItDid(t *testing.T) {
	for name, change := range kinds() {
		t.Run(name, func(t *testing.T) {
			c := looktest.Card()
			change(&c)
			r := show(t, c)
			r.arm()
			looktest.Markup(t, r.window, name)
		})
	}
	for name, choose := range map[string][2]int{"session-action": {1, 0}, "session-arguments": {2, 0}, "session-hour": {0, 4}, "session-arguments-minutes": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			r := show(t, looktest.Card())
			choices := looktest.Selects(r.View)
			choices[0].SetSelectedIndex(choose[0])
			choices[1].SetSelectedIndex(choose[1])
			r.arm()
			looktest.Markup(t, r.window, name)
		})
	}
	t.Run("not armed", func(t *testing.T) { looktest.Markup(t, show(t, looktest.Card()).window, "unarmed") })
	for name, e := range map[string]api.CardEvent{
		"answered": {Event: "answered", By: "operator", Note: "once"}, "void": {Event: "void", Note: "the vault was locked"},
	} {
		t.Run(name, func(t *testing.T) {
			r := show(t, looktest.Card())
			e.Card.Card = looktest.Card().Card
			r.Over(e)
			looktest.Markup(t, r.window, name)
		})
	}
}

func TestPicturesOfCards(t *testing.T) {
	for _, p := range []struct {
		name, kind string
		variant    fyne.ThemeVariant
		w, h       float32
		scale      float32
	}{
		{"light", "session-and-use", theme.VariantLight, 860, 720, 1},
		{"dark", "session-and-use", theme.VariantDark, 860, 720, 1},
		{"hostile-light", "hostile", theme.VariantLight, 860, 900, 1},
		{"long-dark", "long", theme.VariantDark, 860, 720, 1},
		{"ssh-light", "ssh", theme.VariantLight, 860, 720, 1},
		{"double", "per-use", theme.VariantLight, 640, 520, 2},
		{"narrow", "attached", theme.VariantDark, 400, 640, 1},
		{"arabic", "arabic", theme.VariantLight, 860, 560, 1},
	} {
		t.Run(p.name, func(t *testing.T) {
			looktest.Start(t, p.variant, "en_US.UTF-8")
			clock := looktest.NewClock()
			v, err := card.New(card.Config{Answerer: &answers{}, Now: clock.Now, After: clock.After})
			if err != nil {
				t.Fatal(err)
			}
			c := looktest.Card()
			kinds()[p.kind](&c)
			v.Update(c)
			clock.Pass(look.ArmingDelay)
			looktest.Picture(t, v, p.w, p.h, p.scale, p.name)
		})
	}
}
