package attack_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { roles["impostor"] = actAsDaemon }

// actAsDaemon squats the operator's socket, closed to others as spd is, and shows everything that it is told.
func actAsDaemon([]string) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	path := filepath.Join(os.Getenv("SINGLEPASS_HOME"), "run/operator.sock")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "squatting")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1<<16)
			for {
				n, err := c.Read(b)
				fmt.Fprintf(os.Stderr, "heard %q\n", b[:n])
				if err != nil {
					return
				}
				_, _ = fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{\"vault\":\"locked\"}    ")
			}
		}()
	}
}

// An agent can kill spd, which runs as the same user, and take its socket. What the person then types must not reach it.
func TestAFakeDaemonOnTheOperatorsSocketGetsNothing(t *testing.T) {
	s := begin(t)
	a := s.agent()
	if r := a.runs("/bin/sh", "-c", fmt.Sprintf("kill -9 %d", s.spd.Process.Pid)); r.Status != 0 {
		t.Fatalf("an agent can kill spd, and this one did not: %+v", r)
	}
	<-s.log.ended
	fake := s.command("agent")
	fake.Env = append(fake.Env, "ATTACK_ROLE=impostor")
	heard := follow(t, fake)
	heard.wait("squatting")
	for _, args := range [][]string{{"unlock"}, {"approvals"}, {"status"}, {"approve", "card_1", "--once"}, {"passphrase", "change", "--new-passphrase-file", s.write("new", "correct horse battery staple new\n")}} {
		out, status := run(s.command("spctl", args...))
		if status != 69 || !strings.Contains(out, "is not the installed") {
			t.Errorf("spctl %s: exit status %d\n%s", strings.Join(args, " "), status, out)
		}
	}
	_ = fake.Process.Kill()
	<-heard.ended
	heard.mu.Lock()
	defer heard.mu.Unlock()
	for l := range strings.Lines(heard.all.String()) {
		if l != "squatting\n" && l != "heard \"\"\n" {
			t.Errorf("the impostor heard %s", l)
		}
	}
}

// The daemon's word is its group, which the kernel gives to the file. Whoever starts a copy of it does not have it.
func TestACopyOfTheDaemonIsNotTheDaemon(t *testing.T) {
	s := begin(t)
	s.stop()
	copied := filepath.Join(s.dir, "spd")
	if out, err := exec.Command("cp", filepath.Join(s.bin, "spd"), copied).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := os.Chmod(copied, 0o755); err != nil {
		t.Fatal(err)
	}
	s.spd = s.command(copied)
	s.log = follow(t, s.spd)
	s.log.wait(`"msg":"ready"`)
	if out, status := run(s.command("spctl", "unlock")); status != 69 {
		t.Errorf("exit status %d\n%s", status, out)
	}
}
