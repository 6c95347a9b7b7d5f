// Command spctl is Singlepass's command line, for the person.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"singlepass.dev/cmd/spctl/internal/cli"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/harden"
)

// version is set by the linker for releases.
var version = "0.1.0-dev"

func main() {
	group, err := harden.SetAside()
	if err != nil {
		_, _ = os.Stderr.WriteString("spctl: " + err.Error() + "\n")
		os.Exit(int(api.ExitFailed))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := cli.Main(ctx, cli.Config{Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Version: version, Group: group})
	stop()
	os.Exit(int(code))
}
