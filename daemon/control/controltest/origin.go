package controltest

import (
	"slices"

	"singlepass.dev/daemon/control"
)

// From makes every caller one that came from there.
func (d *Daemon) From(o control.Origin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.origin = o
}

// Doubts returns what was told of callers, in order.
func (d *Daemon) Doubts() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.doubted)
}

func (d *Daemon) originOf(control.Peer) control.Origin {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.origin
}

func (d *Daemon) doubt(_ control.Peer, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doubted = append(d.doubted, why)
}
