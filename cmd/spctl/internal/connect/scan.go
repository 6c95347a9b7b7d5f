package connect

import (
	"encoding/json"
	"fmt"
)

// object is where an object's parts stand.
type object struct {
	open, close int // of its braces
	members     []member
	comma       int // of the trailing comma, 0 where there is none
}

type member struct {
	key        string
	start      int // of the name
	value, end int
}

// scanner reads JSON with comments and trailing commas. It finds places and judges no more than it has to.
type scanner struct {
	b []byte
	i int
}

const maxDepth = 100

func (s *scanner) fail(format string, args ...any) error {
	line, column := 1, 1
	for _, c := range s.b[:min(s.i, len(s.b))] {
		column++
		if c == '\n' {
			line, column = line+1, 1
		}
	}
	return fmt.Errorf("reading configuration at %d:%d: %s", line, column, fmt.Sprintf(format, args...))
}

func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// space skips white space, comments, and a byte order mark at the start.
func (s *scanner) space() {
	if s.i == 0 && len(s.b) >= 3 && string(s.b[:3]) == "\ufeff" {
		s.i = 3
	}
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			s.i++
		case c == '/' && s.i+1 < len(s.b) && s.b[s.i+1] == '/':
			for s.i < len(s.b) && s.b[s.i] != '\n' {
				s.i++
			}
		case c == '/' && s.i+1 < len(s.b) && s.b[s.i+1] == '*':
			s.i += 2
			for s.i < len(s.b) && (s.b[s.i] != '/' || s.b[s.i-1] != '*') {
				s.i++
			}
			s.i = min(s.i+1, len(s.b))
		default:
			return
		}
	}
}

func (s *scanner) object(depth int) (object, error) {
	if depth > maxDepth {
		return object{}, s.fail("it is nested too deeply")
	}
	if s.peek() != '{' {
		return object{}, s.fail("an object was expected here")
	}
	o := object{open: s.i}
	s.i++
	for {
		s.space()
		if s.peek() == '}' {
			o.close = s.i
			s.i++
			return o, nil
		}
		if len(o.members) > 0 && o.comma == 0 {
			return object{}, s.fail("a comma or the end of the object was expected here")
		}
		o.comma = 0
		m := member{start: s.i}
		var err error
		if m.key, err = s.str(); err != nil {
			return object{}, err
		}
		if s.space(); s.peek() != ':' {
			return object{}, s.fail("a colon was expected here")
		}
		s.i++
		s.space()
		m.value = s.i
		if err := s.skip(depth + 1); err != nil {
			return object{}, err
		}
		m.end = s.i
		o.members = append(o.members, m)
		if s.space(); s.peek() == ',' {
			o.comma = s.i
			s.i++
		}
	}
}

func (s *scanner) str() (string, error) {
	start := s.i
	if s.peek() != '"' {
		return "", s.fail("a string was expected here")
	}
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			var text string
			if err := json.Unmarshal(s.b[start:s.i], &text); err != nil {
				return "", s.fail("this string is not valid")
			}
			return text, nil
		}
	}
	return "", s.fail("a string does not end")
}

// skip passes one value.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.fail("it is nested too deeply")
	}
	switch c := s.peek(); c {
	case '{':
		_, err := s.object(depth)
		return err
	case '"':
		_, err := s.str()
		return err
	case '[':
		s.i++
		for first := true; ; first = false {
			s.space()
			if s.peek() == ']' {
				s.i++
				return nil
			}
			if !first {
				if s.peek() != ',' {
					return s.fail("a comma or the end of the list was expected here")
				}
				s.i++
				if s.space(); s.peek() == ']' {
					s.i++
					return nil
				}
			}
			if err := s.skip(depth + 1); err != nil {
				return err
			}
		}
	}
	start := s.i
	for s.i < len(s.b) {
		c := s.b[s.i]
		if c != '+' && c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			break
		}
		s.i++
	}
	if !json.Valid(s.b[start:s.i]) {
		return s.fail("a value was expected here")
	}
	return nil
}
