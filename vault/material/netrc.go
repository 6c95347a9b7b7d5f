package material

import (
	"bytes"
	"fmt"
	"strings"
)

// Login is one entry of a .netrc file. Password lies in the bytes that were read.
type Login struct {
	Machine    string // "" for the default entry, which is for no host in particular
	Login      string
	Password   []byte
	From, Last int // its lines, from 1
}

// Netrc reads a .netrc file, as ftp(1) and curl describe it. What they read differently (a value in quotes) is refused. An entry without a password is left out.
func Netrc(b []byte) ([]Login, error) {
	var all []Login
	var now *Login
	seen := map[string]bool{}
	words := netrcWords{rest: b, line: 1}
	end := func() {
		if now != nil && len(now.Password) > 0 {
			all = append(all, *now)
		}
		now = nil
	}
	value := func(key string) ([]byte, error) {
		word, line, ok := words.next()
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d: %s has no value", words.line, key)
		case word[0] == '"':
			return nil, fmt.Errorf("line %d: the value of %s begins with a quote, which programs read differently: add this one with spctl credential add", line, key)
		case seen[key]:
			return nil, fmt.Errorf("line %d: %s is there twice for one machine", line, key)
		}
		seen[key] = true
		if now != nil {
			now.Last = line
		}
		return word, nil
	}
	for {
		word, line, ok := words.next()
		if !ok {
			end()
			return all, nil
		}
		switch key := string(word); key {
		case "machine", "default":
			end()
			clear(seen)
			now = &Login{From: line, Last: line}
			if key == "machine" {
				name, err := value(key)
				if err != nil {
					return nil, err
				}
				now.Machine = strings.ToLower(string(name))
			}
		case "login", "password", "account":
			if now == nil {
				return nil, fmt.Errorf("line %d: %s stands before any machine", line, key)
			}
			v, err := value(key)
			if err != nil {
				return nil, err
			}
			switch key {
			case "login":
				now.Login = string(v)
			case "password":
				now.Password = v
			}
		case "macdef":
			words.skipMacro()
		default:
			return nil, fmt.Errorf("line %d has a word that .netrc files do not have", line) // it may be a password with a space
		}
	}
}

// netrcWords takes the words of a file one by one; comments are whole lines that begin with #.
type netrcWords struct {
	rest []byte
	line int
}

func (w *netrcWords) next() (word []byte, line int, ok bool) {
	for len(w.rest) > 0 {
		switch c := w.rest[0]; {
		case c == '\n':
			w.line++
			w.rest = w.rest[1:]
		case c == ' ' || c == '\t' || c == '\r':
			w.rest = w.rest[1:]
		case c == '#':
			_, w.rest, _ = bytes.Cut(w.rest, []byte("\n"))
			w.line++
		default:
			end := bytes.IndexAny(w.rest, " \t\r\n")
			if end < 0 {
				end = len(w.rest)
			}
			word, w.rest = w.rest[:end], w.rest[end:]
			return word, w.line, true
		}
	}
	return nil, w.line, false
}

// skipMacro leaves a macro out: it ends with an empty line.
func (w *netrcWords) skipMacro() {
	macro, rest, found := bytes.Cut(w.rest, []byte("\n\n"))
	w.line += bytes.Count(macro, []byte("\n"))
	if found {
		w.line += 2
	}
	w.rest = rest
}
