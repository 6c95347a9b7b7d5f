// Package material says what the value of a credential looks like where it is more than one line of text: what a person may hand in, and the one form in which the vault keeps
// it and the daemon reads it back.
//
// Promises: a value that was taken is kept in exactly one form, so that nobody after the vault has to guess. No error quotes a value, nor a part of one. Nothing here reads a
// file, takes the time or keeps a copy.
//
// The form of a set of values is frozen: each is NAME=VALUE and a NUL, as in /proc/PID/environ, in the order of the names. It needs no escapes, so reading it back makes no copies
// of a secret. Names may be added, never renamed.
package material

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Field is one value of a set. Value lies in the bytes that were read.
type Field struct {
	Name  string
	Value []byte
}

const (
	maxFields = 64
	maxName   = 128
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) // POSIX.1-2024, section 8.1

// Encode returns the kept form of a set. The names are unique, and no value holds a NUL.
func Encode(fields []Field) ([]byte, error) {
	if len(fields) == 0 {
		return nil, errors.New("the value names nothing: write NAME=value, one a line")
	}
	if len(fields) > maxFields {
		return nil, fmt.Errorf("the value has more than %d names", maxFields)
	}
	fields = slices.Clone(fields)
	slices.SortFunc(fields, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	size := 0
	for i, f := range fields {
		switch {
		case len(f.Name) > maxName || !variableName.MatchString(f.Name):
			return nil, errors.New("a name in the value is not made of letters, digits and underscores, the first no digit") // it may be a piece of a secret
		case i > 0 && fields[i-1].Name == f.Name:
			return nil, fmt.Errorf("%s is there twice: leave one of them out", f.Name)
		case bytes.IndexByte(f.Value, 0) >= 0:
			return nil, fmt.Errorf("the value of %s holds a NUL byte", f.Name)
		}
		size += len(f.Name) + len(f.Value) + 2
	}
	b := make([]byte, 0, size) // the whole size, so that growing leaves no copy behind
	for _, f := range fields {
		b = append(append(append(append(b, f.Name...), '='), f.Value...), 0)
	}
	return b, nil
}

// Decode reads the kept form. The values lie in b.
func Decode(b []byte) ([]Field, error) {
	var fields []Field
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{0})
		name, value, ok := bytes.Cut(line, []byte("="))
		if !whole || !ok || len(fields) == maxFields {
			return nil, errors.New("the value is not a set of names and values: rotate the credential")
		}
		fields, b = append(fields, Field{string(name), value}), rest
	}
	return fields, nil
}

// Get returns the value of a name, or nil.
func Get(fields []Field, name string) []byte {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}
