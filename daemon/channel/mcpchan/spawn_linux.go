package mcpchan

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawn starts cmd in a process group of its own, and sends on ended when it ended. The kernel kills it if the daemon dies: that signal is bound to the thread that started it (prctl(2),
// PR_SET_PDEATHSIG), so that one thread stays with it.
func spawn(cmd *exec.Cmd, ended chan<- error) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return <-started
}

func endGroup(cmd *exec.Cmd)  { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
