// Package single keeps one tray app a home: the second start raises the first one's window and ends. It also writes the entry that starts the app with the desktop session.
//
// Promises: [Claim] has exactly one holder, across crashes: the claim is a lock that ends with its process (flock(2)). What a second start can say is one word, "raise"; nothing that
// arrives at the socket can do more than show the window.
package single

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// ErrRunning means that another process holds the claim, and has raised its window.
var ErrRunning = errors.New("the tray app is running already; its window was raised")

// Instance is the claim.
type Instance struct {
	listener net.Listener
	lock     *os.File
}

const word = "raise\n"

// Claim claims the folder, which must be private (0700), or raises the window of whoever has it.
func Claim(ctx context.Context, folder string) (*Instance, error) {
	lock, err := acquire(filepath.Join(folder, "tray.lock"))
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(folder, "tray.sock")
	if lock == nil {
		if err := raise(ctx, socket); err != nil {
			return nil, fmt.Errorf("raising the tray app that is running: %w; end it and start again", err)
		}
		return nil, ErrRunning
	}
	// Whoever has the lock is alone: what lies there is left of a crash.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		lock.Close()
		return nil, fmt.Errorf("removing the socket of an earlier tray app: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("listening for a second start: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		l.Close()
		lock.Close()
		return nil, fmt.Errorf("closing the tray's socket to others: %w", err)
	}
	return &Instance{listener: l, lock: lock}, nil
}

// Serve calls raised for every second start, until Close.
func (i *Instance) Serve(raised func()) {
	for {
		c, err := i.listener.Accept()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		line, err := bufio.NewReader(io.LimitReader(c, int64(len(word)))).ReadString('\n')
		if err == nil && line == word {
			raised()
			_, _ = io.WriteString(c, "ok\n")
		}
		_ = c.Close()
	}
}

// Close gives the claim up.
func (i *Instance) Close() {
	_ = i.listener.Close() // removes the socket
	_ = i.lock.Close()
}

func raise(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	if line, err := bufio.NewReader(io.LimitReader(c, 16)).ReadString('\n'); err != nil || line != "ok\n" {
		return fmt.Errorf("it does not answer (%v)", err)
	}
	return nil
}
