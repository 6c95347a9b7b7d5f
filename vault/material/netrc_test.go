package material_test

import (
	"fmt"
	"strings"
	"testing"

	"singlepass.dev/vault/material"
)

func TestANetrcFileIsReadAsTheToolsReadIt(t *testing.T) {
	const file = `# mine
machine API.example.com
	login anna
	password canary-not-a-secret

machine b.example login bob password p#2 account x
macdef init
	cd /pub
	password not-this

machine c.example login nobody
default login anonymous password guest
`
	all, err := material.Netrc([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range all {
		got = append(got, fmt.Sprintf("%s %s %s %d-%d", l.Machine, l.Login, l.Password, l.From, l.Last))
	}
	want := "api.example.com anna canary-not-a-secret 2-4|b.example bob p#2 6-6| anonymous guest 12-12"
	if strings.Join(got, "|") != want {
		t.Errorf("%s\n%s", strings.Join(got, "|"), want)
	}
}

func TestANetrcFileThatProgramsReadDifferentlyIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"machine":      "line 1: machine has no value",
		"login canary": "line 1: login stands before any machine",
		"machine a login b\npassword \"canary x\"": "line 2: the value of password begins with a quote",
		"machine a password canary x":              "line 1 has a word",
		"machine a login x login canary":           "line 1: login is there twice",
		"canary":                                   "line 1 has a word",
	} {
		if got, err := material.Netrc([]byte(text)); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := material.Netrc(nil); err != nil || got != nil {
		t.Errorf("an empty file: %v, %v", got, err)
	}
}

func FuzzNetrc(f *testing.F) {
	f.Add([]byte("machine a login b password c\nmacdef x\ny\n\ndefault login d"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := material.Netrc(b)
		if err != nil && all != nil {
			t.Error("an error and logins")
		}
		lines := strings.Count(string(b), "\n") + 1
		for _, l := range all {
			if l.From < 1 || l.Last < l.From || l.Last > lines || len(l.Password) == 0 {
				t.Errorf("%+v of %d lines", l, lines)
			}
		}
	})
}
