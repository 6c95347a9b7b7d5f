package peer_test

import (
	"slices"
	"strings"
	"testing"

	"singlepass.dev/daemon/peer"
)

func lasting() peer.Identity {
	return peer.Identity{
		Actor: "deb:agent", Agent: peer.Process{Exe: "/usr/bin/agent", Digest: "sha256:00"}, Assurance: peer.SystemOwned, Package: "deb:agent", Via: peer.ViaBridge,
		Through: []peer.Process{{Exe: "/usr/local/bin/spctl"}},
		Chain:   []peer.Process{{Exe: "/usr/bin/bash", UID: 1000}, {Exe: "/usr/bin/python3", Script: "/usr/bin/terminal", UID: 1000}, {UID: 0}},
	}
}

func TestWhatMayBeRememberedForTheNextRunsOfAProgram(t *testing.T) {
	if err := lasting().Lasting(); err != nil {
		t.Fatal(err)
	}
	direct := lasting()
	direct.Via, direct.Through = peer.ViaSocket, nil
	if err := direct.Lasting(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*peer.Identity){
		"one of the user's":              func(i *peer.Identity) { i.Assurance = peer.UserOwned },
		"one of the user's, unchanged":   func(i *peer.Identity) { i.Assurance = peer.Unchanged },
		"a changed one":                  func(i *peer.Identity) { i.Assurance = peer.Changed },
		"one that cannot be told":        func(i *peer.Identity) { i.Assurance = peer.CannotTell },
		"one of no level":                func(i *peer.Identity) { i.Assurance = "" },
		"a doubt":                        func(i *peer.Identity) { i.Doubts = []string{"it was started with LD_PRELOAD"} },
		"a script":                       func(i *peer.Identity) { i.Agent.Exe, i.Agent.Script = "/usr/bin/agentd", "/usr/lib/agent/main" },
		"an interpreter with a script":   func(i *peer.Identity) { i.Agent.Exe, i.Agent.Script = "/usr/bin/node", "/usr/lib/agent/cli.js" },
		"an interpreter":                 func(i *peer.Identity) { i.Agent.Exe = "/usr/bin/python3.11" },
		"a shell that is no known one":   func(i *peer.Identity) { i.Agent.Exe = "/usr/bin/zsh" },
		"an interpreter with a version":  func(i *peer.Identity) { i.Agent.Exe = "/usr/bin/php8.2" },
		"the linker":                     func(i *peer.Identity) { i.Agent.Exe = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" },
		"what starts others":             func(i *peer.Identity) { i.Agent.Exe = "/usr/bin/xargs" },
		"what passes on what it is told": func(i *peer.Identity) { i.Agent.Exe = "/usr/bin/socat1" },
		"one without a digest":           func(i *peer.Identity) { i.Agent.Digest = "" },
		"one over HTTP":                  func(i *peer.Identity) { i.Via, i.Through = peer.ViaHTTP, nil },
		"one by a way that is not known": func(i *peer.Identity) { i.Via = "pigeon" },
		"one behind a launcher":          func(i *peer.Identity) { i.Through = append(i.Through, peer.Process{Exe: "/usr/bin/dash"}) },
		"a bridge that is not there":     func(i *peer.Identity) { i.Through = nil },
		"one that hides in a deep tree":  func(i *peer.Identity) { i.Chain = make([]peer.Process, 33) },
		"one with a path without an end": func(i *peer.Identity) { i.Agent.Exe = "/" + strings.Repeat("x", 600) },
		"one above it with such a path":  func(i *peer.Identity) { i.Chain[0].Exe = "/" + strings.Repeat("x", 600) },
	} {
		i := lasting()
		change(&i)
		if i.Lasting() == nil {
			t.Errorf("%s: what is decided about it lasts", what)
		}
	}
}

func TestWhereAProgramStandsIsRememberedByPaths(t *testing.T) {
	i := lasting()
	if got, want := i.Above(), []string{"/usr/bin/bash", "/usr/bin/python3 /usr/bin/terminal", "user 0"}; !slices.Equal(got, want) {
		t.Errorf("above it: %q, want %q", got, want)
	}
	if got, want := i.Between(), []string{"/usr/local/bin/spctl"}; !slices.Equal(got, want) {
		t.Errorf("between: %q, want %q", got, want)
	}
}

func TestWhatStandsAboveAProgramIsToldToTheEnd(t *testing.T) {
	for what, chain := range map[string][]peer.Process{"nothing": nil, "one whose parent went meanwhile": {{Exe: "/usr/bin/bash", PPID: 300}}} {
		i := lasting()
		i.Chain = chain
		if i.Lasting() == nil {
			t.Errorf("%s: what is decided about it lasts", what)
		}
	}
}
