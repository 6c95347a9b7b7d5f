package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/policy"
)

func awaiting(t testing.TB, replay string, changes ...string) *policy.Action {
	t.Helper()
	return compile(t, edit(t, edit(t, plain, replayOfPlain, replay), changes...))
}

func accepted(header map[string][]string, body string) policy.Reading {
	return policy.Reading{Status: 202, Header: header, Body: []byte(body), Whole: true}
}

func TestByWhichAnswerATargetTakesACall(t *testing.T) {
	list, condition := awaiting(t, awaits("{answer:/id}")), awaiting(t, awaits("{answer:/id}"), "accepted: [202]", "accepted: 'status == 200 && body.state == \"queued\"'")
	for _, c := range []struct {
		a      *policy.Action
		status int
		body   string
		want   execution.Finding
	}{
		{list, 202, "", execution.FoundRunning},
		{list, 200, "", execution.FoundDone},
		{list, 409, "", execution.FoundDone},
		{condition, 200, `{"state":"queued"}`, execution.FoundRunning},
		{condition, 200, `{"state":"sent"}`, execution.FoundDone},
		{condition, 202, `{"state":"queued"}`, execution.FoundDone},
		{condition, 200, `<html>`, execution.FoundCannotTell}, // neither "done" nor "taken" may be invented
		{condition, 200, `{"state":"queued","state":"sent"}`, execution.FoundCannotTell},
		{condition, 500, `<html>`, execution.FoundDone}, // what it came to: an error
		{condition, 302, `{"state":"queued"}`, execution.FoundDone},
		{asking(t), 202, ``, execution.FoundDone},
	} {
		got, why := c.a.JudgeAnswer(prepare(t, c.a, `{"to":"x"}`), act, policy.Reading{Status: c.status, Body: []byte(c.body), Whole: true})
		if got != c.want || (why == "") != (got == execution.FoundDone) {
			t.Errorf("%d %s: %s, %s", c.status, c.body, got, why)
		}
	}
}

func TestAStatusRequestIsMadeOfFieldsOfTheAnswer(t *testing.T) {
	a := awaiting(t, awaits("{answer:/job/id}"), "    method: GET\n", `    method: POST
    headers: {X-Job: "job {answer:x-job}", X-To: "{to}"}
    query: {n: "{answer:/list/1}"}
    json: {id: "{answer:/job/id}", n: "{answer:/list/1}", ok: "{answer:/a~1b}", of: "{execution_id}"}
`)
	p := prepare(t, a, `{"to":"x"}`)
	eff, err := a.Render(p, act)
	if err != nil {
		t.Fatal(err)
	}
	s := eff.Status
	if s.HTTP.URL != "https://parcels.example/v1/parcels/{answer:/job/id}?n=%7Banswer%3A%2Flist%2F1%7D" || s.Accepted != "status == 202" || s.Within != "" ||
		cmp.Diff([]string{"/job/id", "X-Job", "/list/1", "/a~1b"}, s.Fields) != "" {
		t.Errorf("the effect has %+v", s)
	}
	if _, err := a.StatusRequest(p, act, nil); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("without the answer: %v", err)
	}
	learned, err := a.Learn(accepted(map[string][]string{"X-Job": {"7 b"}}, `{"job":{"id":"a/b c"},"list":[0,9007199254740993],"a/b":true}`))
	if err != nil {
		t.Fatal(err)
	}
	// What is kept has a frozen form: a daemon of a later version goes on asking by it.
	kept, err := json.Marshal(learned)
	if want := `{"/a~1b":true,"/job/id":"a/b c","/list/1":9007199254740993,"X-Job":"7 b"}`; err != nil || string(kept) != want {
		t.Fatalf("kept %s, %v", kept, err)
	}
	learned = nil
	if err := json.Unmarshal(kept, &learned); err != nil {
		t.Fatal(err)
	}
	r, err := a.StatusRequest(p, act, learned)
	if err != nil {
		t.Fatal(err)
	}
	if r.URL != "https://parcels.example/v1/parcels/a%2Fb%20c?n=9007199254740993" || r.Header[0].Value != "job 7 b" || r.Header[1].Value != "x" ||
		string(r.Body) != `{"id":"a/b c","n":9007199254740993,"ok":true,"of":"`+act+`"}` {
		t.Errorf("%s %+v %s", r.URL, r.Header, r.Body)
	}
}

func TestAFieldOfTheAnswerThatCannotBeUsedIsRefused(t *testing.T) {
	a := awaiting(t, awaits("{answer:/id}"))
	p := prepare(t, a, `{"to":"x"}`)
	for body, says := range map[string]string{
		`{}`: "not there", `{"id":null}`: "neither text", `{"id":1.5}`: "neither text", `{"id":{"a":1}}`: "neither text", `{"id":""}`: "empty", `{"id":"a\nb"}`: "control", `[]`: "not there",
		`{"id":1,"id":2}`: "not JSON", ``: "not JSON", `{"id":"` + strings.Repeat("x", 2049) + `"}`: "longer",
	} {
		if got, err := a.Learn(accepted(nil, body)); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "{answer:/id}") {
			t.Errorf("%.60s: %v, %v", body, got, err)
		}
	}
	cut := accepted(nil, `{"id":1}`)
	cut.Whole = false
	if got, err := a.Learn(cut); err == nil {
		t.Errorf("an answer that is not whole: %v", got)
	}
	for id, says := range map[string]string{`".."`: "moves to another folder", `"a/../b"`: "moves to another folder", `"..;x"`: "moves"} {
		learned, err := a.Learn(accepted(nil, `{"id":`+id+`}`))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := a.StatusRequest(p, act, learned); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %s, %v", id, r.URL, err)
		}
	}
	// What was kept comes from a file that others can write: it is looked at again.
	for _, raw := range []string{`"a\u0000b"`, `{}`, `1.5`, `null`, ``, `"`} {
		if r, err := a.StatusRequest(p, act, policy.Learned{"/id": json.RawMessage(raw)}); err == nil {
			t.Errorf("kept %s: %s", raw, r.URL)
		}
	}
	b := awaiting(t, located())
	for _, header := range []map[string][]string{nil, {"Location": {"https://parcels.example/a", "https://parcels.example/b"}}, {"Location": {""}}} {
		if got, err := b.Learn(accepted(header, "")); err == nil {
			t.Errorf("%v: %v", header, got)
		}
	}
}

func TestATargetSendsUsNowhereButWhereTheContractSays(t *testing.T) {
	const within = "    method: GET\n    within: https://parcels.example/v1/jobs\n"
	anywhere, narrow := awaiting(t, located()), awaiting(t, located(), "    method: GET\n", within)
	if eff, err := anywhere.Render(prepare(t, anywhere, `{"to":"x"}`), act); err != nil || eff.Status.HTTP.URL != "{answer:Location}" || eff.Status.Within != "https://parcels.example/" {
		t.Errorf("the effect has %+v, %v", eff.Status, err)
	}
	ask := func(a *policy.Action, location string) (string, error) {
		p := prepare(t, a, `{"to":"x"}`)
		learned, err := a.Learn(accepted(map[string][]string{"Location": {location}}, ""))
		if err != nil {
			return "", err
		}
		r, err := a.StatusRequest(p, act, learned)
		return r.URL, err
	}
	for location, want := range map[string]string{
		"https://parcels.example/v1/jobs/7":       "https://parcels.example/v1/jobs/7",
		"https://PARCELS.example:443/v1/jobs/7?a": "https://parcels.example/v1/jobs/7?a",
		"/v1/jobs/7?token=a%2Fb":                  "https://parcels.example/v1/jobs/7?token=a%2Fb",
		"../jobs/7":                               "https://parcels.example/v1/jobs/7", // of https://parcels.example/v1/x/parcels
		"//parcels.example/v1/jobs":               "https://parcels.example/v1/jobs",
	} {
		for _, a := range []*policy.Action{anywhere, narrow} {
			if got, err := ask(a, location); err != nil || got != want {
				t.Errorf("%s leads to %s, %v", location, got, err)
			}
		}
	}
	for _, location := range []string{
		"https://evil.example/v1/jobs/7", "//evil.example/v1/jobs/7", "https://parcels.example.evil.example/v1/jobs/7", "http://parcels.example/v1/jobs/7", "https://parcels.example:444/v1/jobs/7",
		"https://user@parcels.example/v1/jobs/7", "https://parcels.example@evil.example/v1/jobs/7", `https://parcels.example\@evil.example/`, "https://parcels.example/v1/jobs/7#x", "ftp://parcels.example/v1/jobs/7",
		"javascript:alert(1)", "https:parcels.example", "https://parcels.example/v1/jobs/%2e%2e/pay", "https://parcels.example/v1/jobs/..%2fpay", "https://parcels.example/v1/jobs/%252e%252e/x",
		"https://parcels.example/v1/jobs/..;/x", "https://parcels.example/v1/jobs/..%3b/x", "https://parcels.example/v1/jobs/.%253Bx/x", "https://parcels.example/v1/jobs/%c0%ae%C0%AE/x", "https://parcels.example/v1/jobs/..%c0%afx",
		"https://169.254.169.254/v1/jobs", "https://[::1]/v1/jobs", "https://parcels.example/v1/jobs/ 7", "https://parcels.example/v1/jobs/é", "%",
		"https://parcels.example/" + strings.Repeat("x", 2048),
	} {
		if got, err := ask(anywhere, location); err == nil {
			t.Errorf("%s leads to %s", location, got)
		}
	}
	for _, location := range []string{"https://parcels.example/v1/pay", "/v1/jobsx/7", "/v1/jobs/../pay", "/v1/job", "/", "."} {
		if got, err := ask(narrow, location); err == nil {
			t.Errorf("%s leads to %s", location, got)
		}
	}
}

func TestATargetThatSaysThatItIsNotDoneIsAskedForADay(t *testing.T) {
	c := awaiting(t, awaits("{answer:/id}"), ", give_up_after: 10m", "").Contract()
	if c.Replay.Wait != (policy.Wait{Poll: 2 * time.Second, GiveUpAfter: policy.DefaultAcceptedFor}) {
		t.Errorf("%+v", c.Replay.Wait)
	}
	if d := awaiting(t, awaits("{answer:/id}")).Tool().Description; !strings.Contains(d, "execution_wait") {
		t.Error(d)
	}
	if d := asking(t).Tool().Description; strings.Contains(d, "execution_wait") {
		t.Error(d)
	}
}

// FuzzALocationOfATarget holds resolveWithin to its word, whatever a target writes.
func FuzzALocationOfATarget(f *testing.F) {
	for _, s := range []string{"https://parcels.example/v1/jobs/7", "/v1/jobs/7", "//evil.example", "..", "https://parcels.example/v1/jobs/%2e%2e/x", "?a=b", "https://parcels.example:443/v1/jobs//x"} {
		f.Add(s)
	}
	a := awaiting(f, located(), "    method: GET\n", "    method: GET\n    within: https://parcels.example/v1/jobs\n")
	p := prepare(f, a, `{"to":"x"}`)
	f.Fuzz(func(t *testing.T, location string) {
		learned, err := a.Learn(accepted(map[string][]string{"Location": {location}}, ""))
		if err != nil {
			return
		}
		r, err := a.StatusRequest(p, act, learned)
		if err == nil && r.URL != "https://parcels.example/v1/jobs" && !strings.HasPrefix(r.URL, "https://parcels.example/v1/jobs/") && !strings.HasPrefix(r.URL, "https://parcels.example/v1/jobs?") {
			t.Errorf("%q leads to %s", location, r.URL)
		}
	})
}
