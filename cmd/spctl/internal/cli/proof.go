package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/home"
	"singlepass.dev/daemon/visible"
	"singlepass.dev/vault/secret"
)

// maxSecret bounds a passphrase or a credential's value that is read.
const maxSecret = 64 << 10

// prove is the client's Proof: the passphrase from a file that was named, or from the terminal.
func (a *app) prove(ctx context.Context) (string, *secret.Bytes, error) {
	value, err := a.passphrase(ctx, "Passphrase: ")
	return "Passphrase", value, err
}

func (a *app) passphrase(ctx context.Context, prompt string) (*secret.Bytes, error) {
	if err := closeToOthers(); err != nil {
		return nil, err
	}
	file := a.passphraseFile
	if file == "" {
		file = a.cfg.Getenv("SINGLEPASS_PASSPHRASE_FILE")
	}
	if file != "" {
		return readSecret(file)
	}
	return a.readTerminal(ctx, prompt)
}

// fromFile says that no person is there to be asked twice.
func (a *app) fromFile() bool {
	return a.passphraseFile != "" || a.cfg.Getenv("SINGLEPASS_PASSPHRASE_FILE") != ""
}

// readSecret reads a private file, less one line break at its end.
func readSecret(file string) (*secret.Bytes, error) {
	b, err := home.ReadPrivate(file, maxSecret)
	if err != nil {
		return nil, err
	}
	return trimmed(b)
}

func trimmed(b []byte) (*secret.Bytes, error) {
	b = bytes.TrimSuffix(b, []byte("\n"))
	b = bytes.TrimSuffix(b, []byte("\r"))
	if len(b) == 0 {
		return nil, usage("the secret is empty")
	}
	return secret.New(b), nil
}

// readStdin reads a secret from standard input.
func (a *app) readStdin() (*secret.Bytes, error) {
	if f, ok := a.cfg.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return nil, usage("standard input is the terminal, which would show the secret").WithHint("leave --value-stdin out and it is asked for with echo off")
	}
	b, err := io.ReadAll(io.LimitReader(a.cfg.In, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	if len(b) > maxSecret {
		clear(b)
		return nil, usage("the secret has more than %d bytes", maxSecret)
	}
	return trimmed(b)
}

func noTerminal() *api.Error {
	return api.Errorf(api.CodeProofNeeded, "the passphrase is needed, and there is no terminal to ask at").WithHint("--passphrase-file FILE, or SINGLEPASS_PASSPHRASE_FILE")
}

// readTerminal asks on /dev/tty with echo off, whatever stdin and stdout are. An interrupt gives the terminal its echo back.
func (a *app) readTerminal(ctx context.Context, prompt string) (*secret.Bytes, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, noTerminal()
	}
	defer func() { _ = tty.Close() }()
	fd := int(tty.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, noTerminal()
	}
	fmt.Fprint(tty, prompt)
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		b, err := term.ReadPassword(fd)
		done <- read{b, err}
	}()
	select {
	case <-ctx.Done():
		_ = term.Restore(fd, before)
		fmt.Fprintln(tty)
		return nil, ctx.Err()
	case r := <-done:
		fmt.Fprintln(tty)
		if r.err != nil {
			return nil, fmt.Errorf("reading from the terminal: %w", r.err)
		}
		if len(r.b) == 0 {
			return nil, api.Errorf(api.CodeProofNeeded, "nothing was entered")
		}
		return secret.New(r.b), nil
	}
}

// newPassphrase asks twice at the terminal, or reads the file that was named.
func (a *app) newPassphrase(ctx context.Context, file, prompt string) (*secret.Bytes, error) {
	if file != "" {
		return readSecret(file)
	}
	first, err := a.readTerminal(ctx, prompt)
	if err != nil {
		return nil, err
	}
	second, err := a.readTerminal(ctx, "The same again: ")
	if err != nil {
		first.Wipe()
		return nil, err
	}
	defer second.Wipe()
	if !first.Equal(second) {
		first.Wipe()
		return nil, usage("the two are not the same; nothing was changed")
	}
	return first, nil
}

// exposed calls f with a copy of the secret for a request, and wipes the copy.
func exposed(s *secret.Bytes, f func(b []byte) error) error {
	var b []byte
	if err := s.Use(func(v []byte) error { b = bytes.Clone(v); return nil }); err != nil {
		return err
	}
	defer clear(b)
	return f(b)
}

// errNoAnswer means that the person did not say yes.
var errNoAnswer = errors.New("not done: it was not confirmed")

// confirm asks a question on the terminal; only y or yes is one.
func (a *app) confirm(question string) error {
	answer, err := a.choose(question + " [y/N] ")
	if err != nil {
		return err
	}
	if answer != "y" && answer != "yes" {
		return errNoAnswer
	}
	return nil
}

// choose reads one line from the terminal, in lower case.
func (a *app) choose(question string) (string, error) {
	line, err := a.askLine(question)
	return strings.ToLower(line), err
}

// askLine reads one line from the terminal.
func (a *app) askLine(question string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", usage("this has to be confirmed, and there is no terminal to ask at").WithHint("say it on the command line; see --help")
	}
	defer func() { _ = tty.Close() }()
	fmt.Fprint(tty, visible.Text(question))
	line, err := bufio.NewReader(io.LimitReader(tty, 4096)).ReadString('\n')
	if err != nil {
		return "", errNoAnswer
	}
	return strings.TrimSpace(line), nil
}
