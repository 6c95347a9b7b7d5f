package sshchan_test

import (
	"strings"
	"testing"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/sshchan/sshdtest"
	"singlepass.dev/daemon/effect"
)

func TestACommandsEndAndBothOutputsAreTold(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	c := newChannel(t)
	o := c.Do(t.Context(), command(t, s, "echo out; echo err >&2"))
	if o.Verdict != channel.Success || o.Status != 0 || o.Reason != "" {
		t.Fatalf("%+v", o)
	}
	got, text := result(t, o.Result)
	if *got.ExitStatus != 0 || got.Stdout != "out\n" || got.Stderr != "err\n" || text != "exit status 0\n\nout\n\n\nstderr:\nerr\n" {
		t.Errorf("%+v\n%q", got, text)
	}
	o = c.Do(t.Context(), command(t, s, "echo no; exit 3"))
	if o.Verdict != channel.TargetError || o.Status != 3 {
		t.Errorf("%+v", o)
	}
	o = c.Do(t.Context(), command(t, s, "exit 3", func(r *channel.Request) { r.Effect.SSH.Success = []int{3} }))
	if o.Verdict != channel.Success || o.Status != 3 {
		t.Errorf("%+v", o)
	}
	o = c.Do(t.Context(), command(t, s, "kill -9 $$"))
	if got, text := result(t, o.Result); o.Verdict != channel.TargetError || got.Signal != "KILL" || got.ExitStatus != nil || !strings.HasPrefix(text, "killed by signal KILL") {
		t.Errorf("%+v\n%+v", o, got)
	}
}

func TestDirectoryVariablesAndInputReachTheCommand(t *testing.T) {
	t.Parallel()
	s := sshdtest.New(t, sshdtest.Config{})
	c := newChannel(t)
	dir := t.TempDir()
	o := c.Do(t.Context(), command(t, s, `pwd; printf '%s\n' "$GREETING"; cat`, func(r *channel.Request) {
		r.Effect.SSH.Directory = dir
		r.Effect.SSH.Env = []effect.Field{{Name: "GREETING", Value: "it's $(id)\nhere"}}
		r.Effect.SSH.Stdin = []byte("in\x00put")
	}))
	if got, _ := result(t, o.Result); got.Stdout != dir+"\nit's $(id)\nhere\nin\x00put" {
		t.Errorf("%+v\n%q", o, got.Stdout)
	}
	o = c.Do(t.Context(), command(t, s, "echo ran", func(r *channel.Request) { r.Effect.SSH.Directory = dir + "/absent" }))
	if got, _ := result(t, o.Result); o.Verdict != channel.TargetError || o.Status != 125 || got.Stdout != "" {
		t.Errorf("without its directory: %+v %+v", o, got)
	}
}
