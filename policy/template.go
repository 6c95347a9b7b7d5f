package policy

import (
	"slices"
	"strconv"
	"strings"
)

// executionID is the one placeholder that is no argument.
const executionID = "execution_id"

// template is a text with placeholders: {name} stands for an argument, {{ and }} for the braces themselves.
type template []part

// part is literal text, or a placeholder when name is set.
type part struct{ literal, name string }

var placeholderName = lazily(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

// whole returns the placeholder that the text consists of, if it is nothing else.
func (t template) whole() string {
	if len(t) == 1 {
		return t[0].name
	}
	return ""
}

// parseTemplate returns what is wrong as a message and a remedy.
func parseTemplate(s string) (t template, problem, remedy string) {
	const double = "to write a brace itself, double it: {{ or }}"
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t = append(t, part{literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "{{"), strings.HasPrefix(s[i:], "}}"):
			literal.WriteByte(s[i])
			i += 2
		case s[i] == '}':
			return nil, "a } without its {", double
		case s[i] == '{':
			name, _, closed := strings.Cut(s[i+1:], "}")
			if !closed {
				return nil, "a { without its }", double
			}
			if !placeholderName().MatchString(name) && !answerPlaceholder().MatchString(name) {
				return nil, "{" + clip(name, 40) + "} is no placeholder", "write the name of an argument between the braces; " + double
			}
			flush()
			t = append(t, part{name: name})
			i += len(name) + 2
		default:
			literal.WriteByte(s[i])
			i++
		}
	}
	flush()
	return t, "", ""
}

// use says where a template's text goes; what an argument may be there differs.
type use string

const (
	inPath   use = "the path"
	inQuery  use = "a query parameter"
	inHeader use = "a header field"
	inForm   use = "a form field"
	inBody   use = "the body"
	inJSON   use = "a longer text"
	asJSON   use = "a JSON value"
	asRoot   use = "the whole JSON body"
)

// mayBeAbsent says whether an optional argument that is absent simply leaves the thing out.
func (u use) mayBeAbsent() bool {
	return u != inPath && u != inBody && u != asRoot && u != inCommand && u != inDirectory && u != inStdin
}

// template reads a text with placeholders and checks that each of them is an argument that can go there.
func (p *parser) template(n *node, path string, in *input, u use) template {
	if !p.is(n, path, text, "write text; {name} stands for an argument") {
		return nil
	}
	return p.templateOf(n, n.text, path, in, u)
}

func (p *parser) templateOf(n *node, s, path string, in *input, u use) template {
	t, problem, remedy := parseTemplate(s)
	if problem != "" {
		p.problem(n, path, remedy, "%s", problem)
		return nil
	}
	for _, part := range t {
		if part.name == "" || part.name == executionID || in == nil {
			continue
		}
		if field, ok := answerField(part.name); ok {
			p.answerField(n, path, field, u)
			continue
		}
		a := in.byName[part.name]
		if a == nil {
			remedy := "add it to input.properties, or use one of: " + strings.Join(append(in.names(), executionID), ", ")
			if near := nearest(part.name, append(in.names(), executionID)); near != "" {
				remedy = "did you mean {" + near + "}? or " + remedy
			}
			p.problem(n, path, remedy, "{%s} is no argument of this action", part.name)
			continue
		}
		if u != asJSON && u != asRoot && !a.scalar() {
			what := "has no single scalar type"
			if a.typ != "" {
				what = "is of type " + a.typ
			}
			p.problem(n, path, "declare its type as string, integer, number or boolean, or use it in a json body as a whole value: \"{"+part.name+"}\"",
				"{%s} %s and cannot stand in %s", part.name, what, u)
		}
		if !u.mayBeAbsent() && !a.required && !a.hasDefault {
			p.problem(n, path, "list it under input.required or give it a default", "{%s} is optional, but %s cannot do without it", part.name, u)
		}
		if a.secret && u == inPath || a.secret && u == inQuery {
			p.problem(n, path, "send it in the body", "{%s} is secret, and a URL is shown and logged", part.name)
		}
	}
	return t
}

// jsonTemplate is a JSON value with placeholders. Names and structure are the contract's; arguments only ever become whole values or text within a string.
type jsonTemplate struct {
	kind    kind
	literal []byte // canonical, for numbers, booleans and null
	text    template
	members []jsonMember
	items   []*jsonTemplate
}

type jsonMember struct {
	name  string
	value *jsonTemplate
}

func (p *parser) jsonTemplate(n *node, path string, in *input, u use) *jsonTemplate {
	t := &jsonTemplate{kind: n.kind}
	switch n.kind {
	case text:
		parsed, _, _ := parseTemplate(n.text)
		if u == asJSON && parsed.whole() == "" {
			u = inJSON
		}
		t.text = p.templateOf(n, n.text, path, in, u)
	case number, boolean, null:
		t.literal = n.appendJSON(nil)
	case object:
		for _, m := range n.members {
			name, problem, remedy := parseTemplate(m.name)
			if problem == "" && slices.ContainsFunc(name, func(q part) bool { return q.name != "" }) {
				problem, remedy = "a placeholder in a name", "write the name out; only values take placeholders"
			}
			if problem != "" {
				p.add(m.line, m.column, sub(path, m.name), remedy, "%s", problem)
				continue
			}
			literal := ""
			if len(name) == 1 {
				literal = name[0].literal
			}
			if slices.ContainsFunc(t.members, func(o jsonMember) bool { return o.name == literal }) {
				p.add(m.line, m.column, sub(path, m.name), "keep one of them", "%q is written twice", literal)
				continue
			}
			t.members = append(t.members, jsonMember{literal, p.jsonTemplate(m.value, sub(path, m.name), in, asJSON)})
		}
	case list:
		for i, item := range n.items {
			t.items = append(t.items, p.jsonTemplate(item, path+"/"+strconv.Itoa(i), in, asJSON))
		}
	case nothing:
		p.problem(n, path, `write a value: null, "", a number, …`, "found nothing where a JSON value is needed")
	}
	return t
}
