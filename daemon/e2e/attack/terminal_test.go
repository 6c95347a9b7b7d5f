package attack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { roles["hold"] = holdTerminal }

// openTerminal makes a terminal, and returns its other end and its name.
func openTerminal() (master *os.File, name string, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, "", err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, "", err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	return master, fmt.Sprintf("/dev/pts/%d", n), err
}

// holdTerminal starts a program in a terminal that this process types into, and gives the program away: it has no parent here, a session of its own, and the terminal.
func holdTerminal(args []string) error {
	master, name, err := openTerminal()
	if err != nil {
		return err
	}
	_ = master // open for good
	terminal, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer terminal.Close()
	cmd := exec.Command("/usr/bin/setsid", "--fork", "--ctty", "/bin/sh", args[0])
	cmd.Env = append(os.Environ(), "ATTACK_ROLE=")
	cmd.Stdin = terminal
	return cmd.Run()
}

func TestATerminalThatAnAgentTypesIntoIsNotThePersons(t *testing.T) {
	if !machine(t) {
		return
	}
	s := begin(t)
	a := s.agent()
	a.pay("1")
	pipe, said := s.hear("held")
	if r := a.does("hold " + s.write("held.sh", s.approving(s.card().Card, pipe))); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	wantRefused(t, said(), fmt.Sprintf("process %d types into its terminal", a.cmd.Process.Pid))
	s.wantActed(0)
}

// An orphan leaves its family, but not the session of the terminal that it was born in.
func TestWhatAnAgentLeftBehindInItsTerminalIsStillItsOwn(t *testing.T) {
	if !machine(t) {
		return
	}
	s := begin(t)
	master, name, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := os.Chown(name, user, user); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	a := s.agentIn(terminal)
	a.pay("1")
	card := s.card().Card
	pipe, said := s.hear("orphan")
	if r := a.runs("/bin/sh", "-c", "/bin/sh "+s.write("orphan.sh", s.approving(card, pipe))+" < /dev/null > /dev/null 2>&1 &"); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	wantRefused(t, said(), "started by an agent")
	s.wantActed(0)
}

// tmux is a shell's command that starts a server of its own, with a session that runs a script.
func (s *stand) tmux(socket, script string, more ...string) string {
	return fmt.Sprintf("TERM=xterm tmux -S %s -f /dev/null new-session %s /bin/sh %s", filepath.Join(s.dir, socket), strings.Join(more, " "), script)
}

func TestATmuxIsWhoseTerminalItIsShownIn(t *testing.T) {
	if !machine(t) {
		return
	}
	needs(t, "tmux", "script")
	s := begin(t)
	a := s.agent()
	first := a.pay("1")
	card := s.card().Card

	pipe, said := s.hear("agents")
	script := s.write("agents.sh", s.approving(card, pipe))
	a.order(order{Run: []string{"/usr/bin/script", "-qec", s.tmux("1", script), "/dev/null"}})
	wantRefused(t, said(), "every terminal that it is shown in is an agent's")
	a.reported()
	pipe, said = s.hear("without")
	script = s.write("without.sh", "setsid --wait /bin/sh "+s.write("without2.sh", s.approving(card, pipe)))
	a.order(order{Run: []string{"/usr/bin/script", "-qec", s.tmux("1b", script), "/dev/null"}})
	wantRefused(t, said(), "every terminal that it is shown in is an agent's")
	a.reported()
	s.wantActed(0)
	if d := s.status().Doubts; d != nil {
		t.Errorf("the person is shown %+v", d)
	}

	// The person sits at theirs.
	pipe, said = s.hear("persons")
	persons := s.command("/usr/bin/script", "-qec", s.tmux("2", s.write("persons.sh", s.approving(card, pipe))), "/dev/null")
	follow(t, persons)
	if text := said(); !strings.Contains(text, "status 0") {
		t.Errorf("the person in tmux: %s", text)
	}
	a.answer(first)
	if d := s.status().Doubts; d != nil {
		t.Errorf("the person in tmux is doubted: %+v", d)
	}

	// One that nobody is attached to could be anybody's: it is taken with the right passphrase, shown and recorded.
	second := a.pay("2")
	pipe, said = s.hear("detached")
	if out, status := run(s.command("/bin/sh", "-c", s.tmux("3", s.write("detached.sh", s.approving(s.card().Card, pipe)), "-d"))); status != 0 {
		t.Fatal(out)
	}
	if text := said(); !strings.Contains(text, "status 0") {
		t.Errorf("detached: %s", text)
	}
	a.answer(second)
	if d := s.status().Doubts; d == nil || d.Count != 1 || d.LastWhy != "no terminal is attached to its tmux" {
		t.Errorf("the person is shown %+v", d)
	}
	if out := s.spctl("status"); !strings.Contains(out, "in doubt") {
		t.Errorf("the status says %s", out)
	}
	s.wantActed(2)
}

// Here nothing proves whose a process is: it has no parent, no terminal, and shares its control group with everything. The passphrase stands alone.
func TestWhereNothingTellsThePassphraseStandsAlone(t *testing.T) {
	if !machine(t) {
		return
	}
	s := begin(t)
	a := s.agent()
	a.pay("1")
	card := s.card().Card
	wrong := s.write("wrong", "correct horse battery staple guess\n")
	pipe, said := s.hear("orphan")
	script := s.write("orphan.sh", strings.ReplaceAll(s.approving(card, pipe), s.dir+"/passphrase", wrong))
	if r := a.runs("/usr/bin/setsid", "--fork", "/bin/sh", "-c", "/bin/sh "+script+" &"); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	wantRefused(t, said(), "passphrase")
	if r := s.status().Refused; r == nil || r.WrongProofs != 1 || r.Agents != 0 {
		t.Errorf("the person is shown %+v", r)
	}
	s.wantActed(0)
}
