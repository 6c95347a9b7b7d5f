package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"singlepass.dev/approval"
	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/client"
	"singlepass.dev/daemon/control/controltest"
	"singlepass.dev/daemon/home"
	"singlepass.dev/vault/secret"
)

const passphrase = "canary-not-a-secret-passphrase"

// self is this test's program: the daemon runs in it, so it is the "installed spd" of these tests.
const self = "/proc/self/exe"

func start(t *testing.T) (*controltest.Daemon, *client.Operator, home.Home) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sp") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h, err := home.Resolve(dir, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	d, err := controltest.New(h, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.Server.Serve(l) }()
	t.Cleanup(func() { _ = d.Shutdown(context.Background()) })
	o := &client.Operator{Socket: h.OperatorSocket(), Daemon: self, Proof: func(context.Context) (string, *secret.Bytes, error) {
		return "Passphrase", secret.New([]byte(passphrase)), nil
	}}
	if _, err := o.Init(t.Context(), api.InitRequest{Passphrase: []byte(passphrase), NoKeyring: true}); err != nil {
		t.Fatal(err)
	}
	return d, o, h
}

func TestTheOperatorSeesAndAnswersACard(t *testing.T) {
	d, o, _ := start(t)
	ctx, now := t.Context(), time.Now()
	d.Ask(controltest.Card("card_1", approval.AskUse, controltest.Accepted(1, now), now))
	events := map[string]string{}
	for e, err := range o.WatchCards(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		events[e.Event] = e.Card.Card
		if e.Event == "answered" {
			break
		}
		if err := o.Answer(ctx, e.Card.Card, api.CardAnswer{Answer: "once"}); err != nil {
			t.Fatal(err)
		}
	}
	if events["waiting"] != "card_1" || events["answered"] != "card_1" {
		t.Errorf("events: %v", events)
	}
	list, err := o.Activity(ctx, client.Query{State: "authorized", Since: now.Add(-time.Minute), Limit: 5})
	if err != nil || len(list) != 1 || list[0].AuthorizedBy != "operator" {
		t.Errorf("activity: %+v, %v", list, err)
	}
	if err := o.Answer(ctx, "card_1", api.CardAnswer{Answer: "once"}); !errors.Is(err, &api.Error{Code: api.CodeMissing}) {
		t.Errorf("answering twice: %v", err)
	}
}

func TestAStreamEndsWithTheLockAndSaysSo(t *testing.T) {
	d, o, _ := start(t)
	d.Put(controltest.Unknown(1, time.Now()))
	var last error
	for _, err := range o.WatchActivity(t.Context(), client.Query{}) {
		if err != nil {
			last = err
			break
		}
		// The first record says that the stream runs.
		if _, err := o.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var e *api.Error
	if !errors.As(last, &e) {
		t.Errorf("the stream ended with %v", last)
	}
}

func TestNoProofGoesToAStranger(t *testing.T) {
	_, o, h := start(t)
	asked := false
	for name, spoil := range map[string]func(t *testing.T, o *client.Operator){
		"another program":  func(_ *testing.T, o *client.Operator) { o.Daemon = "/bin/sh" },
		"no installed spd": func(_ *testing.T, o *client.Operator) { o.Daemon = filepath.Join(t.TempDir(), "spd") },
		"open folder": func(t *testing.T, o *client.Operator) {
			chmod(t, h.Run, 0o755)
			t.Cleanup(func() { chmod(t, h.Run, 0o700) })
		},
		"symlinked socket": func(t *testing.T, o *client.Operator) {
			o.Socket = filepath.Join(h.Run, "link.sock")
			if err := os.Symlink(h.OperatorSocket(), o.Socket); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &client.Operator{Socket: o.Socket, Daemon: self, Proof: func(context.Context) (string, *secret.Bytes, error) {
				asked = true
				return "Passphrase", secret.New([]byte(passphrase)), nil
			}}
			spoil(t, s)
			if _, err := s.Cards(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeStranger}) {
				t.Errorf("got %v", err)
			}
			if asked {
				t.Error("the person was asked for the passphrase")
			}
		})
	}
}

func TestADaemonThatIsNotThereIsNamed(t *testing.T) {
	dir := t.TempDir()
	chmod(t, dir, 0o700)
	o := &client.Operator{Socket: filepath.Join(dir, "none.sock"), Daemon: self}
	if _, err := o.Status(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeNoDaemon}) {
		t.Errorf("no socket: %v", err)
	}
	// A socket whose process is gone.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.Socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	chmod(t, o.Socket, 0o600)
	if _, err := o.Status(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeNoDaemon}) {
		t.Errorf("dead socket: %v", err)
	}
}

func TestWithoutAProofOnlyWhatNeedsNoneWorks(t *testing.T) {
	_, o, _ := start(t)
	o = &client.Operator{Socket: o.Socket, Daemon: self}
	if _, err := o.Status(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := o.Cards(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeProofNeeded}) {
		t.Errorf("got %v", err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
