package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Everything in the file is listed in a bin, by a hash of its key. A bin of the directory holds what it lists: the ordinal of an execution. A bin of rows holds the digests of
// rows. Fewer of these are needed, since a row has many executions in it.
const (
	directoryBins = 8192
	rowBins       = 2048
	binCount      = directoryBins + rowBins
	perChunk      = 128 // bins whose hashes are stored together, so that a small flush rewrites 4 KiB of the table and not all of it
	chunks        = binCount / perChunk

	tagSize     = 16
	ordinalSize = 6
	maxValue    = sha256.Size
)

// table holds the digest of every bin.
type table [binCount][sha256.Size]byte

// chunk returns the stored form of a part.
func (t *table) chunk(i int) []byte {
	b := make([]byte, 0, perChunk*sha256.Size)
	for j := range perChunk {
		b = append(b, t[i*perChunk+j][:]...)
	}
	return b
}

// place is where a key is listed: a bin, and the tag that stands for the key in it.
type place struct {
	bin uint16
	tag [tagSize]byte
}

// listing is what a bin says of one key.
type listing struct {
	place
	value [maxValue]byte // an ordinal in the directory, else a digest
}

func valueSize(bin int) int {
	if bin < directoryBins {
		return ordinalSize
	}
	return sha256.Size
}

func listOrdinal(p place, n uint64) listing {
	l := listing{place: p}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	copy(l.value[:], b[8-ordinalSize:])
	return l
}

func ordinalOf(value []byte) uint64 {
	var b [8]byte
	copy(b[8-ordinalSize:], value)
	return binary.BigEndian.Uint64(b[:])
}

// sum hashes the salt and the parts of a key, each behind its length.
func (s *store) sum(parts ...string) [sha256.Size]byte {
	b := append(make([]byte, 0, 320), s.salt[:]...) // on the stack, mostly
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return sha256.Sum256(b)
}

// directory returns the place of a key of the directory.
func (s *store) directory(parts ...string) place {
	sum := s.sum(parts...)
	return place{binary.BigEndian.Uint16(sum[:]) % directoryBins, [tagSize]byte(sum[2:])}
}

// row returns the place of a row. The rows of one cluster share a bin, so that writing neighbours changes few.
func (s *store) row(key string) place {
	sum, shared := s.sum(key), s.sum("cluster", cluster(key))
	return place{directoryBins + binary.BigEndian.Uint16(shared[:])%rowBins, [tagSize]byte(sum[2:])}
}

// rowDigest is what a bin says of a row.
func rowDigest(key string, value []byte) [sha256.Size]byte {
	h := sha256.New()
	var b [256 + 8]byte
	h.Write(append(binary.AppendUvarint(b[:0], uint64(len(key))), key...))
	h.Write(value)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// binDigest is zero for a bin without listings, so that an empty table is all zeros.
func binDigest(bin []byte) [sha256.Size]byte {
	if len(bin) == 0 {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(bin)
}

func binKey(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// binOf appends a checked copy of a bin to b. It is copied before it is checked: the mapped page can change in between.
func (v *view) binOf(n int, b []byte) ([]byte, error) {
	var key [2]byte
	binary.BigEndian.PutUint16(key[:], uint16(n))
	b = append(b, v.bins.Get(key[:])...)
	if binDigest(b) != v.generation.table[n] || len(b)%(tagSize+valueSize(n)) != 0 {
		return nil, fmt.Errorf("%w: bin %d was changed", ErrNotAuthentic, n)
	}
	return b, nil
}

// listed returns what the bins say of a place, or nil. It is valid until the next look.
func (v *view) listed(p place) ([]byte, error) {
	bin, err := v.binOf(int(p.bin), v.s.bin[:0])
	if err != nil {
		return nil, err
	}
	v.s.bin = bin
	size := tagSize + valueSize(int(p.bin))
	i, found := findTag(bin, size, &p.tag)
	if !found {
		return nil, nil
	}
	return bin[i*size+tagSize : (i+1)*size], nil
}

func findTag(bin []byte, size int, tag *[tagSize]byte) (int, bool) {
	low, high := 0, len(bin)/size
	for low < high {
		mid := (low + high) / 2
		switch bytes.Compare(bin[mid*size:mid*size+tagSize], tag[:]) {
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

// merge appends the listings of a bin and its new ones, which are in order, to b. A new one takes the place of an old one with its tag.
func merge(b, old []byte, fresh []listing) []byte {
	value := valueSize(int(fresh[0].bin))
	size := tagSize + value
	for i := range fresh {
		n, found := findTag(old, size, &fresh[i].tag)
		b, old = append(b, old[:n*size]...), old[n*size:]
		if found {
			old = old[size:]
		}
		b = append(append(b, fresh[i].tag[:]...), fresh[i].value[:value]...)
	}
	return append(b, old...)
}

// ordinal looks a place of the directory up.
func (v *view) ordinal(p place) (uint64, bool, error) {
	value, err := v.listed(p)
	if value == nil {
		return 0, false, err
	}
	return ordinalOf(value), true, nil
}

// row returns a checked copy of a row, or nil when there is none. It is valid until the next look.
func (v *view) row(key string) ([]byte, error) {
	digest, err := v.listed(v.s.row(key))
	if digest == nil {
		return nil, err
	}
	value := append(v.s.value[:0], v.rows.Get([]byte(key))...)
	v.s.value = value
	if rowDigest(key, value) != [sha256.Size]byte(digest) {
		return nil, fmt.Errorf("%w: a row was changed or removed", ErrNotAuthentic)
	}
	return value, nil
}
