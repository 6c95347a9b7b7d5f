package client

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/harden"
)

func stranger(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeStranger, format, args...).WithHint("nothing was sent; find out what listens there (ss -xlp), then restart spd")
}

// checkSocket looks at the socket's file and its folder.
func checkSocket(path string) error {
	if path == "" {
		return api.Errorf(api.CodeUsage, "the path of the operator's socket is missing")
	}
	for _, p := range []struct {
		path string
		want fs.FileMode
		mask fs.FileMode // permission bits that must not be there; a socket is reached through its folder
	}{{filepath.Dir(path), fs.ModeDir, 0o077}, {path, fs.ModeSocket, 0o007}} {
		info, err := os.Lstat(p.path)
		if errors.Is(err, fs.ErrNotExist) {
			return notRunning(path)
		}
		if err != nil {
			return fmt.Errorf("looking at %s: %w", p.path, err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case info.Mode().Type() != p.want:
			return stranger("%s is not what it should be (%s)", p.path, info.Mode())
		case !ok || int(st.Uid) != os.Getuid():
			return stranger("%s does not belong to you", p.path)
		case info.Mode().Perm()&p.mask != 0:
			return stranger("%s is open to others (mode %04o)", p.path, info.Mode().Perm())
		}
	}
	return nil
}

// checkServer looks at the process that listens.
func checkServer(c net.Conn, daemon string) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("looking who listens: not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return fmt.Errorf("looking who listens: %w", err)
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return fmt.Errorf("looking who listens: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("looking who listens: %w", failed)
	}
	if int(cred.Uid) != os.Getuid() {
		return stranger("the process behind the operator's socket (pid %d) belongs to user %d and not to you", cred.Pid, cred.Uid)
	}
	if daemon == "" {
		if daemon, err = Installed(); err != nil {
			return err
		}
	}
	if gid, sealed := harden.GroupOf(daemon); sealed {
		// Only the installed spd can have made a socket under its group. Nothing else has to be seen of the process, and nothing else would say as much.
		if int(cred.Gid) != gid {
			return stranger("the process behind the operator's socket (pid %d) is not the installed %s: it does not have its group %d", cred.Pid, daemon, gid).
				WithHint("nothing was sent. Find out what listens there (ss -xlp). Is it spd, then it was started with NoNewPrivileges=, from a file system mounted nosuid, or by a tracer: start it without")
		}
		return nil
	}
	installed, err := os.Stat(daemon)
	if err != nil {
		return stranger("the installed spd cannot be found at %s, so what listens cannot be compared with it", daemon)
	}
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", cred.Pid))
	if errors.Is(err, fs.ErrPermission) {
		return nil // undumpable: see the package's non-promises
	}
	if err != nil {
		return stranger("the process behind the operator's socket (pid %d) is gone", cred.Pid)
	}
	if !os.SameFile(installed, running) {
		return stranger("the process behind the operator's socket (pid %d) is not the installed %s; it is another program, or spd was replaced since it started", cred.Pid, daemon)
	}
	return nil
}
