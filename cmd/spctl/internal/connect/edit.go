// Package connect writes Singlepass's entry into the configuration of an agent's MCP client.
//
// Promises: what is not our entry keeps its bytes: order, white space, comments and trailing commas too (some clients' files are JSON with comments). A file that is not an object,
// or that names a member on our way twice, is refused and stays as it is. The earlier file is kept beside the new one.
package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Edit returns src with value at the path of member names, and whether that changes anything. An empty src is an empty object.
func Edit(src []byte, path []string, value any) (out []byte, changed bool, err error) {
	if len(path) == 0 {
		return nil, false, errors.New("editing configuration: a path is required")
	}
	if len(bytes.TrimSpace(src)) == 0 {
		src = []byte("{}\n")
	}
	wasJSON := json.Valid(src)
	s := &scanner{b: src}
	s.space()
	o, err := s.object(0)
	if err != nil {
		return nil, false, err
	}
	if s.space(); s.i != len(src) {
		return nil, false, s.fail("something follows the configuration's object")
	}
	out, changed, err = edit(src, o, path, value, unit(src))
	if err != nil {
		return nil, false, err
	}
	if wasJSON && !json.Valid(out) {
		return nil, false, errors.New("editing configuration: the result would not be JSON; nothing was changed")
	}
	return out, changed, nil
}

// Find returns the value at the path of member names, without comments; nil where there is none.
func Find(src []byte, path []string) (json.RawMessage, error) {
	if len(bytes.TrimSpace(src)) == 0 {
		return nil, nil
	}
	s := &scanner{b: src}
	for s.space(); ; {
		o, err := s.object(0)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(o.members, func(m member) bool { return m.key == path[0] })
		if i < 0 {
			return nil, nil
		}
		if m := o.members[i]; len(path) == 1 {
			return compact(src[m.value:m.end])
		}
		s, path = &scanner{b: src, i: o.members[i].value}, path[1:]
	}
}

// asIn gives a text of ours the file's line breaks.
func asIn(src, text []byte) []byte {
	return bytes.ReplaceAll(text, []byte("\n"), []byte(newline(src)))
}

func edit(src []byte, o object, path []string, value any, unit string) ([]byte, bool, error) {
	var found *member
	for i := range o.members {
		if o.members[i].key != path[0] {
			continue
		}
		if found != nil {
			return nil, false, fmt.Errorf("editing configuration: %q stands there twice; remove one", path[0])
		}
		found = &o.members[i]
	}
	if found == nil {
		for i := len(path) - 1; i > 0; i-- {
			value = map[string]any{path[i]: value}
		}
		out, err := insert(src, o, path[0], value, unit)
		return out, true, err
	}
	if len(path) > 1 {
		s := &scanner{b: src, i: found.value}
		inner, err := s.object(0)
		if err != nil {
			return nil, false, fmt.Errorf("%q: %w", path[0], err)
		}
		return edit(src, inner, path[1:], value, unit)
	}
	was, err := compact(src[found.value:found.end])
	if err != nil {
		return nil, false, err
	}
	want, err := encode(value, "", "")
	if err != nil {
		return nil, false, err
	}
	if same(was, want) {
		return src, false, nil
	}
	indent, multi := o.indent(src)
	if !multi {
		return splice(src, found.value, found.end, want), true, nil
	}
	text, err := encode(value, indent, unit)
	return splice(src, found.value, found.end, asIn(src, text)), true, err
}

func insert(src []byte, o object, key string, value any, unit string) ([]byte, error) {
	name, err := encode(key, "", "")
	if err != nil {
		return nil, err
	}
	line := newline(src)
	if len(o.members) == 0 {
		outer := lineIndent(src, o.open)
		text, err := encode(value, outer+unit, unit)
		if err != nil {
			return nil, err
		}
		entry := line + outer + unit + string(name) + ": " + string(asIn(src, text))
		if len(bytes.TrimSpace(src[o.open+1:o.close])) == 0 {
			return splice(src, o.open+1, o.close, []byte(entry+line+outer)), nil
		}
		return splice(src, o.open+1, o.open+1, []byte(entry)), nil // comments keep their place behind it
	}
	last := o.members[len(o.members)-1]
	indent, multi := o.indent(src)
	if !multi {
		text, err := encode(value, "", "")
		if err != nil {
			return nil, err
		}
		if o.comma > 0 {
			return splice(src, o.comma+1, o.comma+1, []byte(" "+string(name)+": "+string(text))), nil
		}
		return splice(src, last.end, last.end, []byte(", "+string(name)+": "+string(text))), nil
	}
	text, err := encode(value, indent, unit)
	if err != nil {
		return nil, err
	}
	entry := line + indent + string(name) + ": " + string(asIn(src, text))
	if o.comma > 0 {
		return splice(src, o.comma+1, o.comma+1, []byte(entry+",")), nil
	}
	return splice(src, last.end, last.end, []byte(","+entry)), nil
}

func splice(src []byte, from, to int, text []byte) []byte {
	out := make([]byte, 0, len(src)+len(text))
	out = append(out, src[:from]...)
	out = append(out, text...)
	return append(out, src[to:]...)
}

func encode(v any, prefix, unit string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if unit != "" {
		e.SetIndent(prefix, unit)
	}
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding configuration: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// same compares two JSON texts by meaning.
func same(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err := json.Marshal(x)
	if err != nil {
		return false
	}
	q, err := json.Marshal(y)
	return err == nil && bytes.Equal(p, q)
}

// compact copies a value without comments and trailing commas.
func compact(b []byte) ([]byte, error) {
	var out []byte
	s := &scanner{b: b}
	for s.space(); s.i < len(b); s.space() {
		switch c := b[s.i]; c {
		case '"':
			start := s.i
			if _, err := s.str(); err != nil {
				return nil, err
			}
			out = append(out, b[start:s.i]...)
		case '}', ']':
			out = append(bytes.TrimSuffix(out, []byte(",")), c)
			s.i++
		default:
			out = append(out, c)
			s.i++
		}
	}
	return out, nil
}

// unit is one step of indentation, as the file does it; two spaces where it does not show.
func unit(src []byte) string {
	for line := range bytes.Lines(src) {
		text := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(text); n > 0 && len(bytes.TrimSpace(text)) > 0 {
			return string(line[:n])
		}
	}
	return "  "
}

func newline(src []byte) string {
	if bytes.Contains(src, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// lineIndent is the white space that the line of position i begins with.
func lineIndent(src []byte, i int) string {
	start := bytes.LastIndexByte(src[:i], '\n') + 1
	end := start
	for end < i && (src[end] == ' ' || src[end] == '\t') {
		end++
	}
	return string(src[start:end])
}

// indent is what stands before each member, and whether each has a line of its own.
func (o object) indent(src []byte) (string, bool) {
	if len(o.members) == 0 {
		return "", false
	}
	start := o.members[0].start
	before := src[bytes.LastIndexByte(src[:start], '\n')+1 : start]
	if bytes.LastIndexByte(src[:start], '\n') <= o.open || strings.TrimLeft(string(before), " \t") != "" {
		return "", false
	}
	return string(before), true
}
