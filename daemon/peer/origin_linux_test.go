package peer_test

import (
	"os"
	"os/exec"
	"testing"

	"singlepass.dev/daemon/peer"
)

func TestAGroupWhereNoPersonSitsIsTold(t *testing.T) {
	user := "/user.slice/user-1000.slice/user@1000.service/app.slice/"
	for group, want := range map[string]string{
		"/system.slice/atd.service":                            "atd",
		"/system.slice/cron.service":                           "cron",
		"/system.slice/cron.service/left":                      "cron",
		"/machine.slice/c.scope/system.slice/crond.service":    "crond",
		"/system.slice/ssh.service":                            "",
		"/system.slice/code-server.service":                    "",
		user + "run-u42.service":                               "systemd-run, as run-u42.service",
		user + "run-r49c28bcf1bb14c60aba8c7bdea2cbebd.service": "systemd-run, as run-r49c28bcf1bb14c60aba8c7bdea2cbebd.service",
		user + "run-p812-i9.service":                           "systemd-run, as run-p812-i9.service",
		user + "run-u42.scope":                                 "", // its caller is its parent
		user + "run-of-the-mill.service":                       "",
		user + "app-org.kde.konsole@3f.service":                "",
		user + "cron.service":                                  "", // anybody can call a unit of the user's that
		"/user.slice/user-1000.slice/session-2.scope":          "",
		"/": "",
		"":  "",
		"/user.slice/user-1000.slice/user@1000.service/tmux.slice/cron": "",
	} {
		if got := peer.UnattendedGroup(group); got != want {
			t.Errorf("%s: %q, want %q", group, got, want)
		}
	}
}

func TestOnlyTheLoginManagersGroupsAreLogins(t *testing.T) {
	for group, want := range map[string]string{
		"/user.slice/user-1000.slice/session-7.scope":                                "7",
		"/user.slice/user-1000.slice/session-c2.scope/left":                          "c2",
		"/user.slice/user-0.slice/session-3.scope":                                   "3", // su, after a login as another user
		"/user.slice/user-1000.slice/user@1000.service/app.slice/session-7.scope":    "",
		"/user.slice/user-1000.slice/user@1000.service/user.slice/session-7.scope":   "",
		"/a/user.slice/user-1000.slice/session-7.scope":                              "",
		"/user.slice/user-1000.slice/session-...scope":                               "",
		"/user.slice/user-1000.slice/session-../../../etc/x.scope":                   "",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/session-7.scope/..": "",
		"/": "",
	} {
		if got := peer.SessionOf(group); got != want {
			t.Errorf("%s: %q, want %q", group, got, want)
		}
	}
}

func TestWhatTheLoginManagerWroteIsRead(t *testing.T) {
	for text, want := range map[string]struct {
		ssh  bool
		from string
	}{
		"UID=1000\nREMOTE=1\nREMOTE_HOST=203.0.113.7\nSERVICE=sshd\n": {true, "203.0.113.7"},
		"SERVICE=sshd\nREMOTE_HOST=\"::1\"\n":                         {true, "::1"},
		"REMOTE=0\nSERVICE=gdm-password\n":                            {false, ""},
		"SERVICE=sshd\nREMOTE=1\n":                                    {true, ""},
		"":                                                            {false, ""},
	} {
		if ssh, from := peer.SSHLogin(text); ssh != want.ssh || from != want.from {
			t.Errorf("%q: %t, %q", text, ssh, from)
		}
	}
}

func TestTheSeatOfAProcessIsReadAsTheKernelHasIt(t *testing.T) {
	for device, want := range map[uint32]int{0: -1, 136 << 8: 0, 136<<8 | 7: 7, 1<<20 | 136<<8 | 2: 258, 4<<8 | 1: -1, 137 << 8: -1} {
		if got := peer.TerminalOf(device); got != want {
			t.Errorf("%#x is terminal %d, want %d", device, got, want)
		}
	}
	child := exec.Command("/bin/sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	own, err := peer.SeatOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if childs, err := peer.SeatOf(child.Process.Pid); err != nil || childs != own {
		t.Errorf("a child sits at %+v (%v), its parent at %+v", childs, err, own)
	}
}
