// Package peer says who is on the other end of a socket, from what the kernel proves and never from what the peer claims.
//
// On Linux it promises: the process of an Identity belonged to our user and was alive after everything about it was read, so that no fact belongs to another process that got
// the same pid; Check fails once that process is gone or has become another program; Ended is closed when it is gone. A peer is the process that called connect: a socket that
// it hands on keeps its name. Behind the bridge (the installed spctl, invoked as mcp) the agent is the bridge's parent, past launchers like `sh -c` and npx.
//
// Hold binds something to one live process, which an exec or a tracer ends. OneSpeaker makes a listener whose connections take bytes from nobody but the process that connected.
//
// It does not promise what an agent's program is worth: a debugger or a writable executable can make any process say anything, which Assurance says in words. What an
// interpreter runs is read from its command line, which the process can write over; the first word about a run is kept while the daemon lives, so that it does not change under way.
// A process that made itself unreadable (PR_SET_DUMPABLE) cannot be told, and is refused.
//
// On other systems it says honestly that it cannot tell: every function returns ErrCannotTell.
//
// Frozen: the derivation of RunID and the forms of the actor (deb:name, script:/path, exe:/path), because journals keep both.
package peer
