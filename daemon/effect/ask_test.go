package effect_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"singlepass.dev/daemon/effect"
)

func question() effect.Effect {
	return effect.Effect{Channel: effect.Person, Ask: &effect.Ask{Target: "https://api.example.com/v1", Purpose: "to list the orders of Zoë"}}
}

// The files were written once. They are never regenerated: a difference is a break of what lies sealed in journals.
func TestTheFormOfAQuestionIsFrozen(t *testing.T) {
	vector, err := os.ReadFile("testdata/ask-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := os.ReadFile("testdata/ask-v1.sha256")
	if err != nil {
		t.Fatal(err)
	}
	got, err := question().Encode()
	if err != nil || !bytes.Equal(got, bytes.TrimSuffix(vector, []byte("\n"))) {
		t.Errorf("encoded %s, %v", got, err)
	}
	back, err := effect.Decode(got)
	if err != nil || *back.Ask != *question().Ask || back.Target() != "credential for https://api.example.com/v1" {
		t.Errorf("decoded %+v, %v", back, err)
	}
	sum, err := question().Digest()
	if err != nil || hex.EncodeToString(sum[:]) != strings.TrimSpace(string(digest)) {
		t.Errorf("digest %x, %v", sum, err)
	}
}

func TestAQuestionIsShortAndPlain(t *testing.T) {
	for name, change := range map[string]func(*effect.Ask){
		"no target": func(a *effect.Ask) { a.Target = "" }, "long": func(a *effect.Ask) { a.Purpose = strings.Repeat("x", 301) },
		"control": func(a *effect.Ask) { a.Purpose = "a\x1b[2Jb" }, "line break": func(a *effect.Ask) { a.Target += "\n" }, "not UTF-8": func(a *effect.Ask) { a.Purpose = "\xff" },
	} {
		e := question()
		change(e.Ask)
		if b, err := e.Encode(); err == nil {
			t.Errorf("%s: %s", name, b)
		}
	}
	e := question()
	e.Channel = effect.HTTP
	if b, err := e.Encode(); err == nil {
		t.Errorf("another channel: %s", b)
	}
}
