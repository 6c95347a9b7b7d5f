package index

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// row is a row to be written.
type row struct {
	key   string
	value []byte
}

func chunkKey(i int) []byte { return []byte{byte(i)} }

const rootDomain = "singlepass index root v1"

// rootOf is the MAC over everything that the file says: the meta names the position, counts and open executions, and the table covers all the rest.
func rootOf(mac MAC, meta []byte, t *table) ([32]byte, error) {
	h := sha256.New()
	for i := range t {
		h.Write(t[i][:])
	}
	return mac(rootDomain, append(h.Sum(nil), meta...))
}

// rooted says whether the file as it was opened has the right root.
func (s *store) rooted(mac MAC) (bool, error) {
	want, err := rootOf(mac, s.meta, s.generations.Load()[0].table)
	return err == nil && subtle.ConstantTimeCompare(want[:], s.root) == 1, err
}

// commit writes rows, listings of the directory, meta and, with a key, the root in one transaction.
func (s *store) commit(rows []row, listings []listing, meta []byte, mac MAC) error {
	s.write.Lock()
	defer s.write.Unlock()
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	for _, r := range rows {
		listings = append(listings, listing{s.row(r.key), rowDigest(r.key, r.value)})
	}
	slices.SortFunc(listings, func(a, b listing) int {
		if a.bin != b.bin {
			return int(a.bin) - int(b.bin)
		}
		return bytes.Compare(a.tag[:], b.tag[:])
	})
	var committed bool
	defer func() {
		s.begin.Lock()
		defer s.begin.Unlock()
		s.committing = false
	}()
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
		if err := s.writeRows(tx, current, &next, rows, listings); err != nil {
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
	s.letGo()
	s.committing = true
	return s.db.Begin(true)
}

func (s *store) writeRows(tx *bbolt.Tx, before *generation, after *table, rows []row, listings []listing) error {
	v := &view{s, before, tx, tx.Bucket(bucketRows), tx.Bucket(bucketBins)}
	v.rows.FillPercent, v.bins.FillPercent = 0.9, 0.75 // most rows come at the end of their kind; bins grow where they are
	for _, r := range rows {
		if err := v.rows.Put([]byte(r.key), r.value); err != nil {
			return err
		}
	}
	var changed [chunks]bool
	var old, arena []byte
	for len(listings) > 0 {
		n, end := int(listings[0].bin), 1
		for end < len(listings) && int(listings[end].bin) == n {
			end++
		}
		var err error
		if old, err = v.binOf(n, old[:0]); err != nil {
			return err
		}
		if room := len(old) + end*(tagSize+maxValue); cap(arena)-len(arena) < room {
			arena = make([]byte, 0, max(room, 1<<18)) // bbolt keeps what is put until the commit
		}
		start := len(arena)
		arena = merge(arena, old, listings[:end])
		bin := arena[start:len(arena):len(arena)]
		if err := v.bins.Put(binKey(n), bin); err != nil {
			return err
		}
		after[n], changed[n/perChunk], listings = binDigest(bin), true, listings[end:]
	}
	for i := range chunks {
		if !changed[i] {
			continue
		}
		if err := tx.Bucket(bucketTable).Put(chunkKey(i), after.chunk(i)); err != nil {
			return err
		}
	}
	return nil
}
