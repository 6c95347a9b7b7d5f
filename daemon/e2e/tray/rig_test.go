package tray_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/e2e/ledger"
	"singlepass.dev/ui/bustest"
	"singlepass.dev/ui/icon"
)

const (
	passphrase = "correct horse battery staple e2e"
	// patience bounds every wait; only a failure reaches it.
	patience = 60 * time.Second
	// iconSize is what package ui/tray draws.
	iconSize = 64
)

var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sp-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// built are the programs under test, in one folder: they look for each other beside themselves.
var built = sync.OnceValue(func() error {
	for _, b := range []struct {
		cgo  string
		args []string
	}{
		{"0", []string{"./cmd/spd", "./cmd/spctl", "./daemon/e2e/cmd/agent"}},
		// The same flags as make's, whatever they are here, or Fyne is compiled once more.
		{"1", []string{"-tags=gles,no_emoji", "./cmd/sp-tray"}},
	} {
		cmd := exec.Command("go", append([]string{"build", "-o", binaries}, b.args...)...)
		cmd.Dir = "../../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", strings.Join(b.args, " "), err, out)
		}
	}
	return nil
})

// rig is one desktop with one home.
type rig struct {
	t       testing.TB
	dir     string
	env     []string
	panel   *bustest.Panel
	notes   *bustest.Notifications
	item    *bustest.Item
	tray    *exec.Cmd
	trayLog bytes.Buffer
	trayEnd chan error
	spd     *exec.Cmd
	target  *ledger.Server
	acts    chan ledger.Entry // what the target did
	url     string
	shots   string // where pictures go; empty: none are taken
}

// newRig is a desktop whose panel and notification daemon are the test's own.
func newRig(t testing.TB) *rig {
	t.Helper()
	r, address := newDesktop(t)
	r.panel, r.notes = bustest.NewPanel(t, address), bustest.NewNotifications(t, address)
	return r
}

// newDesktop is a desktop with neither.
func newDesktop(t testing.TB) (r *rig, address string) {
	t.Helper()
	if err := built(); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"Xvfb", "xdotool", "import", "dbus-daemon"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("this test needs %s: bash .ci/setup", tool)
		}
	}
	dir, err := os.MkdirTemp("", "sp-") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address = bustest.Start(t)
	r = &rig{t: t, dir: dir, shots: os.Getenv("SINGLEPASS_SCREENSHOTS")}
	r.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=en_US.UTF-8", "DBUS_SESSION_BUS_ADDRESS=" + address, "DISPLAY=" + r.startX(),
		"SINGLEPASS_HOME=" + filepath.Join(dir, "h"), "SINGLEPASS_PASSPHRASE_FILE=" + r.write("passphrase", passphrase+"\n"), "FYNE_THEME=" + theme(),
		"LIBGL_ALWAYS_SOFTWARE=1",
	}
	file, err := os.OpenFile(filepath.Join(dir, "ledger.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	r.acts = make(chan ledger.Entry, 64)
	r.target, err = ledger.New(ledger.Config{File: file, Notify: func(e ledger.Event) {
		if e.Event == "entry" && e.Entry.Kind == ledger.Effect {
			r.acts <- e.Entry
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r.target)
	t.Cleanup(func() { r.target.Release(); s.Close() })
	r.url = s.URL
	return r, address
}

// theme is dark unless pictures are taken in another one.
func theme() string {
	if t := os.Getenv("SINGLEPASS_SCREENSHOTS_THEME"); t != "" {
		return t
	}
	return "dark"
}

// startX runs an X server without a screen and returns its display.
func (r *rig) startX() string {
	r.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command("Xvfb", "-displayfd", "3", "-screen", "0", "1280x900x24", "-nolisten", "tcp")
	cmd.ExtraFiles = []*os.File{write}
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("starting an X server: %v", err)
	}
	write.Close()
	r.t.Cleanup(func() { end(cmd) })
	n, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		r.t.Fatalf("starting an X server: %v", err)
	}
	return ":" + strings.TrimSpace(n)
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func (r *rig) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *rig) command(name string, args ...string) *exec.Cmd {
	if p := filepath.Join(binaries, name); exists(p) {
		name = p
	}
	cmd := exec.Command(name, args...)
	cmd.Env = r.env
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs a command that must succeed.
func (r *rig) run(name string, args ...string) string {
	r.t.Helper()
	out, err := r.command(name, args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// startDaemon starts spd and waits until it is ready.
func (r *rig) startDaemon() {
	r.t.Helper()
	r.spd = r.command("spd")
	out, err := r.spd.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.spd.Start(); err != nil {
		r.t.Fatal(err)
	}
	cmd := r.spd
	r.t.Cleanup(func() { end(cmd) })
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"msg":"ready"`) {
				ready <- true
			}
		}
		close(ready)
	}()
	bustest.Await(r.t, "ready daemon", ready, func(bool) bool { return true })
}

// killDaemon ends spd without a word.
func (r *rig) killDaemon() { end(r.spd) }

// setUp makes a vault, a credential and a contract of each kind that is needed, and leaves the vault locked.
func (r *rig) setUp() {
	r.t.Helper()
	r.run("spctl", "init", "--no-keyring")
	r.run("spctl", "unlock")
	r.run("spctl", "credential", "add", "deploy-service", "--kind", "bearer", "--target", r.url, "--value-file", r.write("secret", "canary-not-a-secret-token"))
	r.run("spctl", "action", "accept", r.write("h/config/actions/deploy_release.yaml", strings.ReplaceAll(contract, "{target}", r.url)))
	r.run("spctl", "lock")
}

const contract = `action: deploy_release
title: Deploy a release
description: Deploys one version of a service to one region.
channel: http
input:
  type: object
  properties:
    service: {type: string}
    version: {type: string}
    region: {type: string, default: us-east-1}
  required: [service, version]
  additionalProperties: false
credential: deploy-service
approval: per_use
http:
  method: POST
  url: "{target}/v1/releases"
  json: {service: "{service}", version: "{version}", region: "{region}"}
replay:
  class: irreversible
  attach_window: 1h
  after_delivery: ask
`

// startTray starts sp-tray and waits for its icon.
func (r *rig) startTray(args ...string) {
	r.t.Helper()
	r.tray = r.command("sp-tray", args...)
	r.trayLog.Reset()
	r.tray.Stderr = &r.trayLog
	if err := r.tray.Start(); err != nil {
		r.t.Fatal(err)
	}
	cmd, ended := r.tray, make(chan error, 1)
	r.trayEnd = ended
	go func() { ended <- cmd.Wait() }()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if r.t.Failed() {
			r.t.Logf("sp-tray said:\n%s", r.trayLog.String())
		}
	})
	r.item = bustest.Await(r.t, "icon in the panel", r.panel.Items, func(*bustest.Item) bool { return true })
}

// awaitEnd waits until sp-tray has ended by itself.
func (r *rig) awaitEnd() {
	r.t.Helper()
	err := bustest.Await(r.t, "end of sp-tray", r.trayEnd, func(error) bool { return true })
	r.trayEnd <- err // for the cleanup
	if err != nil {
		r.t.Errorf("sp-tray ended with %v:\n%s", err, r.trayLog.String())
	}
}

// awaitIcon waits until the icon in the panel is this one.
func (r *rig) awaitIcon(k icon.Kind, count int) {
	r.t.Helper()
	png, err := icon.PNG(k, count, iconSize)
	if err != nil {
		r.t.Fatal(err)
	}
	r.item.AwaitPicture(fmt.Sprintf("icon %s %d", k, count), png)
}

// awaitWindow waits until the window is in sight.
func (r *rig) awaitWindow() {
	r.t.Helper()
	r.run("timeout", "60", "xdotool", "search", "--sync", "--onlyvisible", "--name", "^Singlepass$")
}

// window says whether the window is in sight.
func (r *rig) window() bool {
	return r.command("xdotool", "search", "--onlyvisible", "--name", "^Singlepass$").Run() == nil
}

// until does something again and again until it has worked: a key that is pressed before the window takes it is lost, as it is for a person.
func (r *rig) until(what string, try func(), done func() bool) {
	r.t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); {
		try()
		for soon := time.Now().Add(1500 * time.Millisecond); time.Now().Before(soon); {
			if done() {
				return
			}
			// Not a wait for an amount of time to be enough: what is looked at has no event to wait for.
			_ = r.command("xdotool", "sleep", "0.05").Run()
		}
	}
	r.t.Fatalf("%s did not happen", what)
}

// shows says whether the icon is this one now.
func (r *rig) shows(k icon.Kind, count int) func() bool {
	png, err := icon.PNG(k, count, iconSize)
	if err != nil {
		r.t.Fatal(err)
	}
	return func() bool { return r.item.Shows(png) }
}

// shot takes a picture of the window once it stands still.
func (r *rig) shot(name string) {
	r.t.Helper()
	if r.shots == "" {
		return
	}
	if theme() == "dark" {
		if name != "card" && name != "came-again" && name != "unknown" {
			return
		}
		name += "-dark"
	}
	// Buttons that have just come into sight take no answer, and look so.
	_ = r.command("xdotool", "sleep", "1").Run()
	var before []byte
	for range 40 {
		out, err := r.command("import", "-window", "root", "-crop", "1040x720+0+0", "+repage", "png:-").Output()
		if err != nil {
			r.t.Fatalf("taking a picture: %v", err)
		}
		if bytes.Equal(out, before) {
			break
		}
		before = out
		_ = r.command("xdotool", "sleep", "0.3").Run()
	}
	if err := os.MkdirAll(r.shots, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.shots, name+".png"), before, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// cards are what waits, as the command line tells it.
func (r *rig) cards() (cards []api.Card) {
	r.t.Helper()
	for lines := json.NewDecoder(strings.NewReader(r.run("spctl", "approvals", "--json"))); ; {
		var c api.Card
		switch err := lines.Decode(&c); {
		case errors.Is(err, io.EOF):
			return cards
		case err != nil:
			r.t.Fatal(err)
		}
		cards = append(cards, c)
	}
}

// agent is an MCP client in a process of its own, started from here as any agent is started from a shell.
type agent struct {
	r   *rig
	in  io.Writer
	seq int

	mu      sync.Mutex
	answers map[int]chan json.RawMessage
}

func (r *rig) startAgent() *agent {
	r.t.Helper()
	// In a session of its own and without a parent of ours, as an agent is that a desktop started. It ends with its standard input.
	cmd := r.command("setsid", "--fork", filepath.Join(binaries, "agent"), "2025-11-25")
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { in.Close() })
	a := &agent{r: r, in: in, answers: map[int]chan json.RawMessage{}}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var l struct {
				Seq int `json:"seq"`
			}
			if json.Unmarshal(lines.Bytes(), &l) != nil || l.Seq == 0 {
				continue
			}
			a.mu.Lock()
			c := a.answers[l.Seq]
			a.mu.Unlock()
			if c != nil {
				c <- bytes.Clone(lines.Bytes())
			}
		}
	}()
	var connected struct {
		OK      bool
		Message string
	}
	a.order(map[string]any{"op": "connect", "kind": "stdio", "command": filepath.Join(binaries, "spctl"), "args": []string{"mcp"}})(&connected)
	if !connected.OK {
		r.t.Fatalf("the agent does not connect: %s", connected.Message)
	}
	return a
}

// order sends an order and returns a function that waits for the reply.
func (a *agent) order(fields map[string]any) func(into any) {
	a.r.t.Helper()
	a.seq++
	c := make(chan json.RawMessage, 1)
	a.mu.Lock()
	a.answers[a.seq] = c
	a.mu.Unlock()
	fields["seq"] = a.seq
	b, err := json.Marshal(fields)
	if err != nil {
		a.r.t.Fatal(err)
	}
	if _, err := a.in.Write(append(b, '\n')); err != nil {
		a.r.t.Fatal(err)
	}
	return func(into any) {
		a.r.t.Helper()
		raw := bustest.Await(a.r.t, fmt.Sprintf("reply to %v", fields["op"]), c, func(json.RawMessage) bool { return true })
		if err := json.Unmarshal(raw, into); err != nil {
			a.r.t.Fatalf("reading %s: %v", raw, err)
		}
	}
}

// reply is what a call came to.
type reply struct {
	OK      bool
	Code    int
	Message string
	Result  json.RawMessage
}

// deploy calls the tool and returns a function that waits for what it comes to.
func (a *agent) deploy(service string, timeout time.Duration) func() reply {
	a.r.t.Helper()
	wait := a.order(map[string]any{
		"op": "call", "name": "deploy_release", "arguments": map[string]any{"service": service, "version": "v2.14.0"}, "timeout_ms": timeout.Milliseconds(),
	})
	return func() (r reply) {
		a.r.t.Helper()
		wait(&r)
		return r
	}
}

// awaitEffect waits until the target acts on a service.
func (r *rig) awaitEffect(service string) {
	r.t.Helper()
	bustest.Await(r.t, "effect on "+service, r.acts, func(e ledger.Entry) bool { return strings.Contains(string(e.Body), `"`+service+`"`) })
}

// effects is how often the target acted on a service.
func (r *rig) effects(service string) (n int) {
	r.t.Helper()
	all, err := ledger.ReadFile(filepath.Join(r.dir, "ledger.jsonl"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range all {
		if e.Kind == ledger.Effect && strings.Contains(string(e.Body), `"`+service) {
			n++
		}
	}
	return n
}
