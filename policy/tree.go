package policy

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"singlepass.dev/daemon/fingerprint"
	"singlepass.dev/policy/source"
)

// kind is the JSON type of a node; bad marks a node whose problem has been reported.
type kind string

const (
	object  kind = "an object"
	list    kind = "a list"
	text    kind = "text"
	number  kind = "a number"
	boolean kind = "a boolean"
	null    kind = "null"
	nothing kind = "nothing"
	bad     kind = "bad"
)

// node is one value of a contract's file: JSON's data model with the order and the place of everything. YAML's own notions (anchors, tags, other spellings of numbers and
// booleans) end here.
type node struct {
	kind    kind
	line    int
	column  int
	text    string // the text, or the literal of a number or boolean
	members []member
	items   []*node
}

type member struct {
	name         string
	line, column int
	value        *node
}

// get returns a member's value, or nil.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for _, m := range n.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// RFC 6901, section 3.
var (
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
)

// sub is the JSON Pointer of a member.
func sub(path, name string) string { return path + "/" + escapePointer.Replace(name) }

// appendJSON writes the node with members in the file's order.
func (n *node) appendJSON(dst []byte) []byte {
	switch n.kind {
	case object:
		dst = append(dst, '{')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(fingerprint.Append(dst, m.name), ':')
			dst = m.value.appendJSON(dst)
		}
		return append(dst, '}')
	case list:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	case text:
		return fingerprint.Append(dst, n.text)
	case number, boolean:
		return append(dst, n.text...)
	}
	return append(dst, "null"...)
}

// parser reads one file and collects its problems.
type parser struct {
	file     string
	problems Problems
	places   map[string]*node // where each path stands, for problems found later

	answers *[]string // while a status request is read that may have fields of the action's own answer: those that it has
	origin  string    // the action's own
}

func (p *parser) add(line, column int, path, remedy, format string, args ...any) {
	p.problems.List = append(p.problems.List, Problem{
		File: p.file, Line: max(line, 1), Column: max(column, 1), Path: path, Message: fmt.Sprintf(format, args...), Remedy: remedy,
	})
}

// problem reports what is wrong with a node.
func (p *parser) problem(n *node, path, remedy, format string, args ...any) {
	p.add(n.line, n.column, path, remedy, format, args...)
}

// problemAt reports what is wrong at a path, or where the nearest thing stands that does exist.
func (p *parser) problemAt(path, remedy, format string, args ...any) {
	for at := path; ; at = at[:strings.LastIndexByte(at, '/')] {
		if n := p.places[at]; n != nil {
			p.add(n.line, n.column, path, remedy, format, args...)
			return
		}
		if at == "" {
			p.add(1, 1, path, remedy, format, args...)
			return
		}
	}
}

const maxDepth = 32

var yamlLine = lazily(`^yaml: line (\d+): (.*)`)

// tree reads the file's one YAML document. It returns nil when there is none to speak of.
func (p *parser) tree(src []byte) (root *node) {
	if len(src) > MaxContractBytes {
		p.add(1, 1, "", "write a shorter contract", "%d bytes are more than the limit of %d", len(src), MaxContractBytes)
		return nil
	}
	if !p.characters(src) {
		return nil
	}
	// The YAML library documents that it may panic on its own faults. A contract is a file that an agent may have written, so that must not take the daemon down.
	defer func() {
		if r := recover(); r != nil {
			p.add(1, 1, "", "write the file more simply", "the YAML reader could not read this file")
			root = nil
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if err == io.EOF {
			p.add(1, 1, "", "write a contract; `spctl action schema` says how", "the file is empty")
		} else {
			p.syntax(err)
		}
		return nil
	}
	if err := decoder.Decode(&second); err != io.EOF {
		line := second.Line
		if err != nil {
			p.syntax(err)
			return nil
		}
		p.add(line, 1, "", "write one contract per file", "there is a second document")
		return nil
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		p.add(1, 1, "", "write a contract; `spctl action schema` says how", "the file is empty")
		return nil
	}
	root = p.convert(document.Content[0], "", 0)
	if root.kind != object && root.kind != bad {
		p.problem(root, "", "write a contract; `spctl action schema` says how", "found %s where a contract's fields should be", root.kind)
		return nil
	}
	return root
}

func (p *parser) syntax(err error) {
	line, what := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine().FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
		what = m[2]
	}
	p.add(line, 1, "", "mend the YAML; texts with special characters go into quotes", "not valid YAML: %s", what)
}

// characters refuses what a reader of the file does not see: invalid UTF-8, control characters, and the bidirectional and invisible characters that make a text look like
// another one ("Trojan Source", CVE-2021-42574).
func (p *parser) characters(src []byte) bool {
	line, column := 1, 1
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			p.add(line, column, "", "save the file as UTF-8", "invalid UTF-8")
			return false
		case r == '\n':
			line, column = line+1, 0
		case r == '\r' || r == '\t':
		case source.Hidden(r):
			p.add(line, column, "", "remove it", "the invisible character %U", r)
			return false
		}
		i += size
		column++
	}
	return true
}

func (p *parser) convert(y *yaml.Node, path string, depth int) *node {
	n := &node{kind: bad, line: y.Line, column: y.Column}
	p.places[path] = n
	switch {
	case depth > maxDepth:
		p.problem(n, path, "write it flatter", "nested deeper than %d levels", maxDepth)
		return n
	case y.Kind == yaml.AliasNode:
		p.problem(n, path, "write the value out where it is used", "an alias (*%s) is not allowed in a contract", y.Value)
		return n
	case y.Anchor != "":
		p.problem(n, path, "remove it and write the value out where it is used", "an anchor (&%s) is not allowed in a contract", y.Anchor)
		return n
	case y.Style&yaml.TaggedStyle != 0:
		p.problem(n, path, "remove the tag; quote what is text", "a tag (%s) is not allowed in a contract", y.Tag)
		return n
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = object
		seen := map[string]int{}
		for i := 0; i+1 < len(y.Content); i += 2 {
			key, value := y.Content[i], y.Content[i+1]
			name, ok := p.key(key, path)
			if !ok {
				continue
			}
			if first, twice := seen[name]; twice {
				p.add(key.Line, key.Column, sub(path, name), "keep one of them", "%q is written twice, first in line %d", name, first)
				continue
			}
			seen[name] = key.Line
			n.members = append(n.members, member{name, key.Line, key.Column, p.convert(value, sub(path, name), depth+1)})
		}
	case yaml.SequenceNode:
		n.kind = list
		for i, item := range y.Content {
			n.items = append(n.items, p.convert(item, path+"/"+strconv.Itoa(i), depth+1))
		}
	case yaml.ScalarNode:
		p.scalar(n, y, path)
	}
	return n
}

func (p *parser) key(y *yaml.Node, path string) (string, bool) {
	switch {
	case y.Kind != yaml.ScalarNode || y.Anchor != "" || y.Style&yaml.TaggedStyle != 0:
		p.add(y.Line, y.Column, path, "write a plain name", "a name that is not plain text")
	case y.ShortTag() == "!!merge":
		p.add(y.Line, y.Column, path, "write the fields out", "a merge key (<<) is not allowed in a contract")
	case y.ShortTag() != "!!str" || y.Style == 0 && oddWords[strings.ToLower(y.Value)]:
		p.add(y.Line, y.Column, path, fmt.Sprintf("quote it: %q", y.Value), "the name %s is not text for every YAML reader", y.Value)
	default:
		return y.Value, true
	}
	return "", false
}

var (
	jsonNumber  = lazily(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	sexagesimal = lazily(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)
	oddWords    = map[string]bool{"yes": true, "no": true, "on": true, "off": true} // booleans in YAML 1.1, text in 1.2
)

// scalar takes only those plain spellings that every YAML reader, and every person, reads the same way.
func (p *parser) scalar(n *node, y *yaml.Node, path string) {
	n.text = y.Value
	if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		n.kind = text
		// An escape in double quotes can spell what the check of the file's own characters refuses, and in an agent's tool list it would be as invisible.
		for _, r := range y.Value {
			if r != '\n' && r != '\t' && source.Hidden(r) {
				n.kind = bad
				p.problem(n, path, "remove it", "the invisible character %U", r)
				return
			}
		}
		return
	}
	quoted := fmt.Sprintf("write it in quotes for text: %q", y.Value)
	switch tag := y.ShortTag(); {
	case tag == "!!null" && y.Value == "":
		n.kind = nothing
	case tag == "!!null" && y.Value == "null":
		n.kind = null
	case tag == "!!null":
		p.problem(n, path, "write null, or "+quoted, "%s is null only for some YAML readers", y.Value)
	case tag == "!!bool" && (y.Value == "true" || y.Value == "false"):
		n.kind = boolean
	case tag == "!!bool" || oddWords[strings.ToLower(y.Value)]:
		p.problem(n, path, "write true or false, or "+quoted, "%s is a boolean only for some YAML readers", y.Value)
	case tag == "!!timestamp":
		p.problem(n, path, quoted, "%s is a time only for some YAML readers", y.Value)
	case tag == "!!int" || tag == "!!float" || sexagesimal().MatchString(y.Value):
		if !jsonNumber().MatchString(y.Value) {
			p.problem(n, path, "write a plain decimal number, or "+quoted, "%s is a number only for some YAML readers", y.Value)
			return
		}
		if err := fingerprint.Strict([]byte(y.Value)); err != nil {
			p.problem(n, path, quoted, "%s is a number that not every reader keeps exactly", y.Value)
			return
		}
		n.kind = number
	default:
		n.kind = text
	}
}
