package index

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	binCount  = 8192
	perChunk  = 128 // bins whose hashes are stored together, so that a small flush rewrites 4 KiB of the table and not 256
	chunks    = binCount / perChunk
	keyHash   = 16
	entrySize = keyHash + sha256.Size

	rootDomain = "singlepass index root v1"
)

var (
	bucketRows  = []byte("rows")
	bucketBins  = []byte("bins")
	bucketTable = []byte("table")
	bucketHead  = []byte("head")
	keyMeta     = []byte("meta")
	keyRoot     = []byte("root")
)

type table [binCount][sha256.Size]byte

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
	// write is held for one commit; it is taken before begin.
	write sync.Mutex

	generations atomic.Pointer[[2]*generation] // the committed one, and the one that is being committed, or whose commit failed, or nil
}

func options() *bbolt.Options {
	return &bbolt.Options{
		Timeout:      2 * time.Second, // an owner that is not gone yet; zero would wait for ever
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true,
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

func chunkKey(i int) []byte { return []byte{byte(i)} }

// rootOf is the MAC over everything that the file says: the meta names the position, counts and open executions, and the table covers every row.
func rootOf(mac MAC, meta []byte, t *table) ([32]byte, error) {
	h := sha256.New()
	for i := range t {
		h.Write(t[i][:])
	}
	message := h.Sum(nil)
	return mac(rootDomain, append(message, meta...))
}

// rooted says whether the file as it was opened has the right root.
func (s *store) rooted(mac MAC) (bool, error) {
	want, err := rootOf(mac, s.meta, s.generations.Load()[0].table)
	return err == nil && subtle.ConstantTimeCompare(want[:], s.root) == 1, err
}

// locate returns the bin of a key and the hash that stands for the key in it.
func (s *store) locate(key []byte) (int, [keyHash]byte) {
	h := sha256.New()
	h.Write(s.salt[:])
	h.Write(key)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return int(binary.BigEndian.Uint16(sum[:]) % binCount), [keyHash]byte(sum[2:])
}

func rowDigest(key, value []byte) [sha256.Size]byte {
	h := sha256.New()
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(key)))
	h.Write(size[:])
	h.Write(key)
	h.Write(value)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// get returns a copy of the row, or nil when there is none. It believes nothing that the table does not vouch for.
func (s *store) get(key []byte) ([]byte, error) {
	s.begin.Lock()
	defer s.begin.Unlock()
	if s.broken.Load() {
		return nil, fmt.Errorf("%w: it failed before", ErrNotAuthentic)
	}
	var value []byte
	err := guard(func() error {
		tx, t, err := s.read()
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // a read transaction
		value, err = s.lookup(tx, t, key)
		return err
	})
	if err != nil {
		s.broken.Store(true)
		return nil, fmt.Errorf("reading index: %w", err)
	}
	return value, nil
}

// read begins a read transaction and finds the table that belongs to it. A commit may come between the two, so it looks again.
func (s *store) read() (*bbolt.Tx, *table, error) {
	for range 4 {
		tx, err := s.db.Begin(false)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrNotAuthentic, err)
		}
		for _, g := range s.generations.Load() {
			if g != nil && g.txid == tx.ID() {
				return tx, g.table, nil
			}
		}
		if err := tx.Rollback(); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%w: somebody else has written it", ErrNotAuthentic)
}

func (s *store) lookup(tx *bbolt.Tx, t *table, key []byte) ([]byte, error) {
	n, hash := s.locate(key)
	bin, err := s.bin(tx, t, n)
	if err != nil {
		return nil, err
	}
	i, found := findEntry(bin, hash)
	if !found {
		return nil, nil
	}
	// Copied before it is checked: the mapped page can change in between.
	value := bytes.Clone(tx.Bucket(bucketRows).Get(key))
	if rowDigest(key, value) != [sha256.Size]byte(bin[i*entrySize+keyHash:]) {
		return nil, fmt.Errorf("%w: a row was changed or removed", ErrNotAuthentic)
	}
	return value, nil
}

// bin returns a checked copy of a bin.
func (s *store) bin(tx *bbolt.Tx, t *table, n int) ([]byte, error) {
	bin := bytes.Clone(tx.Bucket(bucketBins).Get(binKey(n)))
	if binDigest(bin) != t[n] || len(bin)%entrySize != 0 {
		return nil, fmt.Errorf("%w: bin %d was changed", ErrNotAuthentic, n)
	}
	return bin, nil
}

func binKey(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// binDigest is zero for a bin without rows, so that an empty table is all zeros.
func binDigest(bin []byte) [sha256.Size]byte {
	if len(bin) == 0 {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(bin)
}

func findEntry(bin []byte, hash [keyHash]byte) (int, bool) {
	low, high := 0, len(bin)/entrySize
	for low < high {
		mid := (low + high) / 2
		switch bytes.Compare(bin[mid*entrySize:mid*entrySize+keyHash], hash[:]) {
		case 0:
			return mid, true
		case -1:
			low = mid + 1
		default:
			high = mid
		}
	}
	return low, false
}

// row is a row to be written.
type row struct {
	key, value []byte
	bin        int
	hash       [keyHash]byte
}

// commit writes rows, meta and, with a key, the root in one transaction.
func (s *store) commit(rows []row, meta []byte, mac MAC) error {
	s.write.Lock()
	defer s.write.Unlock()
	slices.SortFunc(rows, func(a, b row) int { return bytes.Compare(a.key, b.key) })
	byBin := make(map[int][]*row)
	for i := range rows {
		r := &rows[i]
		r.bin, r.hash = s.locate(r.key)
		byBin[r.bin] = append(byBin[r.bin], r)
	}
	var committed bool
	err := guard(func() error {
		s.begin.Lock()
		if s.broken.Load() {
			s.begin.Unlock()
			return fmt.Errorf("%w: it failed before", ErrNotAuthentic)
		}
		tx, err := s.beginWrite()
		if err != nil {
			return err
		}
		defer func() {
			if !committed {
				_ = tx.Rollback()
			}
		}()
		var current *generation
		for _, g := range s.generations.Load() {
			if g != nil && g.txid == tx.ID()-1 {
				current = g
			}
		}
		if current == nil {
			return fmt.Errorf("%w: somebody else has written it", ErrNotAuthentic)
		}
		next := *current.table
		if err := s.writeRows(tx, current.table, &next, rows, byBin); err != nil {
			return err
		}
		head := tx.Bucket(bucketHead)
		if err := head.Put(keyMeta, meta); err != nil {
			return err
		}
		if mac == nil {
			err = head.Delete(keyRoot)
		} else if root, macErr := rootOf(mac, meta, &next); macErr != nil {
			err = fmt.Errorf("computing root: %w", macErr)
		} else {
			err = head.Put(keyRoot, root[:])
		}
		if err != nil {
			return err
		}
		g := &generation{tx.ID(), &next}
		s.generations.Store(&[2]*generation{current, g})
		if err := tx.Commit(); err != nil {
			// A full disk, mostly. Whether the transaction took hold shows in the number that the next one gets; both tables stay for that, and the rows are written again.
			return fmt.Errorf("committing: %w", err)
		}
		committed = true
		s.generations.Store(&[2]*generation{g, nil})
		return nil
	})
	if err != nil {
		if errors.Is(err, ErrNotAuthentic) {
			s.broken.Store(true)
		}
		return fmt.Errorf("writing index: %w", err)
	}
	return nil
}

// beginWrite is called with begin held and releases it: also when bbolt panics.
func (s *store) beginWrite() (*bbolt.Tx, error) {
	defer s.begin.Unlock()
	return s.db.Begin(true)
}

func (s *store) writeRows(tx *bbolt.Tx, before, after *table, rows []row, byBin map[int][]*row) error {
	bucket, bins, tab := tx.Bucket(bucketRows), tx.Bucket(bucketBins), tx.Bucket(bucketTable)
	for _, r := range rows {
		if err := bucket.Put(r.key, r.value); err != nil {
			return err
		}
	}
	numbers := make([]int, 0, len(byBin))
	for n := range byBin {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	changed := make(map[int]bool)
	for _, n := range numbers {
		bin, err := s.bin(tx, before, n)
		if err != nil {
			return err
		}
		bin = slices.Grow(bin, len(byBin[n])*entrySize)
		for _, r := range byBin[n] {
			digest := rowDigest(r.key, r.value)
			i, found := findEntry(bin, r.hash)
			at := i * entrySize
			if !found {
				bin = bin[:len(bin)+entrySize]
				copy(bin[at+entrySize:], bin[at:])
				copy(bin[at:], r.hash[:])
			}
			copy(bin[at+keyHash:], digest[:])
		}
		if err := bins.Put(binKey(n), bin); err != nil {
			return err
		}
		after[n] = binDigest(bin)
		changed[n/perChunk] = true
	}
	for i := range chunks {
		if !changed[i] {
			continue
		}
		chunk := make([]byte, 0, perChunk*sha256.Size)
		for j := range perChunk {
			chunk = append(chunk, after[i*perChunk+j][:]...)
		}
		if err := tab.Put(chunkKey(i), chunk); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) close() error {
	if s.broken.Swap(true) {
		s.abandon()
		return nil
	}
	s.write.Lock()
	defer s.write.Unlock()
	return guard(s.db.Close)
}

// abandon lets go of the file without waiting for it: a panic may have left bbolt's locks held, and then closing never returns.
func (s *store) abandon() {
	s.broken.Store(true)
	if s.db != nil {
		go func() { _ = guard(s.db.Close) }()
	}
}
