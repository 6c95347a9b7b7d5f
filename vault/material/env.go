package material

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// unsettable are variables by which a value would decide what program runs, or what it loads, rather than what it is told.
var unsettable = []string{"PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "GCONV_PATH"}

// Environment turns what was handed in for a credential of kind env into the kept form. With variable the whole value is that variable's; else it is a file of NAME=value lines.
func Environment(variable string, b []byte) ([]byte, error) {
	var fields []Field
	if variable != "" {
		fields = []Field{{variable, b}}
	} else {
		var err error
		if fields, err = Lines(b); err != nil {
			return nil, err
		}
	}
	for _, f := range fields {
		if err := CheckVariable(f.Name); err != nil {
			return nil, err
		}
	}
	return Encode(fields)
}

// CheckVariable reports whether a credential may set the variable.
func CheckVariable(name string) error {
	switch upper := strings.ToUpper(name); {
	case len(name) > maxName || !variableName.MatchString(name):
		return errors.New("a variable's name has letters, digits and underscores, and no digit at its beginning")
	case slices.Contains(unsettable, upper), strings.HasPrefix(upper, "LD_"), strings.HasPrefix(upper, "DYLD_"):
		return fmt.Errorf("%s decides what a program loads and is not for a credential to set", name)
	}
	return nil
}

// Lines reads NAME=value lines as environment files have them: blank lines and # comments are skipped, "export " is taken, a value may stand in single quotes (as it is) or in
// double quotes (with \n, \t, \", \\ and \$), and may then span lines. Nothing is expanded: $NAME stays as it is. The values lie in b or in copies that the caller cannot reach, where an escape
// was resolved.
func Lines(b []byte) ([]Field, error) {
	var fields []Field
	number := 0
	for len(b) > 0 {
		number++
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		text := bytes.TrimSpace(line)
		if len(text) == 0 || text[0] == '#' {
			b = rest
			continue
		}
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("export ")))
		name, value, ok := bytes.Cut(text, []byte("="))
		name = bytes.TrimRight(name, " \t")
		if !ok || len(name) > maxName || !variableName.Match(name) {
			return nil, fmt.Errorf("line %d is not NAME=value", number)
		}
		value = bytes.TrimLeft(value, " \t")
		switch {
		case len(value) == 0:
			return nil, fmt.Errorf("line %d gives %s no value", number, name)
		case value[0] == '"' || value[0] == '\'':
			// The quote may end on a later line. It is the first of the line, since a name has none.
			at := bytes.IndexByte(line, value[0])
			got, after, err := quoted(b[at:])
			if err != nil {
				return nil, fmt.Errorf("line %d: the value of %s %w", number, name, err)
			}
			number += bytes.Count(b[at:len(b)-len(after)], []byte("\n"))
			tail, next, _ := bytes.Cut(after, []byte("\n"))
			if tail = bytes.TrimSpace(tail); len(tail) > 0 && tail[0] != '#' {
				return nil, fmt.Errorf("line %d: something follows the quoted value of %s", number, name)
			}
			value, rest = got, next
		default:
			if i := bytes.Index(value, []byte(" #")); i >= 0 {
				value = bytes.TrimRight(value[:i], " \t")
			}
		}
		if len(fields) == maxFields {
			return nil, fmt.Errorf("there are more than %d names", maxFields)
		}
		fields, b = append(fields, Field{string(name), value}), rest
	}
	return fields, nil
}

// quoted reads a value in quotes at the beginning of b and returns what follows it.
func quoted(b []byte) (value, rest []byte, err error) {
	quote := b[0]
	b = b[1:]
	if quote == '\'' {
		value, rest, ok := bytes.Cut(b, []byte{'\''})
		if !ok {
			return nil, nil, errors.New("has no closing quote")
		}
		return value, rest, nil
	}
	end := -1
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' {
			i++
		} else if b[i] == '"' {
			end = i
			break
		}
	}
	if end < 0 {
		return nil, nil, errors.New("has no closing quote")
	}
	value, rest = b[:end], b[end+1:]
	if bytes.IndexByte(value, '\\') < 0 {
		return value, rest, nil
	}
	plain := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c != '\\' {
			plain = append(plain, c)
			continue
		}
		i++
		switch value[i] {
		case 'n':
			plain = append(plain, '\n')
		case 't':
			plain = append(plain, '\t')
		case '"', '\\', '$', '`':
			plain = append(plain, value[i])
		default:
			return nil, nil, errors.New("has an escape other than \\n, \\t, \\\", \\\\ and \\$: put the value in single quotes")
		}
	}
	return plain, rest, nil
}
