package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Keywords of JSON Schema, draft 2020-12 and its predecessor, by what their value is.
var (
	schemaKeywords  = []string{"items", "additionalItems", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties", "not", "if", "then", "else", "contentSchema"}
	schemaLists     = []string{"prefixItems", "allOf", "anyOf", "oneOf"}
	schemaMaps      = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	textKeywords    = []string{"$comment", "$schema", "title", "description", "contentEncoding", "contentMediaType", "format"}
	booleanKeywords = []string{"deprecated", "readOnly", "writeOnly", "uniqueItems", "secret"}
	numberKeywords  = []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
	countKeywords   = []string{"minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"}
	otherKeywords   = []string{"$id", "$anchor", "$ref", "default", "examples", "type", "enum", "const", "multipleOf", "pattern", "required", "dependentRequired"}
	allKeywords     = slices.Concat(schemaKeywords, schemaLists, schemaMaps, textKeywords, booleanKeywords, numberKeywords, countKeywords, otherKeywords)

	jsonTypes = []string{"string", "integer", "number", "boolean", "array", "object", "null"}
)

// schemaNode checks a schema of the arguments where the JSON Schema library would not name the place, or would say nothing: a keyword that it does not know is an
// annotation to the specification, but here "maxLenght" would silently check nothing.
func (p *parser) schemaNode(n *node, path string) {
	if n.kind == boolean || !p.is(n, path, object, "write a JSON Schema") {
		return
	}
	for _, m := range n.members {
		v, at := m.value, sub(path, m.name)
		switch {
		case slices.Contains(schemaKeywords, m.name):
			p.schemaNode(v, at)
		case slices.Contains(schemaLists, m.name):
			if p.is(v, at, list, "write a list of schemas") {
				for i, item := range v.items {
					p.schemaNode(item, fmt.Sprintf("%s/%d", at, i))
				}
			}
		case slices.Contains(schemaMaps, m.name):
			if p.is(v, at, object, "write an object whose values are schemas") {
				for _, entry := range v.members {
					p.schemaNode(entry.value, sub(at, entry.name))
				}
			}
		case slices.Contains(textKeywords, m.name):
			p.is(v, at, text, "write text")
		case slices.Contains(numberKeywords, m.name):
			p.is(v, at, number, "write a number")
		case slices.Contains(countKeywords, m.name):
			p.integer(v, at, 0, 1<<31-1)
		case slices.Contains(booleanKeywords, m.name):
			p.is(v, at, boolean, "write true or false")
			if m.name == "secret" && (strings.Count(path, "/") != 3 || !strings.HasPrefix(path, "/input/properties/")) {
				p.add(m.line, m.column, at, "mark the whole top-level argument secret", "secret is possible only for a top-level argument")
			}
		case slices.Contains(otherKeywords, m.name):
			p.keyword(m, at)
		default:
			remedy := "remove it"
			if near := nearest(m.name, allKeywords); near != "" {
				remedy = fmt.Sprintf("did you mean %q? otherwise remove it", near)
			}
			p.add(m.line, m.column, at, remedy, "%q is not a keyword of JSON Schema", m.name)
		}
	}
}

func (p *parser) keyword(m member, at string) {
	v := m.value
	switch m.name {
	case "$id", "$anchor":
		p.add(m.line, m.column, at, "remove it and refer to #/$defs/NAME", "%s is not possible in a contract", m.name)
	case "$ref":
		const remedy = "copy the schema under input.$defs and refer to it as #/$defs/NAME"
		switch {
		case !p.is(v, at, text, remedy):
		case !strings.HasPrefix(v.text, "#"):
			p.problem(v, at, remedy, "a reference outside of this contract is never followed")
		case p.places["/input"+v.text[1:]] == nil:
			p.problem(v, at, remedy, "nothing stands at %s", clip(v.text, 80))
		}
	case "type":
		types := []*node{v}
		if v.kind == list && len(v.items) > 0 {
			types = v.items
		}
		for _, t := range types {
			if p.is(t, at, text, "write one of: "+strings.Join(jsonTypes, ", ")) && !slices.Contains(jsonTypes, t.text) {
				p.problem(t, at, "write one of: "+strings.Join(jsonTypes, ", "), "%q is not a type of JSON", clip(t.text, 80))
			}
		}
	case "multipleOf":
		if p.is(v, at, number, "write a number above 0") && (strings.HasPrefix(v.text, "-") || strings.Trim(v.text, "-0.eE+") == "") {
			p.problem(v, at, "write a number above 0", "%s is not possible here", v.text)
		}
	case "pattern":
		if p.is(v, at, text, "write a regular expression, in quotes") {
			if _, err := regexp.Compile(v.text); err != nil {
				p.problem(v, at, "write it in RE2 syntax, which has no look-around and no back-references", "%v", err)
			}
		}
	case "enum", "examples":
		p.is(v, at, list, "write a list of values")
	case "required":
		if p.is(v, at, list, "write a list of names") {
			for i, item := range v.items {
				p.is(item, fmt.Sprintf("%s/%d", at, i), text, "write a name")
			}
		}
	case "default", "const":
		if v.kind == nothing {
			p.problem(v, at, "write a value, or remove the keyword", "found nothing")
		} else if m.name == "default" && !filled(strings.TrimSuffix(at, "/default")) {
			p.add(m.line, m.column, at, "write it at the argument itself, under properties", "a default that stands here is never filled in")
		}
	}
}
