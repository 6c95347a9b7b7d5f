package peer_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/peer"
)

var agent = peer.Identity{
	Actor: "script:/home/u/agent.js", Assurance: peer.UserOwned, Package: "deb:nodejs",
	Agent: peer.Process{Exe: "/usr/bin/node", Digest: "sha256:01", Script: "/home/u/agent.js", ScriptDigest: "sha256:02"},
}

func TestAProgramIsJudgedByWhatItWasInItsLastSession(t *testing.T) {
	first := time.Date(2026, 7, 22, 14, 0, 0, 0, time.UTC)
	if got := agent.Judged(peer.Known{}); !reflect.DeepEqual(got, agent) {
		t.Errorf("seen for the first time: %+v", got)
	}
	known := agent.KnownAs(peer.Known{}, first)
	if got := agent.Judged(known); got.Assurance != peer.Unchanged || got.Changes != nil {
		t.Errorf("the same program: %s, %q", got.Assurance, got.Changes)
	}
	for what, change := range map[string]func(*peer.Identity){
		"executable":           func(i *peer.Identity) { i.Agent.Exe = "/opt/node" },
		"executable's content": func(i *peer.Identity) { i.Agent.Digest = "sha256:11" },
		"script":               func(i *peer.Identity) { i.Agent.Script = "" },
		"script's content":     func(i *peer.Identity) { i.Agent.ScriptDigest = "sha256:12" },
		"package":              func(i *peer.Identity) { i.Package = "" },
	} {
		for _, level := range []peer.Assurance{peer.UserOwned, peer.SystemOwned, peer.CannotTell} {
			changed := agent
			changed.Assurance = level
			change(&changed)
			want := level
			if level == peer.UserOwned {
				want = peer.Changed
			}
			got := changed.Judged(known)
			if got.Assurance != want || len(got.Changes) != 1 || !strings.HasPrefix(got.Changes[0], "its "+what+" is another since its session of 2026-07-22 14:00 UTC: ") {
				t.Errorf("%s of a program that was %q: %q, %q", what, level, got.Assurance, got.Changes)
			}
		}
	}
	another := agent
	another.Actor = "script:/home/u/other.js"
	if got := another.Judged(known); got.Assurance != peer.UserOwned || got.Changes != nil {
		t.Errorf("what is known of another actor counts: %s, %q", got.Assurance, got.Changes)
	}
	later := agent.KnownAs(known, first.Add(time.Hour))
	if !later.First.Equal(first) || !later.Last.Equal(first.Add(time.Hour)) {
		t.Errorf("remembered again: %+v", later)
	}
}

func TestTheFormOfWhatIsRememberedIsFrozen(t *testing.T) {
	known := agent.KnownAs(peer.Known{}, time.Date(2026, 7, 22, 14, 0, 0, 0, time.UTC))
	b, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	const frozen = `{"actor":"script:/home/u/agent.js","exe":"/usr/bin/node","digest":"sha256:01","script":"/home/u/agent.js","script_digest":"sha256:02","package":"deb:nodejs",` +
		`"first_seen":"2026-07-22T14:00:00Z","last_session":"2026-07-22T14:00:00Z"}`
	if string(b) != frozen {
		t.Errorf("\n got %s\nwant %s", b, frozen)
	}
}
