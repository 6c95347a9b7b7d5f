package peer

import (
	"time"

	"singlepass.dev/daemon/api"
)

// Assurance says in words how well the agent's program is known. The zero value is invalid.
type Assurance string

// The levels of assurance. This package tells SystemOwned, UserOwned and CannotTell; who remembers programs makes Unchanged or Changed of what is the user's.
const (
	SystemOwned Assurance = "installed by the system and not writable by you"
	UserOwned   Assurance = "yours, and seen for the first time"
	Unchanged   Assurance = "yours, and unchanged since it was first seen"
	Changed     Assurance = "changed since its last session"
	CannotTell  Assurance = "cannot be told"
)

// Process is what the kernel says of one process.
type Process struct {
	PID    int       `json:"pid"`
	PPID   int       `json:"ppid,omitempty"`
	UID    int       `json:"uid"`
	Start  uint64    `json:"start"` // clock ticks after boot, field 22 of /proc/PID/stat
	Boot   string    `json:"boot"`  // /proc/sys/kernel/random/boot_id
	Began  time.Time `json:"began,omitzero"`
	Exe    string    `json:"exe"`
	Digest string    `json:"digest,omitempty"` // sha256:… of the executable
	Script string    `json:"script,omitempty"` // what an interpreter runs

	ScriptDigest string `json:"script_digest,omitempty"` // sha256:… of the script, as it was when the process was first seen

	// Device and Inode say which file the executable is, as the kernel counts.
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`

	// OtherFile says of an ancestor that Exe leads to another file than the one that it runs: that was replaced, or it sees other files than we do.
	OtherFile bool `json:"other_file,omitempty"`
}

// Identity is the agent behind a connection, as the operating system proves it.
type Identity struct {
	Run       string    `json:"run"`   // run_… derived from boot id, pid, start time and executable: the same process is the same run after a restart of the bridge or the daemon
	Actor     string    `json:"actor"` // canonical, without a digest: deb:name, exe:/path, script:/path
	Agent     Process   `json:"agent"`
	Chain     []Process `json:"chain,omitempty"`   // the agent's ancestors, nearest first
	Through   []Process `json:"through,omitempty"` // the bridge and the launchers between it and the agent, nearest to the socket first
	Assurance Assurance `json:"assurance"`
	Package   string    `json:"package,omitempty"`  // what the program was installed as: deb:name, rpm:name, flatpak:id, snap:name, appimage:/path
	Contains  string    `json:"contains,omitempty"` // what the script says it belongs to: npm:name@version, python:name. The user can write that
	Doubts    []string  `json:"doubts,omitempty"`   // in words: what keeps the program from being what its files say
	Changes   []string  `json:"changes,omitempty"`  // in words, with Changed: what is another than in its last session

	// The same for other languages, each at the place of its words. They belong to a process that lives and are not kept.
	DoubtsSaid  []api.Said `json:"-"`
	ChangesSaid []api.Said `json:"-"`
	Via         string     `json:"via"` // bridge, socket, http
	// Check proves again that the process behind this identity is alive and has not become another program. Nil means that it cannot be checked.
	Check func() error `json:"-"`
	// Ended is closed when the process is gone. Nil means that it cannot be watched.
	Ended <-chan struct{} `json:"-"`
}

// DaemonUnit is the unit that the daemon is installed as. Only it, and what it started, is in it.
const DaemonUnit = "singlepass.service"
