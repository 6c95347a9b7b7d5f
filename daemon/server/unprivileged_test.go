package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
)

// nobody is a user without rights, and without processes of its own that would notice.
const nobody = 65534

// TestTheRealProgramsServeAUserWithoutRights is about what root does not see: an undumpable daemon hides from its own user, folders are entered by others, locked memory is scarce.
func TestTheRealProgramsServeAUserWithoutRights(t *testing.T) {
	t.Parallel() // it builds them
	if os.Getuid() != 0 {
		t.Skip("the other tests run without rights already; only root can give them up for this one")
	}
	installed, err := os.MkdirTemp("", "sp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(installed) })
	if err := os.Chmod(installed, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", installed+"/", "singlepass.dev/cmd/spd", "singlepass.dev/cmd/spctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	private := filepath.Join(installed, "home")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(private, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Chown(private, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	bank := startTarget(t)
	contract := write("pay.yaml", fmt.Sprintf(`action: pay
title: Pay
description: Pays one order.
channel: http
input: {type: object, properties: {order: {type: string}}, required: [order], additionalProperties: false}
credential: bank
approval: session
http: {method: POST, url: "%s/v1/pay", json: {order: "{order}"}}
replay: {class: irreversible, attach_window: 1h}
`, bank.URL))
	token := write("token", canary)
	write("passphrase", rightPassphrase+"\n")

	command := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(installed, program), args...)
		cmd.Dir = private
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + private, "SINGLEPASS_HOME=" + private + "/h", "SINGLEPASS_PASSPHRASE_FILE=" + private + "/passphrase"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	said := map[string][]byte{} // what the programs said, to look for the secret in
	spctl := func(args ...string) string {
		t.Helper()
		out, err := command("spctl", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("spctl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		said["spctl "+strings.Join(args, " ")] = out
		return string(out)
	}
	spd := command("spd")
	log := startLog(t, spd)
	log.wait(`"msg":"ready"`)

	spctl("init", "--no-keyring")
	spctl("credential", "add", "bank", "--kind", "bearer", "--target", bank.URL, "--value-file", token)
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	spctl("action", "accept", contract)

	// The agent is a process without rights too: this test is root's, and its children are not its agents.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(installed, "agent"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	agent := command("agent", "-test.run=^TestAnAgentsProcess$")
	agent.Env = append(agent.Env, agentSocket+"="+private+"/h/run/agent.sock")
	a := startAgent(t, agent)
	id := a.send("pay", "1")
	var card api.Card
	for until := time.Now().Add(patience); card.Card == ""; {
		if out := spctl("approvals", "--json"); out != "" {
			if err := json.Unmarshal([]byte(out), &card); err != nil {
				t.Fatalf("reading %s: %v", out, err)
			}
		} else if time.Now().After(until) {
			t.Fatal("no card came")
		}
	}
	if card.Agent.Exe != filepath.Join(installed, "agent") || card.Agent.UID != nobody {
		t.Errorf("the card names %+v", card.Agent)
	}
	spctl("approve", card.Card, "--once")
	if out := a.outcome(id); out.IsError || !strings.Contains(out.raw, "receipt") {
		t.Errorf("the approved call: %s", out.raw)
	}
	if n := bank.acted.Load(); n != 1 {
		t.Errorf("the target acted %d times", n)
	}
	said["activity"] = []byte(spctl("activity", "--json"))

	// The daemon has closed itself to its own user: neither memory nor environment nor descriptors can be looked at.
	for _, file := range []string{"mem", "environ", "fd", "maps"} {
		look := command("sh", "-c", "ls /proc/$0/"+file+"/ 2>&1 || cat /proc/$0/"+file, fmt.Sprint(spd.Process.Pid))
		look.Path = "/bin/sh"
		if out, err := look.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("ermission denied")) {
			t.Errorf("its user can look at spd's %s: %s", file, out)
		}
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", spd.Process.Pid))
	if err != nil || !bytes.Contains(limits, []byte("Max core file size        0                    0")) {
		t.Errorf("spd may leave a core: %s, %v", limits, err)
	}
	if err := spd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := log.ended(); err != nil {
		t.Errorf("spd did not end cleanly: %v", err)
	}
	said["spd's log"] = log.all.Bytes()
	files, err := filepath.Glob(private + "/h/*/*")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := filepath.Glob(private + "/h/*/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, inner...) {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			said[path] = b
		}
	}
	for where, b := range said {
		for _, secret := range []string{canary, rightPassphrase} {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s holds a secret", where)
			}
		}
	}
}

// progress is what a program writes to its standard error.
type progress struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan []byte
	all   bytes.Buffer // owner: the reading goroutine until lines is closed
}

func startLog(t *testing.T, cmd *exec.Cmd) *progress {
	t.Helper()
	r, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &progress{t: t, cmd: cmd, lines: make(chan []byte, 10000)}
	go func() {
		defer close(p.lines)
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			p.all.Write(buf[:n])
			p.lines <- bytes.Clone(buf[:n])
			if err != nil {
				if err != io.EOF {
					p.all.WriteString(err.Error())
				}
				return
			}
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return p
}

func (p *progress) wait(text string) {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the program ended before %s: %s", text, p.all.Bytes())
			}
			if bytes.Contains(l, []byte(text)) {
				return
			}
		case <-deadline:
			p.t.Fatalf("the program never said %s", text)
		}
	}
}

// ended waits for the program's end.
func (p *progress) ended() error {
	for range p.lines {
	}
	return p.cmd.Wait()
}
