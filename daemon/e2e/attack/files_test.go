package attack_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The files are the user's, so they are the agent's too. What it writes into them must not change what is allowed.

func TestAnEditedContractChangesNothing(t *testing.T) {
	s := begin(t)
	a := s.agent()
	evil := s.contract("/v1/evil")
	folder := filepath.Join(s.home, "config/actions")
	for _, r := range []report{
		a.runs("/bin/sh", "-c", "cat > "+folder+"/pay.yaml <<'END'\n"+evil+"END\n"),
		a.runs("/bin/sh", "-c", "sed -i s,v1/pay,v1/evil, "+s.dir+"/pay.yaml; cp "+folder+"/pay.yaml "+folder+"/second.yaml; sed -i 's/action: pay/action: second/' "+folder+"/second.yaml"),
	} {
		if r.Status != 0 {
			t.Fatal(r.Out)
		}
	}
	id := a.pay("1")
	card := s.card()
	if !strings.HasSuffix(card.Effect.URL, "/v1/pay") {
		t.Errorf("the card shows %s", card.Effect.URL)
	}
	s.spctl("approve", card.Card, "--session")
	if l := a.answer(id); !strings.Contains(l, "receipt") {
		t.Errorf("the call ended as %s", l)
	}
	second := a.ask("tools/call", map[string]any{"name": "second", "arguments": map[string]any{"order": "1"}})
	if l := a.answer(second); !strings.Contains(l, "contract_not_accepted") && !strings.Contains(l, "action_unknown") {
		t.Errorf("an action that nobody accepted: %s", l)
	}
	if st := s.status(); st.Changed == 0 {
		t.Error("the person is not shown that files wait")
	}
	s.wantActed(1)
}

func TestAnEditedHomeMakesNothingLaxer(t *testing.T) {
	s := begin(t)
	a := s.agent()
	// Security settings do not lie in the file; who puts one there is told so, and spd does not start.
	if r := a.runs("/bin/sh", "-c", "echo 'idle_lock: never' > "+s.home+"/config/config.yaml; chmod 600 "+s.home+"/config/config.yaml"); r.Status != 0 {
		t.Fatal(r.Out)
	}
	s.stop()
	spd := s.command("spd")
	out, status := run(spd)
	if status != 1 || !strings.Contains(out, "spctl settings set idle_lock") {
		t.Errorf("spd with a security setting in its file: exit status %d\n%s", status, out)
	}
	if err := os.Remove(filepath.Join(s.home, "config/config.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"", "config", "data", "run"} {
		path := filepath.Join(s.home, folder)
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if out, status := run(s.command("spd")); status != 1 || !strings.Contains(out, "chmod 700") {
			t.Errorf("spd in an open %s: exit status %d\n%s", path, status, out)
		}
		if out, status := run(s.command("spctl", "status")); status == 0 {
			t.Errorf("spctl in an open %s: %s", path, out)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A link to elsewhere is not followed.
	run_, elsewhere := filepath.Join(s.home, "run"), filepath.Join(s.dir, "elsewhere")
	if err := os.Rename(run_, elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, run_); err != nil {
		t.Fatal(err)
	}
	if out, status := run(s.command("spd")); status != 1 || !strings.Contains(out, "symbolic link") {
		t.Errorf("spd behind a symbolic link: exit status %d\n%s", status, out)
	}
}

func (s *stand) segments() []string {
	s.t.Helper()
	list, err := filepath.Glob(filepath.Join(s.home, "data/journal/*.jsonl"))
	if err != nil || len(list) == 0 {
		s.t.Fatalf("the journal is %v, %v", list, err)
	}
	return list
}

// paid has the agent's call approved and answered.
func (s *stand) paid(a *agent, order string) {
	s.t.Helper()
	id := a.pay(order)
	s.spctl("approve", s.card().Card, "--session")
	if l := a.answer(id); !strings.Contains(l, "receipt") {
		s.t.Fatalf("the call ended as %s", l)
	}
}

func TestAnEditedJournalIsFoundAndNothingIsSentAfterIt(t *testing.T) {
	s := begin(t)
	a := s.agent()
	s.paid(a, "1")
	s.stop()
	path := s.segments()[0]
	if r := a.runs("/bin/sh", "-c", "sed -i '0,/\"dispatched\"/s//\"xispatched\"/' "+path); r.Status != 0 {
		t.Fatal(r.Out)
	}
	if out, status := run(s.command("spctl", "audit", "verify")); status != 7 {
		t.Errorf("audit verify: exit status %d\n%s", status, out)
	}
	s.start()
	s.spctl("unlock")
	if st := s.status(); st.Journal != "quarantine" || st.Problem == "" {
		t.Errorf("the person is shown %+v", st)
	}
	b := s.agent()
	if l := b.answer(b.pay("2")); !strings.Contains(l, "journal_quarantine") {
		t.Errorf("a call after it: %s", l)
	}
	s.wantActed(1)
}

func TestARowThatWasDeletedFromTheIndexComesBack(t *testing.T) {
	s := begin(t)
	a := s.agent()
	s.paid(a, "1")
	s.stop()
	index := filepath.Join(s.home, "data/index.db")
	before, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	// Every place in the file that names the execution's state is spoilt, as a row's removal would; daemon/index removes each row in turn.
	if r := a.runs("/bin/sh", "-c", "LC_ALL=C sed -i 's/completed_result/xompleted_result/g' "+index); r.Status != 0 {
		t.Fatal(r.Out)
	}
	if after, err := os.ReadFile(index); err != nil || bytes.Equal(before, after) {
		t.Skipf("the index does not hold the state as text: %v", err)
	}
	s.start()
	s.spctl("unlock")
	if out := s.spctl("activity", "--json"); !strings.Contains(out, `"state":"completed_result_`) {
		t.Errorf("the record is gone: %s", out)
	}
}

// What is not prevented: whoever can write the files can set all of them back. It is found by whoever kept a head.
func TestARollbackOfEverythingIsFoundAgainstAKeptHead(t *testing.T) {
	s := begin(t)
	s.stop()
	older := filepath.Join(s.dir, "older")
	if out, err := exec.Command("cp", "-a", filepath.Join(s.home, "data"), older).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.start()
	s.spctl("unlock")
	a := s.agent()
	s.paid(a, "1")
	head := strings.TrimSpace(s.spctl("audit", "head"))
	kept := s.write("head", head+"\n")
	s.stop()
	if r := a.runs("/bin/sh", "-c", fmt.Sprintf("rm -r %s/data; cp -a %s %s/data", s.home, older, s.home)); r.Status != 0 {
		t.Fatal(r.Out)
	}
	if out, status := run(s.command("spctl", "audit", "verify")); status != 0 {
		t.Errorf("without a head nothing can be said of it: exit status %d\n%s", status, out)
	}
	if out, status := run(s.command("spctl", "audit", "verify", "--head", kept)); status != 7 {
		if out2, status2 := run(s.command("spctl", "audit", "verify", "--head", head)); status2 != 7 {
			t.Errorf("against the head %q: exit status %d\n%s%s", head, status, out, out2)
		}
	}
}

func TestTheInstalledProgramsCannotBeExchanged(t *testing.T) {
	s := begin(t)
	a := s.agent()
	for _, name := range []string{"spd", "spctl"} {
		for _, do := range []string{"echo x > %s", "cp /bin/true %s", "rm -f %s && test ! -e %s", "mv %s %s.old", "chmod 777 %s"} {
			path := filepath.Join(s.bin, name)
			if r := a.runs("/bin/sh", "-c", strings.ReplaceAll(do, "%s", path)); r.Status == 0 {
				t.Errorf("%s: %s", strings.ReplaceAll(do, "%s", name), r.Out)
			}
		}
	}
}

// A bridge that was copied or changed is a program like any other: it is not taken for its parent, and has no share in its parent's session.
func TestAChangedBridgeSpeaksForItselfOnly(t *testing.T) {
	s := begin(t)
	a := s.agent()
	s.paid(a, "1")
	for i, change := range []string{"printf x >> %s", "true %s"} {
		copied := filepath.Join(s.dir, fmt.Sprintf("bridge%d", i))
		if r := a.runs("/bin/sh", "-c", "cp "+filepath.Join(s.bin, "spctl")+" "+copied+"; "+fmt.Sprintf(change, copied)); r.Status != 0 {
			t.Fatal(r.Out)
		}
		b := s.agentBy(copied)
		b.pay("1")
		card := s.card()
		if card.Via != "socket" || card.Agent.Exe != copied || card.Agent.PID != b.bridge {
			t.Errorf("%s: it is taken for %+v by %s", change, card.Agent, card.Via)
		}
		s.spctl("deny", card.Card)
	}
	s.wantActed(1)
}
