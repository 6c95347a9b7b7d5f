//go:build !linux

package peer

// Login is a login by SSH.
type Login struct {
	Here    bool
	Clients []Process
	Hidden  bool
	Others  bool
}

// Seat says where a process stands among sessions and terminals.
type Seat struct{ Session, Terminal int }

// Terminals is who has which terminals open.
type Terminals struct{}

// Unattended says by what a process was started.
func Unattended([]Process) (string, error) { return "", cannot() }

// ServedBy names the service that a process runs in.
func ServedBy([]Process) (string, error) { return "", cannot() }

// ThroughSSH says how a process came here.
func (id *Identifier) ThroughSSH([]Process) (*Login, error) { return nil, cannot() }

// SeatOf reads the seat of a process.
func SeatOf(int) (Seat, error) { return Seat{}, cannot() }

// ReadTerminals looks at every process of our user.
func ReadTerminals() (*Terminals, error) { return nil, cannot() }

// Holders returns who has the other end of a terminal.
func (t *Terminals) Holders(int) []Process { return nil }

// Behind returns the terminals that a holder stands in.
func (t *Terminals) Behind(int) []int { return nil }
