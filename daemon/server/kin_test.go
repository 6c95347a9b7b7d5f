package server_test

import (
	"testing"

	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/server"
)

func TestAProcessThatAnAgentLeftBehindIsStillItsOwn(t *testing.T) {
	const unit = "/app.slice/app-claude-42.scope"
	agent := &peer.Identity{Run: "run_1", Agent: peer.Process{PID: 42, Start: 100}, Chain: []peer.Process{{PID: 40, Start: 90}, {PID: 1, Start: 1}}}
	var f server.Family
	f.Met(agent, unit)
	f.Met(&peer.Identity{Run: "run_2", Agent: peer.Process{PID: 60, Start: 100}}, "") // one that shares its group with everything
	for name, c := range map[string]struct {
		root peer.Process
		unit string
		left bool
	}{
		"an orphan of its group":                      {peer.Process{PID: 50, Start: 120}, unit, true},
		"what began before it":                        {peer.Process{PID: 50, Start: 99}, unit, false},
		"the window that both live in":                {peer.Process{PID: 40, Start: 90}, unit, false},
		"the same, had it begun later":                {peer.Process{PID: 40, Start: 190}, unit, true},
		"an orphan of another group":                  {peer.Process{PID: 50, Start: 120}, "/app.slice/app-other-1.scope", false},
		"an orphan of a group that everything shares": {peer.Process{PID: 70, Start: 120}, "", false},
	} {
		if run, left := f.LeftBy(c.root, c.unit); left != c.left || left && run != "run_1" {
			t.Errorf("%s: %q, %t", name, run, left)
		}
	}
}
