package chain

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// CheckEvent tells whether event may be given to AppendLine: one compact JSON object (RFC 8259) in
// UTF-8, without white space between its parts, nested at most 64 deep, whose first member is "kind" and
// which has no member that the chain writes itself. Other duplicate members are left to the caller.
func CheckEvent(event []byte) error {
	rest, ok := cut(event, eventHead)
	if !ok {
		return errors.New(`event does not start with {"kind":"`)
	}
	if n := kindLen(rest); n == 0 || n >= len(rest) || rest[n] != '"' {
		return errors.New("event kind is not a word of a-z, 0-9 and _, 64 at most")
	}
	return checkEvent(event, 1)
}

// CheckEntry does for an entry that was read what CheckEvent does for an event that is to be written.
func (l *Line) CheckEntry() error { return checkEvent(l.Entry, l.event) }

// checkEvent checks the members that begin at from and the end of the object they are in.
func checkEvent(b []byte, from int) error {
	if !utf8.Valid(b) {
		return errors.New("event is not UTF-8")
	}
	c := checker{b: b, i: from}
	if !c.members(1) {
		if c.err == nil {
			c.err = fmt.Errorf("event is not compact JSON at byte %d", c.i-from+1)
		}
		return c.err
	}
	if c.i != len(b) {
		return errors.New("event has bytes after its end")
	}
	return nil
}

// checker walks JSON without building anything. encoding/json's Valid would accept white space and
// reserved members and takes about three times as long.
type checker struct {
	b   []byte
	i   int
	err error
}

func (c *checker) byte(want byte) bool {
	if c.i < len(c.b) && c.b[c.i] == want {
		c.i++
		return true
	}
	return false
}

// members checks `"name":value,…}`, the opening brace being behind.
func (c *checker) members(depth int) bool {
	for first := true; ; first = false {
		from := c.i
		if !c.string() || depth == 1 && !c.allowed(c.b[from:c.i], first) || !c.byte(':') || !c.value(depth) {
			return false
		}
		if c.byte('}') {
			return true
		}
		if !c.byte(',') {
			return false
		}
	}
}

func (c *checker) allowed(name []byte, first bool) bool {
	switch string(name) {
	case `"kind"`:
		if first {
			return true
		}
	case `"seq"`, `"time"`, `"prev"`, `"payload_digest"`:
	default:
		// An escaped spelling of a reserved name is the same member to whoever parses it.
		if bytes.IndexByte(name, '\\') < 0 {
			return true
		}
	}
	c.err = fmt.Errorf("event has the member %.80s, which is reserved, repeated or spelt with an escape", name)
	return false
}

const maxDepth = 64

func (c *checker) value(depth int) bool {
	if c.i >= len(c.b) {
		return false
	}
	if depth > maxDepth {
		c.err = fmt.Errorf("event is nested deeper than %d", maxDepth)
		return false
	}
	switch c.b[c.i] {
	case '"':
		return c.string()
	case '{':
		c.i++
		return c.byte('}') || c.members(depth+1)
	case '[':
		c.i++
		if c.byte(']') {
			return true
		}
		for c.value(depth + 1) {
			if c.byte(']') {
				return true
			}
			if !c.byte(',') {
				return false
			}
		}
		return false
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	}
	return c.number()
}

func (c *checker) word(w string) bool {
	rest, ok := cut(c.b[c.i:], w)
	if ok {
		c.i = len(c.b) - len(rest)
	}
	return ok
}

func (c *checker) digits() bool {
	from := c.i
	for c.i < len(c.b) && c.b[c.i]-'0' <= 9 {
		c.i++
	}
	return c.i > from
}

func (c *checker) number() bool {
	c.byte('-')
	if !c.byte('0') && !c.digits() {
		return false
	}
	if c.byte('.') && !c.digits() {
		return false
	}
	if c.byte('e') || c.byte('E') {
		_ = c.byte('+') || c.byte('-')
		return c.digits()
	}
	return true
}

func (c *checker) string() bool {
	if !c.byte('"') {
		return false
	}
	for {
		i := c.i
		for i < len(c.b) && !special[c.b[i]] {
			i++
		}
		c.i = i
		switch {
		case c.byte('"'):
			return true
		case !c.byte('\\') || !c.escape():
			return false
		}
	}
}

// special marks what ends a run of plain characters in a string.
var special = func() (s [256]bool) {
	for c := range 0x20 {
		s[c] = true
	}
	s['"'], s['\\'] = true, true
	return s
}()

func (c *checker) escape() bool {
	if c.i >= len(c.b) {
		return false
	}
	ch := c.b[c.i]
	c.i++
	switch ch {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if c.i >= len(c.b) || !hexValue[c.b[c.i]|0x20] {
				return false
			}
			c.i++
		}
		return true
	}
	return false
}

// EventKind is the kind of an event that passed CheckEvent.
func EventKind(event []byte) []byte {
	rest, _ := cut(event, eventHead)
	return rest[:kindLen(rest)]
}
