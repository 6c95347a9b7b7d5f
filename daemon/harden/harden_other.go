//go:build !linux

package harden

import "errors"

// ErrTraced says that another process sees and steers all that this one does.
var ErrTraced = errors.New("this process is traced")

// Close does nothing where the system has no prctl.
func Close() error { return nil }

// NoCore does nothing here.
func NoCore() error { return nil }

// Alone cannot be told here.
func Alone() error { return nil }

// Restart does nothing here.
func Restart(string) error { return nil }

// Group is the group that this program was installed with: none here.
type Group struct{}

// Sealed says no.
func (*Group) Sealed() bool { return false }

// SetAside returns a Group without one.
func SetAside() (*Group, error) { return &Group{}, nil }

// With calls f.
func (*Group) With(f func() error) error { return f() }

// Drop does nothing.
func (*Group) Drop() error { return nil }

// GroupOf finds none.
func GroupOf(string) (int, bool) { return 0, false }
