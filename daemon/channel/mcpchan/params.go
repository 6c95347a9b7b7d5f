package mcpchan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"singlepass.dev/daemon/effect"
)

// paramHeader is an argument that also goes into a header of the request, as the tool's input schema wants it (2026-07-28, Streamable HTTP, x-mcp-header). The schema is pinned, so the operator has accepted which.
type paramHeader struct {
	path []string // names of properties, from the arguments inwards
	name string   // behind Mcp-Param-
}

const (
	maxParamHeaders = 32       // of one tool
	maxParamBytes   = 16 << 10 // of all of a call: a server that refuses longer ones may do so by closing the connection, and then nobody knows what it did
)

// headerSchema is what counts of a schema here. Elsewhere than on a chain of properties an annotation has no argument that it could be about, and stands for nothing.
type headerSchema struct {
	Type       json.RawMessage         `json:"type"`
	Header     json.RawMessage         `json:"x-mcp-header"`
	Properties map[string]headerSchema `json:"properties"`
}

// paramHeaders reads which arguments of a tool go into headers, or why that cannot be done: such a tool is not used, as the protocol has it.
func paramHeaders(schema []byte) ([]paramHeader, error) {
	if !strings.Contains(string(schema), "x-mcp-header") { // nor escaped: what that would hide, a server would refuse
		return nil, nil
	}
	var top headerSchema
	if json.Unmarshal(schema, &top) != nil {
		return nil, errors.New("the tool wants arguments in headers of the request by a schema that cannot be read")
	}
	out, err := top.collect(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("the tool wants arguments in headers of the request that cannot be sent so: %w", err)
	}
	return out, nil
}

func (s headerSchema) collect(path []string, out []paramHeader) ([]paramHeader, error) {
	for _, property := range slices.Sorted(maps.Keys(s.Properties)) {
		one, at := s.Properties[property], append(slices.Clone(path), property)
		if one.Header != nil {
			h := paramHeader{path: at}
			var kind string
			if json.Unmarshal(one.Type, &kind) != nil || kind != "string" && kind != "integer" && kind != "boolean" {
				return nil, fmt.Errorf("%q is not a text, a whole number or a boolean", clip(strings.Join(at, "."), 80))
			}
			if json.Unmarshal(one.Header, &h.name) != nil || !isToken(h.name) || len(h.name) > 128 {
				return nil, fmt.Errorf("the header for %q has no name that a header can have", clip(strings.Join(at, "."), 80))
			}
			if slices.ContainsFunc(out, func(o paramHeader) bool { return strings.EqualFold(o.name, h.name) }) {
				return nil, fmt.Errorf("the header %q is wanted twice", h.name)
			}
			if out = append(out, h); len(out) > maxParamHeaders {
				return nil, fmt.Errorf("there are more than %d", maxParamHeaders)
			}
		}
		var err error
		if out, err = one.collect(at, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

var wholeNumber = regexp.MustCompile(`^-?[0-9]{1,16}$`)

// paramFields makes the headers of a call, or says why it cannot be made. An argument that is absent or null has none; one that is not of its kind has none either, and the server refuses the request for it before it does anything.
func paramFields(headers []paramHeader, arguments []byte) ([]effect.Field, error) {
	var out []effect.Field
	size := 0
	for _, h := range headers {
		value := json.RawMessage(arguments)
		for _, name := range h.path {
			var object map[string]json.RawMessage
			if json.Unmarshal(value, &object) != nil {
				value = nil
				break
			}
			value = object[name]
		}
		text := ""
		switch {
		case len(value) == 0:
			continue
		case value[0] == '"':
			if json.Unmarshal(value, &text) != nil {
				continue
			}
			text = headerText(text)
		case string(value) == "true" || string(value) == "false" || wholeNumber.Match(value):
			text = string(value)
		default:
			continue
		}
		if size += len(h.name) + len(text); size > maxParamBytes {
			return nil, fmt.Errorf("the tool wants the argument %q in a header of the request, for which it is too long (%d KiB for all of them)", clip(strings.Join(h.path, "."), 80), maxParamBytes>>10)
		}
		out = append(out, effect.Field{Name: "Mcp-Param-" + h.name, Value: text})
	}
	return out, nil
}

// isToken: RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}
