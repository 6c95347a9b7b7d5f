package peer

// UnitOf reads the text of /proc/PID/cgroup.
func UnitOf(text string) string { return unitOfGroup(groupOf(text)) }

// UnattendedGroup says by what a control group was made where no person can sit.
var UnattendedGroup = unattended

// SSHLogin reads what the login manager wrote of a session.
var SSHLogin = sshLogin

// TerminalOf reads a device number.
var TerminalOf = terminalOf

// SessionOf names the login whose control group this is.
var SessionOf = sessionOf

// Digest hashes a file that a program may have put there.
func Digest(path string) (string, error) { return new(digests).of(path) }
