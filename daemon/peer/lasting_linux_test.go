package peer_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"singlepass.dev/daemon/peer"
)

func TestAnAncestorWhosePathLeadsToAnotherFileIsAnotherOne(t *testing.T) {
	parent := copyOf(t, self(t), "terminal")
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	p, nc := start(t, l, "parent", parent, self(t))
	before := identify(t, id, nc)
	if above := before.Above(); before.Chain[0].PID != p.cmd.Process.Pid || above[0] != parent || !slices.Contains(above[1:], self(t)) {
		t.Fatalf("above it stands %q", above)
	}
	if last := before.Chain[len(before.Chain)-1]; last.PPID != 0 {
		t.Errorf("the last above it is %+v", last)
	}
	// Somebody puts another program into that place, where the path still leads.
	if err := os.Rename(copyOf(t, "/bin/sh", "terminal"), parent); err != nil {
		t.Skipf("the folders are on two file systems: %v", err)
	}
	after := identify(t, id, nc)
	if above := after.Above(); above[0] != parent+" (another file)" {
		t.Errorf("above it stands %q", above)
	}
}

func TestAProgramWithAScriptEngineBesideItRunsScripts(t *testing.T) {
	program := copyOf(t, self(t), "editor")
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	_, nc := start(t, l, "connect", program)
	agent := identify(t, id, nc).Agent
	if peer.RunsScripts(agent) {
		t.Error("it has no engine")
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(program), "v8_context_snapshot.bin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !peer.RunsScripts(agent) {
		t.Error("the engine beside it is not seen")
	}
}
