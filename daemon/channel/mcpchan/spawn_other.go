//go:build !linux

package mcpchan

import "os/exec"

// spawn starts cmd, and sends on ended when it ended.
func spawn(cmd *exec.Cmd, ended chan<- error) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { ended <- cmd.Wait() }()
	return nil
}

func endGroup(cmd *exec.Cmd)  { _ = cmd.Process.Kill() }
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
