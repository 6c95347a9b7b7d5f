package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

func asking(t testing.TB, changes ...string) *policy.Action {
	t.Helper()
	return compile(t, edit(t, edit(t, plain, replayOfPlain, asks), changes...))
}

const act = "act_01J8ZQ4T0N00000000000000AA"

func TestAStatusRequestIsPartOfTheEffect(t *testing.T) {
	a := asking(t, "    method: GET\n    url: https://parcels.example/v1/parcels/{execution_id}\n", `    method: POST
    url: https://status.parcels.example/find/{to}
    headers: {X-Ask: "{to}"}
    query: {id: "{execution_id}"}
    json: {id: "{execution_id}", weight: "{weight}"}
    credential: reader
`)
	eff, err := a.Render(prepare(t, a, `{"to":"a b/c","weight":2}`), act)
	if err != nil {
		t.Fatal(err)
	}
	want := &effect.StatusRequest{
		HTTP: effect.HTTPRequest{
			Method: "POST", URL: "https://status.parcels.example/find/a%20b%2Fc?id=" + act,
			Header: []effect.Field{{Name: "X-Ask", Value: "a b/c"}, {Name: "Content-Type", Value: "application/json"}}, Body: []byte(`{"id":"` + act + `","weight":2}`),
		},
		Auth: &effect.Auth{Credential: "reader"},
		Done: `status == 200 && body.state == "sent"`, NotDone: "status == 404", Failed: `status == 200 && body.state == "returned"`, Running: `status == 200 && body.state == "packing"`,
	}
	if d := cmp.Diff(want, eff.Status); d != "" {
		t.Error(d)
	}
	if _, err := a.Render(prepare(t, a, `{"to":"a\nb"}`), act); err == nil {
		t.Error("an argument that the status request cannot carry was taken")
	}
	if eff, err = asking(t).Render(prepare(t, asking(t), `{"to":"x"}`), act); err != nil || eff.Status.Auth == nil || eff.Status.Auth.Credential != "parcels" {
		t.Errorf("the status request uses another credential than the action: %+v, %v", eff.Status, err)
	}
	a = asking(t, "    running:", "    credential: null\n    running:")
	if eff, err = a.Render(prepare(t, a, `{"to":"x"}`), act); err != nil || eff.Status.Auth != nil {
		t.Errorf("null is not no credential: %+v, %v", eff.Status, err)
	}
}

func TestTheWaitContractHasDefaults(t *testing.T) {
	for wait, want := range map[string]policy.Wait{
		"{poll: 2s, not_done_after: 30s, give_up_after: 10m}": {Poll: 2 * time.Second, NotDoneAfter: 30 * time.Second, GiveUpAfter: 10 * time.Minute},
		"{not_done_after: 30s}":                               {Poll: policy.DefaultPoll, NotDoneAfter: 30 * time.Second, GiveUpAfter: policy.DefaultGiveUpAfter},
		"{not_done_after: 1h, poll: 1m}":                      {Poll: time.Minute, NotDoneAfter: time.Hour, GiveUpAfter: 2 * time.Hour},
	} {
		c := asking(t, "{poll: 2s, not_done_after: 30s, give_up_after: 10m}", wait).Contract()
		if c.Replay.Wait != want || c.Replay.Attempts != policy.DefaultAttempts {
			t.Errorf("%s: %+v, %d attempts", wait, c.Replay.Wait, c.Replay.Attempts)
		}
	}
}

func TestWhatAnAnswerToTheStatusRequestMeans(t *testing.T) {
	type c struct {
		status int
		body   string
		want   execution.Finding
		says   string
	}
	tell := execution.FoundCannotTell
	for _, c := range []c{
		{200, `{"state":"sent"}`, execution.FoundDone, `"done" holds`},
		{200, `{"state":"returned"}`, execution.FoundFailed, `"failed" holds`},
		{200, `{"state":"packing"}`, execution.FoundRunning, `"running" holds`},
		{404, ``, execution.FoundNotDone, `"not_done" holds`},
		{404, `<html>`, execution.FoundNotDone, "404"},
		{200, `{"state":"lost"}`, tell, "none of the contract's conditions"},
		{410, ``, tell, "none of the contract's conditions"},
		{200, `{}`, tell, `whether "done" holds could not be told`},
		{200, ``, tell, "not JSON"},
		{200, `<html>please log in</html>`, tell, "not JSON"},
		{200, `{"state":"sent"} {"state":"returned"}`, tell, "not JSON"},
		{200, `{"state":"sent","state":"returned"}`, tell, "not JSON"}, // two readers would read two answers
		{200, "{\"state\":\"sent\xff\"}", tell, "not JSON"},
		{200, `["sent"]`, tell, "could not be told"},
		{200, `{"state":["sent"]}`, tell, "none"},
		{401, `{"state":"sent"}`, tell, "not allowed"},
		{403, ``, tell, "not allowed"},
		{429, ``, tell, "cannot say now"},
		{500, `{"state":"sent"}`, tell, "cannot say now"},
		{503, ``, tell, "cannot say now"},
		{302, ``, tell, "redirect"},
	} {
		a := asking(t)
		got, why := a.JudgeStatus(prepare(t, a, `{"to":"x"}`), act, policy.Reading{Status: c.status, Body: []byte(c.body), Whole: true})
		if got != c.want || !strings.Contains(why, c.says) {
			t.Errorf("%d %s: %s, %s", c.status, c.body, got, why)
		}
	}
}

func TestTwoConditionsThatHoldAtOnceTellNothing(t *testing.T) {
	for _, pair := range [][2]string{{"done", "not_done"}, {"done", "failed"}, {"failed", "running"}, {"not_done", "running"}} {
		conditions := map[string]string{"done": "status == 418", "not_done": "status == 418", "failed": "status == 418", "running": "status == 418"}
		conditions[pair[0]], conditions[pair[1]] = "status == 200", "status == 200"
		a := asking(t, `done: status == 200 && body.state == "sent"`, "done: "+conditions["done"], "not_done: status == 404", "not_done: "+conditions["not_done"],
			`failed: status == 200 && body.state == "returned"`, "failed: "+conditions["failed"], `running: status == 200 && body.state == "packing"`, "running: "+conditions["running"])
		got, why := a.JudgeStatus(prepare(t, a, `{"to":"x"}`), act, policy.Reading{Status: 200, Whole: true})
		if got != execution.FoundCannotTell || !strings.Contains(why, "both") {
			t.Errorf("%v: %s, %s", pair, got, why)
		}
	}
}

func TestAConditionSeesTheAnswerTheArgumentsAndTheID(t *testing.T) {
	header := map[string][]string{"X-State": {"sent"}, "Vary": {"a", "b"}}
	body := `{"to":"x","n":18446744073709551615,"i":9007199254740993,"f":1.0,"list":[{"id":"` + act + `"}],"none":null,"yes":true}`
	for condition, want := range map[string]bool{
		`body.to == args.to`:                          true,
		`body.list.exists(e, e.id == execution_id)`:   true,
		`body.list[0].id == "other"`:                  false,
		`headers["x-state"] == "sent"`:                true,
		`headers["vary"] == "a, b"`:                   true,
		`"x-nothing" in headers`:                      false,
		`body.i == 9007199254740993`:                  true,
		`body.i == 9007199254740992`:                  false,
		`body.n == 18446744073709551615u`:             true,
		`body.f == 1`:                                 true,
		`body.none == null && body.yes`:               true,
		`has(body.nothing)`:                           false,
		`status == 200 && body.to.startsWith("x")`:    true,
		`body.to == "1" || status in [200, 201, 202]`: true,
	} {
		a := asking(t, `done: status == 200 && body.state == "sent"`, "done: '"+condition+"'", "    failed: status == 200 && body.state == \"returned\"\n    running: status == 200 && body.state == \"packing\"\n", "")
		got, why := a.JudgeStatus(prepare(t, a, `{"to":"x"}`), act, policy.Reading{Status: 200, Header: header, Body: []byte(body), Whole: true})
		if (got == execution.FoundDone) != want || !want && !strings.Contains(why, "none") {
			t.Errorf("%s: %s, %s", condition, got, why)
		}
	}
}

// The target may be anybody: whatever it answers, a look at it ends soon, and in doubt tells nothing.
func TestAHostileAnswerIsBoundedAndTellsNothing(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 1<<16) + "1" + strings.Repeat("}", 1<<16)
	many := `{"list":[` + strings.TrimSuffix(strings.Repeat("1,", 1<<20), ",") + `]}`
	some := `{"state":"sent","list":[` + strings.TrimSuffix(strings.Repeat("1,", 20_000), ",") + `]}`
	long := `{"state":"` + strings.Repeat("a", 1<<20) + `"}`
	for name, c := range map[string]struct{ condition, body string }{
		"deep nesting":             {`body.a.a == 1`, deep},
		"an open bracket for ever": {`body.a == 1`, strings.Repeat("[", 1<<20)},
		"a million values":         {`body.list[0] == 1`, many},
		"a quadratic condition":    {`body.list.all(x, body.list.all(y, x == y))`, some},
		"a costly pattern":         {`body.state.matches("(a*)*b") || body.state.matches("(a|aa)+$")`, long},
		"a pattern of its own":     {`"x".matches(body.state)`, `{"state":"("}`},
		"an overflow":              {`body.n * body.n == 1`, `{"n":9223372036854775807}`},
		"a division by zero":       {`1 / body.n == 1`, `{"n":0}`},
		"infinity":                 {`body.n > 1`, `{"n":1e999}`},
		"another type":             {`body.n`, `{"n":"true"}`},
	} {
		if c.condition == "body.n" {
			c.condition = "body.n && true"
		}
		a := asking(t, `done: status == 200 && body.state == "sent"`, "done: '"+c.condition+"'")
		p := prepare(t, a, `{"to":"x"}`)
		began := time.Now()
		got, why := a.JudgeStatus(p, act, policy.Reading{Status: 200, Body: []byte(c.body), Whole: true})
		if took := time.Since(began); got != execution.FoundCannotTell || len(why) > 2500 || took > 5*time.Second {
			t.Errorf("%s: %s after %v, %.200s", name, got, took, why)
		}
	}
	a := asking(t)
	whole := []byte(`{"state":"sent"}`)
	if got, why := a.JudgeStatus(prepare(t, a, `{"to":"x"}`), act, policy.Reading{Status: 200, Body: whole}); got != execution.FoundCannotTell || !strings.Contains(why, "not whole") {
		t.Errorf("a body that broke off: %s, %s", got, why)
	}
}

func TestWhatTheTargetWroteIsNotQuotedInTheReason(t *testing.T) {
	a := asking(t, `done: status == 200 && body.state == "sent"`, `done: body.state.matches(body.p)`)
	for _, body := range []string{`{"state":"canary-1","p":"(canary-2"}`, `{"canary-3":1}`, `canary-4`} {
		if _, why := a.JudgeStatus(prepare(t, a, `{"to":"canary-5"}`), act, policy.Reading{Status: 200, Body: []byte(body), Whole: true}); strings.Contains(why, "canary") {
			t.Error(why)
		}
	}
}

func TestTheToolsDescriptionSaysThatTheTargetIsAsked(t *testing.T) {
	tool := asking(t).Tool()
	if !strings.Contains(tool.Description, "the target is asked what became of that") {
		t.Error(tool.Description)
	}
	var hints map[string]any
	if err := json.Unmarshal(tool.Annotations, &hints); err != nil || hints["idempotentHint"] != false || hints["destructiveHint"] != true {
		t.Errorf("%v, %v", hints, err)
	}
}

func FuzzJudgeStatus(f *testing.F) {
	a := asking(f, `done: status == 200 && body.state == "sent"`, `done: status == 200 && body.state == "sent" && body.list.all(e, e == args.to || e.size() > 2)`)
	p := prepare(f, a, `{"to":"x"}`)
	for _, body := range []string{`{"state":"sent","list":["x"]}`, `{"state":"packing"}`, `[`, `{"state":"sent","state":"x"}`, `-0`, `1e5`, `{"list":{"a":1}}`} {
		f.Add(200, []byte(body))
	}
	f.Add(404, []byte(nil))
	all := []execution.Finding{execution.FoundDone, execution.FoundFailed, execution.FoundNotDone, execution.FoundRunning, execution.FoundCannotTell}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		got, why := a.JudgeStatus(p, act, policy.Reading{Status: status, Body: body, Whole: true})
		if !slices.Contains(all, got) || why == "" {
			t.Fatalf("%q, %q", got, why)
		}
		if got == execution.FoundDone {
			var v struct{ State string }
			if err := json.Unmarshal(body, &v); err != nil || status != 200 || !strings.EqualFold(v.State, "sent") {
				t.Fatalf("done by %d %s", status, body)
			}
		}
		if got == execution.FoundNotDone && status != 404 {
			t.Fatal(fmt.Sprint("not done by ", status))
		}
	})
}
