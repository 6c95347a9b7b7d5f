package mcpchan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// addressed puts a prefix before the URI of each of the contents of a resources/read result, and leaves every other byte as it is. The prefix has no character that JSON escapes. Names that come twice, or that
// readers who ignore case take for another, are refused: readers would differ in which one counts.
func addressed(raw []byte, prefix string) ([]byte, error) {
	var at []int // right behind the quotes that begin the URIs
	err := eachMember(raw, 0, "contents", func(list []byte, from int) error {
		return eachItem(list, from, func(item []byte, from int) error {
			return eachMember(item, from, "uri", func(uri []byte, from int) error {
				if len(uri) == 0 || uri[0] != '"' {
					return errors.New("a uri is no text")
				}
				at = append(at, from+1)
				return nil
			})
		})
	})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(raw)+len(at)*len(prefix))
	last := 0
	for _, i := range at {
		out = append(append(out, raw[last:i]...), prefix...)
		last = i
	}
	return append(out, raw[last:]...), nil
}

// hasList checks that an object has a list under a name.
func hasList(raw []byte, name string) error {
	return eachMember(raw, 0, name, func(list []byte, from int) error {
		return eachItem(list, from, func([]byte, int) error { return nil })
	})
}

// eachMember finds the one member of an object with a name and gives its value to use, with the place where that begins. from is where the object begins.
func eachMember(object []byte, from int, name string, use func(value []byte, from int) error) error {
	d := jsontext.NewDecoder(bytes.NewReader(object)) // refuses names that come twice, and what is not UTF-8
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return errors.New("it is no object")
	}
	found := false
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return errors.New("it is not valid JSON, or has a name twice")
		}
		key := t.String()
		value, err := d.ReadValue()
		if err != nil {
			return errors.New("it is not valid JSON, or has a name twice")
		}
		if !strings.EqualFold(key, name) {
			continue
		}
		if key != name {
			return fmt.Errorf("it has %q where %q belongs", clip(key, 40), name)
		}
		found = true
		if err := use(bytes.Clone(value), from+int(d.InputOffset())-len(value)); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return errors.New("it is not valid JSON, or has a name twice")
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	if !found {
		return fmt.Errorf("it has no %s", name)
	}
	return nil
}

// eachItem gives each object of a list to use, with the place where it begins.
func eachItem(list []byte, from int, use func(item []byte, from int) error) error {
	d := jsontext.NewDecoder(bytes.NewReader(list))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return errors.New("it has no list where one belongs")
	}
	for d.PeekKind() != ']' {
		value, err := d.ReadValue()
		if err != nil {
			return errors.New("it is not valid JSON, or has a name twice")
		}
		if value.Kind() != '{' {
			return errors.New("an entry of it is no object")
		}
		if err := use(bytes.Clone(value), from+int(d.InputOffset())-len(value)); err != nil {
			return err
		}
	}
	return nil
}
