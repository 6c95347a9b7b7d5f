package peer

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrCannotTell says that this system, or this process, does not let itself be identified.
var ErrCannotTell = errors.New("cannot be told who is on the other end")

// The ways of a peer to the daemon, as Identity.Via says them.
const (
	ViaBridge = "bridge"
	ViaSocket = "socket"
	ViaHTTP   = "http"
)

// Config says what an Identifier needs.
type Config struct {
	Bridge string // optional; path of the installed spctl. Without it no peer is a bridge
	Dpkg   string // optional; folder of dpkg's file lists, /var/lib/dpkg/info by default
	Rpm    string // optional; the rpm program, /usr/bin/rpm by default; asked only where nobody but root can change it
	Snap   string // optional; folder of the snaps' mounts, /snap by default

	Sessions string // optional; where the login manager writes down who logged in, /run/systemd/sessions by default

	// Flatpak holds the folders of Flatpak's installations; by default the system's and the user's.
	Flatpak []string // optional
}

func (c *Config) complete() {
	c.Dpkg = cmp.Or(c.Dpkg, "/var/lib/dpkg/info")
	c.Rpm = cmp.Or(c.Rpm, "/usr/bin/rpm")
	c.Snap = cmp.Or(c.Snap, "/snap")
	c.Sessions = cmp.Or(c.Sessions, "/run/systemd/sessions")
	if c.Flatpak == nil {
		c.Flatpak = []string{"/var/lib/flatpak"}
		if dir, err := os.UserHomeDir(); err == nil {
			c.Flatpak = append(c.Flatpak, filepath.Join(dir, ".local/share/flatpak"))
		}
	}
}

// Identifier identifies peers. All methods are safe for concurrent use.
type Identifier struct {
	cfg Config
	state
}

// New makes an Identifier.
func New(cfg Config) (*Identifier, error) {
	if cfg.Bridge != "" && !filepath.IsAbs(cfg.Bridge) {
		return nil, fmt.Errorf("making an identifier: the bridge's path %q must be absolute", cfg.Bridge)
	}
	cfg.complete()
	return &Identifier{cfg: cfg, state: newState(cfg)}, nil
}

// RunID names the run of a process: the same while it lives and runs the same executable, whoever asks and whenever. It is the first 128 bits of SHA-256 over boot id, pid,
// start time and executable, in base32.
func RunID(p Process) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "singlepass run v1\n%s\n%d\n%d\n%d\n%d\n", p.Boot, p.PID, p.Start, p.Device, p.Inode))
	return "run_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
