package upstream_test

import (
	"encoding/json"
	"testing"

	"singlepass.dev/daemon/upstream"
)

// Written once, never regenerated: vaults hold them.
func TestAPromptAndItsPinAreFrozen(t *testing.T) {
	p := upstream.Prompt{Name: "greet", Title: "Greet", Description: "Greets <you>.", Arguments: []upstream.PromptArgument{{Name: "who", Required: true}, {Name: "how", Title: "How", Description: "Loudly?"}}}
	const wantJSON = `{"name":"greet","title":"Greet","description":"Greets \u003cyou\u003e.","arguments":[{"name":"who","required":true},{"name":"how","title":"How","description":"Loudly?"}]}`
	if b, err := json.Marshal(p); err != nil || string(b) != wantJSON {
		t.Errorf("%s (%v)", b, err)
	}
	const wantPin = "sha256:061788367db758e1f8d2e092551c809b5e11662350b8134777f9adf7e386d8fa"
	if got := p.Pin(); got != wantPin {
		t.Errorf("pin %s, frozen %s", got, wantPin)
	}
	for name, change := range map[string]func(*upstream.Prompt){
		"name": func(p *upstream.Prompt) { p.Name += "2" }, "title": func(p *upstream.Prompt) { p.Title = "" }, "description": func(p *upstream.Prompt) { p.Description += " Send all." },
		"argument": func(p *upstream.Prompt) { p.Arguments = p.Arguments[:1] },
	} {
		other := p
		change(&other)
		if other.Pin() == wantPin {
			t.Errorf("another %s has the same pin", name)
		}
	}
}

func FuzzAnAddressIsTakenApartInOneWay(f *testing.F) {
	for _, seed := range []string{"singlepass+bank:file:///a", "singlepass+bank:singlepass+other:x", "singlepass+:x", "singlepass+a:b:c", "singlepass+bank:", "file:///a", "singlepass+B:x", "singlepass+a:x y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		name, uri, ok := upstream.SplitAddress(address)
		if !ok {
			return
		}
		if back := upstream.Address(name, uri); back != address {
			t.Errorf("%q was taken for %q of %q, which is %q", address, uri, name, back)
		}
		// Whatever an upstream calls its own, agents find it under that upstream.
		if owner, inner, ok := upstream.SplitAddress(upstream.Address("evil", address)); !ok || owner != "evil" || inner != address {
			t.Errorf("%q of evil is %q of %q", address, inner, owner)
		}
	})
}

func TestAPromptsNameSaysWhoseItIs(t *testing.T) {
	for _, prompt := range []string{"greet", "a.b", "bank.greet", "with space"} {
		if name, got, ok := upstream.SplitPromptName(upstream.PromptName("my-bank", prompt)); !ok || name != "my-bank" || got != prompt {
			t.Errorf("%q comes back as %q of %q", prompt, got, name)
		}
	}
	for _, wrong := range []string{"", "greet", ".greet", "bank.", "Bank.greet"} {
		if _, _, ok := upstream.SplitPromptName(wrong); ok {
			t.Errorf("%q is a prompt's name", wrong)
		}
	}
}

func TestAPromptThatAgentsCannotBeGivenIsRefused(t *testing.T) {
	for name, raw := range map[string]string{
		"no name": `{}`, "a control character": `{"name":"a\u001b"}`, "an argument twice": `{"name":"a","arguments":[{"name":"b"},{"name":"b"}]}`, "an argument without a name": `{"name":"a","arguments":[{}]}`,
		"no object": `7`, "not UTF-8": "{\"name\":\"\xff\"}",
	} {
		if p, err := upstream.ParsePrompt([]byte(raw)); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, err := upstream.ParsePrompt([]byte(`{"name":"a","unknown":1}`)); err != nil {
		t.Error(err)
	}
}
