// Package journal is the append-only record of everything that matters: who asked, what was approved,
// what was sent and what came back. It is the source of truth; every index is derived from it. It knows
// no policy: events are opaque JSON, payloads are opaque sealed bytes.
//
// # Promises
//
//   - An entry whose Commit ended without error is durable: it is in the file after the process is
//     killed or the machine loses power, as far as the disk keeps what fdatasync promised.
//   - Entries have consecutive numbers in the order of the Append calls. The entries of one Append are
//     contiguous and are written and synced together; after a crash a beginning of them may be there,
//     never a part without what comes before it.
//   - One fdatasync per batch; the next batch forms while the last one syncs. There is no timer on that
//     path. Append never waits for the disk.
//   - Every entry names the hash of the one before (package chain). Open checks what it builds on, cuts
//     only what chain.Torn allows, records that in a tail_cut entry, and otherwise goes into quarantine:
//     nothing is written or cut until AcceptQuarantine.
//   - After a failed write or sync it is not known what is on the disk, so the writer stops, every waiting
//     Commit ends with ErrStopped, and nothing is written until Resume.
//
// # Not promised
//
// The journal does not authenticate itself: who can write the files can write another consistent chain,
// which only a head or checkpoint kept elsewhere tells apart (package audit). An entry whose Commit ended
// with ErrStopped may or may not be there after a crash. Time in entries is the caller's clock and may
// go back.
//
// # Files (frozen)
//
// Segments are journal-000001.jsonl, journal-000002.jsonl and so on, mode 0600 in a directory of mode
// 0700, in the format of package chain. The first entry of a segment is segment_opened or
// quarantine_accepted and names the segment before it. Space is written with zeros ahead of use; zeros
// behind the last line are not part of the content. A file ending in .tmp is a segment that was being
// made and holds no entry.
package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"singlepass.dev/daemon/chain"
)

// Config says where and how to keep a journal.
type Config struct {
	Dir string           // required; made with mode 0700 if it is not there, refused if it is laxer
	Now func() time.Time // required; the time in entries

	SegmentSize int64         // optional, bytes; a new segment is begun before this is exceeded; default 64 MiB
	Reserve     int64         // optional, bytes kept for entries with Outcome when the disk is full; default 1 MiB
	LazyDelay   time.Duration // optional; the longest that a lazy entry waits for company; default 1 s
	Trusted     *Position     // optional; an entry that the caller knows to be there; only what follows is checked
	FS          FS            // optional; default OS
	Logger      *slog.Logger  // optional; default discards

	// OnDurable, optional, gets every entry in order once it is durable and before its Commit is done,
	// with those that the journal writes by itself, except what Open itself writes. It is called by whoever
	// writes, one call at a time. It must be quick, must not call the journal and must not keep the slice
	// or its lines.
	OnDurable func([]Durable)
}

// Position names an entry by its number and hash, and where its line begins. The zero value stands
// before the first entry.
type Position struct {
	Segment int        `json:"segment"` // of chain.SegmentName
	Offset  int64      `json:"offset"`  // in bytes
	Seq     uint64     `json:"seq"`
	Hash    chain.Hash `json:"hash"`
}

// Durable is an entry that is in the file.
type Durable struct {
	Position
	Line []byte // without its line break; see chain.Split; valid during the call only
	// Evidence is set by Read for an entry inside of an accepted break: its own hash is right, but not
	// its place in the chain. Take it as a reason for care, never as a permission.
	Evidence bool
	// Time, as it stands in the entry, and Note come with an entry that was appended and not read; the journal's own
	// entries have neither.
	Time time.Time
	Note any
}

// Errors that a caller can act on.
var (
	ErrInUse      = errors.New("journal is in use by another process: stop it first")
	ErrClosed     = errors.New("journal is closed")
	ErrStopped    = errors.New("journal stopped after a failed write; the outcome of that write is unknown")
	ErrFull       = errors.New("journal cannot grow: free some disk space")
	ErrTooLarge   = errors.New("entries are too large for one append")
	ErrQuarantine = errors.New("journal does not verify and is in quarantine: see spctl audit verify, then spctl audit accept --reason")
)

// Journal is an open journal. All methods may be called concurrently.
type Journal struct {
	cfg  Config
	fs   FS
	log  *slog.Logger
	lock *os.File

	// Whoever set busy owns these: the writer's goroutine, Resume, AcceptQuarantine.
	file    File
	spare   batch
	started bool // Open is done

	company atomic.Bool // the last batch was of more than one Append

	mu   sync.Mutex // guards all below
	work sync.Cond  // told of work, and of busy becoming false

	forming  batch
	waiting  []pending // did not fit; no one may pass them
	segment  int
	end      int64      // where the forming batch will end
	opened   int64      // where the segment's first entry ends
	alloc    int64      // bytes of the segment that are allocated
	seq      uint64     // of the last entry that was encoded
	head     chain.Hash // its hash
	durable  Position   // the last durable entry
	synced   int64      // where it ends
	flush    bool       // write lazy entries now
	lazy     *time.Timer
	busy     bool // somebody uses what the writer owns
	takers   int  // who waits for that to end
	closing  bool
	closed   bool
	stopped  *failure
	quarant  *Quarantine
	finished chan struct{}
}

// Open opens the journal in cfg.Dir, or begins one there. The Recovery says what was found; it is not nil
// unless there is an error. The caller looks at Recovery.Quarantine.
func Open(cfg Config) (*Journal, *Recovery, error) {
	if cfg.Dir == "" || cfg.Now == nil {
		return nil, nil, errors.New("opening journal: Config needs Dir and Now")
	}
	if cfg.SegmentSize == 0 {
		cfg.SegmentSize = 64 << 20
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = 1 << 20
	}
	if cfg.LazyDelay == 0 {
		cfg.LazyDelay = time.Second
	}
	if cfg.FS == nil {
		cfg.FS = OS{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.SegmentSize < 0 || cfg.Reserve < 0 || cfg.LazyDelay < 0 {
		return nil, nil, errors.New("opening journal: SegmentSize, Reserve and LazyDelay must not be negative")
	}
	if err := prepareDir(cfg.Dir); err != nil {
		return nil, nil, fmt.Errorf("opening journal: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("opening journal %s: %w", cfg.Dir, err)
	}
	j := &Journal{cfg: cfg, fs: cfg.FS, log: cfg.Logger, lock: lock, finished: make(chan struct{})}
	j.work.L = &j.mu
	recovery, err := j.recover()
	if err != nil {
		if j.file != nil {
			j.file.Close()
		}
		lock.Close()
		return nil, nil, fmt.Errorf("opening journal %s: %w", cfg.Dir, err)
	}
	j.started = true
	go j.run()
	return j, recovery, nil
}

func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if checkModes && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("directory %s has mode %#o: run chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// Head is the last durable entry.
func (j *Journal) Head() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable
}

// Status is nil while Append takes ordinary entries, and else says why not: it wraps ErrClosed,
// ErrStopped or ErrQuarantine.
func (j *Journal) Status() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.refusalLocked()
}

func (j *Journal) refusalLocked() error {
	switch {
	case j.closing:
		return ErrClosed
	case j.quarant != nil:
		return ErrQuarantine
	case j.stopped != nil:
		return j.stopped
	}
	return nil
}

// Close writes what is waiting, lazy entries too, cuts the unused space off and gives the journal free.
// After a failed write it leaves the file as it is; Open mends it.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	j.closing, j.closed = true, true
	j.work.Broadcast()
	j.mu.Unlock()
	<-j.finished
	var err error
	if j.file != nil {
		if j.stopped == nil && j.quarant == nil {
			err = j.trim(j.file, j.synced)
		}
		err = errors.Join(err, j.file.Close())
	}
	if err = errors.Join(err, j.lock.Close()); err != nil {
		return fmt.Errorf("closing journal: %w", err)
	}
	return nil
}

// trim ends a segment's file where its content ends.
func (j *Journal) trim(f File, end int64) error {
	if err := f.Truncate(end); err != nil {
		return err
	}
	return f.Datasync()
}

func (j *Journal) path(segment int) string {
	return filepath.Join(j.cfg.Dir, chain.SegmentName(segment))
}
