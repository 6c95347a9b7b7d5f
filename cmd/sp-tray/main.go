// Command sp-tray is Singlepass's tray app, for the person.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"fyne.io/fyne/v2"
	"fyne.io/fyne/v2/app"

	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/home"
	"singlepass.dev/ui"
)

// version is set by the linker for releases.
var version = "0.1.0-dev"

func main() { os.Exit(run()) }

func run() int {
	harden()
	flags := flag.NewFlagSet("sp-tray", flag.ContinueOnError)
	dir := flags.String("home", "", "keep everything under `DIR` (config/, data/, run/) instead of the XDG directories")
	show := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "sp-tray: unexpected argument %q\nhint: sp-tray --help\n", flags.Arg(0))
		return 2
	case *show:
		fmt.Println("sp-tray", version)
		return 0
	}
	// Without a display Fyne panics.
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		fmt.Fprintln(os.Stderr, "sp-tray: there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)\nhint: start it in a desktop session; without one use spctl")
		return 1
	}
	if err := serve(*dir); err != nil {
		fmt.Fprintf(os.Stderr, "sp-tray: %v\n", err)
		return 1
	}
	return 0
}

func serve(dir string) error {
	h, err := home.Resolve(dir, os.Getenv)
	if err != nil {
		return err
	}
	operator := &client.Operator{Socket: h.OperatorSocket()}
	a := app.NewWithID("dev.singlepass.tray")
	w := a.NewWindow("Singlepass")
	w.Resize(fyne.NewSize(960, 680))
	f, err := ui.New(ui.Config{Window: w, Daemon: operator})
	if err != nil {
		return err
	}
	go f.Refresh(context.Background())
	w.ShowAndRun()
	return nil
}
