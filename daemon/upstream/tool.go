package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"singlepass.dev/daemon/fingerprint"
)

// Tool is a tool as its upstream describes it, one entry of tools/list. Raw members are exactly the upstream's bytes.
type Tool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"` // the upstream's own claims: shown, never believed
}

// ParseTool reads an entry of tools/list.
func ParseTool(raw []byte) (Tool, error) {
	var t Tool
	if len(raw) > MaxToolBytes {
		return t, fmt.Errorf("the tool describes itself in %d bytes, which is more than %d", len(raw), MaxToolBytes)
	}
	if !utf8.Valid(raw) {
		return t, errors.New("the tool's description of itself is not UTF-8")
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, errors.New("the tool's description of itself cannot be read")
	}
	return t, nil
}

// Pin is a digest of the tool's name, title, description and schemas. It is refused for a tool that cannot be used at all.
func (t Tool) Pin() (string, error) {
	if err := t.check(); err != nil {
		return "", err
	}
	form := map[string]any{"name": t.Name, "title": t.Title, "description": t.Description}
	for name, raw := range map[string]json.RawMessage{"inputSchema": t.InputSchema, "outputSchema": t.OutputSchema} {
		if len(raw) == 0 {
			continue
		}
		v, err := fingerprint.Decode(raw)
		if err != nil {
			return "", fmt.Errorf("the tool's %s cannot be used: %w", name, err)
		}
		form[name] = v
	}
	return digest("singlepass.dev/upstream-tool/v1", fingerprint.Append(nil, form)), nil
}

// check holds what must be true of a tool that an agent can be given.
func (t Tool) check() error {
	switch {
	case t.Name == "" || len(t.Name) > 128 || strings.ContainsFunc(t.Name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }):
		return errors.New("the tool's name is empty, longer than 128 bytes, or has white space or control characters")
	case len(t.InputSchema) == 0:
		return errors.New("the tool has no input schema")
	}
	v, err := fingerprint.Decode(t.InputSchema)
	if err != nil {
		return fmt.Errorf("the tool's inputSchema cannot be used: %w", err)
	}
	schema, ok := v.(map[string]any)
	if !ok || schema["type"] != "object" {
		return errors.New("the tool's input schema is not that of an object")
	}
	switch properties := schema["properties"].(type) {
	case nil:
	case map[string]any:
		if _, ok := properties["intent_key"]; ok {
			return errors.New("the tool has an argument intent_key, a name that every action here gains for itself")
		}
	default:
		return errors.New("the properties of the tool's input schema are no object")
	}
	return nil
}

var legalName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// ActionName is the name under which agents call a tool: NAME.tool where that is one that the protocol takes, else NAME_tool, with _ for what it does not take.
func ActionName(upstream, tool string) string {
	if name := upstream + "." + tool; legalName.MatchString(name) {
		return name
	}
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && legalName.MatchString(string(r)) && r != '.' {
			return r
		}
		return '_'
	}, upstream+"_"+tool)
	return name[:min(len(name), 64)]
}

// LegalName says whether agents can call a tool by this name.
func LegalName(name string) bool { return legalName.MatchString(name) }
