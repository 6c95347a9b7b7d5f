package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"singlepass.dev/daemon/e2e/ledger"
)

// traces are the spellings under which a leaked secret would be found.
func traces(secret string) map[string][]byte {
	quoted, _ := json.Marshal(secret)
	inBearer := base64.StdEncoding.EncodeToString([]byte("Bearer " + secret))
	return map[string][]byte{
		"raw":            []byte(secret),
		"start":          []byte(secret[:20]), // a part is a leak too, and no quoting changes this one
		"base64":         []byte(base64.StdEncoding.EncodeToString([]byte(secret))[:32]),
		"base64, url":    []byte(base64.URLEncoding.EncodeToString([]byte(secret))[:32]),
		"base64, header": []byte(inBearer[8:40]),
		"percent":        []byte(url.QueryEscape(secret)),
		"json":           bytes.Trim(quoted, `"`),
		"hex":            []byte(hex.EncodeToString([]byte(secret))[:40]),
		"HEX":            []byte(strings.ToUpper(hex.EncodeToString([]byte(secret))[:40])),
	}
}

// leaks names where in data the secret is.
func leaks(data []byte) (found []string) {
	for how, trace := range traces(canary) {
		if bytes.Contains(data, trace) {
			found = append(found, how)
		}
	}
	return found
}

// filesBelow reads every file below the folders.
func filesBelow(t *testing.T, dirs ...string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			files[path], err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// processes reads what every process of the machine shows of its command line and environment.
func processes(t *testing.T) map[string][]byte {
	t.Helper()
	seen := map[string][]byte{}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err == nil { // a process may have ended, or be none of ours
				seen[name] = data
			}
		}
	}
	return seen
}

// wantClean fails for everything that the secret is found in.
func wantClean(t *testing.T, places map[string][]byte) {
	t.Helper()
	if len(places) == 0 {
		t.Fatal("nothing was searched")
	}
	for name, data := range places {
		if found := leaks(data); found != nil {
			t.Errorf("the secret is in %s (%s)", name, strings.Join(found, ", "))
		}
	}
}

func TestTheSecretIsFoundNowhereButAtTheTarget(t *testing.T) {
	for how, spelt := range map[string]string{
		"raw": canary, "base64": base64.StdEncoding.EncodeToString([]byte(canary)), "hex": hex.EncodeToString([]byte(canary)), "percent": url.QueryEscape(canary),
		"header": base64.StdEncoding.EncodeToString([]byte("Bearer " + canary)),
	} {
		if leaks([]byte("before "+spelt+" after")) == nil {
			t.Fatalf("the search would not find the secret spelt as %s", how)
		}
	}

	actions := map[string]string{"charge_echo": charge("charge_echo", "/ignores/echo", "class: irreversible\n  attach_window: 1h")}
	for name, text := range usualActions {
		actions[name] = text
	}
	s := newStand(t, option{actions: actions})
	s.agreeable()
	overStdio, overHTTP := s.agent(clientKinds[0], "stdio"), s.agent(clientKinds[len(clientKinds)-1], "http")

	// While a request is under way, which is when the secret is in use.
	s.target.plan(ledger.Hold)
	held := overStdio.call(request{tool: "charge_once", args: args("A-1")})
	s.target.nextEffect()
	wantClean(t, processes(t))
	wantNoCore(t, s.spd.cmd.Process.Pid)
	s.target.release()
	s.wantReceipt(must(t, held()))

	// A target that says the credential back, in every spelling, to whoever asks; and one that is unwell.
	for _, c := range []*client{overStdio, overHTTP} {
		echo := c.mustCall(request{tool: "charge_echo", args: args("A-2")})
		s.wantReceipt(echo)
		if !strings.Contains(string(echo.raw), "echo") {
			t.Errorf("the target's echo did not arrive: %s", echo.raw)
		}
	}
	s.target.plan(ledger.Cut, ledger.Fail)
	overHTTP.mustCall(request{tool: "charge_once", args: args("A-3")})
	overHTTP.mustCall(request{tool: "charge_once", args: args("A-4")})

	// What the operator reads, live and afterwards, locked and unlocked.
	for _, command := range [][]string{
		{"activity", "--json"},
		{"sessions", "--json"},
		{"credential", "list", "--json"},
		{"credential", "show", "ledger", "--json"},
		{"action", "list", "--json"},
		{"status", "--json"},
		{"audit", "verify"},
		{"lock"},
		{"status", "--json"},
		{"unlock"},
	} {
		wantClean(t, map[string][]byte{"spctl " + strings.Join(command, " "): []byte(s.spctl(command...))})
	}
	for id := range s.records() {
		wantClean(t, map[string][]byte{"spctl activity show " + id: []byte(s.spctl("activity", "show", id, "--json"))})
	}

	// The whole home (vault, journal, index, configuration), and everything that the daemon, the bridge, the operator's
	// commands and the agents printed, both directions of the MCP traffic among it.
	wantClean(t, filesBelow(t, s.dir, logDir(t)))
	if status := s.spd.stop(); status != 0 {
		t.Errorf("spd ended with %d", status)
	}
	wantClean(t, filesBelow(t, s.dir, logDir(t)))
	wantClean(t, processes(t))
}

// wantNoCore says that a crash of the process leaves no memory image on disk.
func wantNoCore(t *testing.T, pid int) {
	t.Helper()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(l, "Max core file size"); ok {
			if f := strings.Fields(rest); f[0] != "0" || f[1] != "0" {
				t.Errorf("spd may dump core: %s", l)
			}
			return
		}
	}
	t.Error("no core limit is shown")
}
