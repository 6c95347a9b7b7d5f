package attack_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func init() { roles["payer"] = actAsPayer }

// actAsPayer is an agent that makes one call, and says what came of it. Its arguments are the way to the daemon and the order.
func actAsPayer(args []string) error {
	in, to, _, err := reach(args[0])
	if err != nil {
		return err
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"Singlepass","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"pay","arguments":{"order":%q}}}`, args[1]),
	} {
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	for l := bufio.NewReader(in); ; {
		line, err := l.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the daemon hung up")
		} else if err != nil {
			return err
		}
		if strings.Contains(line, `"id":2,`) {
			fmt.Print(line)
			return nil
		}
	}
}

// systemProgram installs the agent where only root can write, and nowhere below what others can.
func systemProgram(t *testing.T, s *stand) string {
	t.Helper()
	dir, err := os.MkdirTemp("/usr/lib", "singlepass-attack")
	if err != nil {
		t.Skipf("no program can be installed: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "assistant")
	b, err := os.ReadFile(filepath.Join(s.bin, "agent"))
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(program, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	return program
}

// grant has a new process of the program call, answers with a standing grant, and returns both.
func (s *stand) grant(program string) (*agent, string) {
	s.t.Helper()
	a := s.agentOf(program, filepath.Join(s.bin, "spctl"))
	id := a.pay("of the first")
	s.spctl("approve", s.card().Card, "--session", "--standing", "--for", "30d")
	if l := a.answer(id); !strings.Contains(l, "receipt") {
		s.t.Fatalf("the call ended as %s", l)
	}
	name, _, _ := strings.Cut(s.spctl("grants"), "\n")
	if !strings.HasPrefix(name, "grant_") {
		s.t.Fatalf("the grants are %q", name)
	}
	return a, name
}

// denied waits for the card of a call, says no to it, and returns what became of an attempt to have it give a standing grant.
func (s *stand) denied(exe string) (out string) {
	s.t.Helper()
	card := s.card()
	if card.Agent.Exe != exe {
		s.t.Errorf("the card is of %s", card.Agent.Exe)
	}
	out, status := run(s.command("spctl", "approve", card.Card, "--session", "--standing", "--for", "30d"))
	if status == 0 {
		s.t.Errorf("it was given a standing grant: %s", out)
	}
	s.spctl("deny", card.Card)
	return out
}

func TestAStandingGrantGoesToTheNextProcessOfTheSameProgramAndToNoOther(t *testing.T) {
	s := begin(t)
	program := systemProgram(t, s)
	bridge := filepath.Join(s.bin, "spctl")
	first, name := s.grant(program)

	next := s.agentOf(program, bridge)
	if l := next.answer(next.pay("of the next")); !strings.Contains(l, "receipt") {
		t.Fatalf("the next process was not let through: %s", l)
	}
	if out := s.spctl("activity", "--json"); !strings.Contains(out, `"authorized_by":"`+name+`"`) {
		t.Errorf("the record does not say by what: %s", out)
	}
	if out := s.spctl("sessions", "--json"); strings.Count(out, `"grant":"`+name+`"`) != 2 {
		t.Errorf("the sessions are %s", out)
	}

	// An agent that starts that program to have its grant, in its own family of processes and out of it.
	payer := func(way, order string) []string { return []string{"ATTACK_ROLE=payer " + way + " " + order} }
	first.order(order{Run: []string{program}, Env: payer(bridge, "beneath")})
	if out := s.denied(program); !strings.Contains(out, "another agent started it") {
		t.Errorf("a process beneath an agent: %s", out)
	}
	if r := first.reported(); !strings.Contains(r.Out, "denied") {
		t.Errorf("it came to %s", r.Out)
	}
	first.order(order{Run: []string{"/bin/sh", "-c", "(setsid " + program + " </dev/null >/dev/null 2>&1 &)"}, Env: payer(bridge, "orphan")})
	first.reported()
	card := s.card()
	if card.Agent.Exe != program {
		t.Errorf("the card is of %s", card.Agent.Exe)
	}
	s.spctl("deny", card.Card)

	// By another way, from another place, and with other content.
	direct := s.agentOf(program, "socket")
	id := direct.pay("direct")
	s.spctl("deny", s.card().Card)
	direct.answer(id)
	copied := filepath.Join(s.dir, "assistant")
	if r := first.runs("/bin/cp", program, copied); r.Status != 0 {
		t.Fatal(r.Out)
	}
	own := s.agentOf(copied, bridge)
	id = own.pay("copy")
	if out := s.denied(copied); !strings.Contains(out, "installed by the system and not writable by you") {
		t.Errorf("a copy: %s", out)
	}
	own.answer(id)
	b, err := os.ReadFile(program)
	if err := errors.Join(err, os.WriteFile(program+".new", append(b, 'x'), 0o755), os.Rename(program+".new", program)); err != nil {
		t.Fatal(err)
	}
	updated := s.agentOf(program, bridge)
	id = updated.pay("updated")
	s.spctl("deny", s.card().Card)
	if l := updated.answer(id); !strings.Contains(l, "denied") {
		t.Errorf("an updated program: %s", l)
	}
	s.wantActed(2)

	// Its end is the end of what came from it.
	s.spctl("grant", "revoke", name)
	id = next.pay("after the end")
	s.spctl("deny", s.card().Card)
	if l := next.answer(id); !strings.Contains(l, "denied") {
		t.Errorf("after the end: %s", l)
	}
	s.wantActed(2)
}

func TestNoStandingGrantIsGivenToWhatRunsAnything(t *testing.T) {
	s := begin(t)
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("there is no perl")
	}
	script := s.write("agent.pl", `use IO::Socket::UNIX; $| = 1;
my $c = IO::Socket::UNIX->new(Peer => "$ENV{SINGLEPASS_HOME}/run/agent.sock") or die $!;
$c->print('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}', "\n");
$c->print('{"jsonrpc":"2.0","method":"notifications/initialized"}', "\n");
$c->print('{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"pay","arguments":{"order":"', $ARGV[0], '"}}}', "\n");
while (<$c>) { if (/"id":2,/) { print STDERR; last } }
`)
	cmd := s.command(perl, script, "1")
	out := follow(t, cmd)
	card := s.card()
	said, status := run(s.command("spctl", "approve", card.Card, "--session", "--standing", "--for", "1d"))
	if status == 0 || !strings.Contains(said, "a standing grant cannot be given") {
		t.Errorf("exit status %d\n%s", status, said)
	}
	s.spctl("deny", card.Card)
	out.wait("denied")
	s.wantActed(0)
}

func TestAnAgentCannotGiveListOrRevokeStandingGrants(t *testing.T) {
	s := begin(t)
	program := systemProgram(t, s)
	a, name := s.grant(program)
	other := s.agent()
	id := other.pay("2")
	card := s.card()
	spctl := filepath.Join(s.bin, "spctl")
	for _, argv := range [][]string{
		{spctl, "approve", card.Card, "--session", "--standing", "--for", "30d"},
		{spctl, "grants"},
		{spctl, "grant", "revoke", name},
		{"/bin/sh", "-c", "setsid " + spctl + " grant revoke " + name},
	} {
		for _, who := range []*agent{a, other} {
			if r := who.runs(argv...); r.Status != 4 {
				t.Errorf("%s: exit status %d\n%s", strings.Join(argv, " "), r.Status, r.Out)
			}
		}
	}
	s.spctl("deny", card.Card)
	other.answer(id)
	if out := s.spctl("grants"); !strings.HasPrefix(out, name) {
		t.Errorf("the grants are %s", out)
	}
}

// The vault's file alone cannot show that it was set back. The journal still says what has ended.
func TestAVaultThatIsSetBackRevivesNoStandingGrant(t *testing.T) {
	s := begin(t)
	program := systemProgram(t, s)
	a, name := s.grant(program)
	vault, older := filepath.Join(s.home, "data/vault.db"), filepath.Join(s.dir, "older.db")
	s.stop()
	if r := a.runs("/bin/cp", vault, older); r.Status != 0 {
		t.Fatal(r.Out)
	}
	s.start()
	s.spctl("unlock")
	if out := s.spctl("grants"); !strings.HasPrefix(out, name) {
		t.Fatalf("it did not outlive a restart: %s", out)
	}
	s.spctl("grant", "revoke", name)
	s.stop()
	for _, row := range []string{"", "; rm " + filepath.Join(s.home, "data/index.db")} {
		if r := a.runs("/bin/sh", "-c", "cp "+older+" "+vault+row); r.Status != 0 {
			t.Fatal(r.Out)
		}
		s.start()
		s.spctl("unlock")
		s.log.wait("a standing grant is over")
		if out := s.spctl("grants", "--json"); out != "" {
			t.Errorf("the grants are %s", out)
		}
		next := s.agentOf(program, filepath.Join(s.bin, "spctl"))
		id := next.pay("revived")
		s.spctl("deny", s.card().Card)
		if l := next.answer(id); !strings.Contains(l, "denied") {
			t.Errorf("it came to %s", l)
		}
		s.stop()
	}
	s.wantActed(1)
}

// What was lost with a break may have been a grant's end.
func TestNoStandingGrantOutlivesAJournalThatDidNotVerify(t *testing.T) {
	s := begin(t)
	program := systemProgram(t, s)
	bridge := filepath.Join(s.bin, "spctl")
	a, name := s.grant(program)
	s.stop()
	s.start()
	s.spctl("unlock")
	next := s.agentOf(program, bridge)
	if l := next.answer(next.pay("after a restart")); !strings.Contains(l, "receipt") {
		t.Fatalf("the grant %s did not outlive a restart: %s", name, l)
	}
	vault, older := filepath.Join(s.home, "data/vault.db"), filepath.Join(s.dir, "older.db")
	s.stop()
	if r := a.runs("/bin/sh", "-c", "cp "+vault+" "+older+"; sed -i '0,/\"dispatched\"/s//\"xispatched\"/' "+s.segments()[0]); r.Status != 0 {
		t.Fatal(r.Out)
	}
	s.start()
	s.spctl("unlock")
	if out := s.spctl("grants", "--json"); out != "" {
		t.Errorf("in quarantine: %s", out)
	}
	s.spctl("audit", "accept", "--reason", "seen")
	s.stop()
	if r := a.runs("/bin/cp", older, vault); r.Status != 0 {
		t.Fatal(r.Out)
	}
	s.start()
	s.spctl("unlock")
	if out := s.spctl("grants", "--json"); out != "" {
		t.Errorf("after it was accepted: %s", out)
	}
	last := s.agentOf(program, bridge)
	id := last.pay("after the quarantine")
	s.spctl("deny", s.card().Card)
	if l := last.answer(id); !strings.Contains(l, "denied") {
		t.Errorf("it came to %s", l)
	}
	s.wantActed(2)
}

// An agent can have the service manager start a program, with nobody at it, in just the way that it did before.
func TestNoStandingGrantIsGivenToAServiceThatAnAgentCouldHaveStarted(t *testing.T) {
	if !machine(t) {
		return
	}
	s := prepare(t)
	s.manager()
	if out, status := s.startUnit(); status != 0 {
		t.Fatal(out)
	}
	s.furnish()
	program := systemProgram(t, s)
	for unit, why := range map[string]string{"": "where no person sits", "--unit=backup": "your service manager started it as backup.service"} {
		argv := []string{
			"--user", "--quiet", "--collect", "--setenv=SINGLEPASS_HOME=" + s.home, "--setenv=ATTACK_ROLE=payer " + filepath.Join(s.bin, "spctl") + " " + strings.TrimPrefix(unit, "--unit="),
		}
		if unit == "" {
			argv[len(argv)-1] += "unnamed"
		} else {
			argv = append(argv, unit)
		}
		if out, status := run(s.managed("/usr/bin/systemd-run", append(argv, program)...)); status != 0 {
			t.Fatalf("%q: %s", unit, out)
		}
		if out := s.denied(program); !strings.Contains(out, why) {
			t.Errorf("%q: %s", unit, out)
		}
	}
	s.wantActed(0)
}
