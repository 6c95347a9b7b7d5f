package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/call"
	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/upstream"
	"singlepass.dev/policy"
)

// shelf is what the upstreams of a test have to read.
type shelf struct{ asked atomic.Int32 }

func (s *shelf) Readable(ctx context.Context, name string) (upstream.Readable, error) {
	s.asked.Add(1)
	if name == "slow" {
		return upstream.Readable{}, errors.New("it has not answered in time")
	}
	return upstream.Readable{
		Resources: []upstream.Resource{{URI: "singlepass+bank:x", Name: "statement", Title: "Statement"}}, Templates: []upstream.Resource{{URI: "x://{id}", Name: "any"}},
		Cut: map[string]string{"long": "it has more"}[name],
	}, nil
}

// shared opens upstreams: "bank" at a URL with a credential that exists, with a prompt; "asks", where the person is asked each time; "slow" and "long".
func shared(t *testing.T) ([]*policy.Action, []call.Prompt) {
	t.Helper()
	var all []*policy.Action
	add := func(name string, a *policy.Action, err error) {
		if err != nil {
			t.Fatal(err)
		}
		d := upstream.Definition{Name: name, Command: []string{"/bin/" + name}}
		if name == "bank" {
			d = upstream.Definition{Name: name, URL: "https://api.example.com/v1/mcp", Credential: "api"}
		}
		all = append(all, a.On(d, false))
	}
	for _, name := range []string{"bank", "asks", "slow", "long"} {
		a, err := policy.SharedResources(name, name == "asks")
		add(name, a, err)
	}
	greet := upstream.Prompt{Name: "greet", Description: "Greets."}
	a, err := policy.SharedPrompts("bank", []upstream.Prompt{greet}, false)
	add("bank", a, err)
	return all, []call.Prompt{{Name: "bank.greet", Description: "Greets."}}
}

func sharing(t *testing.T) (*rig, *shelf) {
	s := &shelf{}
	r := newRig(t, func(r *rig) { r.cfg.Reader = s })
	r.SetShared(shared(t))
	return r, s
}

func (r *rig) read(a *agent, method, what, arguments string) <-chan call.Answer {
	out := make(chan call.Answer, 1)
	go func() {
		out <- r.Call(context.Background(), call.Call{Peer: a.Identity, Method: method, Tool: what, Arguments: json.RawMessage(arguments), Correlation: execution.Caller{Transport: "stdio", RequestID: "1"}})
	}()
	return out
}

func TestAReadingIsJudgedInTheSameOrderAndRecordedAsAnyCall(t *testing.T) {
	r, _ := sharing(t)
	a := newAgent("1")
	const uri = "singlepass+bank:file:///private"
	r.lock()
	r.want(<-r.read(a, "resources/read", uri, ""), api.CodeVaultLocked, 0)
	r.unlock()
	// Without a session the person is asked, and sees all of it.
	done := r.read(a, "resources/read", uri, "")
	c := <-r.anyCard()
	if m := c.Effect.MCP; m == nil || m.Method != "resources/read" || string(m.Arguments) != `{"uri":"file:///private"}` || c.Effect.Auth.Credential != "api" {
		t.Errorf("the card shows %+v", c.Effect)
	}
	r.answer(c, approval.ForRun)
	got := <-done
	if got.Code != "" || r.target.effects() != 1 {
		t.Fatalf("%s %s", got.Code, got.Result)
	}
	x, ok, err := r.Execution(got.ExecutionID)
	if !ok || err != nil || x.Class != execution.ReadOnly || x.Tool != "bank/resources/read" || strings.Contains(x.Target, "private") || x.Credential != "api" {
		t.Errorf("the record is %+v (%v)", x, err)
	}
	// An old answer in place of a new one would be a stale read.
	if again := <-r.read(a, "resources/read", uri, ""); again.ExecutionID == got.ExecutionID || r.target.effects() != 2 {
		t.Errorf("it was not read anew: %+v", again)
	}
	// The credential's own consent holds for a session too.
	r.keys.perUse.Store(true)
	done = r.read(a, "resources/read", uri, "")
	r.answer(<-r.anyCard(), approval.Deny)
	r.want(<-done, api.CodeDenied, 2)
	r.keys.perUse.Store(false)
	// A journal that does not verify lets reading work, as with tools.
	r.SetQuarantine(true)
	r.want(<-r.read(a, "prompts/get", "bank.greet", `{"who":"you"}`), "", 3)
	if m := r.target.ledger[2].Effect.MCP; m.Method != "prompts/get" || string(m.Arguments) != `{"arguments":{"who":"you"},"name":"greet"}` || m.Pin != (upstream.Prompt{Name: "greet", Description: "Greets."}).Pin() {
		t.Errorf("sent %+v", m)
	}
}

func TestWhatNamesNothingThatIsOpenIsRefusedAndSendsNothing(t *testing.T) {
	r, _ := sharing(t)
	a := newAgent("1")
	r.trust(a)
	for _, c := range []struct {
		method, what, arguments string
		code                    api.Code
	}{
		{"resources/read", "file:///private", "", api.CodeActionUnknown},
		{"resources/read", "singlepass+bank", "", api.CodeActionUnknown},
		{"resources/read", "singlepass+bank:", "", api.CodeActionUnknown},
		{"resources/read", "singlepass+none:x", "", api.CodeActionUnknown},
		{"resources/read", "singlepass+bank/resources/read:x", "", api.CodeActionUnknown},
		{"resources/read", "SINGLEPASS+bank:x", "", api.CodeActionUnknown},
		{"resources/read", "singlepass+bank:a b", "", api.CodeActionUnknown},
		{"resources/read", "look", `{"order":"1"}`, api.CodeActionUnknown},
		{"resources/read", "execution_status", "", api.CodeActionUnknown},
		{"prompts/get", "bank.other", "", api.CodeArguments},
		{"prompts/get", "bank.greet", `{"who":1}`, api.CodeArguments},
		{"prompts/get", "bank.greet", `{"who":"a","who":"b"}`, api.CodeArguments},
		{"prompts/get", "greet", "", api.CodeActionUnknown},
		{"prompts/get", "slow.greet", "", api.CodeActionUnknown},
		{"", "bank/resources/read", `{"uri":"x"}`, api.CodeActionUnknown},
		{"", "bank/prompts/get", `{"name":"greet"}`, api.CodeActionUnknown},
		{"", "resources/read", `{"uri":"x"}`, api.CodeActionUnknown},
	} {
		if got := <-r.read(a, c.method, c.what, c.arguments); got.Code != c.code || r.target.effects() != 0 {
			t.Errorf("%s %s %s: %q, %d effects: %s", c.method, c.what, c.arguments, got.Code, r.target.effects(), got.Result)
		}
	}
}

func TestResourcesAreListedForWhoeverMayReadThem(t *testing.T) {
	r, s := sharing(t)
	a := newAgent("1")
	if _, refused := r.Resources(t.Context(), a.Identity); refused == nil || refused.Code != api.CodeSessionNeeded || s.asked.Load() != 0 {
		t.Errorf("without a session: %+v, %d asked", refused, s.asked.Load())
	}
	changed := r.SharedChanged()
	r.trust(a)
	<-changed // what may be seen is another list now
	got, refused := r.Resources(t.Context(), a.Identity)
	if refused != nil {
		t.Fatalf("%s", refused.Result)
	}
	var uris []string
	for _, one := range slices.Concat(got.Resources, got.Templates) {
		uris = append(uris, one.URI+" "+one.Name)
	}
	// One that calls its own another's is still its own.
	want := []string{"singlepass+bank:singlepass+bank:x bank: statement", "singlepass+long:singlepass+bank:x long: statement", "singlepass+bank:x://{id} bank: any", "singlepass+long:x://{id} long: any"}
	if !slices.Equal(uris, want) {
		t.Errorf("%q, want %q", uris, want)
	}
	if len(got.LeftOut) != 3 || got.LeftOut["long"] != "it has more" || got.LeftOut["asks"] == "" || got.LeftOut["slow"] == "" {
		t.Errorf("left out: %v", got.LeftOut)
	}
	// Where the credential asks at every use, nothing is asked with it for a list.
	r.keys.perUse.Store(true)
	before := s.asked.Load()
	if got, refused := r.Resources(t.Context(), a.Identity); refused != nil || got.LeftOut["bank"] == "" || s.asked.Load() != before+2 {
		t.Errorf("%+v, asked %d more", got.LeftOut, s.asked.Load()-before)
	}
	r.lock()
	if _, refused := r.Resources(t.Context(), a.Identity); refused == nil || refused.Code != api.CodeVaultLocked {
		t.Errorf("locked: %+v", refused)
	}
}

func TestASessionForOneReadingCoversItAndNothingElse(t *testing.T) {
	r, _ := sharing(t)
	a := newAgent("1")
	done := r.read(a, "resources/read", "singlepass+bank:x", "")
	c := <-r.anyCard()
	if err := r.Answer(context.Background(), c.Card.ID, approval.Decision{Answer: approval.ForRun, By: "operator", Scope: approval.ScopeAction}); err != nil {
		t.Fatal(err)
	}
	r.want(<-done, "", 1)
	got, refused := r.Resources(t.Context(), a.Identity)
	if refused != nil || len(got.Resources) != 1 || got.LeftOut["slow"] != "the person has not allowed this process to read it" {
		t.Errorf("%+v %+v", got, refused)
	}
	r.want(<-r.read(a, "resources/read", "singlepass+bank:y", ""), "", 2)
	done = r.read(a, "resources/read", "singlepass+long:y", "")
	r.answer(<-r.anyCard(), approval.Deny)
	r.want(<-done, api.CodeDenied, 2)
}

func TestWhatWaitsForAClosedResourceIsWithdrawn(t *testing.T) {
	r, _ := sharing(t)
	a := newAgent("1")
	done := r.read(a, "resources/read", "singlepass+bank:x", "")
	<-r.anyCard()
	r.SetActions(r.actions, nil) // changes nothing of it
	r.SetShared(nil, nil)
	r.want(<-done, api.CodeWithdrawn, 0)
	r.want(<-r.read(a, "resources/read", "singlepass+bank:x", ""), api.CodeActionUnknown, 0)
	if resources, prompts := r.Shared(); resources || prompts {
		t.Error("something is still offered")
	}
}

func TestAReadingWhoseAnswerIsLostIsMadeAgain(t *testing.T) {
	r, _ := sharing(t)
	a := newAgent("1")
	r.trust(a)
	r.target.answer = func(n int, _ channel.Request) channel.Outcome {
		if n == 1 {
			return channel.Outcome{Verdict: channel.Unknown, Reason: "lost"}
		}
		return success(n)
	}
	got := <-r.read(a, "resources/read", "singlepass+bank:x", "")
	if got.Code != "" || got.State != execution.NotDelivered || r.target.effects() != 2 {
		t.Errorf("%+v after %d requests", got, r.target.effects())
	}
}
