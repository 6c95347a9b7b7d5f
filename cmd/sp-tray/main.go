// Command sp-tray is Singlepass's tray app, for the person: the icon in the panel, the notifications, and the window in which calls are answered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"fyne.io/fyne/v2/app"

	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/harden"
	"singlepass.dev/daemon/home"
	"singlepass.dev/ui"
	"singlepass.dev/ui/single"
)

// version is set by the linker for releases.
var version = "0.1.0-dev"

// appID names the app to the desktop and to Fyne's settings.
const appID = "dev.singlepass.tray"

func main() { os.Exit(run()) }

// droppedVariables names what the environment held and sp-tray does not obey; harden.Restart sets it.
const droppedVariables = "SINGLEPASS_DROPPED"

// closed does what comes before everything else: no other process may read what the person types here, nor the ticket, and the environment brings no code of others in.
func closed() error {
	if err := harden.Close(); err != nil {
		return err
	}
	if err := harden.Restart(droppedVariables); err != nil {
		return err
	}
	return harden.Alone()
}

func run() int {
	if err := closed(); err != nil {
		return complain(1, err, "")
	}
	flags := flag.NewFlagSet("sp-tray", flag.ContinueOnError)
	dir := flags.String("home", "", "keep everything under `DIR` (config/, data/, run/) instead of the XDG directories")
	background := flags.Bool("background", false, "start without the window, in the tray alone")
	autostart := flags.String("autostart", "", "`on` or off: start with the desktop session from now on, or not any more; then exit")
	show := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: sp-tray [--home DIR] [--background]\n       sp-tray [--home DIR] --autostart on|off\n\nThe Singlepass tray app. Where it runs already, its window is raised.")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		return complain(2, fmt.Errorf("unexpected argument %q", flags.Arg(0)), "sp-tray --help")
	case *show:
		fmt.Println("sp-tray", version)
		return 0
	case *autostart != "":
		return setAutostart(*autostart, *dir)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	switch err := serve(ctx, *dir, *background); {
	case errors.Is(err, single.ErrRunning):
		fmt.Fprintln(os.Stderr, "sp-tray:", err)
	case errors.Is(err, errNoDisplay):
		return complain(1, err, "start it in a desktop session; without one use spctl approvals, spctl approve and spctl deny")
	case err != nil:
		return complain(1, err, "")
	}
	return 0
}

func complain(code int, err error, hint string) int {
	fmt.Fprintln(os.Stderr, "sp-tray:", err)
	if hint != "" {
		fmt.Fprintln(os.Stderr, "hint:", hint)
	}
	return code
}

// errNoDisplay comes before Fyne's panic.
var errNoDisplay = errors.New("there is no display: neither DISPLAY nor WAYLAND_DISPLAY is set")

func serve(ctx context.Context, dir string, background bool) error {
	h, err := home.Resolve(dir, os.Getenv)
	if err != nil {
		return err
	}
	if err := h.Create(); err != nil {
		return err
	}
	// Raising the window that is there needs no display of our own.
	instance, err := single.Claim(ctx, h.Run)
	if err != nil {
		return err
	}
	defer instance.Close()
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return errNoDisplay
	}
	raised := make(chan struct{}, 1)
	go instance.Serve(func() {
		select {
		case raised <- struct{}{}:
		default: // it is on its way up
		}
	})
	// What is drawn leaves much garbage behind, and a program that stays all day should be small rather than fast at that.
	debug.SetGCPercent(40)
	operator := &client.Operator{Socket: h.OperatorSocket(), Tickets: true}
	defer operator.Close()
	return ui.Run(ctx, ui.DeskConfig{
		App: app.NewWithID(appID), Client: operator, Now: time.Now, Raised: raised, Background: background, Loop: windows{},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

func setAutostart(value, dir string) int {
	if value != "on" && value != "off" {
		return complain(2, fmt.Errorf("--autostart takes on or off, not %q", value), "")
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return complain(1, fmt.Errorf("finding your configuration folder: %w", err), "")
	}
	self, err := os.Executable()
	if err != nil {
		return complain(1, fmt.Errorf("finding this program: %w", err), "")
	}
	if dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return complain(1, fmt.Errorf("resolving home %s: %w", dir, err), "")
		}
	}
	file, err := single.Autostart(config, self, dir, value == "on")
	if err != nil {
		return complain(1, err, "")
	}
	fmt.Printf("%s: %s\n", value, file)
	return 0
}
