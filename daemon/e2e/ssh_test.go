package e2e_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"

	"singlepass.dev/daemon/channel/sshchan/sshdtest"
)

// migration is what the SSH tests run: a script that writes a line when it begins, waits at a gate, and says how it went.
type migration struct {
	*stand
	sshd   *sshdtest.Server
	jump   *sshdtest.Server // nil without one
	ledger string           // one line for each time that the script ran
	gate   string           // a pipe at which it waits
	cut    atomic.Bool
}

// newMigration is a host whose operator approves whatever is asked.
func newMigration(t *testing.T) *migration {
	t.Helper()
	m := newHost(t)
	m.agreeable()
	return m
}

// newHost starts a real SSH server, and a daemon that knows its key and has a key for it.
func newHost(t *testing.T) *migration {
	t.Helper()
	return newHostWith(t, "", false)
}

// newHostWith does so with a password in place of the key where one is given, and behind another SSH server, through which connections go, where that is asked for.
func newHostWith(t *testing.T, password string, behind bool) *migration {
	t.Helper()
	dir := t.TempDir()
	m := &migration{ledger: filepath.Join(dir, "ledger"), gate: filepath.Join(dir, "gate")}
	if err := syscall.Mkfifo(m.gate, 0o600); err != nil {
		t.Fatal(err)
	}
	m.sshd = sshdtest.New(t, sshdtest.Config{Between: m.between, Password: password})
	jump, kind, value := "", "ssh-key", string(m.sshd.Key)
	if password != "" {
		kind, value = "ssh-password", password+"\n"
	}
	accounts := []string{"--target", "ssh://" + m.sshd.User + "@" + m.sshd.Address()}
	if behind {
		m.jump = sshdtest.New(t, sshdtest.Config{})
		if err := m.jump.Authorize(m.sshd.Key); err != nil {
			t.Fatal(err)
		}
		jump = fmt.Sprintf("\n  jump: {host: 127.0.0.1, port: %d, user: %s}", m.jump.Port, m.jump.User)
		accounts = append(accounts, "--target", "ssh://"+m.jump.User+"@"+m.jump.Address())
	}
	actions := maps.Clone(usualActions)
	for name, replay := range map[string]string{
		"migrate":      "class: status_query\n  attach_window: 1h\n  wait: {poll: 1s, give_up_after: 90s}",
		"migrate_once": "class: irreversible\n  attach_window: 1h",
	} {
		actions[name] = fmt.Sprintf(`action: %s
title: Migrate the database
description: Brings the shop's database to a version.
channel: ssh
input:
  type: object
  properties: {version: {type: string}}
  required: [version]
  additionalProperties: false
credential: db
approval: session
ssh:
  host: 127.0.0.1
  port: %d
  user: %s%s
  command: [sh, -c, 'echo "$1" >>"$LEDGER"; read -r word <"$GATE"; echo "migrated to $1: $word"; echo 3 rows >&2', sh, "{version}"]
  env: {LEDGER: %s, GATE: %s}
replay:
  %s
`, name, m.sshd.Port, m.sshd.User, jump, m.ledger, m.gate, replay)
	}
	m.stand = newStand(t, option{actions: actions})
	m.spctl("host", "add", m.sshd.Address(), "--key-file", m.write("host.pub", m.sshd.HostKey+"\n"))
	if behind {
		m.spctl("host", "add", m.jump.Address(), "--key-file", m.write("jump.pub", m.jump.HostKey+"\n"))
	}
	key := m.write("key", value)
	m.spctl(append([]string{"credential", "add", "db", "--kind", kind, "--value-file", key}, accounts...)...)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	return m
}

// between passes bytes on. While cut is set it lets the next command that is long enough to be a marker's start die on the way: its second long packet.
func (m *migration) between(client, server net.Conn) {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
		close(done)
	}()
	b, long := make([]byte, 64<<10), 0
	for {
		n, err := client.Read(b)
		if n > 3<<10 {
			if long++; long == 2 && m.cut.CompareAndSwap(true, false) {
				break
			}
		}
		if _, broken := server.Write(b[:n]); err != nil || broken != nil {
			break
		}
	}
	_ = server.Close()
	_ = client.Close()
	<-done
}

// begun waits until the script is at its gate, and returns what lets it go on.
func (m *migration) begun() (proceed func(word string)) {
	m.t.Helper()
	f, err := os.OpenFile(m.gate, os.O_WRONLY, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	return func(word string) {
		if _, err := f.WriteString(word + "\n"); err != nil {
			m.t.Error(err)
		}
		_ = f.Close()
	}
}

func (m *migration) wantRuns(version string, n int) {
	m.t.Helper()
	b, err := os.ReadFile(m.ledger)
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	if got := strings.Count(string(b), version+"\n"); got != n {
		m.t.Errorf("the script ran %d times for %s, not %d", got, version, n)
	}
}

func (m *migration) wantMigrated(r *result, version, word string) {
	m.t.Helper()
	var told struct {
		ExitStatus *int   `json:"exit_status"`
		Stdout     string `json:"stdout"`
		Stderr     string `json:"stderr"`
	}
	if err := json.Unmarshal(r.Structured, &told); err != nil {
		m.t.Fatalf("no structured content: %s", r.raw)
	}
	if r.IsError || told.ExitStatus == nil || *told.ExitStatus != 0 || told.Stdout != "migrated to "+version+": "+word+"\n" || told.Stderr != "3 rows\n" {
		m.t.Errorf("the agent is told %s", r.raw)
	}
}

func TestAMigrationOverSSHWhoseAnswerIsLostRunsOnceAndItsResultIsRecovered(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	c := m.agent(clientKinds[4], "stdio")

	t.Run("nothing is lost", func(t *testing.T) {
		m.about(t)
		call := c.call(request{tool: "migrate", args: map[string]any{"version": "v0"}})
		m.begun()("well")
		m.wantMigrated(must(t, call()), "v0", "well")
		m.wantRuns("v0", 1)
	})
	t.Run("the link is cut in the middle", func(t *testing.T) {
		m.about(t)
		call := c.call(request{tool: "migrate", args: map[string]any{"version": "v1; rm -rf '$HOME'"}})
		proceed := m.begun()
		m.sshd.Kill()
		proceed("after all")
		r := must(t, call())
		m.wantMigrated(r, "v1; rm -rf '$HOME'", "after all")
		m.wantRuns("v1; rm -rf '$HOME'", 1)
		record := m.recordOf(r.meta(t).ExecutionID)
		if record.OutcomeSource != "marker" || len(record.Checks) == 0 {
			t.Errorf("the record says that the outcome is by %q: %+v", record.OutcomeSource, record.Checks)
		}
	})
	t.Run("the daemon is killed in the middle", func(t *testing.T) {
		m.about(t)
		first := c.call(request{tool: "migrate", args: map[string]any{"version": "v2"}})
		proceed := m.begun()
		m.killDaemon()
		first()
		proceed("without it")
		m.restart()
		m.agreeable()
		r := must(t, c.call(request{tool: "migrate", args: map[string]any{"version": "v2"}})())
		m.wantMigrated(r, "v2", "without it")
		m.wantRuns("v2", 1)
	})
	t.Run("the start is lost on its way, and is made once more", func(t *testing.T) {
		m.about(t)
		m.cut.Store(true)
		call := c.call(request{tool: "migrate", args: map[string]any{"version": "v3"}})
		m.begun()("then")
		r := must(t, call())
		m.wantMigrated(r, "v3", "then")
		m.wantRuns("v3", 1)
		if record := m.recordOf(r.meta(t).ExecutionID); len(record.Attempts) != 2 {
			t.Errorf("%d attempts: %+v", len(record.Attempts), record.Attempts)
		}
	})
}

func TestAnIrreversibleCommandWhoseLinkIsCutWaitsForThePersonsVerdict(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	c := m.agent(clientKinds[4], "stdio")
	call := request{tool: "migrate_once", args: map[string]any{"version": "v1"}}
	first := c.call(call)
	proceed := m.begun()
	m.sshd.Kill()
	lost := must(t, first())
	id := lost.meta(t).ExecutionID
	if lost.body(t).State != "unknown" {
		t.Errorf("the agent is told %s", lost.raw)
	}
	proceed("who knows")
	if again := c.mustCall(call); again.body(t).State != "unknown" {
		t.Errorf("the agent that repeats is told %s", again.raw)
	}
	m.wantRuns("v1", 1)
	m.spctl("settle", id, "--done", "--note", "looked at the database")
	if again := c.mustCall(call); again.meta(t).ExecutionID != id || !again.meta(t).Recorded {
		t.Errorf("the verdict is not what the repeated call gets: %s", again.raw)
	}
	m.wantRuns("v1", 1)
}

func TestAHostThatIsNotKnownOrShowsAnotherKeyGetsNothing(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	c := m.agent(clientKinds[4], "stdio")
	m.spctl("host", "remove", m.sshd.Address())
	before := m.sshd.Connections()
	unknown := c.mustCall(request{tool: "migrate_once", args: map[string]any{"version": "v1"}})
	if !unknown.IsError || !strings.Contains(string(unknown.raw), "spctl host add "+m.sshd.Address()) || m.sshd.Connections() != before {
		t.Errorf("of an unknown host the agent is told %s", unknown.raw)
	}
	_, other := sshdtest.NewKey(t)
	m.spctl("host", "add", m.sshd.Address(), "--key-file", m.write("other.pub", other+"\n"))
	changed := c.mustCall(request{tool: "migrate_once", args: map[string]any{"version": "v2"}})
	if !changed.IsError || !strings.Contains(string(changed.raw), "another host key") || !strings.Contains(string(changed.raw), "spctl host remove") {
		t.Errorf("of a changed host key the agent is told %s", changed.raw)
	}
	m.wantRuns("v1", 0)
	m.wantRuns("v2", 0)
}

func TestAnEncryptedSSHKeyIsTakenOverAndTheFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	c := m.agent(clientKinds[4], "stdio")
	raw, err := ssh.ParseRawPrivateKey(m.sshd.Key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(raw, "", []byte("canary-not-a-secret"))
	if err != nil {
		t.Fatal(err)
	}
	written := string(pem.EncodeToMemory(block))
	file, right, wrong := m.write("id_ed25519", written), m.write("right", "canary-not-a-secret\n"), m.write("wrong", "something else\n")
	m.spctl("credential", "remove", "db")
	target := "ssh://" + m.sshd.User + "@" + m.sshd.Address()
	take := func(more ...string) []string {
		return append([]string{"credential", "import", "ssh", file, "--name", "db", "--target", target}, more...)
	}
	for _, refused := range [][]string{take("--key-passphrase-file", wrong), take()} { // at no terminal nothing is asked
		if out, err := m.command(refused...).CombinedOutput(); err == nil || !strings.Contains(string(out), "passphrase") {
			t.Errorf("%v: %v: %s", refused, err, out)
		}
	}
	said := m.spctl(take("--key-passphrase-file", right)...)
	if !strings.Contains(said, "added db (ssh-key)") || !strings.Contains(said, file+" was left as it is: delete it") {
		t.Errorf("it says %s", said)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != written {
		t.Errorf("the file was changed: %v", err)
	}
	m.wipe("right")
	call := c.call(request{tool: "migrate_once", args: map[string]any{"version": "v1"}})
	m.begun()("well")
	m.wantMigrated(must(t, call()), "v1", "well")
}
