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

// allow makes the credential allow what edit says.
func (r *rig) allow(edit func(*vault.Credential), others ...string) {
	r.t.Helper()
	r.keys.edit = edit
	c, err := r.keys.Credential("api")
	if err != nil {
		r.t.Fatal(err)
	}
	all := []vault.Credential{c}
	for _, name := range others {
		c.Name = name
		all = append(all, c)
	}
	r.SetCredentials(all)
	r.CredentialChanged("api")
}

func generic(c *vault.Credential)      { c.Generic = true }
func genericReads(c *vault.Credential) { c.Generic, c.GenericReads = true, true }
func nothing(*vault.Credential)        {}

func offers(r *rig) bool {
	tools, _ := r.Tools(nil)
	return slices.ContainsFunc(tools, func(t call.Tool) bool { return t.Name == "http_request" })
}

const (
	post = `{"method":"POST","url":"https://api.example.com/v1/things?x=1","headers":{"X-A":"1"},"json":{"b":2,"a":1}}`
	get  = `{"method":"GET","url":"https://api.example.com/v1/things"}`
)

func TestGenericRequestsAreThereForWhoeverTheOwnerAllowsThem(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.allow(nothing)
	if offers(r) {
		t.Error("the tool is listed although nobody allowed it")
	}
	r.want(r.call(background, a, "http_request", post), api.CodeActionUnknown, 0)
	changed := r.ToolsChanged()
	r.allow(generic)
	select {
	case <-changed:
	default:
		t.Error("nobody was told that the list changed")
	}
	if !offers(r) {
		t.Error("the tool is not listed")
	}
	changed = r.ToolsChanged()
	r.allow(genericReads)
	r.allow(generic)
	select {
	case <-changed:
		t.Error("agents are told of a change of a credential that changes no tool")
	default:
	}
	done := r.begin(background, a, "http_request", post)
	c := r.card()
	if c.Card.Question != approval.AskUse || c.Effect.HTTP.URL != "https://api.example.com/v1/things?x=1" || string(c.Effect.HTTP.Body) != `{"a":1,"b":2}` ||
		c.Effect.Auth.Credential != "api" || c.Execution.Class != execution.Irreversible || len(c.Effect.HTTP.Header) != 2 {
		t.Errorf("the card is %+v %+v", c, c.Effect.HTTP)
	}
	r.answer(c, approval.Once)
	r.want(<-done, "", 1)
	r.allow(nothing)
	if offers(r) {
		t.Error("the tool is still listed")
	}
	r.want(r.call(background, a, "http_request", strings.Replace(post, "x=1", "x=2", 1)), api.CodeActionUnknown, 1)
}

func TestAGenericReadIsOneOnlyIfTheOwnerSaysSo(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.allow(generic)
	done := r.begin(background, a, "http_request", get)
	c := r.card()
	if c.Execution.Class != execution.Irreversible {
		t.Errorf("a GET is %s", c.Execution.Class)
	}
	r.answer(c, approval.Once)
	r.want(<-done, "", 1)
	r.allow(genericReads)
	r.want(r.call(background, a, "http_request", strings.Replace(get, "things", "others", 1)), "", 2) // no card
	if q := r.target.ledger[1]; q.SideEffect {
		t.Error("a read is sent as one with a side effect")
	}
	done = r.begin(background, a, "http_request", strings.Replace(post, "x=1", "x=3", 1))
	if c = r.card(); c.Execution.Class != execution.Irreversible {
		t.Errorf("a POST is %s", c.Execution.Class)
	}
	r.answer(c, approval.Deny)
	r.want(<-done, api.CodeDenied, 2)
}

func TestALostGenericRequestIsNeverSentASecondTime(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.allow(generic)
	r.target.answer = func(int, channel.Request) channel.Outcome {
		return channel.Outcome{Verdict: channel.Unknown, Reason: "lost"}
	}
	done := r.begin(background, a, "http_request", post)
	r.answer(r.card(), approval.Once)
	first := <-done
	r.want(first, "", 1)
	// The same request, its arguments written otherwise and the credential named; then after a restart; then after the owner withdrew the leave.
	for name, repeat := range map[string]func() call.Answer{
		"again": func() call.Answer { return r.call(background, a, "http_request", post) },
		"named": func() call.Answer {
			return r.call(background, a, "http_request", strings.Replace(post, `{"method"`, `{"credential":"api","method"`, 1))
		},
		"written another": func() call.Answer {
			return r.call(background, a, "http_request", strings.Replace(post, `"X-A"`, `"x-a"`, 1))
		},
	} {
		if got := repeat(); got.ExecutionID != first.ExecutionID || got.State != execution.Unknown {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r.allow(nothing)
	if got := r.call(background, a, "http_request", post); got.ExecutionID != first.ExecutionID || got.State != execution.Unknown {
		t.Errorf("without the leave: %+v", got)
	}
	r.allow(generic, "other") // now two cover it
	if got := r.call(background, a, "http_request", post); got.ExecutionID != first.ExecutionID || got.State != execution.Unknown {
		t.Errorf("with two credentials: %+v", got)
	}
	r.want(first, "", 1)
}

func TestWhatWaitsGenericallySurvivesAChangeOfContractsAndNotOneOfItsCredential(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	r.allow(generic)
	done := r.begin(background, a, "http_request", post)
	r.card()
	r.SetActions(nil, nil)
	if n := len(r.Cards()); n != 1 {
		t.Errorf("%d cards after contracts changed", n)
	}
	r.CredentialChanged("api")
	r.want(<-done, api.CodeWithdrawn, 0)
}

func TestAGenericRequestThatCannotBeMadeSaysWhy(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.allow(generic, "second")
	ask := func(arguments string) string {
		got := r.call(background, a, "http_request", arguments)
		r.want(got, api.CodeArguments, 0)
		return string(got.Result)
	}
	if text := ask(post); !strings.Contains(text, "several credentials") || strings.Contains(text, "second") {
		t.Errorf("a process without a session reads the names: %s", text)
	}
	r.trust(a)
	if text := ask(post); !strings.Contains(text, "api, second") {
		t.Errorf("the names are not told: %s", text)
	}
	r.allow(generic)
	for arguments, says := range map[string]string{
		strings.Replace(post, "api.example.com", "other.example.com", 1):       "covers this URL",
		strings.Replace(post, "/v1/", "/v2/", 1):                               "covers this URL",
		strings.Replace(post, "/v1/", "/v1/../v2/", 1):                         "covers this URL",
		strings.Replace(post, `{"method"`, `{"credential":"x","method"`, 1):    "covers this URL",
		`{"url":"https://api.example.com/v1/"}`:                                "method",
		`{"method":"POST","url":"nonsense"}`:                                   "not an absolute https URL",
		`{"method":"POST","url":"https://api.example.com/v1/","method":"GET"}`: "method",
	} {
		if text := ask(arguments); !strings.Contains(text, says) {
			t.Errorf("%s: %s", arguments, text)
		}
	}
}
