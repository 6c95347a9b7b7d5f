// Package drain asks the kernel how much of what was written to a pipe or socket its reader has not taken yet. It is the only evidence of delivery that a stream gives:
// a write that succeeded has reached a buffer, not a program.
//
// What it can prove: on a unix socket and on a pipe, that the reading process took the bytes; on TCP, that the peer's kernel acknowledged them while the connection stood.
// It cannot prove that the reader understood them. Where the system has no such call, every function says ErrUnsupported and nothing is claimed.
package drain

import "errors"

// ErrUnsupported says that this system cannot tell.
var ErrUnsupported = errors.New("the system cannot tell how much is unread")

// Kind is what lies behind a file descriptor. The zero value is invalid.
type Kind string

// The kinds.
const (
	Pipe   Kind = "pipe"
	Socket Kind = "socket"
	TCP    Kind = "tcp"
)
