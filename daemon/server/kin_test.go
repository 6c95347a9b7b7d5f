package server_test

import (
	"bufio"
	"encoding/base64"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"singlepass.dev/daemon/api"
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

func TestAnOrphanInTheSessionOfAnAgentsTerminalIsItsOwn(t *testing.T) {
	shell := peer.Process{PID: 40, Start: 90}
	var f server.Family
	f.MetIn(&peer.Identity{Run: "run_1", Agent: peer.Process{PID: 42, Start: 100}, Chain: []peer.Process{shell, {PID: 1, Start: 1}}}, 40)
	f.MetIn(&peer.Identity{Run: "run_2", Agent: peer.Process{PID: 60, Start: 100}}, 0) // one without a terminal
	sessions := map[int]int{50: 40, 51: 51, 40: 40, 70: 0}
	for name, c := range map[string]struct {
		orphans []peer.Process
		left    bool
	}{
		"an orphan":                             {[]peer.Process{{PID: 50, Start: 120}}, true},
		"a descendant that left the session":    {[]peer.Process{{PID: 51, Start: 130}, {PID: 50, Start: 120}}, true},
		"what began before the agent":           {[]peer.Process{{PID: 50, Start: 99}}, false},
		"what the person starts in that window": {[]peer.Process{{PID: 50, Start: 120}, shell}, false},
		"an orphan that left the session":       {[]peer.Process{{PID: 51, Start: 120}}, false},
		"one in no session":                     {[]peer.Process{{PID: 70, Start: 120}}, false},
	} {
		if run, left := f.LeftInSession(c.orphans, func(pid int) int { return sessions[pid] }); left != c.left || left && run != "run_1" {
			t.Errorf("%s: %q, %t", name, run, left)
		}
	}
}

func TestWhatAnUpstreamServerLeftBehindIsNotTheOperator(t *testing.T) {
	const own, terminal = "/user@1000.service/app.slice/singlepass.service", "/user@1000.service/app.slice/vte-spawn-1.scope"
	for name, c := range map[string]struct {
		unit, own string
		left      bool
	}{
		"an orphan in the daemon's unit":             {own, own, true},
		"a terminal":                                 {terminal, own, false},
		"a group that everything shares":             {"", own, false},
		"a terminal that the daemon was started in":  {terminal, terminal, false},
		"a daemon in a group that everything shares": {"", "", false},
	} {
		if got := server.LeftByUpstream(c.unit, c.own); got != c.left {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// An upstream server is a child of the daemon, and a program of somebody else's.
func TestAChildOfTheDaemonIsNotTheOperator(t *testing.T) {
	s := begin(t)
	child := exec.Command("/proc/self/exe", "-test.run=^TestAnAgentsProcess$")
	child.Env = append(os.Environ(), agentSocket+"="+s.daemon.OperatorSocket())
	proof := base64.StdEncoding.EncodeToString([]byte(rightPassphrase))
	request := strings.NewReader("GET /v1/approvals HTTP/1.1\nHost: spd\nAuthorization: Passphrase " + proof + "\n\n")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, open := io.Pipe() // it ends with its input, which stays open until an answer came
	child.Stdin = io.MultiReader(request, in)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = open.Close()
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('}')
	if err != nil || !strings.Contains(line, string(api.CodeAgentCaller)) {
		t.Errorf("it is answered %s, %v", line, err)
	}
	if r := s.status().Refused; r == nil || r.Agents != 1 {
		t.Errorf("the person is shown %+v", r)
	}
}
