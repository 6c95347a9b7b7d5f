package attack_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"singlepass.dev/daemon/harden"
)

// hear makes a pipe of the user's, and returns its path and what comes through it until whoever writes has ended: how a program reports that no one waits for.
func (s *stand) hear(name string) (path string, said func() string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chown(path, user, user); err != nil {
		s.t.Fatal(err)
	}
	all := make(chan string, 1)
	go func() {
		f, err := os.Open(path)
		if err != nil {
			all <- err.Error()
			return
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil {
			b = append(b, err.Error()...)
		}
		all <- string(b)
	}()
	return path, func() string {
		s.t.Helper()
		select {
		case text := <-all:
			return text
		case <-time.After(patience):
			s.t.Fatalf("nothing was said to %s", name)
			return ""
		}
	}
}

// approving is a shell's command that says yes to a card with the right passphrase, and reports to a pipe. The environment is written out: not everything that starts programs hands it on.
func (s *stand) approving(card, pipe string) string {
	return fmt.Sprintf("{ SINGLEPASS_HOME=%s SINGLEPASS_PASSPHRASE_FILE=%s/passphrase %s/spctl approve %s --once 2>&1; echo status $?; } > %s", s.home, s.dir, s.bin, card, pipe)
}

// wantRefused checks what such a command reported.
func wantRefused(t *testing.T, said, why string) {
	t.Helper()
	if !strings.Contains(said, "status 4") || !strings.Contains(said, why) {
		t.Errorf("want a refusal because of %q, got:\n%s", why, said)
	}
}

func TestAJobThatAnAgentLeftForLaterCannotApprove(t *testing.T) {
	if !machine(t) {
		return
	}
	needs(t, "atd", "at")
	s := begin(t)
	a := s.agent()
	a.pay("1")
	card := s.card().Card
	follow(t, exec.Command("atd", "-f"))
	for until := time.Now().Add(patience); ; {
		if _, err := os.Stat("/run/atd.pid"); err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal("atd does not run")
		}
	}
	pipe, said := s.hear("job")
	if r := a.runs("/bin/sh", "-c", "at now <<'EOF'\n"+s.approving(card, pipe)+"\nEOF\n"); r.Status != 0 {
		t.Fatalf("an agent can leave a job, and this one could not: %+v", r)
	}
	wantRefused(t, said(), "it was started by atd")
	// What shows nothing and takes nothing stays possible, as from a job of the person's own.
	pipe, said = s.hear("job2")
	if r := a.runs("/bin/sh", "-c", "at now <<'EOF'\n"+strings.ReplaceAll(s.approving("", pipe), "approve  --once", "status")+"\nEOF\n"); r.Status != 0 {
		t.Fatalf("an agent can leave a job, and this one could not: %+v", r)
	}
	if text := said(); !strings.Contains(text, "status 0") || !strings.Contains(text, "where no person sits") {
		t.Errorf("the status says %s", text)
	}
	s.wantActed(0)
}

// sshd is a real server of root's, which lets the user in by a key. It returns the command of a client, and one that reaches the same server without a connection within this machine, as one from
// elsewhere does.
func (s *stand) sshd() (client, elsewhere []string) {
	s.t.Helper()
	dir := s.t.TempDir()
	key, host := filepath.Join(s.dir, "key"), filepath.Join(dir, "host")
	for _, path := range []string{key, host} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
			s.t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.Chown(key, user, user); err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	config := filepath.Join(dir, "sshd_config")
	text := fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nPidFile none\nAuthorizedKeysFile %s.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n", port, host, key)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	log := follow(s.t, exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", config))
	log.wait("Server listening")
	client = []string{
		"/usr/bin/ssh", "-F", "none", "-p", fmt.Sprint(port), "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "nobody@127.0.0.1",
	}
	return client, slices.Insert(slices.Clone(client), 1, "-o", "ProxyCommand=/usr/sbin/sshd -i -f "+config)
}

func TestAnAgentThatLogsInToItsOwnMachineCannotApprove(t *testing.T) {
	if !machine(t) {
		return
	}
	needs(t, "sshd", "ssh")
	s := begin(t)
	a := s.agent()
	a.pay("1")
	card := s.card().Card
	client, elsewhere := s.sshd()
	do := fmt.Sprintf("SINGLEPASS_HOME=%s SINGLEPASS_PASSPHRASE_FILE=%s/passphrase %s/spctl ", s.home, s.dir, s.bin)
	for name, argv := range map[string][]string{
		"by a command":  append(slices.Clone(client), do+"approve "+card+" --once"),
		"in a terminal": append([]string{"/usr/bin/script", "-qec", strings.Join(client, " ") + " -tt '" + do + "approve " + card + " --once'"}, "/dev/null"),
	} {
		r := a.runs(argv...)
		if r.Status != 4 || !strings.Contains(r.Out, "could be the one that logged in") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// Nor by a client that cannot be told: it closed itself, and any login could be its.
	if r := a.does("shut " + s.target.Listener.Addr().String()); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	if out, status := run(exec.Command(elsewhere[0], append(elsewhere[1:], do+"approvals")...)); status != 4 || !strings.Contains(out, "a program that cannot be told") {
		t.Errorf("by a client that cannot be told: exit status %d\n%s", status, out)
	}
	s.wantActed(0)
}

// loggedIn writes what systemd-logind writes of a login by SSH, and returns the control group that it makes for it.
func loggedIn(t *testing.T, session, from string) (group string) {
	t.Helper()
	group = filepath.Join(os.Getenv("ATTACK_GROUP"), "user.slice/user-65534.slice/session-"+session+".scope")
	if err := errors.Join(os.MkdirAll(group, 0o755), os.MkdirAll("/run/systemd/sessions", 0o755)); err != nil {
		t.Fatal(err)
	}
	text := "# This is private data. Do not parse.\nUID=65534\nUSER=nobody\nACTIVE=1\nIS_DISPLAY=0\nSTATE=active\nREMOTE=1\nTYPE=tty\nCLASS=user\nSCOPE=session-" + session + ".scope\nREMOTE_HOST=" + from + "\nSERVICE=sshd\n"
	if err := os.WriteFile("/run/systemd/sessions/"+session, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return group
}

func TestWhoLogsInFromAnotherMachineMayApprove(t *testing.T) {
	if !machine(t) {
		return
	}
	needs(t, "sshd", "ssh")
	s := begin(t)
	a := s.agent()
	_, elsewhere := s.sshd()
	do := fmt.Sprintf("SINGLEPASS_HOME=%s SINGLEPASS_PASSPHRASE_FILE=%s/passphrase %s/spctl ", s.home, s.dir, s.bin)
	id := a.pay("1")
	if out, status := run(exec.Command(elsewhere[0], append(elsewhere[1:], do+"approve "+s.card().Card+" --once")...)); status != 0 {
		t.Errorf("exit status %d\n%s", status, out)
	}
	a.answer(id)

	// What a login from this machine left behind has nobody sitting at it.
	within := func(group string, argv ...string) *exec.Cmd {
		return exec.Command("/bin/sh", append([]string{"-c", `echo 0 > "$0/cgroup.procs" && exec "$@"`, group}, argv...)...)
	}
	orphan := within(loggedIn(t, "8", "127.0.0.1"), "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", filepath.Join(s.bin, "spctl"), "approvals")
	orphan.Env = s.command("spctl").Env
	if out, status := run(orphan); status != 4 || !strings.Contains(out, "by a connection that is over") {
		t.Errorf("a login from here: exit status %d\n%s", status, out)
	}

	// An agent that has a connection to a server of root's here could be the client, and the login manager says that it is not.
	if r := a.does("connect " + s.target.Listener.Addr().String()); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	id = a.pay("2")
	card := s.card().Card
	command := append(slices.Clone(elsewhere[1:]), do+"approve "+card+" --once")
	if out, status := run(exec.Command(elsewhere[0], command...)); status != 4 || !strings.Contains(out, "could be the one that logged in") {
		t.Errorf("without a login manager: exit status %d\n%s", status, out)
	}
	if out, status := run(within(loggedIn(t, "7", "203.0.113.7"), append(elsewhere[:1:1], command...)...)); status != 0 {
		t.Errorf("by the login manager's word: exit status %d\n%s", status, out)
	}
	a.answer(id)

	s.wantActed(2)
}

func init() {
	roles["connect"] = connectAndKeep
	roles["shut"] = func(args []string) error {
		return errors.Join(harden.Close(), connectAndKeep(args))
	}
}

// connectAndKeep makes a connection that stays as long as this process.
func connectAndKeep(args []string) error {
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	kept = append(kept, c)
	return nil
}

var kept []net.Conn
