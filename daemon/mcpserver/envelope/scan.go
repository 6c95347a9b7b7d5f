package envelope

import (
	"errors"
	"unicode/utf8"
)

// maxDepth bounds nesting, so that a hostile line cannot grow the stack. encoding/json stops at 10000; nothing that a tool takes comes near this.
const maxDepth = 512

var (
	errSyntax = errors.New("not valid JSON")
	errDepth  = errors.New("nested too deeply")
	errDup    = errors.New("the same key twice")
	errString = errors.New("a string with a lone surrogate")
)

// scanner reads one JSON text strictly (RFC 8259). It accepts what encoding/json accepts, except for nesting beyond maxDepth; a fuzz test holds it to that.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// value steps over one value.
func (s *scanner) value(depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	switch c := s.peek(); {
	case c == '"':
		_, err := s.str()
		return err
	case c == '{':
		return s.object(depth, nil)
	case c == '[':
		return s.array(depth)
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return errSyntax
}

func (s *scanner) literal(word string) error {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return errSyntax
	}
	s.i += len(word)
	return nil
}

func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.i++
	}
	if s.peek() == '0' {
		s.i++
	} else if !s.digits() {
		return errSyntax
	}
	if s.peek() == '.' {
		s.i++
		if !s.digits() {
			return errSyntax
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if !s.digits() {
			return errSyntax
		}
	}
	return nil
}

// str steps over a string and says whether it holds an escape.
func (s *scanner) str() (escaped bool, err error) {
	if s.peek() != '"' {
		return false, errSyntax
	}
	i, b := s.i+1, s.b
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return escaped, nil
		case c < 0x20:
			return false, errSyntax
		case c == '\\':
			escaped = true
			i++
			if i >= len(b) {
				return false, errSyntax
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i++
			case 'u':
				if _, ok := hex4(b[i+1:]); !ok {
					return false, errSyntax
				}
				i += 5
			default:
				return false, errSyntax
			}
		default:
			i++
		}
	}
	return false, errSyntax
}

// text steps over a string and returns what it says. It copies only where there is an escape.
func (s *scanner) text() ([]byte, error) {
	from := s.i
	escaped, err := s.str()
	if err != nil {
		return nil, err
	}
	raw := s.b[from+1 : s.i-1]
	if !escaped {
		return raw, nil
	}
	return unescape(raw)
}

func (s *scanner) array(depth int) error {
	s.i++
	s.space()
	if s.peek() == ']' {
		s.i++
		return nil
	}
	for {
		s.space()
		if err := s.value(depth + 1); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			return nil
		default:
			return errSyntax
		}
	}
}

// object steps over an object. With a visitor it hands out each member, and refuses a key that comes twice: the visitor and another reader of the same bytes must never
// see two different messages.
func (s *scanner) object(depth int, visit func(key, value []byte) error) error {
	if s.peek() != '{' {
		return errSyntax
	}
	s.i++
	s.space()
	if s.peek() == '}' {
		s.i++
		return nil
	}
	var seen keys
	for {
		s.space()
		var key []byte
		var err error
		if visit != nil {
			key, err = s.text()
		} else {
			_, err = s.str()
		}
		if err != nil {
			return err
		}
		s.space()
		if s.peek() != ':' {
			return errSyntax
		}
		s.i++
		s.space()
		from := s.i
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if visit != nil {
			if !seen.add(key) {
				return errDup
			}
			if err := visit(key, s.b[from:s.i]); err != nil {
				return err
			}
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil
		default:
			return errSyntax
		}
	}
}

// keys remembers the keys of one object: a few in an array, many in a map, so that a hostile object costs no quadratic time.
type keys struct {
	few  [12][]byte
	n    int
	many map[string]struct{}
}

func (k *keys) add(key []byte) bool {
	for _, old := range k.few[:k.n] {
		if string(old) == string(key) {
			return false
		}
	}
	if k.n < len(k.few) {
		k.few[k.n] = key
		k.n++
		return true
	}
	if k.many == nil {
		k.many = make(map[string]struct{})
	}
	if _, twice := k.many[string(key)]; twice {
		return false
	}
	k.many[string(key)] = struct{}{}
	return true
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape takes the inside of a string that str accepted. A lone surrogate has no meaning in UTF-8: readers replace it, and two different strings become one.
func unescape(raw []byte) ([]byte, error) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		i++
		switch c = raw[i]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(raw[i+1:])
			i += 5
			if r >= 0xD800 && r < 0xE000 {
				if r >= 0xDC00 || i+1 >= len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
					return nil, errString
				}
				low, _ := hex4(raw[i+2:])
				if low < 0xDC00 || low > 0xDFFF {
					return nil, errString
				}
				i += 6
				r = (r-0xD800)<<10 | (low - 0xDC00) + 0x10000
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
		i++
	}
	return out, nil
}
