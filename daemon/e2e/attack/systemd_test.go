package attack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manager starts the user's real service manager, as logind would: a child of init, in a control group that is its own.
func (s *stand) manager() {
	s.t.Helper()
	needs(s.t, "systemctl", "systemd-run", "setsid")
	runtime := filepath.Join(s.dir, "runtime")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chown(runtime, user, user); err != nil {
		s.t.Fatal(err)
	}
	s.env = append(s.env, "XDG_RUNTIME_DIR="+runtime)
	manager := s.managed("/usr/bin/setsid", "--fork", "/lib/systemd/systemd", "--user", "--log-target=null")
	manager.SysProcAttr.Pdeathsig = 0
	if err := manager.Run(); err != nil { // without pipes: they would stay open with it
		s.t.Fatalf("starting systemd --user: %v", err)
	}
	for until := time.Now().Add(patience); ; {
		if _, err := os.Stat(runtime + "/systemd/private"); err == nil {
			return
		}
		if time.Now().After(until) {
			s.t.Fatal("systemd --user does not run")
		}
	}
}

// managed makes a command of the user's in a control group that the service manager may take it out of.
func (s *stand) managed(program string, args ...string) *exec.Cmd {
	s.t.Helper()
	group, err := os.Open(filepath.Join(os.Getenv("ATTACK_GROUP"), "user"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = group.Close() })
	cmd := s.command(program, args...)
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	return cmd
}

// startUnit starts the daemon by the unit that is installed with it. More are lines for its [Service].
func (s *stand) startUnit(more ...string) (out string, status int) {
	s.t.Helper()
	unit, err := os.ReadFile("../../../assets/singlepass.service")
	if err != nil {
		s.t.Fatal(err)
	}
	units := filepath.Join(s.dir, ".config/systemd/user")
	if err := os.MkdirAll(filepath.Join(units, "singlepass.service.d"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	here := "[Service]\nExecStart=\nExecStart=" + filepath.Join(s.bin, "spd") + "\nEnvironment=SINGLEPASS_HOME=" + s.home + "\nStandardError=append:" + s.dir + "/spd.log\n" + strings.Join(more, "\n") + "\n"
	for name, text := range map[string]string{"singlepass.service": string(unit), "singlepass.service.d/here.conf": here} {
		if err := os.WriteFile(filepath.Join(units, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	if out, status := run(s.managed("/usr/bin/systemctl", "--user", "daemon-reload")); status != 0 {
		s.t.Fatal(out)
	}
	return run(s.managed("/usr/bin/systemctl", "--user", "restart", "singlepass"))
}

// show reads a property of the daemon's unit.
func (s *stand) show(property string) string {
	s.t.Helper()
	out, status := run(s.managed("/usr/bin/systemctl", "--user", "show", "--property", property, "--value", "singlepass"))
	if status != 0 {
		s.t.Fatal(out)
	}
	return strings.TrimSpace(out)
}

// shows waits until a property has changed from what it was.
func (s *stand) shows(property, was string) string {
	s.t.Helper()
	for until := time.Now().Add(patience); ; {
		if is := s.show(property); is != was && is != "" && is != "0" {
			return is
		}
		if time.Now().After(until) {
			s.t.Fatalf("%s is still %s", property, was)
		}
	}
}

// proc reads a line of a file of the daemon's in /proc.
func (s *stand) proc(file, prefix string) string {
	s.t.Helper()
	b, err := os.ReadFile("/proc/" + s.show("MainPID") + "/" + file)
	if err != nil {
		s.t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return ""
}

// Each directive of the unit is in force under a real service manager, and the daemon bears it.
func TestTheDaemonBearsEachDirectiveOfItsUnit(t *testing.T) {
	if !machine(t) {
		return
	}
	s := prepare(t)
	s.manager()
	if out, status := s.startUnit(); status != 0 { // Type=notify: it is ready now
		t.Fatal(out)
	}
	s.furnish()
	for property, want := range map[string]string{"Type": "notify", "ActiveState": "active", "Restart": "on-failure", "TimeoutStopUSec": "30s", "KeyringMode": "private", "RestartPreventExitStatus": "75"} {
		if got := s.show(property); got != want {
			t.Errorf("%s is %s, want %s", property, got, want)
		}
	}
	if got := s.proc("status", "Umask:"); got != "0077" {
		t.Errorf("its umask is %s", got)
	}
	if got := s.proc("limits", "Max core file size"); got != "0 0 bytes" {
		t.Errorf("its limit of cores is %s", got)
	}
	if got := s.proc("status", "NoNewPrivs:"); got != "0" {
		t.Errorf("it may take no privileges, and so not its group: %s", got)
	}
	// Restart=on-failure: it comes back after a crash, with its group, and locked.
	pid := s.show("MainPID")
	if out, status := run(s.command("/bin/sh", "-c", "kill -9 "+pid)); status != 0 {
		t.Fatal(out)
	}
	s.shows("MainPID", pid)
	for until := time.Now().Add(patience); ; {
		if _, status := run(s.command("spctl", "unlock")); status == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it did not come back")
		}
	}
	// RestartPreventExitStatus=75: it gives way to another one that serves this home.
	if out, status := run(s.managed("/usr/bin/systemctl", "--user", "stop", "singlepass")); status != 0 {
		t.Fatal(out)
	}
	s.start()
	if out, status := s.startUnit(); status == 0 {
		t.Errorf("two serve one home: %s", out)
	}
	if status, again := s.show("ExecMainStatus"), s.show("NRestarts"); status != "75" || again != "0" {
		t.Errorf("the second ended with %s and was restarted %s times", status, again)
	}
}

// costly are directives for which a user's service manager has to forbid new privileges, or to make a user namespace. Either takes the daemon's group, by which it is known.
var costly = []string{
	"NoNewPrivileges=yes", "SystemCallFilter=@system-service", "SystemCallArchitectures=native", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "RestrictNamespaces=yes", "LockPersonality=yes",
	"MemoryDenyWriteExecute=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "ProtectKernelTunables=yes", "ProtectHostname=yes", "PrivateUsers=yes",
}

// rootOnly are directives that the service manager of a user without rights cannot carry out, so that the daemon does not start.
var rootOnly = []string{"CapabilityBoundingSet=", "PrivateDevices=yes", "ProtectKernelModules=yes", "ProtectKernelLogs=yes", "ProtectClock=yes"}

// idle are directives that it takes and leaves undone, without a word (systemd 252): there is no mount namespace.
var idle = []string{"ProtectSystem=strict", "ProtectHome=read-only", "PrivateTmp=yes", "ProtectControlGroups=yes", "ProtectProc=invisible", "NoExecPaths=/tmp"}

// That the unit has no sandboxing is by what each directive costs.
func TestWhatSandboxingWouldCostTheDaemon(t *testing.T) {
	if !machine(t) {
		return
	}
	s := prepare(t)
	s.manager()
	if out, status := s.startUnit(); status != 0 {
		t.Fatal(out)
	}
	s.furnish()
	for _, d := range costly {
		if out, status := s.startUnit(d); status != 0 {
			t.Errorf("%s: it does not start: %s", d, out)
			continue
		}
		if out, status := run(s.command("spctl", "unlock")); status != 69 || !strings.Contains(out, "it does not have its group") {
			t.Errorf("%s: the daemon is known all the same, so that the unit could have it: %s", d, out)
		}
	}
	for _, d := range rootOnly {
		if _, status := s.startUnit(d); status == 0 {
			t.Errorf("%s: the daemon starts, so that the unit could have it", d)
		}
	}
	version, err := exec.Command("systemctl", "--version").Output()
	if err != nil || !strings.HasPrefix(string(version), "systemd 252") {
		return
	}
	for _, d := range idle {
		if out, status := s.startUnit(d); status != 0 {
			t.Errorf("%s: it does not start: %s", d, out)
			continue
		}
		of, err := os.Readlink("/proc/" + s.show("MainPID") + "/ns/mnt")
		if ours, err2 := os.Readlink("/proc/self/ns/mnt"); err != nil || err2 != nil || of != ours {
			t.Errorf("%s: it is in %s, this in %s: %v, %v", d, of, ours, err, err2)
		}
	}
}

// Where the daemon has no group of its own it bears the sandbox that is installed beside its unit: it serves agents, sends, and the programs of the user stay out.
func TestWithoutAGroupTheDaemonBearsItsSandbox(t *testing.T) {
	if !machine(t) {
		return
	}
	s := prepare(t)
	own := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"spd", "spctl", "agent"} {
		b, err := os.ReadFile(filepath.Join(s.bin, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(own, name), b, 0o755)
		}
		if err == nil {
			err = os.Chown(filepath.Join(own, name), user, user)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.bin = own
	s.manager()
	sandbox, err := os.ReadFile("../../../assets/singlepass-sandbox.conf")
	if err != nil {
		t.Fatal(err)
	}
	if out, status := s.startUnit(string(sandbox)); status != 0 {
		b, _ := os.ReadFile(s.dir + "/spd.log")
		t.Fatalf("%s\n%s", out, b)
	}
	s.furnish()
	a := s.agent()
	s.paid(a, "1")
	s.wantActed(1)
	for line := range strings.Lines(string(sandbox)) {
		name, want, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		got := s.show(name)
		switch name {
		case "SystemCallFilter": // it shows the calls
			if !strings.Contains(got, "connect") || strings.Contains(got, "mount") {
				t.Errorf("%s is %s", name, got)
			}
		case "RestrictNamespaces":
			if got != "yes" && got != "0" && got != "" {
				t.Errorf("%s is %s", name, got)
			}
		case "SystemCallErrorNumber":
			if got != "1" && got != want {
				t.Errorf("%s is %s", name, got)
			}
		case "RestrictAddressFamilies":
			for _, f := range strings.Fields(want) {
				if !strings.Contains(got, f) {
					t.Errorf("%s is %s", name, got)
				}
			}
		default:
			if got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
	}
	if got := s.proc("status", "NoNewPrivs:") + s.proc("status", "Seccomp:"); got != "12" {
		t.Errorf("new privileges and system calls are %s, want forbidden and filtered", got)
	}
	cmd := s.command("agent")
	cmd.Env = append(cmd.Env, "ATTACK_ROLE=look "+s.show("MainPID"))
	if out, status := run(cmd); status != 0 || out != "refused\n" {
		t.Errorf("looking into it: %s", out)
	}
}

// agentWithGroup starts an agent in a control group that was made for it, as desktops do.
func (s *stand) agentWithGroup() *agent {
	s.t.Helper()
	return s.agentBegun(s.managed("/usr/bin/systemd-run", "--user", "--scope", "--quiet", "--collect", "--unit=app-agent-1", filepath.Join(s.bin, "agent")), filepath.Join(s.bin, "spctl"))
}

func TestWhateverLeavesAnAgentsFamilyStaysInItsControlGroup(t *testing.T) {
	if !machine(t) {
		return
	}
	needs(t, "tmux")
	s := prepare(t)
	s.manager()
	if out, status := s.startUnit(); status != 0 {
		t.Fatal(out)
	}
	s.furnish()
	a := s.agentWithGroup()
	a.pay("1")
	card := s.card().Card
	for name, argv := range map[string][]string{
		"fork":    {"/bin/sh", "-c", "/bin/sh SCRIPT > /dev/null 2>&1 &"},
		"session": {"/usr/bin/setsid", "--fork", "/bin/sh", "-c", "/bin/sh SCRIPT > /dev/null 2>&1 &"},
		"tmux":    {"/bin/sh", "-c", s.tmux("1", "SCRIPT", "-d")},
		"scope":   {"/usr/bin/systemd-run", "--user", "--scope", "--quiet", "--unit=vte-spawn-1", "/bin/sh", "SCRIPT"},
	} {
		pipe, said := s.hear(name)
		script := s.write(name+".sh", s.approving(card, pipe))
		for i := range argv {
			argv[i] = strings.ReplaceAll(argv[i], "SCRIPT", script)
		}
		if r := a.runs(argv...); r.Status != 0 {
			t.Fatalf("%s: %+v", name, r)
		}
		if text := said(); !strings.Contains(text, "status 4") || !strings.Contains(text, "started by an agent") {
			t.Errorf("%s: %s", name, text)
		}
	}
	s.wantActed(0)
}

func TestAServiceThatAnAgentHasStartedIsRefusedOrShown(t *testing.T) {
	if !machine(t) {
		return
	}
	s := prepare(t)
	s.manager()
	if out, status := s.startUnit(); status != 0 {
		t.Fatal(out)
	}
	s.furnish()
	a := s.agentWithGroup()
	id := a.pay("1")
	card := s.card().Card
	for name, more := range map[string][]string{"now": nil, "later": {"--on-active=0", "--timer-property=AccuracySec=1us"}} {
		pipe, said := s.hear(name)
		argv := append([]string{"/usr/bin/systemd-run", "--user", "--quiet"}, more...)
		if r := a.runs(append(argv, "/bin/sh", s.write(name+".sh", s.approving(card, pipe)))...); r.Status != 0 {
			t.Fatalf("%s: %+v", name, r)
		}
		wantRefused(t, said(), "it was started by systemd-run, as run-r")
	}
	s.wantActed(0)
	// With a name of its own it is a service like any other: the passphrase stands alone, and the person is shown that it came from there.
	pipe, said := s.hear("named")
	if r := a.runs("/usr/bin/systemd-run", "--user", "--quiet", "--unit=backup", "/bin/sh", s.write("named.sh", s.approving(card, pipe))); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	if text := said(); !strings.Contains(text, "status 0") {
		t.Errorf("a service with a name: %s", text)
	}
	a.answer(id)
	if d := s.status().Doubts; d == nil || d.Count != 1 || !strings.Contains(d.LastWhy, "backup.service") {
		t.Errorf("the person is shown %+v", d)
	}
}

// An upstream server is a program of somebody else's. What it leaves behind stays in the daemon's unit.
func TestWhatAnUpstreamServerLeavesInTheDaemonsUnitIsRefused(t *testing.T) {
	if !machine(t) {
		return
	}
	s := prepare(t)
	s.manager()
	if out, status := s.startUnit(); status != 0 {
		t.Fatal(out)
	}
	s.furnish()
	pipe, said := s.hear("left")
	leave := s.write("leave.sh", "setsid --fork /bin/sh "+s.write("left.sh", strings.ReplaceAll(s.approving("", pipe), "approve  --once", "approvals"))+" > /dev/null 2>&1\n")
	_, _ = run(s.command("spctl", "upstream", "add", "leaver", "--", "/bin/sh", leave)) // it is no server, and is started to find out
	_, _ = run(s.command("spctl", "upstream", "tools", "leaver"))
	wantRefused(t, said(), "what an upstream server left behind")
}
