package index

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

var (
	bucketRows  = []byte("rows")
	bucketBins  = []byte("bins")
	bucketTable = []byte("table")
	bucketHead  = []byte("head")
	keyMeta     = []byte("meta")
	keyRoot     = []byte("root")
)

// generation is the table that belongs to one committed transaction of the file.
type generation struct {
	txid  int
	table *table
}

// store is the file: rows that are checked against bins, and bins that are checked against the table in memory.
//
// A page of the file that was tampered with can make bbolt panic or fault, and can leave its locks held. Every use of bbolt therefore happens inside guard, and a store that failed
// once is broken for good: its owner opens another.
type store struct {
	path string
	db   *bbolt.DB
	salt [16]byte
	meta []byte // as read by openStore
	root []byte // as read by openStore

	broken atomic.Bool
	// begin serializes the start of transactions and whole reads, so that nobody waits inside bbolt for a lock that a failed reader left behind.
	begin sync.Mutex
	// held is the read transaction that lookups share between two commits: beginning one costs as much as a lookup. A commit may have to wait for all readers, so nothing is held
	// while committing. All four belong to begin.
	held       *view
	committing bool
	bin, value []byte // what was read last
	// write is held for one commit; it is taken before begin.
	write sync.Mutex

	generations atomic.Pointer[[2]*generation] // the committed one, and the one that is being committed, or whose commit failed, or nil
}

func options() *bbolt.Options {
	return &bbolt.Options{
		Timeout:      2 * time.Second, // an owner that is not gone yet; zero would wait for ever
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true,
		PageSize:     16384, // a write for every four kibibytes costs more than the bytes
		// Address space, not memory: remapping a file that has outgrown its map waits for readers and makes them wait.
		InitialMmapSize: 256 << 20,
	}
}

// guard runs f and turns what bbolt does on a damaged file, a panic or a fault on its mapped pages, into ErrNotAuthentic.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: reading it failed: %v", ErrNotAuthentic, r)
		}
	}()
	return f()
}

// createStore makes an empty file in the place of whatever is there.
func createStore(path string) (*store, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := &store{path: path}
	if _, err := rand.Read(s.salt[:]); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, options())
	if err != nil {
		return nil, err
	}
	s.db = db
	g := &generation{table: new(table)}
	err = db.Update(func(tx *bbolt.Tx) error {
		g.txid = tx.ID()
		for _, name := range [][]byte{bucketRows, bucketBins, bucketTable, bucketHead} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	s.generations.Store(&[2]*generation{g, nil})
	return s, nil
}

// openStore reads the table of an existing file. An error that wraps ErrNotAuthentic says that the file is of no use.
func openStore(path string) (*store, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no file", ErrNotAuthentic)
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is not a regular file", ErrNotAuthentic)
	}
	s := &store{path: path}
	g := &generation{table: new(table)}
	err = guard(func() error {
		var err error
		if s.db, err = bbolt.Open(path, 0o600, options()); err != nil {
			return err
		}
		return s.db.View(func(tx *bbolt.Tx) error {
			g.txid = tx.ID()
			rows, bins, tab, head := tx.Bucket(bucketRows), tx.Bucket(bucketBins), tx.Bucket(bucketTable), tx.Bucket(bucketHead)
			if rows == nil || bins == nil || tab == nil || head == nil {
				return fmt.Errorf("%w: a bucket is missing", ErrNotAuthentic)
			}
			s.meta, s.root = bytes.Clone(head.Get(keyMeta)), bytes.Clone(head.Get(keyRoot))
			if s.meta == nil {
				return fmt.Errorf("%w: it was never flushed", ErrNotAuthentic)
			}
			for i := range chunks {
				chunk := tab.Get(chunkKey(i))
				if chunk == nil {
					continue
				}
				if len(chunk) != perChunk*sha256.Size {
					return fmt.Errorf("%w: its table is malformed", ErrNotAuthentic)
				}
				for j := range perChunk {
					copy(g.table[i*perChunk+j][:], chunk[j*sha256.Size:])
				}
			}
			return nil
		})
	})
	if err != nil {
		s.abandon()
		if errors.Is(err, bolterrors.ErrTimeout) {
			return nil, errors.New("another process has it open")
		}
		if !errors.Is(err, ErrNotAuthentic) && !errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: %w", ErrNotAuthentic, err)
		}
		return nil, err
	}
	s.generations.Store(&[2]*generation{g, nil})
	return s, nil
}

// view is one consistent look at the file. It believes nothing that the table does not vouch for.
type view struct {
	s          *store
	generation *generation
	tx         *bbolt.Tx
	rows, bins *bbolt.Bucket
}

// view runs f, which must not keep anything that lies in the file.
func (s *store) view(f func(*view) error) error {
	s.begin.Lock()
	defer s.begin.Unlock()
	if s.broken.Load() {
		return fmt.Errorf("reading index: %w: it failed before", ErrNotAuthentic)
	}
	err := guard(func() error {
		v := s.held
		if v == nil {
			tx, g, err := s.read()
			if err != nil {
				return err
			}
			v = &view{s, g, tx, tx.Bucket(bucketRows), tx.Bucket(bucketBins)}
			if s.committing {
				defer tx.Rollback() //nolint:errcheck // a read transaction
			} else {
				s.held = v
			}
		}
		return f(v)
	})
	if err != nil {
		s.broken.Store(true)
		return fmt.Errorf("reading index: %w", err)
	}
	return nil
}

// letGo ends the read transaction that is kept open. It is called with begin held.
func (s *store) letGo() {
	if s.held != nil {
		_ = s.held.tx.Rollback()
		s.held = nil
	}
}

// read begins a read transaction and finds the table that belongs to it. A commit may come between the two, so it looks again.
func (s *store) read() (*bbolt.Tx, *generation, error) {
	for range 4 {
		tx, err := s.db.Begin(false)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrNotAuthentic, err)
		}
		for _, g := range s.generations.Load() {
			if g != nil && g.txid == tx.ID() {
				return tx, g, nil
			}
		}
		if err := tx.Rollback(); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%w: somebody else has written it", ErrNotAuthentic)
}

func (s *store) close() error {
	if s.broken.Swap(true) {
		s.abandon()
		return nil
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.begin.Lock()
	defer s.begin.Unlock()
	return guard(func() error {
		s.letGo()
		return s.db.Close()
	})
}

// abandon lets go of the file without waiting for it: a panic may have left bbolt's locks held, and then closing never returns.
func (s *store) abandon() {
	s.broken.Store(true)
	if s.db != nil {
		go func() {
			s.begin.Lock()
			defer s.begin.Unlock()
			_ = guard(func() error {
				s.letGo()
				return s.db.Close()
			})
		}()
	}
}
