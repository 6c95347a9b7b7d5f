// Package chain is the journal's line format: how an entry becomes bytes, how those bytes are split
// again, and how one entry vouches for the one before it. It is pure: no clock, no file, no network.
//
// # The format (frozen; testdata/vectors.jsonl holds it to this)
//
// A line is exactly these bytes, in this order, without any white space between them:
//
//	{"entry":ENTRY,"hash":"HASH"}\n
//	{"entry":ENTRY,"hash":"HASH","sealed":"PAYLOAD"}\n
//
// ENTRY is
//
//		{"seq":N,"time":"T","prev":"HASH","kind":"K",…}
//		{"seq":N,"time":"T","prev":"HASH","payload_digest":"sha256:HEX","kind":"K",…}
//
//	  - N counts from 1, in decimal, without leading zeros.
//	  - T is RFC 3339 in UTC with as many fraction digits as are needed (time.RFC3339Nano).
//	  - HASH is 64 lower-case hexadecimal digits. An entry's own hash is its RFC 6962 leaf hash (section
//	    2.1), SHA-256(0x00 || ENTRY); "prev" is the hash of the entry before it, across files too, and
//	    64 zeros in entry 1.
//	  - "kind" and all that follows is the event as the caller encoded it: one JSON object whose first
//	    member is "kind" (a-z, 0-9, _), without line breaks and without the members named above.
//	  - "payload_digest" is there when the entry has a payload, and is the SHA-256 of the payload's bytes
//	    (not of their base64), so that the payload can be erased and the chain still verifies.
//	  - PAYLOAD is the payload in standard base64 with padding, canonical. An erased payload is the same
//	    number of "-" characters, so that nothing in the file moves. A copy may leave the member "sealed"
//	    out altogether: the payload is then withheld.
//
// Evolution: members may be added to events only. A change to anything above is another file format
// with another file name.
//
// # Promises
//
// Split accepts only these bytes: for every line it accepts, the parts put together again are the line.
// It does not look into the event; CheckEvent does, and the writer calls it before it writes. Neither
// Split nor AppendLine allocates (AppendLine beyond growing dst).
package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"
)

// MaxLine is the longest line, its line break included, that is written or read.
const MaxLine = 32 << 20

// Hash is an RFC 6962 leaf or node hash. The zero value stands before the first entry.
type Hash [sha256.Size]byte

// String returns the hash as it stands in a line.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash as it stands in a line.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads what MarshalText wrote, and nothing else.
func (h *Hash) UnmarshalText(text []byte) error {
	v, err := ParseHash(text)
	if err != nil {
		return err
	}
	*h = v
	return nil
}

// ParseHash reads 64 lower-case hexadecimal digits.
func ParseHash[T []byte | string](text T) (Hash, error) {
	var h Hash
	if len(text) != hashText || !isHex([]byte(text)) {
		return h, fmt.Errorf("hash %.80q is not 64 lower-case hexadecimal digits", text)
	}
	_, err := hex.Decode(h[:], []byte(text))
	return h, err
}

// LeafHash is SHA-256(0x00 || entry), RFC 6962 section 2.1.
func LeafHash(entry []byte) Hash {
	// Copying a short entry behind its prefix costs a tenth of what the streaming interface costs.
	var b [1536]byte
	if len(entry) < len(b) {
		n := copy(b[1:], entry)
		return sha256.Sum256(b[:1+n])
	}
	d := sha256.New()
	d.Write(b[:1])
	d.Write(entry)
	var h Hash
	d.Sum(h[:0])
	return h
}

const (
	hashText   = 2 * sha256.Size
	lineHead   = `{"entry":`
	entryHead  = `{"seq":`
	timeHead   = `,"time":"`
	prevHead   = `","prev":"`
	digestHead = `","payload_digest":"sha256:`
	kindHead   = `","kind":"`
	hashHead   = `,"hash":"`
	sealedHead = `","sealed":"`
	lineTail   = `"}`
	eventHead  = `{"kind":"`
)

// AppendLine appends the line for one event to dst, with its line break, and returns the entry's hash.
// The event must have passed CheckEvent. An empty payload is no payload.
func AppendLine(dst []byte, seq uint64, at time.Time, prev Hash, event, payload []byte) ([]byte, Hash) {
	dst = append(dst, lineHead...)
	start := len(dst)
	dst = append(dst, entryHead...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, timeHead...)
	dst = at.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, prevHead...)
	text := hexText(&prev)
	dst = append(dst, text[:]...)
	if len(payload) > 0 {
		digest := sha256.Sum256(payload)
		dst = append(dst, digestHead...)
		dst = hex.AppendEncode(dst, digest[:])
	}
	dst = append(dst, '"', ',')
	dst = append(dst, event[1:]...)
	hash := LeafHash(dst[start:])
	dst = append(dst, hashHead...)
	text = hexText(&hash)
	dst = append(dst, text[:]...)
	if len(payload) > 0 {
		dst = append(dst, sealedHead...)
		dst = base64.StdEncoding.AppendEncode(dst, payload)
	}
	dst = append(dst, lineTail...)
	return append(dst, '\n'), hash
}

// Line is a split line. All slices point into the bytes that were split.
type Line struct {
	Seq    uint64
	Time   []byte // RFC 3339, see At
	Entry  []byte // exactly the bytes that are hashed
	Kind   []byte
	prev   []byte // hexadecimal
	hash   []byte // hexadecimal
	digest []byte // hexadecimal, nil when the entry has no payload
	event  int    // where the event's first member starts in Entry
	sealed []byte // as in the line, nil when there is none
	size   int
}

// Split takes one line, without its line break, apart. It checks the shape of every byte outside the
// event, and no hash: see Verify.
func Split(line []byte) (l Line, err error) {
	err = l.Split(line)
	return l, err
}

// Split is the function Split for a Line that is used again.
func (l *Line) Split(line []byte) error {
	*l = Line{size: len(line) + 1}
	if len(line) >= MaxLine {
		return shape("line is longer than 32 MiB")
	}
	rest, ok := cut(line, lineHead+entryHead)
	if !ok {
		return shape(`line does not start with {"entry":{"seq":`)
	}
	n := 0
	for n < len(rest) && rest[n]-'0' <= 9 {
		d := uint64(rest[n] - '0')
		if l.Seq > (1<<63-1-d)/10 {
			return shape("seq is too large")
		}
		l.Seq = l.Seq*10 + d
		n++
	}
	if n == 0 || rest[0] == '0' {
		return shape("seq is not a number that counts from 1")
	}
	if rest, ok = cut(rest[n:], timeHead); !ok {
		return shape(`"time" does not follow "seq"`)
	}
	if n = timeLen(rest); n == 0 {
		return shape("time is not RFC 3339 in UTC in its shortest form")
	}
	l.Time = rest[:n]
	if rest, ok = cut(rest[n:], prevHead); !ok {
		return shape(`"prev" does not follow "time"`)
	}
	if len(rest) < hashText || !isHex(rest[:hashText]) {
		return shape("prev is not 64 lower-case hexadecimal digits")
	}
	l.prev, rest = rest[:hashText], rest[hashText:]
	if after, has := cut(rest, digestHead); has {
		if len(after) < hashText || !isHex(after[:hashText]) {
			return shape("payload_digest is not sha256: and 64 lower-case hexadecimal digits")
		}
		l.digest, rest = after[:hashText], after[hashText:]
	}
	after, ok := cut(rest, kindHead)
	if !ok {
		return shape(`"kind" does not follow`)
	}
	l.event = len(line) - len(rest) - len(lineHead) + 2
	if n = kindLen(after); n == 0 || n >= len(after) || after[n] != '"' {
		return shape("kind is not a word of a-z, 0-9 and _")
	}
	l.Kind = after[:n]
	return l.splitTail(line, after[n+1:])
}

// splitTail finds the end of the entry from the end of the line: what follows the entry has no quotes
// but its own, while an event may contain any text.
func (l *Line) splitTail(line, rest []byte) error {
	body, ok := cutEnd(rest, lineTail)
	if !ok {
		return shape(`line does not end with "}`)
	}
	if l.digest != nil && !endsInHash(body) {
		quote := len(body) - 1
		for quote >= 0 && isSealed[body[quote]] {
			quote--
		}
		l.sealed = body[quote+1:]
		if body, ok = cutEnd(body[:quote+1], sealedHead); !ok {
			return shape(`line does not end with "hash" or with "hash" and "sealed"`)
		}
		if !sealedShape(l.sealed) {
			return shape("sealed is neither canonical base64 nor erased")
		}
	}
	if !endsInHash(body) {
		return shape(`"hash" does not follow the entry`)
	}
	l.hash, body = body[len(body)-hashText:], body[:len(body)-hashText-len(hashHead)]
	if !isHex(l.hash) {
		return shape("hash is not 64 lower-case hexadecimal digits")
	}
	if len(body) == 0 || body[len(body)-1] != '}' {
		return shape("entry does not end with }")
	}
	end := len(line) - len(rest) + len(body)
	l.Entry = line[len(lineHead):end]
	return nil
}

func endsInHash(body []byte) bool {
	n := len(body) - hashText - len(hashHead)
	return n >= 0 && string(body[n:n+len(hashHead)]) == hashHead
}

// sealedShape tells whether text is something that AppendLine or an erasure wrote. Bits that base64 does
// not use in its last group are left to Payload, which compares with the digest.
func sealedShape(text []byte) bool {
	if len(text) == 0 || len(text)%4 != 0 {
		return false
	}
	if bytes.IndexByte(text, '-') >= 0 {
		return true
	}
	padding := bytes.IndexByte(text, '=')
	return padding < 0 || padding == len(text)-1 || padding == len(text)-2 && text[padding+1] == '='
}

// ErrShape is wrapped by every error of Split: the bytes are not a line of a journal.
var ErrShape = errors.New("not a journal line")

type shapeError string

func shape(what string) error { return shapeError(what) }

func (e shapeError) Error() string { return "not a journal line: " + string(e) }
func (e shapeError) Unwrap() error { return ErrShape }

// Size is the line's length in the file, its line break included.
func (l *Line) Size() int { return l.size }

// At is the time in the entry.
func (l *Line) At() (time.Time, error) { return time.Parse(time.RFC3339Nano, string(l.Time)) }

// Hash is the hash that the line states; Verify tells whether it is right.
func (l *Line) Hash() Hash {
	var h Hash
	hex.Decode(h[:], l.hash) //nolint:errcheck // Split has checked the digits.
	return h
}

// Prev is the hash of the entry before.
func (l *Line) Prev() Hash {
	var h Hash
	hex.Decode(h[:], l.prev) //nolint:errcheck // Split has checked the digits.
	return h
}

// Verify computes the entry's hash and compares it with the one that the line states.
func (l *Line) Verify() (Hash, bool) {
	h := LeafHash(l.Entry)
	text := hexText(&h)
	return h, string(text[:]) == string(l.hash)
}

// Follows tells whether the line names the entry with this number and hash as the one before it.
func (l *Line) Follows(seq uint64, hash Hash) bool {
	text := hexText(&hash)
	return l.Seq == seq+1 && string(text[:]) == string(l.prev)
}

// AppendEvent appends the event as the caller of AppendLine gave it.
func (l *Line) AppendEvent(dst []byte) []byte {
	dst = append(dst, '{')
	return append(dst, l.Entry[l.event:]...)
}

// Members are the event's members with the brace that ends it, a part of the line: `"kind":"…",…}`.
func (l *Line) Members() []byte { return l.Entry[l.event:] }

// FollowsLine is Follows for a line whose hash was verified.
func (l *Line) FollowsLine(before *Line) bool {
	return l.Seq == before.Seq+1 && string(l.prev) == string(before.hash)
}

// Lines yields those lines of a file's content that Split accepts.
func Lines(content []byte) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for len(content) > 0 {
			n := bytes.IndexByte(content, '\n')
			if n < 0 {
				return
			}
			if l, err := Split(content[:n]); err == nil && !yield(l) {
				return
			}
			content = content[n+1:]
		}
	}
}
