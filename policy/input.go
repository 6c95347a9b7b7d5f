package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"singlepass.dev/daemon/fingerprint"
)

// intentKey is the argument that every action's schema gains.
const intentKey = "intent_key"

// input is what an action takes: the contract's JSON Schema, compiled.
type input struct {
	schema     json.RawMessage // as published, without intent_key
	root       *node
	properties []*property
	byName     map[string]*property
	defaults   *defaults
	usable     bool                 // the JSON Schema library took it
	foreign    bool                 // an upstream's own schema: root, defaults and check are nil, and resolved is where the library did not take it
	check      *check               // validates; nil where only the library can
	resolved   *jsonschema.Resolved // validates where check cannot, and is nil otherwise: it is large
}

type property struct {
	name       string
	typ        string // the one JSON type that is declared, or ""
	required   bool
	hasDefault bool
	secret     bool
	node       *node
}

func (p *property) scalar() bool {
	switch p.typ {
	case "string", "integer", "number", "boolean":
		return true
	}
	return false
}

func (in *input) names() []string {
	names := make([]string, len(in.properties))
	for i, p := range in.properties {
		names[i] = p.name
	}
	return names
}

// input reads the schema of the arguments. It returns nil when it cannot be used at all.
func (p *parser) input(n *node, path string) *input {
	if !p.is(n, path, object, "write a JSON Schema, with type: object and properties") {
		return nil
	}
	p.schemaNode(n, path)
	in := &input{root: n, byName: map[string]*property{}}
	if t := n.get("type"); t == nil {
		p.problem(n, path+"/type", "write type: object", "the arguments have no type")
	} else if t.kind != bad && t.text != "object" {
		p.problem(t, path+"/type", "write type: object", "arguments are always an object")
	}
	// An argument that the contract does not know goes nowhere, but would make another fingerprint: a retry with a word more would be a second effect.
	for _, keyword := range []string{"patternProperties", "unevaluatedProperties", "propertyNames", "$ref", "$dynamicRef"} {
		if k := n.get(keyword); k != nil {
			p.problem(k, sub(path, keyword), "list every argument under properties", "%s is not possible at the top of the arguments", keyword)
		}
	}
	if a := n.get("additionalProperties"); a == nil {
		n.members = append(n.members, member{"additionalProperties", n.line, n.column, &node{kind: boolean, text: "false"}})
	} else if a.kind != bad && (a.kind != boolean || a.text != "false") {
		p.problem(a, path+"/additionalProperties", "write additionalProperties: false, and list every argument under properties", "arguments that the contract does not know cannot be sent")
	}
	required := map[string]bool{}
	if r := n.get("required"); r != nil && r.kind == list {
		for _, item := range r.items {
			if item.kind == text {
				required[item.text] = true
			}
		}
	}
	if props := n.get("properties"); props != nil && props.kind == object {
		for _, m := range props.members {
			if a := p.property(m, sub(path+"/properties", m.name), required[m.name]); a != nil {
				in.properties = append(in.properties, a)
				in.byName[a.name] = a
			}
		}
	}
	if r := n.get("required"); r != nil && r.kind == list {
		for i, item := range r.items {
			if item.kind == text && in.byName[item.text] == nil {
				p.problem(item, fmt.Sprintf("%s/required/%d", path, i), "add it to properties, or remove it here", "%q is required but is no property", item.text)
			}
		}
	}
	p.compileInput(in, path)
	return in
}

func (p *parser) property(m member, path string, required bool) *property {
	switch {
	case m.name == intentKey:
		p.add(m.line, m.column, path, "call it something else; every action gains intent_key by itself", "the argument name %q is reserved", m.name)
		return nil
	case m.name == executionID:
		p.add(m.line, m.column, path, "call it something else; {execution_id} stands for the execution's id", "the argument name %q is reserved", m.name)
		return nil
	case m.name == "":
		p.add(m.line, m.column, path, "give it a name", "an argument without a name")
		return nil
	}
	a := &property{name: m.name, required: required, node: m.value}
	if t := m.value.get("type"); t != nil && t.kind == text {
		a.typ = t.text
	}
	if s := m.value.get("secret"); s != nil && s.kind == boolean {
		a.secret = s.text == "true"
	}
	if d := m.value.get("default"); d != nil && d.kind != bad {
		switch {
		case a.required:
			p.problem(d, path+"/default", "remove the default, or the name under required", "a required argument never takes its default")
		case a.secret:
			p.problem(d, path+"/default", "remove the default", "a secret argument cannot have a default: contracts are no place for secrets")
		default:
			a.hasDefault = true
		}
	}
	return a
}

// compileInput hands the schema to the JSON Schema library, which checks everything that is not ours.
func (p *parser) compileInput(in *input, path string) {
	for _, problem := range p.problems.List {
		if strings.HasPrefix(problem.Path, path) {
			return // the library would say the same thing again, without the place
		}
	}
	in.schema = withoutSecretMarks(in.root).appendJSON(nil)
	if err := fingerprint.Strict(in.schema); err != nil {
		p.problemAt(path, "write it more simply", "the schema cannot be used: %v", err)
		return
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(in.schema, &schema); err != nil {
		p.problemAt(path, "see json-schema.org, draft 2020-12", "not a JSON Schema: %v", err)
		return
	}
	// Without a loader nothing is ever fetched.
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		p.problemAt(path+schemaPointer(err.Error()), "see json-schema.org, draft 2020-12; a default must fit its own schema", "not a usable JSON Schema: %s", lastReason(err.Error()))
		return
	}
	in.usable = true
	in.defaults = compileDefaults(in.root)
	if in.check = compileCheck(in.root); in.check == nil {
		in.resolved = resolved
	}
}

// withoutSecretMarks drops our own annotation: some clients refuse a schema with a keyword that they do not know.
func withoutSecretMarks(n *node) *node {
	props := n.get("properties")
	if props == nil {
		return n
	}
	clone := func(n *node) *node { c := *n; c.members = slices.Clone(n.members); return &c }
	n = clone(n)
	for i, m := range n.members {
		if m.name != "properties" {
			continue
		}
		props := clone(m.value)
		for j, a := range props.members {
			if a.value.get("secret") != nil {
				value := clone(a.value)
				value.members = slices.DeleteFunc(value.members, func(m member) bool { return m.name == "secret" })
				props.members[j].value = value
			}
		}
		n.members[i].value = props
	}
	return n
}
