// Package peer says who is on the other end of a socket, from what the kernel proves and never from what the peer claims.
package peer
