// Package index answers questions about executions and runs quickly. It is derived from the journal and is never the truth: it can be deleted at any time, and is rebuilt
// by folding the journal again.
//
// # Promises
//
// Fold makes an event visible to every lookup at once, in memory; Flush writes what was folded to the file in one transaction and is called by a goroutine of the
// daemon's, so that a call never waits for the file. The file is therefore never ahead of the journal, and after a crash the caller folds the entries after Position again.
// Nothing is deleted: a pruned execution stays as its tombstone.
//
// # Authenticity
//
// The file lies where an agent of the same user can write, while the daemon runs and while it does not. Rows hold eight executions each, in the order of their acceptance, or the short form of 128,
// or what summarizes 64 such pages. What finds an execution, its id, its fingerprint or a client's key, is listed in one of 8192 bins of the directory by a hash of it, with the execution's
// ordinal; the digest of every row is listed in one of 2048 more. A table in memory holds the hash of every bin. A lookup compares the bin with the table and the row with its
// bin, so what was changed, removed or set back is noticed at the lookup, absences included, at a cost that depends on one bin and one row. The root, a MAC under a vault key
// over the table, the position, the counts and the list of open executions, is written with every Flush and checked once, by Authenticate at unlock. All hashes are SHA-256 and
// need no key, so that a locked daemon still notices.
//
// An older copy of the whole file, put in place while the daemon is stopped, is authentic; the caller folds the journal from its Position and loses nothing. The caller compares
// Position with the journal's own hash at that number first.
//
// Verified says whether the table in memory is known to be right: after Authenticate, or from Reset on, because then this process has made every row itself. Before,
// nothing that the index answers may be believed: an unverified "dispatched" must not become an event.
//
// # Lock
//
// Lock drops the key. What is folded while locked (denials, late outcomes) is visible as usual and stays in memory until the next unlock; a crash before that loses nothing, since
// the file still stands at its last authenticated position. An index that this process began with Reset before the first unlock has no root to outrun and is written without one.
//
// # Non-promises
//
// A file that a crash, a full disk or a stray write has damaged is noticed and rebuilt. One that was made to harm bbolt may still stop the process: a branch page that is its own child makes bbolt
// recurse until Go ends the program, which cannot be caught, and finding such a page takes reading every branch of the file. Who can write the file can as well kill the
// process; but the file stays, so the remedy is to delete it.
//
// The index believes the entries that it is given: whether the journal tells the truth is the journal's business. Somebody who can write the file can make the
// daemon rebuild it, over and over. File permissions are the caller's: the file is made with 0600.
//
// A search by Text reads every execution that the other fields of the Query choose. Flushing is dearer in a longer journal: a batch rewrites the bins that it touches, and a bin has
// some five bytes for every thousand executions.
//
// The file format is not frozen: another version is rebuilt.
package index

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/execution"
)

// ErrNotAuthentic is wrapped by every error that says that the file is damaged or that somebody else has changed it. The remedy is always Reset and folding the journal from
// its first entry.
var ErrNotAuthentic = errors.New("index does not match what the daemon wrote")

// MAC computes a MAC under the vault's key for the index. The domain separates its uses. It fails when the vault is locked.
type MAC func(domain string, message []byte) ([32]byte, error)

// Config is what Open needs.
type Config struct {
	Path string // required: the file, in a directory that exists
}

// Position is a place in the journal. The zero value stands before the first entry.
type Position struct {
	Segment int        `json:"segment"` // of chain.SegmentName
	Offset  int64      `json:"offset"`  // in bytes
	Seq     uint64     `json:"seq"`
	Hash    chain.Hash `json:"hash"`
}

// Entry is one durable entry of the journal.
type Entry struct {
	Position
	Time    time.Time
	Event   []byte           // the event as it stands in the journal; may be left out for an execution event that comes decoded
	Decoded *execution.Event // optional: the same, when the caller has it decoded; At is taken from Time
	Sealed  bool             // the line carries a sealed payload
	// Evidence marks an entry inside of an accepted break, which has no place in the order: it is folded, and the position stays.
	Evidence bool
	Gap      bool // the numbers between are left out by an operator's acceptance of a broken journal, or are kept as evidence only
}

// Index is safe for concurrent use. Fold has one caller at a time by its nature: entries are folded in the journal's order.
type Index struct {
	path string

	mu  sync.RWMutex // owns what follows, and what a state says it owns. Taken after a store's own locks never, before them always
	s   *state
	mac MAC // nil while locked
}

// Open opens the index, or begins an empty one where there is none or where the file cannot be read at all. It never fails because of what is in the file.
func Open(c Config) (*Index, error) {
	if c.Path == "" {
		return nil, errors.New("opening index: Config.Path is missing")
	}
	ix := &Index{path: c.Path}
	s, err := openState(c.Path)
	if errors.Is(err, ErrNotAuthentic) {
		s, err = freshState(c.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening index %s: %w", c.Path, err)
	}
	ix.s = s
	return ix, nil
}

// Position returns the last entry that was folded. The caller folds on from there.
func (ix *Index) Position() Position {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.s.position
}

// Verified says whether the answers are exactly what was folded up to Position.
func (ix *Index) Verified() bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.s.verified
}

// Authenticate is called at unlock, before or after the tail is folded. It checks the root of the file and keeps the key for the next Flush. Its error
// wraps ErrNotAuthentic when the file is not what a daemon with this key wrote; the caller then calls Reset, folds the whole journal and calls Authenticate again.
func (ix *Index) Authenticate(mac MAC) error {
	if mac == nil {
		return errors.New("authenticating index: no key")
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if !ix.s.verified {
		rooted, err := ix.s.store.rooted(mac)
		if err != nil {
			return fmt.Errorf("authenticating index: %w", err)
		}
		if !rooted {
			return fmt.Errorf("authenticating index %s: %w: its root is wrong or missing", ix.path, ErrNotAuthentic)
		}
	}
	ix.s.verified = true
	ix.mac = mac
	return nil
}

// Lock drops the key.
func (ix *Index) Lock() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.mac = nil
}

// Reset throws the file away and begins an empty index at the zero Position. It does not wait for a Flush under way, which then writes into a file that is gone.
func (ix *Index) Reset() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.s.store.abandon()
	s, err := freshState(ix.path)
	if err != nil {
		return fmt.Errorf("beginning index %s anew: %w", ix.path, err)
	}
	ix.s = s
	return nil
}

// Close flushes and closes. The index must not be used afterwards.
func (ix *Index) Close() error {
	err := ix.Flush()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.mac = nil
	return errors.Join(err, ix.s.store.close())
}
