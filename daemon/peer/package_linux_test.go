package peer_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"singlepass.dev/daemon/peer"
)

// agentCode connects and stays until its input ends.
const agentCode = `use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => $ENV{PEER_SOCKET}) or die; <STDIN>;`

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// copySelf puts the test binary, which is a peer by PEER_TEST, at a path.
func copySelf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	return write(t, path, string(b), 0o755)
}

func doubted(got *peer.Identity, word string) bool {
	return got.Assurance == peer.CannotTell && len(got.Doubts) > 0 && len(got.DoubtsSaid) == len(got.Doubts) && strings.Contains(strings.Join(got.Doubts, "\n"), word)
}

func TestAProgramIsWhatItsFilesAreOnlyIfNothingElseGetsIntoIt(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	script := write(t, filepath.Join(t.TempDir(), "agent.pl"), agentCode, 0o600)
	identified := func() *peer.Identity {
		_, nc := start(t, l, "connect", "/usr/bin/perl", script)
		return identify(t, id, nc)
	}
	if got := identified(); got.Assurance != peer.UserOwned || len(got.Doubts) > 0 {
		t.Errorf("a program of the user's: %s, %q", got.Assurance, got.Doubts)
	}
	for name, value := range map[string]string{"LD_LIBRARY_PATH": "/nowhere", "PERL5OPT": "-w"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			_, nc := start(t, l, "connect", "/usr/bin/perl", script)
			if got := identify(t, id, nc); !doubted(got, name) {
				t.Errorf("with %s: %s, %q", name, got.Assurance, got.Doubts)
			}
		})
	}
	t.Setenv("NODE_OPTIONS", "--require=/nowhere") // is nothing to perl
	if got := identified(); got.Assurance != peer.UserOwned {
		t.Errorf("with NODE_OPTIONS: %s, %q", got.Assurance, got.Doubts)
	}
}

func TestAScriptIsKnownByItsBytesAndByThePackageThatItSaysItIsOf(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "node_modules/agent/package.json"), `{"name":"@acme/agent","version":"1.2.3"}`, 0o600)
	npm := write(t, filepath.Join(dir, "node_modules/agent/bin/agent.pl"), agentCode, 0o600)
	python := write(t, filepath.Join(dir, "lib/python3.11/site-packages/agent/__main__.pl"), agentCode, 0o600)
	var digests []string
	for script, contains := range map[string]string{npm: "npm:@acme/agent@1.2.3", python: "python:agent"} {
		_, nc := start(t, l, "connect", "/usr/bin/perl", script)
		got := identify(t, id, nc)
		if got.Contains != contains || got.Agent.Script != script || got.Assurance != peer.UserOwned {
			t.Errorf("%s is of %q, %s", script, got.Contains, got.Assurance)
		}
		digests = append(digests, got.Agent.ScriptDigest)
	}
	if len(digests) != 2 || digests[0] != digests[1] || !strings.HasPrefix(digests[0], "sha256:") {
		t.Errorf("the same bytes have the digests %q", digests)
	}
}

func TestASnapsProgramIsNamedWithoutItsRevision(t *testing.T) {
	l := listenUnix(t)
	script := write(t, filepath.Join(t.TempDir(), "agent.pl"), agentCode, 0o600)
	// What matters of a snap's mount is that nobody but root can change what is in it; /usr stands for it, and "bin" for the snap.
	_, nc := start(t, l, "connect", "/usr/bin/perl", script)
	if got := identify(t, newIdentifier(t, peer.Config{Snap: "/usr"}), nc); got.Package != "snap:bin" {
		t.Errorf("a program beneath the snaps' folder is of %q", got.Package)
	}
	dir := t.TempDir()
	agent := copySelf(t, filepath.Join(dir, "agent/12/agent"))
	_, nc = start(t, l, "connect", agent)
	if got := identify(t, newIdentifier(t, peer.Config{Snap: dir}), nc); got.Package != "" || got.Assurance == peer.SystemOwned {
		t.Errorf("what the user put into the snaps' folder is of %q, %s", got.Package, got.Assurance)
	}
}

func TestAnAppImageIsNamedByItsFileAndIsNotKnown(t *testing.T) {
	id, l := newIdentifier(t, peer.Config{}), listenUnix(t)
	dir := t.TempDir()
	agent := copySelf(t, filepath.Join(dir, ".mount_AgentXyz", "usr/bin/agent"))
	image := write(t, filepath.Join(dir, "Agent.AppImage"), "\x7fELF\x02\x01\x01\x00AI\x02", 0o700)
	for _, c := range []struct{ claim, pkg, actor string }{
		{image, "appimage:" + image, "appimage:" + image},
		{write(t, filepath.Join(dir, "notes.txt"), "no image of anything", 0o600), "", "exe:" + agent},
		{"relative", "", "exe:" + agent},
		{"", "", "exe:" + agent},
	} {
		t.Setenv("APPIMAGE", c.claim)
		_, nc := start(t, l, "connect", agent)
		if got := identify(t, id, nc); got.Package != c.pkg || got.Actor != c.actor || !doubted(got, "AppImage") {
			t.Errorf("APPIMAGE=%q: package %q, actor %s, %s, %q", c.claim, got.Package, got.Actor, got.Assurance, got.Doubts)
		}
	}
}

func TestRpmIsAskedOnlyWhereNobodyElseCanHavePutIt(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can put a program where nobody else could have")
	}
	l := listenUnix(t)
	dir, err := os.MkdirTemp("/usr/local/lib", "sp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const answer = "#!/bin/sh\n[ \"$1\" = -qf ] && echo acme-agent\n"
	agent := copySelf(t, filepath.Join(dir, "agent"))
	_, nc := start(t, l, "connect", agent)
	got := identify(t, newIdentifier(t, peer.Config{Rpm: write(t, filepath.Join(dir, "rpm"), answer, 0o755)}), nc)
	if got.Package != "rpm:acme-agent" || got.Assurance != peer.SystemOwned {
		t.Errorf("a program of the system's is of %q, %s", got.Package, got.Assurance)
	}
	got = identify(t, newIdentifier(t, peer.Config{Rpm: write(t, filepath.Join(t.TempDir(), "rpm"), answer, 0o755)}), nc)
	if got.Package != "" {
		t.Errorf("an rpm of the user's was asked, and said %q", got.Package)
	}
}

// sandboxed starts the test binary as a peer under bubblewrap, as Flatpak does: its files at /app, and the sandbox's word about itself at /.flatpak-info.
func sandboxed(t *testing.T, l net.Listener, files, name string) net.Conn {
	t.Helper()
	info, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(writer, "[Application]\nname="+name+"\nruntime=runtime/org.example.Platform/x86_64/1\n"); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	socket := l.Addr().String()
	cmd := exec.Command("bwrap", "--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
		"--bind", filepath.Dir(socket), filepath.Dir(socket), "--ro-bind", files, "/app", "--ro-bind-data", "3", "/.flatpak-info", "/app/bin/agent")
	cmd.Env = []string{"PEER_TEST=connect", "PEER_SOCKET=" + socket}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{info}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func TestAFlatpakIsTheAppWhoseInstalledFileItRuns(t *testing.T) {
	installation := t.TempDir()
	app := filepath.Join(installation, "app/org.example.Agent")
	copySelf(t, filepath.Join(app, "x86_64/stable/1a2b/files/bin/agent"))
	copySelf(t, filepath.Join(installation, "app/org.example.Other/x86_64/stable/3c4d/files/bin/agent"))
	for link, to := range map[string]string{"current": "x86_64/stable", "x86_64/stable/active": "1a2b"} {
		if err := os.Symlink(to, filepath.Join(app, link)); err != nil {
			t.Fatal(err)
		}
	}
	id := newIdentifier(t, peer.Config{Flatpak: []string{"/nowhere", installation}})
	files := filepath.Join(app, "x86_64/stable/active/files")
	got := identify(t, id, sandboxed(t, listenUnix(t), files, "org.example.Agent"))
	if got.Package != "flatpak:org.example.Agent" || got.Actor != "flatpak:org.example.Agent" || got.Assurance != peer.UserOwned {
		t.Errorf("it is %q, actor %s, %s, %q", got.Package, got.Actor, got.Assurance, got.Doubts)
	}
	for _, claim := range []string{"org.example.Other", "org.example.None", "..", "a/b"} {
		got := identify(t, id, sandboxed(t, listenUnix(t), files, claim))
		if got.Package != "" || strings.HasPrefix(got.Actor, "flatpak:") || got.Assurance == peer.SystemOwned {
			t.Errorf("with the claim %q it is %q, actor %s, %s", claim, got.Package, got.Actor, got.Assurance)
		}
	}
}

// A script's owner may exchange it between a look at it and the next.
func TestAScriptThatHasNoEndIsNotReadForEver(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 5<<30); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, large, "/dev/zero", dir} {
		if digest, err := peer.Digest(path); err == nil {
			t.Errorf("%s has the digest %s", path, digest)
		}
	}
}
