// Command spd is the Singlepass daemon: vault, approvals, execution journal, and the MCP face for agents.
//
// It logs to standard error (text at a terminal, JSON otherwise). Standard output stays empty.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/term"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/harden"
	"singlepass.dev/daemon/home"
	"singlepass.dev/daemon/journal"
	"singlepass.dev/daemon/server"
	"singlepass.dev/policy"
	"singlepass.dev/vault"
)

// version is set by the linker for releases.
var version = "0.1.0-dev"

// exitInUse is sysexits.h's EX_TEMPFAIL: another spd serves this home.
const exitInUse = 75

func main() { os.Exit(run()) }

// droppedVariables names what the environment held and spd does not obey; harden.Restart sets it.
const droppedVariables = "SINGLEPASS_DROPPED"

func run() int {
	group, err := closed()
	if err != nil {
		fmt.Fprintln(os.Stderr, "spd:", err)
		return 1
	}
	flags := flag.NewFlagSet("spd", flag.ContinueOnError)
	dir := flags.String("home", "", "keep everything under `DIR` (config/, data/, run/) instead of the XDG directories")
	web := flags.String("mcp-http", "", "also serve MCP over HTTP at a loopback `ADDRESS`, for instance 127.0.0.1:7800")
	show := flags.Bool("version", false, "print the version and exit")
	check := flags.Bool("check-actions", false, "say what is wrong with the contracts that are named, in JSON, and exit; spctl action check shows it to people")
	schema := flags.Bool("action-schema", false, "print the JSON Schema of contracts and exit")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: spd [--home DIR] [--mcp-http 127.0.0.1:PORT]\n\nThe Singlepass daemon. It runs in the foreground and ends on SIGTERM.")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case *check:
		return answer(checkActions(flags.Args(), os.Stdout))
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "spd: unexpected argument %q\nhint: spd --help\n", flags.Arg(0))
		return 2
	case *show:
		fmt.Println("spd", version)
		return 0
	case *schema:
		_, err := os.Stdout.Write(append(bytes.TrimRight(policy.Schema(), "\n"), '\n'))
		return answer(err)
	}
	log := logger()
	if names := os.Getenv(droppedVariables); names != "" {
		log.Warn("the environment would have changed how spd works; it was started again without these", "dropped", names)
	}
	if _, sealed := harden.GroupOf("/proc/self/exe"); sealed && !group.Sealed() {
		log.Warn("spd was installed with a group of its own and was started without it (NoNewPrivileges=, or a file system mounted nosuid): spctl will not trust it")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = serve(ctx, *dir, *web, group, log)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, vault.ErrInUse), errors.Is(err, journal.ErrInUse):
		log.Error("another spd serves this home", "error", err)
		return exitInUse
	}
	log.Error("stopping", "error", err)
	return 1
}

// answer is the exit code of what needs no daemon, in spctl's numbers.
func answer(err error) int {
	if err == nil {
		return int(api.ExitDone)
	}
	fmt.Fprintln(os.Stderr, "spd:", err)
	var place *fs.PathError
	if errors.As(err, &place) {
		return int(api.ExitNotFound)
	}
	return int(api.ExitFailed)
}

// closed does what comes before everything else: no other process may read this one's memory, and the environment decides nothing. Without it the vault's keys would lie open to any
// debugger.
func closed() (*harden.Group, error) {
	group, err := harden.SetAside()
	if err != nil {
		return nil, err
	}
	if err := harden.Close(); err != nil {
		return nil, err
	}
	if err := harden.Restart(droppedVariables); err != nil {
		return nil, err
	}
	return group, harden.Alone()
}

// loaded lets more garbage gather while calls come in crowds. What is in use is small (some MiB), so that Go's usual measure, as much garbage again, collects it every few hundred
// calls, which was an eighth of their processor time. At rest memory counts for more.
func loaded(yes bool) {
	percent := 100
	if yes {
		percent = 300
	}
	debug.SetGCPercent(percent)
}

func serve(ctx context.Context, dir, web string, group *harden.Group, log *slog.Logger) error {
	h, err := home.Resolve(dir, os.Getenv)
	if err != nil {
		return err
	}
	bridge, err := server.Bridge()
	if err != nil {
		return err
	}
	s, err := server.Open(server.Config{Home: h, MCPHTTP: web, Version: version, Bridge: bridge, Logger: log, Settled: trim, Loaded: loaded, Listening: func(listen func() error) error {
		if err := group.With(listen); err != nil {
			return err
		}
		// What is started from here on, such as upstream servers, is not spd.
		if err := group.Drop(); err != nil {
			return err
		}
		return harden.Close() // a change of groups makes a process what the system's default says (prctl(2))
	}})
	if err != nil {
		return err
	}
	ready := []any{"agent_socket", s.AgentSocket(), "operator_socket", s.OperatorSocket(), "version", version}
	if url := s.MCPURL(); url != "" {
		ready = append(ready, "mcp_url", url)
	}
	return s.Serve(ctx, func() {
		log.Info("ready", ready...)
		if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
			log.Warn("telling systemd", "error", err)
		}
	})
}

func logger() *slog.Logger {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, nil))
}
