package attack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inMachine is set in the process that runs a test on a machine of its own.
const inMachine = "ATTACK_MACHINE"

// outside makes the control group of that machine (cgroups(7), version 2), and removes it.
const outside = `set -eu
mount --make-rprivate /
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
group=/sys/fs/cgroup/sp-attack-$ATTACK_MACHINE_NAME
mkdir "$group"
status=0
(echo 0 > "$group/cgroup.procs"; exec setpriv --pdeathsig KILL unshare --mount --cgroup --pid --net --ipc --fork --kill-child --mount-proc /bin/sh -c "$ATTACK_MACHINE_BOOT" boot "$@") || status=$?
while ! find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && [ -e "$group" ]; do :; done
exit $status
`

// boot is what happens on that machine first: its own /run, queue of jobs, user database and control groups. What the test leaves running ends with it.
const boot = `set -eu
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/sshd /run/systemd/system
mount -t tmpfs -o mode=755 none /var/spool
mkdir -p /var/spool/cron/atjobs /var/spool/cron/atspool
: > /var/spool/cron/atjobs/.SEQ
chown -R daemon:daemon /var/spool/cron && chmod 1770 /var/spool/cron/at* && chmod 600 /var/spool/cron/atjobs/.SEQ
mount --bind "$ATTACK_MACHINE_DIR/passwd" /etc/passwd
[ ! -e /etc/at.deny ] || mount --bind /dev/null /etc/at.deny
umount /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
export ATTACK_GROUP=/sys/fs/cgroup
mkdir "$ATTACK_GROUP/person" "$ATTACK_GROUP/user"
chown -R 65534:65534 "$ATTACK_GROUP/user"
status=0
(echo 0 > "$ATTACK_GROUP/person/cgroup.procs"; exec "$@") || status=$?
kill -9 -1 2>/dev/null || true
wait
exit $status
`

// machine runs the calling test again on a machine of its own, as root: processes, file systems, network and control groups are new, the kernel and the programs are those of this one. It then
// returns false. There it returns true, and the test does its work.
func machine(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inMachine) == t.Name() {
		if err := raiseLoopback(); err != nil {
			t.Fatalf("raising the loopback network: %v", err)
		}
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make a machine of its own")
	}
	bin, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	// The user may log in there.
	line := regexp.MustCompile(`(?m)^[^:\n]*:[^:\n]*:65534:.*$`)
	if !line.Match(users) {
		t.Fatal("the system knows no user 65534")
	}
	users = line.ReplaceAll(users, []byte("nobody:x:65534:65534:nobody:/:/bin/sh"))
	if err := os.WriteFile(filepath.Join(dir, "passwd"), users, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprint(os.Getpid())
	args := []string{
		"--mount", "/bin/sh", "-c", outside, "outside", self, "-test.run=^" + regexp.QuoteMeta(t.Name()) + "$", "-test.count=1", "-test.v", "-test.timeout=3m",
	}
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), inMachine+"="+t.Name(), "ATTACK_INSTALLED="+bin, "ATTACK_MACHINE_DIR="+dir, "ATTACK_MACHINE_NAME="+name, "ATTACK_MACHINE_BOOT="+boot)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("on a machine of its own: %v\n%s", err, out)
	} else if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a machine of its own it did not run:\n%s", out)
	}
	return false
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// needs ends the test where a program is missing that .ci/setup installs.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("this test needs %s (run: bash .ci/setup): %v", p, err)
		}
	}
}
