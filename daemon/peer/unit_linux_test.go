package peer_test

import (
	"testing"

	"singlepass.dev/daemon/peer"
)

func TestAControlGroupThatWasMadeForOneProgramIsToldFromASharedOne(t *testing.T) {
	user := "/user.slice/user-1000.slice/user@1000.service/"
	for text, want := range map[string]string{
		"0::" + user + "app.slice/app-gnome-claude-4242.scope\n":                                 user + "app.slice/app-gnome-claude-4242.scope",
		"12:pids:/x\n1:name=systemd:/y\n0::" + user + "app.slice/app-org.vte-terminal.service\n": user + "app.slice/app-org.vte-terminal.service",
		"0::" + user + "app.slice/vte-spawn-1f.scope\n":                                          user + "app.slice/vte-spawn-1f.scope",
		"0::/user.slice/user-1000.slice/session-2.scope\n":                                       "", // every program of a login without a desktop environment
		"0::" + user + "app.slice/app-folder\n":                                                  "",
		"0::/\n":                                                                                 "",
		"0::/user.slice/user@1000.service/app.slice/singlepass.service\n":                        "/user.slice/user@1000.service/app.slice/singlepass.service",
		"5:memory:/app-x.scope\n":                                                                "",
		"":                                                                                       "",
	} {
		if got := peer.UnitOf(text); got != want {
			t.Errorf("%q is in %q, want %q", text, got, want)
		}
	}
}

func TestAnOrphanIsItsOwnRoot(t *testing.T) {
	for _, c := range []struct {
		lineage []peer.Process
		want    int
	}{
		{[]peer.Process{{PID: 30}, {PID: 20}, {PID: 10}, {PID: 1}}, 10},
		{[]peer.Process{{PID: 30}, {PID: 1}}, 30},
		{[]peer.Process{{PID: 30}}, 30},
	} {
		if got := peer.Root(c.lineage); got.PID != c.want {
			t.Errorf("the root of %v is %d", c.lineage, got.PID)
		}
	}
}
