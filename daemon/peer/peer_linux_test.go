package peer_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/peer"
)

func TestAPeerIsTheProcessThatConnected(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	p, nc := start(t, l, "connect", self(t))
	got := identify(t, id, nc)
	if got.Agent.PID != p.cmd.Process.Pid || got.Agent.PPID != os.Getpid() || got.Agent.UID != os.Getuid() || got.Agent.Exe != self(t) {
		t.Errorf("identified %+v, want process %d of %s", got.Agent, p.cmd.Process.Pid, self(t))
	}
	content, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if got.Agent.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("digest %s", got.Agent.Digest)
	}
	if got.Via != peer.ViaSocket || got.Actor != "exe:"+self(t) || !strings.HasPrefix(got.Run, "run_") || got.Run != peer.RunID(got.Agent) {
		t.Errorf("via %s, actor %s, run %s", got.Via, got.Actor, got.Run)
	}
	if len(got.Chain) == 0 || got.Chain[0].PID != os.Getpid() {
		t.Errorf("the chain does not begin with this test: %+v", got.Chain)
	}
	if age := time.Since(got.Agent.Began); age < -2*time.Second || age > time.Minute {
		t.Errorf("it began %v ago", age)
	}
	if err := got.Check(); err != nil {
		t.Errorf("checking a live process: %v", err)
	}
}

func TestTheRunIsTheSameForEveryConnectionAndIdentifier(t *testing.T) {
	l := listenUnix(t)
	_, nc := start(t, l, "connect", self(t))
	first := identify(t, newIdentifier(t, peer.Config{}), nc)
	second := identify(t, newIdentifier(t, peer.Config{}), nc)
	if first.Run != second.Run {
		t.Errorf("runs %s and %s", first.Run, second.Run)
	}
	_, other := start(t, l, "connect", self(t))
	if third := identify(t, newIdentifier(t, peer.Config{}), other); third.Run == first.Run {
		t.Error("another process has the same run")
	}
}

// The vector was made by: printf 'singlepass run v1\n2c5a…0001\n4242\n123456\n2049\n99\n' | sha256sum | cut -c1-32 | xxd -r -p | base32
func TestTheRunIDIsFrozen(t *testing.T) {
	p := peer.Process{PID: 4242, Start: 123456, Boot: "2c5a9a6e-0000-4000-8000-000000000001", Device: 2049, Inode: 99}
	if got, want := peer.RunID(p), "run_au7n3txwmr744hwn5gney5vuzu"; got != want {
		t.Errorf("got %s, want %s: journals hold runs by this derivation", got, want)
	}
}

func TestTheEndOfAProcessIsSeenAndFailsItsCheck(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	p, nc := start(t, l, "connect", self(t))
	got, again := identify(t, id, nc), identify(t, id, nc)
	select {
	case <-got.Ended:
		t.Fatal("a live process is reported as ended")
	default:
	}
	p.end()
	waitEnded(t, got.Ended)
	waitEnded(t, again.Ended)
	if err := got.Check(); err == nil {
		t.Error("the check of an ended process passes")
	}
	if _, err := id.Identify(nc.(*net.UnixConn)); err == nil {
		t.Error("an ended process can be identified")
	}
}

func TestAnExecIsAnotherRun(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	p, nc := start(t, l, "exec", self(t))
	got := identify(t, id, nc)
	if err := got.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	// The connection closes when the exec happens: Go opens sockets with CLOEXEC.
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Fatal("the peer sent something")
	}
	if err := got.Check(); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("after an exec the check says %v", err)
	}
	select {
	case <-got.Ended:
		t.Error("an exec is reported as the end of the process")
	default:
	}
}

func TestBehindTheBridgeTheAgentIsItsParent(t *testing.T) {
	bridge := copyOf(t, self(t), "spctl")
	id, l := newIdentifier(t, peer.Config{Bridge: bridge}), listenUnix(t)
	p, nc := start(t, l, "parent", self(t), bridge, "mcp")
	got := identify(t, id, nc)
	if got.Via != peer.ViaBridge || got.Agent.PID != p.cmd.Process.Pid || got.Agent.Exe != self(t) {
		t.Errorf("via %s, agent %+v; want process %d", got.Via, got.Agent, p.cmd.Process.Pid)
	}
	if len(got.Through) != 1 || got.Through[0].Exe != bridge {
		t.Errorf("through %+v", got.Through)
	}
	caller, err := id.IdentifyCaller(nc.(*net.UnixConn))
	if err != nil || caller.Agent.Exe != bridge || caller.Run == got.Run {
		t.Errorf("as a caller it is %+v, %v", caller, err)
	}
	process, err := id.ProcessOf(nc.(*net.UnixConn))
	if err != nil || process.Exe != bridge {
		t.Errorf("as a process it is %+v, %v", process, err)
	}
	ancestors, err := id.Ancestors(process.PID)
	if err != nil || !slices.ContainsFunc(ancestors, func(a peer.Process) bool { return peer.RunID(a) == got.Run }) {
		t.Errorf("the agent's run is not among the bridge's ancestors: %+v, %v", ancestors, err)
	}
}

func TestARestartedBridgeIsTheSameRun(t *testing.T) {
	bridge := copyOf(t, self(t), "spctl")
	id, l := newIdentifier(t, peer.Config{Bridge: bridge}), listenUnix(t)
	// This test is the agent of both bridges.
	first, nc1 := start(t, l, "connect", bridge, "mcp")
	one := identify(t, id, nc1)
	first.end()
	_, nc2 := start(t, l, "connect", bridge, "mcp")
	two := identify(t, newIdentifier(t, peer.Config{Bridge: bridge}), nc2)
	if one.Run != two.Run || one.Agent.PID != os.Getpid() {
		t.Errorf("runs %s and %s of process %d", one.Run, two.Run, one.Agent.PID)
	}
}

func TestALauncherBetweenAgentAndBridgeIsPassedAndShown(t *testing.T) {
	bridge := copyOf(t, self(t), "spctl")
	id, l := newIdentifier(t, peer.Config{Bridge: bridge}), listenUnix(t)
	// The exit keeps the shell from becoming the bridge by exec.
	_, nc := start(t, l, "connect", "/bin/sh", "-c", `"$0" mcp; exit 0`, bridge)
	got := identify(t, id, nc)
	if got.Agent.PID != os.Getpid() || len(got.Through) != 2 || got.Through[0].Exe != bridge {
		t.Errorf("agent %d through %+v; want this test through the bridge and a shell", got.Agent.PID, got.Through)
	}
}

func TestATerminalsShellIsNoLauncher(t *testing.T) {
	bridge := copyOf(t, self(t), "spctl")
	id, l := newIdentifier(t, peer.Config{Bridge: bridge}), listenUnix(t)
	profile := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(profile, []byte("'"+bridge+"' mcp; exit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Otherwise whatever started the terminal would be the agent, and the person could decide nothing in any shell of it.
	p, nc := start(t, l, "connect", "/bin/bash", "--rcfile", profile, "-i")
	if got := identify(t, id, nc); got.Agent.PID != p.cmd.Process.Pid {
		t.Errorf("the agent is %+v, want the shell %d", got.Agent, p.cmd.Process.Pid)
	}
}

func TestOnlyTheInstalledProgramInvokedAsMcpIsTheBridge(t *testing.T) {
	bridge := copyOf(t, self(t), "spctl")
	id, l := newIdentifier(t, peer.Config{Bridge: bridge}), listenUnix(t)
	other, same := filepath.Join(t.TempDir(), "spctl"), filepath.Join(t.TempDir(), "spctl")
	if err := os.WriteFile(other, append(readFile(t, bridge), 'x'), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(same, readFile(t, bridge), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"another program": other, "a copy": same} {
		_, nc := start(t, l, "connect", path, "mcp")
		if got := identify(t, id, nc); got.Via != peer.ViaSocket || got.Agent.Exe != path {
			t.Errorf("%s counts as the bridge: %+v", name, got)
		}
	}
	_, nc := start(t, l, "connect", bridge, "status")
	if got := identify(t, id, nc); got.Via != peer.ViaSocket {
		t.Error("the installed program counts as a bridge without being invoked as mcp")
	}
}

func TestABridgeThatWasReplacedOnDiskIsRefused(t *testing.T) {
	bridge := copyOf(t, self(t), "spctl")
	id, l := newIdentifier(t, peer.Config{Bridge: bridge}), listenUnix(t)
	_, nc := start(t, l, "connect", bridge, "mcp")
	if got := identify(t, id, nc); got.Via != peer.ViaBridge {
		t.Fatalf("before, it is %+v", got)
	}
	upgrade := bridge + ".new"
	for _, more := range []string{"x", ""} { // the same bytes in another file, too
		if err := os.WriteFile(upgrade, append(readFile(t, self(t)), more...), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(upgrade, bridge); err != nil {
			t.Fatal(err)
		}
		if _, err := id.Identify(nc.(*net.UnixConn)); err == nil || !strings.Contains(err.Error(), "restart the agent's MCP server") {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnInterpreterIsNamedByItsScript(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	script := filepath.Join(t.TempDir(), "agent.pl")
	code := `use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => $ENV{PEER_SOCKET}) or die; <STDIN>;`
	if err := os.WriteFile(script, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	_, nc := start(t, l, "connect", "/usr/bin/perl", "-w", script)
	got := identify(t, id, nc)
	if got.Actor != "script:"+script || got.Agent.Script != script || got.Assurance != peer.UserOwned {
		t.Errorf("actor %s, script %s, %s", got.Actor, got.Agent.Script, got.Assurance)
	}
	_, nc = start(t, l, "connect", "/usr/bin/perl", "-e", code)
	if got := identify(t, id, nc); got.Agent.Script != "" || got.Actor != "deb:perl-base" || got.Assurance != peer.CannotTell || len(got.Doubts) != 1 {
		t.Errorf("inline code is %s, %s, %q", got.Actor, got.Assurance, got.Doubts)
	}
}

func TestALoopbackPeerIsTheOwnerOfTheSocket(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		t.Cleanup(func() { l.Close() })
		id := newIdentifier(t, peer.Config{})
		p, nc := start(t, l, "connect", self(t))
		local, remote := netip.MustParseAddrPort(nc.LocalAddr().String()), netip.MustParseAddrPort(nc.RemoteAddr().String())
		got, err := id.IdentifyTCP(local, remote)
		if err != nil {
			t.Fatal(err)
		}
		if got.Agent.PID != p.cmd.Process.Pid || got.Via != peer.ViaHTTP {
			t.Errorf("%s: via %s process %d, want %d", address, got.Via, got.Agent.PID, p.cmd.Process.Pid)
		}
		p.end()
		if _, err := id.IdentifyTCP(local, remote); err == nil {
			t.Errorf("%s: an ended process was identified", address)
		}
	}
	if _, err := newIdentifier(t, peer.Config{}).IdentifyTCP(netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2")); err == nil {
		t.Error("a peer on another machine was identified")
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func BenchmarkIdentify(b *testing.B) {
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	nc, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	id, err := peer.New(peer.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var identity *peer.Identity
	b.Run("identify", func(b *testing.B) {
		for b.Loop() {
			if identity, err = id.Identify(nc.(*net.UnixConn)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if err := identity.Check(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
