package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"singlepass.dev/daemon/api"
)

func TestContractsAreCheckedWithoutADaemon(t *testing.T) {
	build(t, "singlepass.dev/cmd/spd")
	spctl := build(t, "singlepass.dev/cmd/spctl")
	dir := t.TempDir()
	check := func(args ...string) (string, string, int) {
		cmd := exec.Command(spctl, append([]string{"action", "check"}, args...)...)
		cmd.Dir = dir
		return run(t, cmd)
	}
	good, err := os.ReadFile("../../assets/actions/deploy_release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"good.yaml": string(good), "-bad.yaml": strings.Replace(string(good), "channel: http", "channel: htp", 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	out, _, status := check("good.yaml")
	if status != int(api.ExitDone) || !strings.HasPrefix(out, "good.yaml: deploy_release, idempotent\n") {
		t.Errorf("a good contract: exit status %d, %s", status, out)
	}
	out, _, status = check("--json", "--", "good.yaml", "-bad.yaml")
	if status != int(api.ExitFailed) {
		t.Errorf("a bad contract: exit status %d", status)
	}
	var checks []api.ContractCheck
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var c api.ContractCheck
		if err := d.Decode(&c); err != nil {
			t.Fatal(err)
		}
		checks = append(checks, c)
	}
	if len(checks) != 2 || !checks[0].Valid || checks[0].Action != "deploy_release" || checks[1].Valid || len(checks[1].Problems) != 1 || checks[1].Problems[0].Line == 0 {
		t.Errorf("--json said %+v", checks)
	}
	if _, wrong, status := check("good.yaml", "none.yaml"); status != int(api.ExitNotFound) || !strings.Contains(wrong, "none.yaml") {
		t.Errorf("a missing file: exit status %d, %s", status, wrong)
	}
	if _, wrong, status := check("pipe"); status != int(api.ExitFailed) || !strings.Contains(wrong, "pipe is not a file") {
		t.Errorf("a pipe: exit status %d, %s", status, wrong)
	}
	out, _, status = run(t, exec.Command(spctl, "action", "schema"))
	if status != int(api.ExitDone) || !json.Valid([]byte(out)) || !strings.Contains(out, `"$schema"`) {
		t.Errorf("the schema: exit status %d, %.80s", status, out)
	}
}
